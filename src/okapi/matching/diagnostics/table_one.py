"""Table 1 of a study: the covariates of treated and controls before and after matching."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from okapi.matching.diagnostics.weights import Bools, Floats

_WHEN = ("before", "after")


def table_one(X: Floats, names: Sequence[str], treated: Bools, weights: Floats) -> pd.DataFrame:
    """Return means and standard deviations of the covariates of both groups, before and after matching.

    Parameters
    ----------
    X : array of shape (n, p)
    names : sequence of p str
    treated : array of shape (n,), booleans
    weights : array of shape (n,)
        Matching weights; 0 for those not matched.

    Returns
    -------
    DataFrame
        A row for each covariate: ``covariate``, then ``mean_treated``, ``sd_treated``, ``mean_control``,
        ``sd_control`` and ``smd``, each with ``_before`` and ``_after``. The first row counts the samples as ``mean``.
        A covariate of 0 and 1 has a share and no standard deviation; an SMD divides by the pooled deviation before
        matching.

    Examples
    --------
    >>> X = np.array([[30.0], [40.0], [32.0], [70.0]])
    >>> table = table_one(X, ["age"], np.array([True, True, False, False]), np.array([1.0, 1.0, 2.0, 0.0]))
    >>> table[["covariate", "mean_control_before", "mean_control_after"]].values.tolist()
    [['n', 2.0, 1.0], ['age', 51.0, 32.0]]
    """
    binary = ((X == 0) | (X == 1)).all(axis=0)
    columns: dict[str, Floats] = {}
    for when, weight in zip(_WHEN, (np.ones(len(X)), weights), strict=True):
        for name, group in (("treated", treated), ("control", ~treated)):
            rows = group & (weight > 0)
            mean, variance = _moments(X[rows].astype(np.float64), weight[rows])
            deviation = np.where(binary, np.nan, np.sqrt(variance))
            columns[f"mean_{name}_{when}"] = np.append(float(rows.sum()), mean)
            columns[f"sd_{name}_{when}"] = np.append(np.nan, deviation)
            if when == "before":
                columns[f"variance_{name}"] = np.append(np.nan, np.where(binary, mean * (1 - mean), variance))
    scale = np.sqrt((columns.pop("variance_treated") + columns.pop("variance_control")) / 2)
    for when in _WHEN:
        difference = columns[f"mean_treated_{when}"] - columns[f"mean_control_{when}"]
        with np.errstate(all="ignore"):
            columns[f"smd_{when}"] = np.where((difference == 0) & (scale == 0), 0.0, difference / scale)
    order = [
        f"{what}_{when}"
        for when in _WHEN
        for what in ("mean_treated", "sd_treated", "mean_control", "sd_control", "smd")
    ]
    return pd.DataFrame({"covariate": ["n", *names], **{name: columns[name] for name in order}})


def _moments(x: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Return weighted mean and unbiased variance of each column; NaN without rows."""
    if not len(x):
        return np.full(x.shape[1], np.nan), np.full(x.shape[1], np.nan)
    share = weight / weight.sum()
    mean = share @ x
    freedom = 1 - float(share @ share)
    variance = share @ (x - mean) ** 2 / freedom if freedom > 0 else np.zeros(x.shape[1])
    return mean, variance
