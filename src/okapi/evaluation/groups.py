"""How good predictions are in each domain and group, in the worst, on average, and how far groups are apart.

Groups may overlap, as the identities that a comment mentions do: a sample counts once in each group that it belongs to,
and once among all samples. A group without samples is absent, not zero.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from okapi.data.task import Task
from okapi.evaluation.metrics import METRICS, Values, as_array, decide, like_decisions, metrics_for, probabilities


def evaluate(
    task: Task,
    prediction: Values,
    target: Values,
    domain: Values,
    domain_names: Sequence[str],
    metric: str | None = None,
    *,
    groups: Values | None = None,
    group_names: Sequence[str] = (),
) -> dict[str, float]:
    """Return all metrics of a task over all samples, as the mean over domains and groups, and in the worst of these.

    Parameters
    ----------
    task : Task
    prediction : tensor (n, outputs)
        What a network returns: logits of classes or labels, or numbers; (n,) too if there is one output.
    target : tensor (n,) or (n, outputs)
    domain : tensor (n,), int64, numbers of ``domain_names``; or (n, S), bool
    domain_names : sequence of str
    metric : str, optional
        The only metric that is computed by domain and group; by default all are.
    groups : tensor (n, G), bool, optional
        Groups that are not the domains, such as identity and label, or urban and rural.
    group_names : sequence of str

    Returns
    -------
    dict
        By the names of the metrics, and of each by ``{metric}_domain_mean``, ``{metric}_domain_worst``,
        ``{metric}_group_mean`` and ``{metric}_group_worst``. A metric is absent there if the targets of every domain,
        or group, leave it undefined. The worst of a metric that is better the higher it is is the least; NaN, which a
        model deserves that predicts one number for all, is the worst of all.

    Examples
    --------
    >>> logits = [[2.0, 1.0], [0.0, 1.0], [3.0, 0.0]]
    >>> metrics = evaluate(Task("classification", 2), logits, [0, 1, 1], [0, 0, 1], ["rome", "oslo"])
    >>> metrics["accuracy_domain_mean"], metrics["accuracy_domain_worst"]
    (0.5, 0.0)
    """
    judged = _Judged(task, prediction, target)
    metrics = {name: judged.measure(name, slice(None)) for name in metrics_for(task)}
    chosen = [metric] if metric else metrics_for(task)
    memberships = {"domain": (domain, domain_names)} | ({} if groups is None else {"group": (groups, group_names)})
    for kind, (membership, names) in memberships.items():
        measured = [group.metrics for group in judged.by_group(membership, names, chosen, kind)]
        for name in chosen:
            if values := [group[name] for group in measured if name in group]:
                worst = np.min if METRICS[name].higher_is_better else np.max  # NaN, if there is one, is the worst
                metrics |= {f"{name}_{kind}_mean": float(np.mean(values)), f"{name}_{kind}_worst": float(worst(values))}
    return metrics


def group_table(
    task: Task,
    prediction: Values,
    target: Values,
    group: Values,
    names: Sequence[str],
    metrics: Sequence[str] | None = None,
) -> pd.DataFrame:
    """Return the metrics of each domain or group.

    Parameters
    ----------
    task : Task
    prediction : tensor (n, outputs)
        What a network returns.
    target : tensor (n,) or (n, outputs)
    group : tensor (n,), int64, numbers of ``names``; or (n, G), bool, which may overlap
    names : sequence of str
    metrics : sequence of str, optional
        By default all of the task.

    Returns
    -------
    DataFrame
        One row for each group with samples, in the order of ``names``: ``name``, ``n``, and a column for each metric,
        NaN where it is undefined.

    Examples
    --------
    >>> group_table(Task("regression"), [1.0, 2.0, 3.0], [1.0, 2.0, 5.0], [0, 0, 2], ["rome", "oslo", "bern"], ["mse"])
       name  n  mse
    0  rome  2  0.0
    1  bern  1  4.0
    """
    chosen = list(metrics or metrics_for(task))
    measured = _Judged(task, prediction, target).by_group(group, names, chosen)
    rows = [{"name": row.name, "n": row.n, **row.metrics} for row in measured]
    return pd.DataFrame(rows, columns=["name", "n", *chosen])


def worst_first(table: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return a table of groups with the worst by a metric first, those without it last."""
    ascending = METRICS[metric].higher_is_better
    return table.sort_values(metric, ascending=ascending, kind="stable", na_position="last", ignore_index=True)


