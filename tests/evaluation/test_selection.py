from math import inf, nan
from typing import get_args

import pytest

from okapi.config import SelectorName
from okapi.data.task import Task
from okapi.evaluation import LABEL_FREE, Selector, selector

CLASSES, NUMBERS = Task("classification", 3), Task("regression")


def kept(chosen: Selector, values: list[float]) -> int:
    """Return which of the values, in order of time, is kept."""
    best, place = None, -1
    for number, value in enumerate(values):
        if chosen.is_better(value, best):
            best, place = value, number
    return place


@pytest.mark.parametrize(
    ("values", "highest", "lowest"),
    [
        ([0.3, 0.5, 0.4], 1, 0),
        ([0.5, 0.5, 0.5], 0, 0),
        ([nan, 0.2, nan, 0.1], 1, 3),
        ([nan, nan], 0, 0),
        ([-inf], 0, 0),
    ],
)
def test_the_best_is_kept_the_earlier_of_equals_and_nan_only_instead_of_nothing(values, highest: int, lowest: int):
    assert kept(selector("ood_val", CLASSES), values) == highest
    assert kept(selector("id_val", NUMBERS, "mse"), values) == lowest
    assert kept(selector("last", CLASSES), values) == len(values) - 1


def test_selectors_are_named():
    assert selector("ood_val", CLASSES) == Selector("ood_val", "ood_val", "accuracy", higher_is_better=True)
    assert selector("id_val", NUMBERS) == Selector("id_val", "id_val", "pearson_r", higher_is_better=True)
    worst = selector("ood_val", NUMBERS, "mse_group_worst")
    assert worst == Selector("ood_val", "ood_val", "mse_group_worst", higher_is_better=False)
    assert selector("last", CLASSES).split is None
    assert selector("entropy", CLASSES) == Selector("entropy", "unlabelled", "entropy", higher_is_better=False)
    assert selector("ensemble", NUMBERS).metric == "ensemble_agreement"
    assert set(LABEL_FREE) < set(get_args(SelectorName))


def test_what_selectors_need():
    assert selector("last", CLASSES).needs == ()
    assert selector("id_val", CLASSES).needs == ("id_val",)
    assert selector("oracle", CLASSES).needs == ("ood_test",)
    assert selector("infomax", CLASSES).needs == ("unlabelled",)
    assert selector("corrected_confidence", CLASSES).needs == ("unlabelled", "id_val")


def test_what_cannot_select():
    with pytest.raises(ValueError, match=r"one of id_val, ood_val, last, oracle, .*, got 'ood_test'"):
        selector("ood_test", CLASSES)
    with pytest.raises(ValueError, match="got 'loss'"):
        selector("ood_val", CLASSES, "loss")
    with pytest.raises(ValueError, match="selector infomax needs probabilities, which a regression does not have"):
        selector("infomax", NUMBERS)
