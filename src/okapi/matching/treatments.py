"""More than two treatments: each compared with a reference."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import clone

from okapi.matching.matcher import CaliperMatcher


def effects_of_treatments(
    X: Any, treatment: ArrayLike, outcome: ArrayLike, *, reference: Any, matcher: CaliperMatcher | None = None
) -> pd.DataFrame:
    """Match each of several treatments with a reference, such as the placebo, and estimate its effect.

    Each comparison is a matching of its own, among the samples of the two groups alone.

    Parameters
    ----------
    X : array of shape (n, d) or DataFrame
    treatment : array of shape (n,)
        The group of each sample.
    outcome : array of shape (n,)
        As in `effect`.
    reference : label
        The group that the others are compared with.
    matcher : CaliperMatcher, optional
        Has the settings; not changed.

    Returns
    -------
    DataFrame
        A row for each other group: ``treatment``, ``estimate``, ``standard_error``, ``ci_low``, ``ci_high``,
        ``p_value``, ``n_matched``, ``n`` and ``max_abs_smd``, the largest after matching. Effects on the treated are on
        different groups, and so are not to be subtracted from one another.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, arm = rng.normal(size=(300, 2)), np.repeat(["placebo", "low", "high"], 100)
    >>> y = X[:, 0] + np.repeat([0.0, 1.0, 3.0], 100)
    >>> effects_of_treatments(X, arm, y, reference="placebo")[["treatment", "estimate"]].round(0).values.tolist()
    [['high', 3.0], ['low', 1.0]]
    """
    group, y = np.asarray(treatment), np.asarray(outcome)
    groups = np.unique(group).tolist()
    if reference not in groups:
        raise ValueError(f"reference must be one of the groups {groups[:20]}, got {reference!r}")
    rows = []
    for name in groups:
        if name == reference:
            continue
        of = (group == name) | (group == reference)
        one = clone(CaliperMatcher() if matcher is None else matcher)
        one.fit(X[of], group[of], treated=name)
        effect = one.effect(y[of])
        found = {field: getattr(effect, field) for field in _FIELDS}
        smd = one.balance().summary()["max_abs_smd_after"]
        rows.append({"treatment": name, **found, "max_abs_smd": smd})
    return pd.DataFrame(rows)


_FIELDS = ("estimate", "standard_error", "ci_low", "ci_high", "p_value", "n_matched", "n")
