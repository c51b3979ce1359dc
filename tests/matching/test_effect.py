"""The effect over a matched sample, against statsmodels and closed forms."""

import numpy as np
import pytest
import statsmodels.api as sm
import torch
from scipy import stats

from okapi.matching import CaliperMatcher, Matches
from okapi.matching.diagnostics.effect import Effect, effect

N_QUERIES, N_KEYS = 40, 60


def outcomes(seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return generator.normal(1.0, 2.0, N_QUERIES), generator.normal(0.0, 1.0, N_KEYS)


def random_matches(seed: int, k: int, *, reuse: bool) -> Matches:
    generator = np.random.default_rng(seed)
    query = np.sort(generator.choice(N_QUERIES, 12, replace=False))
    pool = N_KEYS // 4 if reuse else N_KEYS
    keys = np.stack([generator.choice(pool, k, replace=False) for _ in query])
    if not reuse:
        keys = generator.permutation(N_KEYS)[: 12 * k].reshape(12, k)
    keys[3, 1:] = -1
    return Matches(torch.tensor(query), torch.tensor(keys), torch.zeros(keys.shape))


def regression(y_query: np.ndarray, y_key: np.ndarray, matches: Matches, *, two_way: bool) -> tuple[float, float]:
    """Return estimate and standard error of a weighted regression on the long table, one row per query and per pair."""
    rows = []
    for match, (query, keys) in enumerate(zip(matches.query.tolist(), matches.key.tolist(), strict=True)):
        found = [key for key in keys if key >= 0]
        rows.append((y_query[query], 1.0, 1.0, match, query))
        rows += [(y_key[key], 0.0, 1 / len(found), match, N_QUERIES + key) for key in found]
    y, side, weight, match, unit = np.array(rows).T
    groups = np.stack([match, unit], axis=1).astype(int) if two_way else match.astype(int)
    fit = sm.WLS(y, sm.add_constant(side), weights=weight).fit(cov_type="cluster", cov_kwds={"groups": groups})
    return float(fit.params[1]), float(fit.bse[1])


def both_sides(y_query, y_key, matches: Matches) -> tuple[np.ndarray, np.ndarray, Matches]:
    """Return outcomes, treatments and matches of queries and keys as units of one sample."""
    n = len(y_query)
    key = torch.where(matches.key >= 0, matches.key + n, -1)
    sides = np.arange(n + len(y_key)) < n
    return np.concatenate([y_query, y_key]), sides, Matches(matches.query, key, matches.distance)


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("reuse", [False, True])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_standard_error_is_that_of_a_clustered_regression(seed: int, k: int, reuse: bool) -> None:
    y_query, y_key = outcomes(seed)
    matches = random_matches(seed, k, reuse=reuse)
    found = effect(*both_sides(y_query, y_key, matches))
    estimate, error = regression(y_query, y_key, matches, two_way=reuse)
    assert found.estimate == pytest.approx(estimate, rel=1e-9)
    assert found.standard_error == pytest.approx(error, rel=1e-9)
    assert found.clusters == ("match and unit" if reuse else "match")


def test_pairs_without_replacement_have_a_closed_form() -> None:
    y_query, y_key = outcomes(5)
    matches = random_matches(5, 1, reuse=False)
    found = effect(*both_sides(y_query, y_key, matches))
    difference = y_query[matches.query] - y_key[matches.key[:, 0]]
    n = len(difference)
    paired = stats.ttest_1samp(difference, 0.0)
    factor = np.sqrt((2 * n - 1) / (2 * n - 2))
    assert found.estimate == pytest.approx(difference.mean())
    assert found.standard_error == pytest.approx(factor * stats.sem(difference))
    assert found.degrees_of_freedom == paired.df == n - 1
    assert found.p_value == pytest.approx(2 * stats.t.sf(abs(paired.statistic) / factor, n - 1))
    half = stats.t.ppf(0.975, n - 1) * found.standard_error
    assert (found.ci_low, found.ci_high) == pytest.approx((found.estimate - half, found.estimate + half))


def test_units_matched_both_ways_are_one_unit_on_both_sides() -> None:
    """The effect on all: each of six units is a query, and the key of another."""
    y, treated = np.random.default_rng(0).normal(size=6), np.arange(6) >= 3
    matches = Matches(torch.arange(6), torch.tensor([[3], [4], [5], [0], [1], [2]]), torch.zeros(6, 1))
    found = effect(torch.tensor(y), treated, matches)
    assert found.estimate == pytest.approx(y[3:].mean() - y[:3].mean())
    assert (found.n_matched, found.n, found.n_treated, found.n_controls) == (6, 6, 3, 3)


@pytest.mark.parametrize("estimand", ["att", "atc", "ate"])
def test_every_estimate_is_treated_minus_control(estimand: str) -> None:
    rng = np.random.default_rng(0)
    arm = np.where(rng.random(400) < 0.4, "active", "control")  # the treated come first in the alphabet
    x = rng.normal(size=(400, 2)) + 0.4 * (arm == "active")[:, None]
    y = x.sum(1) + 847.0 * (arm == "active") + rng.normal(size=400)
    for treated, expected in (("active", 847), ("control", -847)):
        found = CaliperMatcher(estimand=estimand, distance="mahalanobis").fit(x, arm, treated=treated).effect(y)
        assert found.estimate == pytest.approx(expected, abs=1)
        n = {"att": (arm == treated).sum(), "atc": (arm != treated).sum(), "ate": 400}[estimand]
        assert (found.n_matched, found.n) == (n, n)


def test_missing_outcomes_are_left_out_with_matches_they_empty_and_counted() -> None:
    y = [5.0, np.nan, 7.0, 1.0, 2.0, np.nan, 4.0, np.nan]
    matches = Matches(torch.tensor([0, 1, 2]), torch.tensor([[3, 5], [4, 6], [6, 3]]), torch.zeros(3, 2))
    found = effect(y, np.arange(8) < 3, matches)
    # Of the first match a key is left, of the second no query; the last is whole.
    assert found.estimate == pytest.approx((5 + 7) / 2 - (1 + (4 + 1) / 2) / 2)
    assert (found.n_missing, found.n_matched, found.n) == (2, 2, 3)
    with pytest.raises(ValueError, match="outcome must be known on both sides of some pair, got none"):
        effect([np.nan] * 3 + [1.0] * 5, np.arange(8) < 3, matches)
    with pytest.raises(ValueError, match="outcome must be finite, or NaN where it is missing; row 2 is not"):
        effect([1.0, 2, np.inf, 4, 5, 6, 7, 8], np.arange(8) < 3, matches)


@pytest.mark.filterwarnings("ignore:cov_type not fully supported")
@pytest.mark.parametrize("kind", ["yes or no", "counts"])
@pytest.mark.parametrize("reuse", [False, True])
def test_ratios_are_those_of_a_clustered_poisson_regression(kind: str, reuse: bool) -> None:
    rng = np.random.default_rng(3)
    y_query, y_key = rng.binomial(1, 0.6, N_QUERIES), rng.binomial(1, 0.4, N_KEYS)
    if kind == "counts":
        y_query, y_key = rng.poisson(4, N_QUERIES), rng.poisson(2.5, N_KEYS)
    matches = random_matches(1, 3, reuse=reuse)
    found = effect(*both_sides(y_query, y_key, matches))
    rows = []
    for match, (query, keys) in enumerate(zip(matches.query.tolist(), matches.key.tolist(), strict=True)):
        some = [key for key in keys if key >= 0]
        rows.append((y_query[query], 1.0, 1.0, match, query))
        rows += [(y_key[key], 0.0, 1 / len(some), match, N_QUERIES + key) for key in some]
    y, side, weight, match, unit = np.array(rows).T
    groups = np.stack([match, unit], axis=1).astype(int) if reuse else match.astype(int)
    model = sm.GLM(y, sm.add_constant(side), family=sm.families.Poisson(), var_weights=weight)
    fit = model.fit(cov_type="cluster", cov_kwds={"groups": groups})
    t = stats.t.ppf(0.975, found.degrees_of_freedom)
    assert found.kind == ("risk difference" if kind == "yes or no" else "mean difference")
    assert found.ratio is not None
    assert found.ratio.name == ("risk ratio" if kind == "yes or no" else "ratio of means")
    expected = np.exp(fit.params[1] + np.array([0, -t, t]) * fit.bse[1])
    np.testing.assert_allclose(found.ratio[1:], expected, rtol=1e-6)


def test_yes_and_no_are_one_and_zero() -> None:
    matches = Matches(torch.arange(2), torch.tensor([[2], [3]]), torch.zeros(2, 1))
    for outcome in (["yes", "Yes", "no", "yes"], [True, True, False, True], [1, 1, 0, 1]):
        assert effect(outcome, [1, 1, 0, 0], matches).estimate == 0.5
    with pytest.raises(ValueError, match="outcome must be numbers, or yes and no, got 'maybe' in row 1"):
        effect(["yes", "maybe", "no", "no"], [1, 1, 0, 0], matches)


def test_one_match_has_an_estimate_but_no_error() -> None:
    matches = Matches(torch.tensor([0]), torch.tensor([[0, 1]]), torch.zeros(1, 2))
    found = effect(*both_sides([3.0], [1.0, 2.0], matches))
    assert found.estimate == 1.5
    assert np.isnan([found.standard_error, found.ci_low, found.ci_high, found.p_value]).all()


@pytest.mark.parametrize(("shift", "p_value"), [(0.0, 1.0), (2.0, 0.0)])
def test_differences_that_are_all_the_same(shift: float, p_value: float) -> None:
    matches = Matches(torch.arange(3), torch.arange(3)[:, None], torch.zeros(3, 1))
    found = effect(*both_sides([shift] * 3, [0.0] * 3, matches))
    assert (found.estimate, found.standard_error, found.p_value) == (shift, 0.0, p_value)


def test_bad_input() -> None:
    nothing = Matches(torch.tensor([0]), torch.tensor([[-1]]), torch.zeros(1, 1))
    with pytest.raises(ValueError, match="matches must hold at least one pair"):
        effect([1.0], [True], nothing)
    with pytest.raises(ValueError, match=r"outcome must be 1-dimensional, got shape \(1, 1\)"):
        effect([[1.0]], [True], nothing)
    with pytest.raises(ValueError, match="outcome must be numbers"):
        effect(["high"], [True], nothing)
    pair = Matches(torch.tensor([0]), torch.tensor([[1]]), torch.zeros(1, 1))
    with pytest.raises(ValueError, match="treated must differ within every pair"):
        effect([1.0, 2.0], [True, True], pair)
    with pytest.raises(ValueError, match="must have a value for each unit, got 2 and 3"):
        effect([1.0, 2.0], [True, True, False], pair)


def test_repr_says_what_was_clustered() -> None:
    y_query, y_key = outcomes(0)
    found = effect(*both_sides(y_query, y_key, random_matches(0, 3, reuse=True)))
    assert isinstance(found, Effect)
    assert "clustered by match and unit" in repr(found)
    assert "12 of 40 matched" in repr(found)
