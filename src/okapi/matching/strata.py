"""Strata: exact matching, coarsened exact matching, subclassification, and the weights that they give."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from okapi.matching.checks import check_choice, check_whole

Array = NDArray[Any]
Cutpoints = int | str | Sequence[float]

ESTIMANDS = ("att", "atc", "ate")


def exact_strata(X: pd.DataFrame, treated: ArrayLike) -> Array:
    """Return strata in which all samples have the same values in every column.

    Parameters
    ----------
    X : DataFrame of shape (n, p)
        No missing values.
    treated : array of shape (n,), booleans

    Returns
    -------
    array of shape (n,), int64
        Strata from 0, in order of their first row; -1 where there are none both of treated and of controls.

    Examples
    --------
    >>> X = pd.DataFrame({"sex": ["f", "m", "f", "m", "m"], "age": [30, 41, 30, 41, 50]})
    >>> exact_strata(X, [True, False, False, True, True])
    array([ 0,  1,  0,  1, -1])
    """
    _check_complete(X)
    return _with_both_groups(_combined(X[name] for name in X.columns), _booleans(treated, len(X)))


def coarsened_strata(
    X: pd.DataFrame, treated: ArrayLike, cutpoints: Mapping[Any, Cutpoints] | Cutpoints = "sturges"
) -> Array:
    """Return strata in which all samples have like values in every column: coarsened exact matching (CEM).

    Numbers fall into intervals that hold their lower end; all else must be equal, booleans and texts.

    Parameters
    ----------
    X : DataFrame of shape (n, p)
        No missing values.
    treated : array of shape (n,), booleans
    cutpoints : int, "sturges", "q5" or a sequence of numbers, or a mapping of columns to such, default="sturges"
        How many intervals of equal width; as many as Sturges' rule says, ``ceil(log2(n) + 1)``; intervals between five
        (or any number of) quantiles; or where to cut. Columns that a mapping does not name are cut by Sturges' rule.

    Returns
    -------
    array of shape (n,), int64
        As `exact_strata`.

    References
    ----------
    Iacus, King and Porro, Causal Inference without Balance Checking: Coarsened Exact Matching, Political Analysis 20
    (2012).

    Examples
    --------
    >>> X = pd.DataFrame({"age": [21, 29, 34, 38, 60]})
    >>> coarsened_strata(X, [True, False, False, True, True], cutpoints=[30, 40])
    array([ 0,  0,  1,  1, -1])
    """
    _check_complete(X)
    if isinstance(cutpoints, Mapping):
        numbers = [name for name in X.columns if _is_number(X[name])]
        unknown = [name for name in cutpoints if name not in numbers]
        if unknown:
            raise ValueError(f"cutpoints must name columns of numbers, got {unknown}; X has {list(X.columns)[:20]}")
    columns = []
    for name in X.columns:
        wanted = cutpoints.get(name, "sturges") if isinstance(cutpoints, Mapping) else cutpoints
        columns.append(_coarsened(X[name], wanted) if _is_number(X[name]) else X[name])
    return _with_both_groups(_combined(columns), _booleans(treated, len(X)))


def subclasses(
    propensity: ArrayLike, treated: ArrayLike, n_subclasses: int = 6, *, estimand: str = "att", fewest: int = 1
) -> Array:
    """Return subclasses of like propensities, cut at quantiles of the samples that the estimand is of.

    Where a subclass has too few of one group, the nearest samples of that group are moved there, as in MatchIt.

    Parameters
    ----------
    propensity : array of shape (n,)
    treated : array of shape (n,), booleans
    n_subclasses : int, default=6
    estimand : {"att", "atc", "ate"}, default="att"
        Whose quantiles: of the treated, of the controls, or of all.
    fewest : int, default=1
        Fewest treated, and fewest controls, in a subclass.

    Returns
    -------
    array of shape (n,), int64
        From 0, in order of the propensity.
    """
    check_choice("estimand", estimand, ESTIMANDS)
    check_whole("n_subclasses", n_subclasses)
    check_whole("fewest", fewest)
    score = np.asarray(propensity, np.float64)
    is_treated = _booleans(treated, len(score))
    if not np.isfinite(score).all():
        raise ValueError(f"propensity must be finite, row {int(np.argmin(np.isfinite(score)))} holds NaN or infinity")
    few = {name: int(group.sum()) for name, group in (("treated", is_treated), ("controls", ~is_treated))}
    if min(few.values()) < n_subclasses * fewest:
        raise ValueError(f"{n_subclasses} subclasses need {n_subclasses * fewest} treated and controls, got {few}")
    of = {"att": is_treated, "atc": ~is_treated, "ate": np.ones_like(is_treated)}[estimand]
    inner = np.quantile(score[of], np.linspace(0, 1, n_subclasses + 1)[1:-1])
    subclass = np.searchsorted(inner, score, side="right")
    for group in (is_treated, ~is_treated):
        rows = np.flatnonzero(group)
        subclass[rows] = _filled(subclass[rows], score[rows], n_subclasses, fewest)
    return subclass


def stratum_weights(stratum: ArrayLike, treated: ArrayLike, estimand: str = "att") -> Array:
    """Return matching weights of strata, as MatchIt's: zero outside, and of mean one among the matched of a group.

    In a stratum with a of n treated, the treated weigh 1 and the controls a / (n - a) for the ATT, the treated
    (n - a) / a and the controls 1 for the ATC, n / a and n / (n - a) for the ATE.

    Parameters
    ----------
    stratum : array of shape (n,), integers
        -1: in none.
    treated : array of shape (n,), booleans
    estimand : {"att", "atc", "ate"}, default="att"

    Examples
    --------
    >>> stratum_weights([0, 0, 0, 1, 1, 1, -1], [True, False, False, True, True, False, True])
    array([1. , 0.5, 0.5, 1. , 1. , 2. , 0. ])
    """
    check_choice("estimand", estimand, ESTIMANDS)
    code = np.asarray(stratum)
    is_treated = _booleans(treated, len(code))
    weights = np.zeros(len(code))
    inside = code >= 0
    if not inside.any():
        return weights
    counts = [np.bincount(code[inside & group], minlength=code.max() + 1) for group in (~is_treated, is_treated)]
    incomplete = inside & (np.minimum(*counts)[code] == 0)
    if incomplete.any():
        raise ValueError(f"stratum must have treated and controls in each, {code[incomplete][0]} does not")
    of = {"att": counts[1], "atc": counts[0], "ate": counts[0] + counts[1]}[estimand]
    for group, count in zip((~is_treated, is_treated), counts, strict=True):
        rows = inside & group
        weights[rows] = of[code[rows]] / count[code[rows]]
        weights[rows] /= weights[rows].mean()
    return weights


def _is_number(column: pd.Series) -> bool:
    return is_numeric_dtype(column) and not is_bool_dtype(column)


def _check_complete(X: pd.DataFrame) -> None:
    for name in X.columns:
        missing = X[name].isna().to_numpy()
        if missing.any():
            row = int(missing.argmax())
            raise ValueError(f"X must have no missing values, column {name!r} has some; first in row {row}")


def _booleans(treated: ArrayLike, n: int) -> Array:
    values = np.asarray(treated)
    if values.shape != (n,) or values.dtype != bool:
        raise ValueError(f"treated must be booleans of shape ({n},), got {values.dtype} of shape {values.shape}")
    return values


def _coarsened(column: pd.Series, cutpoints: Cutpoints) -> Array:
    """Return the number of each value's interval."""
    values = column.to_numpy(np.float64)
    if isinstance(cutpoints, str) and cutpoints[:1] == "q" and cutpoints[1:].isdecimal() and int(cutpoints[1:]) > 0:
        cuts = np.quantile(values, np.linspace(0, 1, int(cutpoints[1:]) + 1)[1:-1]) if len(values) else values
    elif isinstance(cutpoints, str) and cutpoints != "sturges":
        raise ValueError(f'cutpoints must be a number, "sturges", such as "q5", or numbers; got {cutpoints!r}')
    elif isinstance(cutpoints, str | int):
        n_intervals = int(np.ceil(np.log2(max(1, len(values))) + 1)) if isinstance(cutpoints, str) else cutpoints
        check_whole("cutpoints", n_intervals)
        cuts = np.linspace(values.min(), values.max(), n_intervals + 1)[1:-1] if len(values) else values
    else:
        cuts = np.sort(np.asarray(cutpoints, np.float64))
    return np.searchsorted(cuts, values, side="right")


