from math import inf, nan

import pytest

from okapi.data.task import Task
from okapi.evaluation import Selector, selector

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
    assert selector("ood_val", CLASSES) == Selector("ood_val", "accuracy", higher_is_better=True)
    assert selector("id_val", NUMBERS) == Selector("id_val", "pearson_r", higher_is_better=True)
    worst = selector("ood_val", NUMBERS, "mse_domain_worst")
    assert worst == Selector("ood_val", "mse_domain_worst", higher_is_better=False)
    assert selector("last", CLASSES).split is None


def test_what_cannot_select():
    with pytest.raises(ValueError, match="one of id_val, ood_val, last, got 'ood_test'"):
        selector("ood_test", CLASSES)
    with pytest.raises(ValueError, match="got 'loss'"):
        selector("ood_val", CLASSES, "loss")
