"""How good predictions are in each domain and group, in the worst, and on average over them.

Groups may overlap, as the identities that a comment mentions do: a sample counts once in each group that it belongs to,
and once among all samples. A group without samples is absent, not zero.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from okapi.data.task import Task
from okapi.evaluation.metrics import METRICS, is_defined, main_metric, metrics_for
from okapi.evaluation.values import Floats, Values, decide, members, probabilities, wanted


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
        What a network gives: logits of classes or labels, or numbers; (n,) too if there is one output.
    target : tensor (n,) or (n, outputs)
    domain : tensor (n,), int64, numbers of ``domain_names``; or (n, S), bool
    domain_names : sequence of str
    metric : str, optional
        The only metric that is looked at by domain and group; by default all are.
    groups : tensor (n, G), bool, optional
        Groups that are not the domains, such as identity and label, or urban and rural.
    group_names : sequence of str

    Returns
    -------
    dict
        By the names of the metrics, and of each by ``{metric}_domain_mean``, ``{metric}_domain_worst``,
        ``{metric}_group_mean`` and ``{metric}_group_worst``. Of these absent are those that no domain, or group, has
        (see ``by_group``). The worst of a metric that is better the higher it is is the least; NaN is the worst of all.

    Examples
    --------
    >>> logits = [[2.0, 1.0], [0.0, 1.0], [3.0, 0.0]]
    >>> figures = evaluate(Task("classification", 2), logits, [0, 1, 1], [0, 0, 1], ["rome", "oslo"])
    >>> figures["accuracy_domain_mean"], figures["accuracy_domain_worst"]
    (0.5, 0.0)
    """
    taken = _taken(task, prediction)
    truth = wanted(task, target)
    figures = {name: _measure(name, taken, truth) for name in metrics_for(task)}
    kinds = [("domain", domain, domain_names)]
    if groups is not None:
        kinds.append(("group", groups, group_names))
    for kind, of, names in kinds:
        rows = _rows(task, taken, truth, of, names, [metric] if metric else metrics_for(task), kind)
        for name in [metric] if metric else metrics_for(task):
            if by := [row.figures[name] for row in rows if name in row.figures]:
                worst = np.min if METRICS[name].higher_is_better else np.max  # NaN, if there is one, is the worst
                figures |= {f"{name}_{kind}_mean": float(np.mean(by)), f"{name}_{kind}_worst": float(worst(by))}
    return figures


def by_group(
    task: Task,
    prediction: Values,
    target: Values,
    group: Values,
    names: Sequence[str],
    metric: str | None = None,
) -> dict[str, float]:
    """Return one metric, by default the main one, in each domain or group; parameters as of ``group_table``.

    A group without samples is absent, and so is one whose targets leave the metric undefined whatever is predicted: a
    correlation needs targets that differ. (WILDS has 0 for a group without samples; its own splits have none such.)
    """
    metric = metric or main_metric(task)
    rows = _rows(task, _taken(task, prediction), wanted(task, target), group, names, [metric])
    return {row.name: row.figures[metric] for row in rows if metric in row.figures}


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
        What a network gives.
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
    rows = _rows(task, _taken(task, prediction), wanted(task, target), group, names, chosen)
    columns: dict[str, list[Any]] = {"name": [row.name for row in rows], "n": [row.n for row in rows]}
    return pd.DataFrame(columns | {name: [row.figures.get(name, np.nan) for row in rows] for name in chosen})


def worst_first(table: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return a table of groups with the worst by a metric first, those without it last."""
    return table.sort_values(
        metric, ascending=METRICS[metric].higher_is_better, kind="stable", na_position="last", ignore_index=True
    )


def never_predicted(task: Task, prediction: Values, target: Values) -> list[int]:
    """Return the classes, or labels, that occur among the targets and are never predicted: their F1 is 0."""
    if task.kind == "regression":
        return []
    decided, truth = decide(task, prediction), wanted(task, target)
    if task.kind == "classification":
        return [int(number) for number in np.setdiff1d(truth, decided)]
    return np.flatnonzero(truth.any(axis=0) & ~decided.any(axis=0)).tolist()


class _Row(NamedTuple):
    """The metrics of a group, but for those that its targets leave undefined."""

    name: str
    n: int
    figures: dict[str, float]


def _rows(
    task: Task,
    taken: Mapping[str, Floats],
    truth: Floats,
    group: Values,
    names: Sequence[str],
    metrics: Sequence[str],
    called: str = "group",
) -> list[_Row]:
    """Return the metrics of each group with samples."""
    for metric in metrics:
        if metric not in metrics_for(task):
            raise ValueError(f"metric must be one of {', '.join(metrics_for(task))} for {task.kind}, got {metric!r}")
    rows = []
    for name, member in zip(names, members(group, len(names), len(truth), called).T, strict=True):
        if len(here := np.flatnonzero(member)):
            its, targets = {kind: values[here] for kind, values in taken.items()}, truth[here]
            figures = {metric: _measure(metric, its, targets) for metric in metrics if is_defined(metric, targets)}
            rows.append(_Row(name, len(here), figures))
    return rows


def _measure(metric: str, taken: Mapping[str, Floats], truth: Floats) -> float:
    return METRICS[metric].function(taken[METRICS[metric].takes], truth)


def _taken(task: Task, prediction: Values) -> dict[str, Floats]:
    """Return predictions in all forms that the metrics of a task take."""
    taken = {"decision": np.asarray(decide(task, prediction), dtype=np.float64)}
    if any(METRICS[metric].takes == "probability" for metric in metrics_for(task)):
        taken["probability"] = probabilities(task, prediction)
    return taken
