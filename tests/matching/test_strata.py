"""Strata and their weights against their definitions."""

import time

import numpy as np
import pandas as pd
import pytest

from okapi.matching.strata import ESTIMANDS, coarsened_strata, exact_strata, stratum_weights, subclasses


@pytest.fixture
def people():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.normal(40, 10, 500),
            "children": rng.integers(0, 4, 500),
            "smokes": rng.random(500) < 0.3,
            "town": rng.choice(["a", "b"], 500),
        }
    )
    return frame, rng.random(500) < 0.4


def test_exact_strata_have_equal_rows_and_both_groups(people):
    frame, treated = people
    frame = frame[["children", "smokes", "town"]]
    stratum = exact_strata(frame, treated)
    groups = frame.assign(treated=treated).groupby(["children", "smokes", "town"])
    for _, rows in groups:
        expected_inside = rows["treated"].nunique() == 2
        numbers = set(stratum[rows.index])
        assert len(numbers) == 1
        assert (min(numbers) >= 0) == expected_inside
    assert sorted(set(stratum) - {-1}) == list(range(stratum.max() + 1))


def test_coarsened_strata_cut_as_asked(people):
    frame, treated = people
    cutpoints = {"age": [30, 40], "children": 2}
    stratum = coarsened_strata(frame, treated, cutpoints)
    expected = exact_strata(
        frame.assign(age=np.digitize(frame["age"], [30, 40]), children=frame["children"] >= 1.5), treated
    )
    assert stratum.tolist() == expected.tolist()
    by_quantiles = coarsened_strata(frame[["age"]], treated, "q4")
    assert np.bincount(by_quantiles).tolist() == [125] * 4
    sturges = coarsened_strata(frame[["age"]], treated)
    width = np.ptp(frame["age"]) / 10  # ceil(log2(500) + 1) intervals
    interval = np.minimum((frame["age"] - frame["age"].min()) // width, 9)
    assert sturges.tolist() == exact_strata(interval.to_frame(), treated).tolist()


def test_values_on_a_cutpoint_belong_to_the_upper_interval():
    frame = pd.DataFrame({"age": [30, 30, 29.9, 29.9]})
    assert coarsened_strata(frame, np.array([True, False, True, False]), [30]).tolist() == [0, 0, 1, 1]


def test_subclasses_hold_equally_many_of_the_focal_group():
    rng = np.random.default_rng(1)
    treated = rng.random(600) < 0.5
    score = rng.random(600)
    for estimand, of in (("att", treated), ("atc", ~treated), ("ate", np.full(600, True))):
        counts = np.bincount(subclasses(score, treated, 5, estimand=estimand)[of])
        assert np.ptp(counts) <= 1


def test_every_subclass_gets_the_fewest_of_both_groups():
    treated = np.repeat([True, False], [60, 20])
    score = np.concatenate([np.linspace(0.5, 1, 60), np.linspace(0, 0.55, 20)])
    for fewest in (1, 3):
        subclass = subclasses(score, treated, 6, fewest=fewest)
        for group in (treated, ~treated):
            assert np.bincount(subclass[group], minlength=6).min() >= fewest
            assert (np.diff(subclass[group][score[group].argsort()]) >= 0).all()
    with pytest.raises(ValueError, match="6 subclasses need 24 treated and controls"):
        subclasses(score, treated, 6, fewest=4)


@pytest.mark.parametrize("estimand", ESTIMANDS)
def test_weights_make_the_groups_alike_in_their_strata(estimand):
    rng = np.random.default_rng(2)
    treated = rng.random(300) < 0.4
    stratum = rng.integers(-1, 6, 300)
    weights = stratum_weights(stratum, treated, estimand)
    inside = stratum >= 0
    assert (weights[~inside] == 0).all()
    target = {"att": inside & treated, "atc": inside & ~treated, "ate": inside}[estimand]
    share = np.bincount(stratum[target]) / target.sum()
    for group in (treated, ~treated):
        of_group = np.bincount(stratum[inside & group], weights[inside & group])
        np.testing.assert_allclose(of_group / of_group.sum(), share)
        np.testing.assert_allclose(weights[inside & group].mean(), 1)


def test_bad_input_is_named(people):
    frame, treated = people
    with pytest.raises(ValueError, match=r"cutpoints must name columns of numbers, got \['town'\]"):
        coarsened_strata(frame, treated, {"town": 3})
    with pytest.raises(ValueError, match='cutpoints must be a number, "sturges"'):
        coarsened_strata(frame, treated, {"age": "scott"})
    with pytest.raises(ValueError, match="treated must be booleans of shape"):
        exact_strata(frame, treated.astype(int))
    with pytest.raises(ValueError, match="column 'age' has some; first in row 3"):
        exact_strata(frame.assign(age=[1.0] * 3 + [np.nan] + [1.0] * 496), treated)
    with pytest.raises(ValueError, match="stratum must have treated and controls in each, 1 does not"):
        stratum_weights([0, 0, 1], np.array([True, False, True]))
    with pytest.raises(ValueError, match="propensity must be finite, row 1"):
        subclasses([0.1, np.nan, 0.2], np.array([True, False, True]), 1)


def test_no_rows_and_no_common_stratum():
    empty = pd.DataFrame({"age": np.zeros(0)})
    assert len(coarsened_strata(empty, np.zeros(0, bool))) == 0
    apart = exact_strata(pd.DataFrame({"age": [1, 2]}), np.array([True, False]))
    assert apart.tolist() == [-1, -1]
    assert stratum_weights(apart, np.array([True, False])).tolist() == [0, 0]


def test_coarsening_of_a_million_rows_is_quick():
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(rng.normal(size=(1_000_000, 6)), columns=list("abcdef"))
    treated = rng.random(1_000_000) < 0.3
    start = time.process_time()
    stratum_weights(coarsened_strata(frame, treated, 4), treated)
    assert time.process_time() - start < 10
