"""The effect of a treatment, estimated in a matched sample: always treated minus control."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import stdtr, stdtrit
from torch import Tensor

from okapi.matching.checks import as_array
from okapi.matching.diagnostics.weights import Bools, Floats, Integers, flatten_pairs
from okapi.matching.matches import Matches, Strata

FEWEST_CLUSTERS = 20
_YES_NO = {"yes": 1.0, "no": 0.0, "true": 1.0, "false": 0.0}


class Ratio(NamedTuple):
    """Mean outcome of the treated over that of the controls, with its 95 % confidence interval."""

    name: str
    estimate: float
    ci_low: float
    ci_high: float


@dataclass(frozen=True)
class Effect:
    """Difference in outcome between the treated and the controls of a matched sample.

    Parameters
    ----------
    estimate : float
        ``treated_mean - control_mean``, whatever was matched to what.
    standard_error : float
        Clustered as ``clusters`` says; NaN for a single match.
    ci_low, ci_high : float
        Limits of the 95 % confidence interval.
    p_value : float
        Two-sided, of no difference.
    kind : {"mean difference", "risk difference"}
        A risk difference where all outcomes are 0 or 1.
    ratio : Ratio or None
        Of outcomes that are 0 or 1 the risk ratio, of counts (whole numbers from 0) the ratio of means.
    treated_mean, control_mean : float
        Weighted mean outcome of either group.
    n_matched, n : int
        How many of the units that were to be matched are in the estimate: of the treated (ATT), the controls (ATC) or
        of all (ATE).
    n_treated, n_controls : int
        Distinct treated and control units in the estimate.
    n_missing : int
        Matched units that were left out because their outcome is missing.
    outcome_sd : float
        Standard deviation of the outcome over the units in the estimate, pooled over both groups.
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
    kind: str
    ratio: Ratio | None
    treated_mean: float
    control_mean: float
    n_matched: int
    n: int
    n_treated: int
    n_controls: int
    n_missing: int
    outcome_sd: float
    degrees_of_freedom: int
    clusters: str

    def __repr__(self) -> str:
        return (
            f"Effect({self.estimate:.4g}, 95 % CI {self.ci_low:.4g} to {self.ci_high:.4g}, "
            f"SE {self.standard_error:.4g} clustered by {self.clusters}, p = {self.p_value:.3g}; "
            f"{self.kind}, {self.n_matched:,} of {self.n:,} matched)"
        )


class Rows(NamedTuple):
    """Rows of the regression behind an effect, each array of shape (r,): a unit has one in each of its matches."""

    unit: Integers
    weight: Floats
    cluster: Integers
    focal: Bools  # whether the unit is there for itself, rather than as the match of another


def effect(
    outcome: ArrayLike | Tensor, treated: ArrayLike | Tensor, matches: Matches, *, n: int | None = None
) -> Effect:
    """Estimate the mean difference in outcome, treated minus control, over a matching.

    The estimate is the coefficient of the treatment in a regression of the outcome on it, in which a matched query
    weighs 1 and each of its keys 1 / (keys that it has). A match, that is a query with its keys, is a cluster (Abadie
    and Spiess). If a unit is part of several matches, errors are clustered by match and by unit (Cameron et al.):
    variance by match, plus by unit, less by both together. In a variance over G clusters of N regression rows stands
    the usual factor for small samples, G / (G - 1) * (N - 1) / (N - 2). Should the two-way variance not be positive,
    the larger of its first two terms stands in. The interval of a ratio is taken on the logarithmic scale.

    Parameters
    ----------
    outcome : array-like of shape (n,)
        Numbers, yes and no (booleans, or 0 and 1) or counts, of every unit. A matched unit without one (NaN) is left
        out and counted, and so is a match of which a side is left without.
    treated : array-like of shape (n,), booleans
    matches : Matches
        At least one pair; every query and its keys are of different groups. Queries that are the treated make an ATT,
        controls an ATC, both an ATE.
    n : int, optional
        How many units were to be matched; by default all of the groups that have queries.

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
    >>> pairs = Matches(torch.tensor([0, 1, 2]), torch.tensor([[3], [4], [6]]), torch.zeros(3, 1))
    >>> treated = [True, True, True, False, False, False, False]
    >>> effect([3.0, 5.0, 4.0, 2.0, 2.0, 9.0, 2.0], treated, pairs).estimate
    2.0
    """
    y, side = check_outcome(outcome), np.asarray(as_array(treated, "treated", ndim=1), bool)
    if len(side) != len(y):
        raise ValueError(f"outcome and treated must have a value for each unit, got {len(y)} and {len(side)}")
    pairs = flatten_pairs(matches, len(y), len(y))
    if not len(pairs.match):
        raise ValueError("matches must hold at least one pair to estimate an effect, got none")
    if (side[pairs.query] == side[pairs.key]).any():
        raise ValueError("treated must differ within every pair, got pairs of one group")
    known = ~np.isnan(y)
    kept = known[pairs.query] & known[pairs.key]
    if not kept.any():
        raise ValueError("outcome must be known on both sides of some pair, got none")
    match, first, n_keys = np.unique(pairs.match[kept], return_index=True, return_counts=True)
    query = pairs.query[kept][first]
    rows = Rows(
        unit=np.concatenate([query, pairs.key[kept]]),
        weight=np.concatenate([np.ones(len(match)), np.repeat(1 / n_keys, n_keys)]),
        cluster=np.concatenate([match, pairs.match[kept]]),
        focal=np.arange(len(match) + int(kept.sum())) < len(match),
    )
    matched = np.unique(np.concatenate([pairs.query, pairs.key]))
    n = int(np.isin(side, side[pairs.query]).sum()) if n is None else n
    return effect_of_rows(y, side, rows, n=n, n_missing=int((~known[matched]).sum()))


