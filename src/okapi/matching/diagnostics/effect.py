"""What a matched sample says about the difference between its two sides."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtr, stdtrit
from torch import Tensor

from okapi.matching.checks import as_array
from okapi.matching.diagnostics.weights import Floats, Integers, flatten_pairs
from okapi.matching.matches import Matches


@dataclass(frozen=True)
class Effect:
    """Difference in outcome between matched queries and their keys.

    Parameters
    ----------
    estimate : float
        ``query_mean - key_mean``; with treated queries and control keys, the average effect on the (matched) treated.
    standard_error : float
        Clustered as ``clusters`` says; NaN for a single match.
    ci_low, ci_high : float
        Limits of the 95 % confidence interval.
    p_value : float
        Two-sided, of no difference.
    query_mean, key_mean : float
        Weighted mean outcome of either side.
    n_queries, n_keys, n_pairs : int
        Matched queries, distinct keys among their matches, pairs of a query and a key.
    degrees_of_freedom : int
        Of Student's t behind interval and p-value: the number of clusters less one, of the smaller of two.
    clusters : str
        What errors were clustered by, see :func:`effect`: "match", "match and unit" or, where that failed, the one of
        the two that gives the larger error.
    """

    estimate: float
    standard_error: float
    ci_low: float
    ci_high: float
    p_value: float
    query_mean: float
    key_mean: float
    n_queries: int
    n_keys: int
    n_pairs: int
    degrees_of_freedom: int
    clusters: str

    def __repr__(self) -> str:
        return (
            f"Effect({self.estimate:.4g}, 95 % CI {self.ci_low:.4g} to {self.ci_high:.4g}, "
            f"SE {self.standard_error:.4g} clustered by {self.clusters}, p = {self.p_value:.3g}; "
            f"{self.n_queries} queries, {self.n_keys} keys)"
        )


def effect(outcome: ArrayLike | Tensor, *, matches: Matches, outcome_keys: ArrayLike | Tensor | None = None) -> Effect:
    """Estimate the mean difference in outcome, query minus key, over a matching.

    The estimate is the coefficient of side in a regression of the outcome on it, in which a matched query weighs 1 and
    each of its keys 1 / (keys that it has). A match, that is a query with its keys, is a cluster (Abadie and Spiess).
    If a sample is part of several matches, errors are clustered by match and by unit (Cameron et al.): variance by
    match, plus by unit, less by both together. In a variance over G clusters of N regression rows stands the usual
    factor for small samples, G / (G - 1) * (N - 1) / (N - 2). Should the two-way variance not be positive, the larger
    of its first two terms stands in.

    Parameters
    ----------
    outcome : array-like of shape (n,)
        Outcome of every query.
    matches : Matches
        At least one pair. Only the outcomes of matched samples need be known.
    outcome_keys : array-like of shape (m,), optional
        Outcome of every key. By default keys are the queries: samples were matched among themselves.

    Returns
    -------
    Effect

    References
    ----------
    Abadie and Spiess, Robust Post-Matching Inference, JASA 117 (2022).

    Cameron, Gelbach and Miller, Robust Inference With Multiway Clustering, JBES 29 (2011).

    Examples
    --------
    >>> import torch
    >>> from okapi.matching import Matches
    >>> pairs = Matches(torch.tensor([0, 1, 2]), torch.tensor([[0], [1], [3]]), torch.zeros(3, 1))
    >>> effect([3.0, 5.0, 4.0], matches=pairs, outcome_keys=[2.0, 2.0, 9.0, 2.0]).estimate
    2.0
    """
    of_query = as_array(outcome, "outcome", ndim=1).astype(np.float64)
    of_key = of_query if outcome_keys is None else as_array(outcome_keys, "outcome_keys", ndim=1).astype(np.float64)
    pairs = flatten_pairs(matches, len(of_query), len(of_key))
    if not len(pairs.match):
        raise ValueError("matches must hold at least one pair to estimate an effect, got none")

    match, first = np.unique(pairs.match, return_index=True)
    query = pairs.query[first]
    y_query = _finite(of_query, query, "outcome")
    y_key = _finite(of_key, pairs.key, "outcome" if outcome_keys is None else "outcome_keys")
    query_mean, key_mean = y_query.mean(), np.average(y_key, weights=pairs.weight)

    # What each row of the regression adds to the error of the estimate: the weights of either side sum to len(match).
    influence = np.concatenate([y_query - query_mean, -pairs.weight * (y_key - key_mean)]) / len(match)
    match_of_row = np.concatenate([match, pairs.match])
    unit = np.concatenate([query, pairs.key if outcome_keys is None else pairs.key + len(of_query)])
    variance, freedom, clusters = _cluster_variance(influence, match_of_row, unit)

    estimate, error = float(query_mean - key_mean), float(np.sqrt(variance))
    half = float(stdtrit(freedom, 0.975)) * error if freedom else np.nan
    return Effect(
        estimate=estimate,
        standard_error=error,
        ci_low=estimate - half,
        ci_high=estimate + half,
        p_value=_p_value(estimate, error, freedom),
        query_mean=float(query_mean),
        key_mean=float(key_mean),
        n_queries=len(match),
        n_keys=len(np.unique(pairs.key)),
        n_pairs=len(pairs.key),
        degrees_of_freedom=freedom,
        clusters=clusters,
    )


def _cluster_variance(influence: Floats, match: Integers, unit: Integers) -> tuple[float, int, str]:
    """Return the variance of the estimate, its degrees of freedom and the clusters it rests on."""
    by_match, n_matches = _variance(influence, match)
    if n_matches == 1 or len(np.unique(unit)) == len(unit):
        return by_match, n_matches - 1, "match"
    by_unit, n_units = _variance(influence, unit)
    by_both, _ = _variance(influence, match * (unit.max() + 1) + unit)
    if by_match + by_unit > by_both:
        return by_match + by_unit - by_both, min(n_matches, n_units) - 1, "match and unit"
    return max((by_match, n_matches - 1, "match"), (by_unit, n_units - 1, "unit"))


def _variance(influence: Floats, cluster: Integers) -> tuple[float, int]:
    """Return the sandwich variance and the number of clusters; NaN for a single one."""
    _, position = np.unique(cluster, return_inverse=True)
    score = np.bincount(position, weights=influence)
    n_clusters, n_rows = len(score), len(influence)
    if n_clusters == 1:
        return np.nan, 1
    factor = n_clusters / (n_clusters - 1) * (n_rows - 1) / (n_rows - 2)
    return float(factor * (score @ score)), n_clusters


def _p_value(estimate: float, error: float, freedom: int) -> float:
    if not freedom:
        return np.nan
    if error == 0:
        return 1.0 if estimate == 0 else 0.0
    return float(2 * stdtr(freedom, -abs(estimate) / error))


def _finite(values: Floats, rows: Integers, name: str) -> Floats:
    """Return the outcome of some rows; unmatched samples need not have one."""
    if not np.isfinite(values[rows]).all():
        unknown = np.unique(rows[~np.isfinite(values[rows])])
        raise ValueError(
            f"{name} must be finite for matched samples, got NaN or infinity in rows {unknown[:5].tolist()}"
        )
    return values[rows]