def never_predicted(task: Task, prediction: Values, target: Values) -> list[int]:
    """Return the classes, or labels, that occur among the targets and are never predicted: their F1 is 0."""
    if task.kind == "regression":
        return []
    decided, truth = decide(task, prediction), as_array(target)
    if task.kind == "classification":
        return [int(number) for number in np.setdiff1d(truth, decided)]
    return np.flatnonzero(truth.any(axis=0) & ~decided.any(axis=0)).tolist()


def fairness(
    task: Task, prediction: Values, target: Values, group: Values, names: Sequence[str], *, positive: int | None = None
) -> dict[str, float]:
    """Return how far groups are apart, where they are a protected characteristic; parameters as of ``group_table``.

    ``demographic_parity_gap`` is the largest difference, over pairs of groups, of the share that is predicted positive
    (Feldman et al., 2015); ``equal_opportunity_gap`` is the same among samples whose target is positive (Hardt, Price &
    Srebro, 2016). A gap that fewer than two groups have is absent. The positive class is 1 of two by default; without
    one, and in other tasks, there is no gap.

    Examples
    --------
    >>> logits = [[0.0, 1.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]
    >>> fairness(Task("classification", 2), logits, [1, 1, 1, 0], [0, 0, 1, 1], ["rome", "oslo"])
    {'demographic_parity_gap': 0.5, 'equal_opportunity_gap': 0.5}
    """
    positive = 1 if positive is None and task.outputs == 2 else positive
    if task.kind != "classification" or positive is None:
        return {}
    predicted, truth = decide(task, prediction) == positive, as_array(target)
    member = _membership(group, len(names), len(truth), "group")
    counted = {"demographic_parity_gap": member, "equal_opportunity_gap": member & (truth == positive)[:, None]}
    rates = {name: [predicted[rows].mean() for rows in groups.T if rows.any()] for name, groups in counted.items()}
    return {name: float(np.ptp(of_groups)) for name, of_groups in rates.items() if len(of_groups) > 1}


class _Group(NamedTuple):
    """The metrics of a group, but for those that its targets leave undefined."""

    name: str
    n: int
    metrics: dict[str, float]


class _Judged:
    """Predictions in all forms that the metrics of a task take, and targets."""

    def __init__(self, task: Task, prediction: Values, target: Values) -> None:
        self._task, self._target = task, like_decisions(task, target)
        self._forms = {"decision": np.asarray(decide(task, prediction), dtype=np.float64)}
        if task.kind == "classification":
            self._forms["probability"] = probabilities(task, prediction)

    def measure(self, metric: str, rows: slice | NDArray[np.int64]) -> float:
        return METRICS[metric].function(self._forms[METRICS[metric].takes][rows], self._target[rows])

    def by_group(
        self, group: Values, names: Sequence[str], metrics: Sequence[str], called: str = "group"
    ) -> Iterator[_Group]:
        """Yield the metrics of each group with samples."""
        known = metrics_for(self._task)
        for metric in metrics:
            if metric not in known:
                raise ValueError(f"metric must be one of {', '.join(known)} for {self._task.kind}, got {metric!r}")
        membership = _membership(group, len(names), len(self._target), called)
        for name, member in zip(names, membership.T, strict=True):
            if len(rows := np.flatnonzero(member)):
                defined = [metric for metric in metrics if METRICS[metric].is_defined(self._target[rows])]
                yield _Group(name, len(rows), {metric: self.measure(metric, rows) for metric in defined})


def _membership(group: Values, count: int, rows: int, called: str) -> NDArray[np.bool_]:
    """Return which rows belong to which group, (n, count), from numbers (n,) or from what is that already."""
    values = as_array(group)
    if len(values) != rows:
        raise ValueError(f"{called} must have a row for each of the {rows} targets, got {len(values)}")
    if values.ndim == 2:
        if values.shape[1] != count:
            raise ValueError(f"{called} must have a column for each of the {count} names, got shape {values.shape}")
        return np.asarray(values > 0)
    if rows and (values.min() < 0 or values.max() >= count):
        raise ValueError(f"{called} must be from 0 to {count - 1}, got {values.min():g} to {values.max():g}")
    return np.asarray(values[:, None] == np.arange(count))
