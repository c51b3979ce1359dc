"""Gaps between groups, for when a domain is a protected characteristic: demographic parity, equal opportunity.

A model whose predictions do not depend on the domain has none. Groups may overlap, as identities do; a group that
leaves a rate undefined is left out, and of fewer than two groups there is no gap: NaN.
"""

from collections.abc import Sequence

import numpy as np

from okapi.data.task import Task
from okapi.evaluation.values import Floats, Values, as_array, decide, members, pair


def demographic_parity_gap(prediction: Values, group: Values, *, positive: int = 1) -> float:
    """Return the largest difference, over pairs of groups a and b, of ``P(predicted | a)`` and ``P(predicted | b)``.

    "Predicted" is that the class is ``positive``. With two groups it is the absolute difference of the two rates; over
    all pairs it is the greatest rate less the least. (Feldman et al., 2015)

    Parameters
    ----------
    prediction : array (n,)
        Predicted classes.
    group : array (n,), numbers from 0; or (n, G), bool, which may overlap
    positive : int
        The class whose prediction is the favourable, or the harmful, outcome.

    Examples
    --------
    >>> demographic_parity_gap([1, 0, 1, 1], [0, 0, 1, 1])
    0.5
    """
    predicted = as_array(prediction)
    return _gap(predicted == positive, np.ones(len(predicted), dtype=bool), group)


def equal_opportunity_gap(prediction: Values, target: Values, group: Values, *, positive: int = 1) -> float:
    """Return the largest difference, over pairs of groups, of ``P(predicted | a, target is positive)``.

    That is the true positive rate of each group, the greatest less the least; a group without a positive sample has
    none. (Hardt, Price & Srebro, 2016)

    Parameters
    ----------
    prediction, target : array (n,)
        Classes.
    group : array (n,), numbers from 0; or (n, G), bool, which may overlap
    positive : int

    Examples
    --------
    >>> equal_opportunity_gap([1, 0, 1, 1], [1, 1, 1, 0], [0, 0, 1, 1])
    0.5
    """
    predicted, truth = pair(prediction, target)
    return _gap(predicted == positive, truth == positive, group)


def fairness(task: Task, prediction: Values, target: Values, group: Values, names: Sequence[str]) -> dict[str, float]:
    """Return both gaps by name, for class 1 of two; nothing of other tasks, and no gap that fewer than two groups have.

    Parameters
    ----------
    task : Task
    prediction : tensor (n, 2)
        Logits.
    target : tensor (n,)
    group : tensor (n,), numbers of ``names``; or (n, G), bool
    names : sequence of str
    """
    if task.kind != "classification" or task.outputs != 2:
        return {}
    decided, truth = decide(task, prediction), as_array(target)
    belongs = members(group, len(names), len(truth))
    gaps = {
        "demographic_parity_gap": demographic_parity_gap(decided, belongs),
        "equal_opportunity_gap": equal_opportunity_gap(decided, truth, belongs),
    }
    return {name: gap for name, gap in gaps.items() if not np.isnan(gap)}


def _gap(event: np.ndarray, counted: np.ndarray, group: Values) -> float:
    """Return the range, over groups, of the share of counted samples in which the event is."""
    values = as_array(group)
    if len(values) != len(event):
        raise ValueError(f"group must have a row for each of the {len(event)} predictions, got {len(values)}")
    count = values.shape[1] if values.ndim == 2 else int(values.max(initial=-1)) + 1
    belongs = members(values, count, len(event)) & counted[:, None]
    sizes: Floats = belongs.sum(axis=0).astype(np.float64)
    rates = (belongs & event[:, None]).sum(axis=0)[sizes > 0] / sizes[sizes > 0]
    return float(np.ptp(rates)) if len(rates) > 1 else float("nan")