def effect_of_strata(outcome: ArrayLike | Tensor, treated: ArrayLike, strata: Strata, *, focal: ArrayLike) -> Effect:
    """Estimate the mean difference in outcome, treated minus control, by the weights of strata.

    Errors are clustered by stratum, or, where there are fewer than 20, which are too few for that, by unit.

    Parameters
    ----------
    outcome, treated
        As in `effect`. A unit without an outcome (NaN) is left out and counted.
    strata : Strata
    focal : array of shape (n,), booleans
        The units that the effect is on.
    """
    y, side, wanted = check_outcome(outcome), np.asarray(treated, bool), np.asarray(focal, bool)
    inside = strata.subclass >= 0
    unit = np.flatnonzero(inside & ~np.isnan(y))
    if not (side[unit].any() and (~side[unit]).any()):
        raise ValueError("strata must hold treated and controls with a known outcome, to estimate an effect")
    few = len(np.unique(strata.subclass[unit])) < FEWEST_CLUSTERS
    cluster = unit if few else strata.subclass[unit]
    rows = Rows(unit=unit, weight=strata.weights[unit], cluster=cluster, focal=wanted[unit])
    result = effect_of_rows(y, side, rows, n=int(wanted.sum()), n_missing=int((inside & np.isnan(y)).sum()))
    return replace(result, clusters="unit" if few else "subclass")


def effect_of_rows(y: Floats, treated: Bools, rows: Rows, *, n: int, n_missing: int) -> Effect:
    """Return the effect that the rows of a weighted regression give; ``n`` is how many units could be focal."""
    values, side = y[rows.unit], treated[rows.unit]
    means, influence = {}, np.zeros(len(values))
    relative = np.zeros(len(values))  # what each row adds to the error of the logarithm of the ratio
    for group, sign in ((True, 1.0), (False, -1.0)):
        of, weight = side == group, rows.weight[side == group]
        means[group] = float(np.average(values[of], weights=weight))
        influence[of] = sign * weight * (values[of] - means[group]) / weight.sum()
        relative[of] = influence[of] / means[group] if means[group] else np.nan
    variance, freedom, clusters = _cluster_variance(influence, rows.cluster, rows.unit)
    estimate, error = means[True] - means[False], float(np.sqrt(variance))
    t = float(stdtrit(freedom, 0.975)) if freedom else np.nan
    name = {"yes or no": "risk ratio", "counts": "ratio of means"}.get(outcome_kind(values))
    ratio = None
    if name is not None and min(means.values()) > 0:
        spread = t * float(np.sqrt(_cluster_variance(relative, rows.cluster, rows.unit)[0]))
        log = np.log(means[True] / means[False])
        ratio = Ratio(name, *(float(np.exp(log + shift)) for shift in (0, -spread, spread)))
    units, first = np.unique(rows.unit, return_index=True)
    spreads = [values[first][side[first] == group].var() for group in (True, False)]
    return Effect(
        estimate=estimate,
        standard_error=error,
        ci_low=estimate - t * error,
        ci_high=estimate + t * error,
        p_value=_p_value(estimate, error, freedom),
        kind="risk difference" if outcome_kind(values) == "yes or no" else "mean difference",
        ratio=ratio,
        treated_mean=means[True],
        control_mean=means[False],
        n_matched=len(np.unique(rows.unit[rows.focal])),
        n=n,
        n_treated=int(treated[units].sum()),
        n_controls=int((~treated[units]).sum()),
        n_missing=n_missing,
        outcome_sd=float(np.sqrt(np.mean(spreads))),
        degrees_of_freedom=freedom,
        clusters=clusters,
    )


def check_outcome(outcome: ArrayLike | Tensor) -> Floats:
    """Return outcomes as numbers, NaN where they are missing; yes and no, true and false are 1 and 0."""
    values = outcome if isinstance(outcome, Tensor) else np.asarray(outcome)
    if isinstance(values, np.ndarray) and values.dtype.kind not in "biuf":
        words = pd.Series(values).map(
            lambda value: _YES_NO.get(value.lower(), value) if isinstance(value, str) else value
        )
        values = pd.to_numeric(words.astype(object), errors="coerce").to_numpy(np.float64)
        wrong = np.isnan(values) & words.notna().to_numpy()
        if wrong.any():
            row = int(wrong.argmax())
            raise ValueError(f"outcome must be numbers, or yes and no, got {words[row]!r} in row {row}")
    array = as_array(values, "outcome", ndim=1).astype(np.float64)
    if np.isinf(array).any():
        raise ValueError(
            f"outcome must be finite, or NaN where it is missing; row {int(np.isinf(array).argmax())} is not"
        )
    return array


def outcome_kind(values: Floats) -> str:
    """Return whether outcomes are "yes or no" (0 and 1), "counts" (whole numbers from 0) or "numbers"."""
    if ((values == 0) | (values == 1)).all():
        return "yes or no"
    return "counts" if (values >= 0).all() and (values == np.rint(values)).all() else "numbers"


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
