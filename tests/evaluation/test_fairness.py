import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from okapi.data.task import Task
from okapi.evaluation import demographic_parity_gap, equal_opportunity_gap, fairness


@given(st.integers(1, 40), st.integers(1, 4), st.integers(0, 2**32))
def test_gaps_are_the_largest_over_pairs_of_groups(rows: int, count: int, seed: int):
    rng = np.random.default_rng(seed)
    prediction, target = rng.integers(0, 2, (2, rows))
    groups = rng.random((rows, count)) < 0.5
    rates = [prediction[here].mean() for here in groups.T if here.any()]
    true = [prediction[here & (target == 1)].mean() for here in groups.T if (here & (target == 1)).any()]
    for found, by in (
        (demographic_parity_gap(prediction, groups), rates),
        (equal_opportunity_gap(prediction, target, groups), true),
    ):
        if len(by) < 2:
            assert math.isnan(found)
        else:
            assert found == pytest.approx(max(abs(a - b) for a, b in combinations(by, 2)))


def test_closed_forms():
    prediction, target, group = [1, 1, 0, 0, 1, 0], [1, 0, 1, 0, 1, 1], [0, 0, 0, 1, 1, 1]
    assert demographic_parity_gap(prediction, group) == pytest.approx(2 / 3 - 1 / 3)
    assert demographic_parity_gap(prediction, group, positive=0) == pytest.approx(1 / 3)  # of two classes the same
    assert equal_opportunity_gap(prediction, target, group) == 0  # one of two in each
    assert equal_opportunity_gap(target, target, group) == 0  # a perfect model gives equal opportunity
    assert demographic_parity_gap([2, 0, 1, 1], [0, 0, 1, 1], positive=2) == 0.5
    assert math.isnan(demographic_parity_gap([1, 0], [0, 0]))  # a single group
    assert math.isnan(equal_opportunity_gap([1, 0], [1, 0], [0, 1]))  # the second has no positive sample


def test_fairness_is_of_two_classes_and_has_no_gap_of_one_group():
    logits, target, group = np.eye(2)[[1, 0, 1, 1]], [1, 1, 0, 0], [0, 0, 1, 1]
    both = fairness(Task("classification", 2), logits, target, group, ["a", "b"])
    assert both == {"demographic_parity_gap": 0.5}  # no positive sample in b: no true positive rate
    assert fairness(Task("classification", 2), logits, target, [0] * 4, ["a"]) == {}
    assert fairness(Task("classification", 3), np.eye(3)[[0, 1, 2, 0]], target, group, ["a", "b"]) == {}
    assert fairness(Task("regression"), [1.0, 2.0], [1.0, 2.0], [0, 1], ["a", "b"]) == {}
    with pytest.raises(ValueError, match="group must have a row for each of the 2 predictions, got 1"):
        demographic_parity_gap([1, 0], [0])
