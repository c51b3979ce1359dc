"""How strong hidden bias would have to be to explain an effect away: E-values and Rosenbaum bounds."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.stats import binom, norm, rankdata
from torch import Tensor

from okapi.matching.checks import as_array
from okapi.matching.diagnostics.effect import Effect, check_outcome
from okapi.matching.diagnostics.weights import Floats, flatten_pairs
from okapi.matching.matches import Matches

LEVEL = 0.05


class EValue(NamedTuple):
    """Least risk ratio that a hidden cause must have with treatment and outcome, to explain an effect away.

    ``estimate`` is that for the estimate, ``interval`` that for the limit of the interval that is nearer to no effect:
    1 where the interval holds no effect.
    """

    estimate: float
    interval: float


def e_value(effect: Effect) -> EValue:
    """Return the E-values of an effect (VanderWeele and Ding, Annals of Internal Medicine 167, 2017).

    Of a risk ratio or ratio of means RR, ``RR + sqrt(RR (RR - 1))``, of its inverse where it is below 1. A difference d
    of means, in standard deviations of the outcome, counts as a risk ratio of ``exp(0.91 d)``, with an interval of
    ``exp(0.91 d - 1.78 s)`` to ``exp(0.91 d + 1.78 s)``, s being its standard error.

    Examples
    --------
    >>> [round(value, 2) for value in e_values(3.9, 1.8, 8.7)]
    [7.26, 3.0]
    """
    if effect.ratio is not None:
        return e_values(*effect.ratio[1:])
    if not effect.outcome_sd:
        raise ValueError("effect must be on an outcome that varies within the groups, got a standard deviation of 0")
    d, s = effect.estimate / effect.outcome_sd, effect.standard_error / effect.outcome_sd
    return e_values(*(float(np.exp(0.91 * d + shift * 1.78 * s)) for shift in (0, -1, 1)))


def e_values(ratio: float, low: float, high: float) -> EValue:
    """Return the E-values of a risk ratio and of its 95 % interval."""
    nearer = low if ratio > 1 else high
    crosses = low <= 1 <= high
    return EValue(_e_value(ratio), 1.0 if crosses else _e_value(nearer))


def _e_value(ratio: float) -> float:
    ratio = max(ratio, 1 / ratio)
    return float(ratio + np.sqrt(ratio * (ratio - 1)))


def rosenbaum_bounds(
    outcome: ArrayLike | Tensor,
    treated: ArrayLike | Tensor,
    matches: Matches,
    gamma: Sequence[float] = (1, 1.25, 1.5, 1.75, 2, 2.5, 3, 4, 5, 6),
) -> pd.DataFrame:
    """Return one-sided p-values of no effect that hidden bias of each size could bring about, for matched pairs.

    Under bias of size gamma the odds of treatment within a pair differ by a factor of at most gamma. Of numbers the
    test is Wilcoxon's signed-rank test, of outcomes that are 0 or 1 McNemar's; in the direction of the effect observed
    (Rosenbaum, Observational Studies, 2nd ed., 2002, section 4.3).

    Parameters
    ----------
    outcome, treated, matches
        As in `effect`; one key a query and no key twice. Pairs without both outcomes are left out.
    gamma : sequence of float >= 1

    Returns
    -------
    DataFrame
        ``gamma``, ``p_low``, ``p_high``: the effect can be explained by bias of the size from which on ``p_high``
        exceeds 0.05.
    """
    if matches.k != 1 or len(matches.key.unique()) != len(matches.key):
        raise ValueError("rosenbaum_bounds needs pairs: k=1 and replace=False, or method='optimal'")
    if wrong := [value for value in gamma if not value >= 1]:
        raise ValueError(f"gamma must be at least 1, got {wrong[0]}")
    y, side = check_outcome(outcome), np.asarray(as_array(treated, "treated", ndim=1), bool)
    pairs = flatten_pairs(matches, len(y), len(y))
    difference = np.where(side[pairs.query], 1, -1) * (y[pairs.query] - y[pairs.key])
    difference = difference[~np.isnan(difference)]
    if not difference.any():
        raise ValueError("rosenbaum_bounds needs pairs that differ in their outcome, got none")
    difference *= 1 if difference.sum() >= 0 else -1
    binary = bool(np.isin(y[~np.isnan(y)], (0, 1)).all())
    p_value = _mcnemar if binary else _signed_rank
    rows = [(value, p_value(difference, 1 / (1 + value)), p_value(difference, value / (1 + value))) for value in gamma]
    return pd.DataFrame(rows, columns=["gamma", "p_low", "p_high"])


def _signed_rank(difference: Floats, chance: float) -> float:
    """Return the p-value where a difference is positive by the chance given, in large samples."""
    rank = rankdata(np.abs(difference))  # among all, also those without a difference, which count no further
    positive, rank = (difference > 0)[difference != 0], rank[difference != 0]
    deviate = (rank[positive].sum() - chance * rank.sum()) / np.sqrt(chance * (1 - chance) * (rank**2).sum())
    return float(norm.sf(deviate))


def _mcnemar(difference: Floats, chance: float) -> float:
    return float(binom.sf((difference > 0).sum() - 1, np.count_nonzero(difference), chance))


def explained_by(bounds: pd.DataFrame) -> float:
    """Return the least gamma listed that could explain the effect; infinity if none could."""
    enough = bounds.gamma[bounds.p_high > LEVEL]
    return float(enough.iloc[0]) if len(enough) else np.inf
