"""Means, deviations and bootstrap intervals against scipy, closed forms and arithmetic."""

import math

import numpy as np
import pytest
from scipy import stats

from okapi.benchmark.compare import average, bootstrap_means, paired_difference, spread


def test_spread_is_that_of_numpy_and_one_value_has_no_deviation():
    values = [0.3, 0.9, 0.4, 0.45]
    assert spread(values) == pytest.approx((np.mean(values), np.std(values, ddof=1), 4))
    assert spread([0.5])[::2] == (0.5, 1)
    assert math.isnan(spread([0.5]).deviation)
    assert math.isnan(spread([]).mean)


def test_average_is_over_targets_first_then_over_seeds():
    values = {("a", 0): 1.0, ("b", 0): 3.0, ("a", 1): 2.0, ("b", 1): 6.0}
    assert average(values) == pytest.approx((3.0, np.std([2.0, 4.0], ddof=1), 2))
    assert average(values, over="seed") == pytest.approx((3.0, np.std([1.5, 4.5], ddof=1), 2))
    # A seed that lacks a target would bring an average of other targets.
    assert average(values | {("a", 2): 100.0}) == average(values)


def test_of_one_target_the_interval_is_that_of_scipy():
    generator = np.random.default_rng(3)
    differences = generator.normal(0.1, 1.0, size=12)
    ours = {("a", seed): value for seed, value in enumerate(differences)}
    theirs = dict.fromkeys(ours, 0.0)
    found = paired_difference(ours, theirs, resamples=100_000)
    witness = stats.bootstrap(
        (differences,), np.mean, method="percentile", n_resamples=100_000, rng=np.random.default_rng(1)
    ).confidence_interval
    error = differences.std(ddof=1) / math.sqrt(len(differences))
    assert found.mean == pytest.approx(differences.mean())
    assert (found.low, found.high) == pytest.approx((witness.low, witness.high), abs=0.02 * error)


def test_targets_and_seeds_within_them_are_resampled():
    # The variance of a two-level bootstrap of the mean, in closed form: between targets, and within them.
    generator = np.random.default_rng(0)
    values = generator.normal(size=(5, 7)) + generator.normal(size=(5, 1))
    means = bootstrap_means(values.tolist(), 200_000)
    between = values.mean(axis=1).var()
    within = values.var(axis=1).mean() / 7
    assert means.mean() == pytest.approx(values.mean(), abs=0.01)
    assert means.var() == pytest.approx((between + within) / 5, rel=0.02)


def test_targets_with_fewer_seeds_count_as_much_as_others():
    assert bootstrap_means([[1.0], [1.0, 1.0, 1.0]], 1000) == pytest.approx(1.0)
    means = bootstrap_means([[0.0], [3.0, 3.0, 3.0]], 100_000)
    assert means.mean() == pytest.approx(1.5, abs=0.02)
    assert set(means) == {0.0, 1.5, 3.0}


def test_constant_differences_have_an_interval_of_no_width():
    ours = {(target, seed): seed + 0.25 for target in "ab" for seed in range(3)}
    theirs = {(target, seed): float(seed) for target in "ab" for seed in range(3)}
    assert paired_difference(ours, theirs) == (0.25, 0.25, 0.25)
    assert paired_difference(ours, ours) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(("n", "expected"), [(40, 0.94), (5, 0.84)])
def test_coverage_on_a_normal_is_what_the_documentation_says(n, expected):
    # A percentile interval of n normal values is about mean -+ 1.96 * sd * sqrt((n - 1) / n) / sqrt(n), which holds
    # the truth with the probability that Student's t with n - 1 degrees of freedom is within 1.96 * sqrt((n - 1) / n).
    closed_form = 1 - 2 * stats.t.sf(1.96 * math.sqrt((n - 1) / n), n - 1)
    generator = np.random.default_rng(7)
    held = 0
    for trial in range(400):
        ours = {("a", seed): value for seed, value in enumerate(generator.normal(size=n))}
        found = paired_difference(ours, dict.fromkeys(ours, 0.0), resamples=1000, seed=trial)
        held += found.low <= 0 <= found.high
    assert held / 400 == pytest.approx(expected, abs=0.045)
    assert held / 400 == pytest.approx(closed_form, abs=0.045)


def test_the_same_seed_gives_the_same_interval_and_one_pair_none():
    ours = {("a", seed): value for seed, value in enumerate([0.1, 0.5, 0.2])}
    theirs = dict.fromkeys(ours, 0.0)
    assert paired_difference(ours, theirs) == paired_difference(ours, theirs)
    found = paired_difference({("a", 0): 0.5}, {("a", 0): 0.25})
    assert found.mean == 0.25
    assert math.isnan(found.low)


def test_seeds_that_differ_between_methods_are_refused_by_name():
    ours = {("art", 0): 0.5, ("art", 1): 0.5, ("sketch", 0): 0.5, ("sketch", 1): 0.5}
    theirs = {key: value for key, value in ours.items() if key != ("sketch", 1)}
    with pytest.raises(
        ValueError, match=r"okapi and erm must have the same seeds .*: of sketch okapi has 0, 1, erm has 0$"
    ):
        paired_difference(ours, theirs, names=("okapi", "erm"))
    with pytest.raises(ValueError, match="okapi has none, erm has 0"):
        paired_difference({}, {("all", 0): 1.0}, names=("okapi", "erm"))