def _combined(columns: Any) -> Array:
    """Return one code for each combination of values, in order of their first row."""
    code = np.zeros(0, np.int64)
    for column in columns:
        of_column = pd.factorize(column)[0].astype(np.int64)
        code = of_column if not len(code) else pd.factorize(code * (of_column.max() + 1) + of_column)[0]
    return code


def _with_both_groups(code: Array, treated: Array) -> Array:
    """Return the strata that have treated and controls, counted anew, -1 elsewhere."""
    n = int(code.max(initial=-1)) + 1
    both = (np.bincount(code[treated], minlength=n) > 0) & (np.bincount(code[~treated], minlength=n) > 0)
    return np.where(both, both.cumsum() - 1, -1)[code]


def _filled(subclass: Array, score: Array, n_subclasses: int, fewest: int) -> Array:
    """Return the subclasses of one group after each that has too few got its neighbours' nearest."""
    order = np.argsort(score, kind="stable")
    counts = np.bincount(subclass, minlength=n_subclasses)
    ends = counts.cumsum()  # of the subclasses in this order, which all samples of a group follow
    for place in range(n_subclasses - 1):
        ends[place] = max(ends[place], (ends[place - 1] if place else 0) + fewest)
    for place in reversed(range(n_subclasses - 1)):
        ends[place] = min(ends[place], ends[place + 1] - fewest)
    out = np.empty_like(subclass)
    out[order] = np.repeat(np.arange(n_subclasses), np.diff(ends, prepend=0))
    return out
