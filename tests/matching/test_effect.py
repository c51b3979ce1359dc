"""The effect over a matched sample, against statsmodels and closed forms."""

import numpy as np
import pytest
import statsmodels.api as sm
import torch
from scipy import stats

from okapi.matching import Matches
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


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("reuse", [False, True])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_standard_error_is_that_of_a_clustered_regression(seed: int, k: int, reuse: bool) -> None:
    y_query, y_key = outcomes(seed)
    matches = random_matches(seed, k, reuse=reuse)
    found = effect(y_query, matches=matches, outcome_keys=y_key)
    estimate, error = regression(y_query, y_key, matches, two_way=reuse)
    assert found.estimate == pytest.approx(estimate, rel=1e-9)
    assert found.standard_error == pytest.approx(error, rel=1e-9)
    assert found.clusters == ("match and unit" if reuse else "match")


def test_pairs_without_replacement_have_a_closed_form() -> None:
    y_query, y_key = outcomes(5)
    matches = random_matches(5, 1, reuse=False)
    found = effect(y_query, matches=matches, outcome_keys=y_key)
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


def test_samples_matched_among_themselves_are_one_unit_on_both_sides() -> None:
    y = np.random.default_rng(0).normal(size=6)
    matches = Matches(torch.arange(6), torch.tensor([[3], [4], [5], [0], [1], [2]]), torch.zeros(6, 1))
    found = effect(torch.tensor(y), matches=matches)
    # Each is once a query and once a key: by unit nothing is left, and less by both the variance is not positive.
    assert found.clusters == "match"
    assert found.standard_error > 0
    assert found.estimate == pytest.approx(0.0, abs=1e-15)
    assert found.n_keys == found.n_queries == found.n_pairs == 6


def test_only_matched_samples_need_an_outcome() -> None:
    matches = Matches(torch.tensor([0, 2]), torch.tensor([[1], [0]]), torch.zeros(2, 1))
    found = effect([1.0, np.nan, 3.0], matches=matches, outcome_keys=[0.0, 1.0, np.inf])
    assert (found.estimate, found.query_mean, found.key_mean) == (1.5, 2.0, 0.5)
    with pytest.raises(ValueError, match=r"outcome_keys must be finite for matched samples, got .* rows \[1\]"):
        effect([1.0, np.nan, 3.0], matches=matches, outcome_keys=[0.0, np.nan, 2.0])


def test_one_match_has_an_estimate_but_no_error() -> None:
    matches = Matches(torch.tensor([0]), torch.tensor([[0, 1]]), torch.zeros(1, 2))
    found = effect([3.0], matches=matches, outcome_keys=[1.0, 2.0])
    assert found.estimate == 1.5
    assert np.isnan([found.standard_error, found.ci_low, found.ci_high, found.p_value]).all()


@pytest.mark.parametrize(("shift", "p_value"), [(0.0, 1.0), (2.0, 0.0)])
def test_differences_that_are_all_the_same(shift: float, p_value: float) -> None:
    matches = Matches(torch.arange(3), torch.arange(3)[:, None], torch.zeros(3, 1))
    found = effect([shift] * 3, matches=matches, outcome_keys=[0.0] * 3)
    assert (found.estimate, found.standard_error, found.p_value) == (shift, 0.0, p_value)


def test_bad_input() -> None:
    nothing = Matches(torch.tensor([0]), torch.tensor([[-1]]), torch.zeros(1, 1))
    with pytest.raises(ValueError, match="matches must hold at least one pair"):
        effect([1.0], matches=nothing)
    with pytest.raises(ValueError, match=r"outcome must be 1-dimensional, got shape \(1, 1\)"):
        effect([[1.0]], matches=nothing)
    with pytest.raises(ValueError, match="outcome must be numbers"):
        effect(["high"], matches=nothing)


def test_repr_says_what_was_clustered() -> None:
    y_query, y_key = outcomes(0)
    found = effect(y_query, matches=random_matches(0, 3, reuse=True), outcome_keys=y_key)
    assert isinstance(found, Effect)
    assert "clustered by match and unit" in repr(found)
    assert "12 queries" in repr(found)
