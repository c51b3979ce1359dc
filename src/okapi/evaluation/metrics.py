"""How good predictions are, over all samples and over domains: pure functions of predictions and targets."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from okapi.data.task import Task

Values: TypeAlias = Tensor | ArrayLike
Floats: TypeAlias = NDArray[np.float64]


def accuracy(prediction: Values, target: Values) -> float:
    """Return the share of samples whose predicted class (n,) is the target (n,).

    Of several labels, both (n, C): the share of all labels that are right.

    Examples
    --------
    >>> accuracy([0, 1, 1, 2], [0, 1, 2, 2])
    0.75
    """
    predicted, wanted = _pair(prediction, target)
    return float((predicted == wanted).mean())


def macro_f1(prediction: Values, target: Values) -> float:
    """Return the mean, over the classes that occur among the targets, of each one's F1.

    F1 is ``2 tp / (2 tp + fp + fn)``. A class that is predicted but never the target adds nothing of its own; this is
    the macro-F1 of WILDS. Of several labels, both (n, C) of 0 and 1: the mean over the labels that occur.

    Examples
    --------
    >>> macro_f1([0, 1, 1, 2], [0, 1, 1, 1])
    0.9
    """
    hits, predicted, wanted = _counts(*_pair(prediction, target))
    present = wanted > 0
    return float((2 * hits / np.maximum(predicted + wanted, 1))[present].mean()) if present.any() else float("nan")


def balanced_accuracy(prediction: Values, target: Values) -> float:
    """Return the mean, over the classes that occur among the targets (n,), of the share that is predicted right.

    Examples
    --------
    >>> balanced_accuracy([0, 0, 0, 1], [0, 0, 1, 1])
    0.75
    """
    hits, _, wanted = _counts(*_pair(prediction, target))
    present = wanted > 0
    return float((hits[present] / wanted[present]).mean()) if present.any() else float("nan")


def mse(prediction: Values, target: Values) -> float:
    """Return the mean squared error of numbers (n,) or (n, D).

    Examples
    --------
    >>> mse([1.0, 2.0], [1.0, 4.0])
    2.0
    """
    predicted, wanted = _pair(prediction, target)
    return float(np.mean((predicted - wanted) ** 2))


def pearson_r(prediction: Values, target: Values) -> float:
    """Return Pearson's correlation of numbers (n,); of (n, D) the mean over the columns.

    It does not exist where predictions or targets are all the same: that is NaN, with no warning.

    Examples
    --------
    >>> round(pearson_r([1.0, 2.0, 3.0], [2.0, 4.0, 6.0]), 6)
    1.0
    >>> pearson_r([1.0, 1.0], [2.0, 4.0])
    nan
    """
    predicted, wanted = (values.reshape(len(values), -1) for values in _pair(prediction, target))
    if _constant(predicted).any() or _constant(wanted).any():
        return float("nan")
    return float(np.mean(np.clip((_standard(predicted) * _standard(wanted)).sum(axis=0), -1, 1)))


class Metric(NamedTuple):
    """A function of predictions and targets, and whether more is better."""

    function: Callable[[Values, Values], float]
    higher_is_better: bool


METRICS = {
    "accuracy": Metric(accuracy, higher_is_better=True),
    "macro_f1": Metric(macro_f1, higher_is_better=True),
    "balanced_accuracy": Metric(balanced_accuracy, higher_is_better=True),
    "mse": Metric(mse, higher_is_better=False),
    "pearson_r": Metric(pearson_r, higher_is_better=True),
}
_OF_TASK = {
    "classification": ("accuracy", "macro_f1", "balanced_accuracy"),
    "regression": ("pearson_r", "mse"),
    "multilabel": ("macro_f1", "accuracy"),
}


def metrics_for(task: Task) -> tuple[str, ...]:
    """Return the names of a task's metrics, the main one first.

    Examples
    --------
    >>> metrics_for(Task("regression"))
    ('pearson_r', 'mse')
    """
    return _OF_TASK[task.kind]


def main_metric(task: Task) -> str:
    """Return the name of the metric by which models for a task are compared unless another is asked for."""
    return metrics_for(task)[0]


def higher_is_better(metric: str) -> bool:
    """Return whether more of a figure is better; the figure is called as in ``evaluate``.

    Examples
    --------
    >>> higher_is_better("accuracy_domain_worst"), higher_is_better("mse")
    (True, False)
    """
    plain = metric.removesuffix("_domain_mean").removesuffix("_domain_worst")
    if plain not in METRICS:
        raise ValueError(f"metric must be one of {', '.join(METRICS)}, or such with a suffix, got {metric!r}")
    return METRICS[plain].higher_is_better


def evaluate(
    task: Task,
    prediction: Values,
    target: Values,
    domain: Values,
    domain_names: Sequence[str],
    metric: str | None = None,
) -> dict[str, float]:
    """Return all metrics of a task over all samples, and one of them as the mean over domains and in the worst domain.

    Parameters
    ----------
    task : Task
    prediction : tensor (n, outputs)
        What a network gives: logits of classes or labels, or numbers; (n,) too if there is one output.
    target : tensor (n,) or (n, outputs)
    domain : tensor (n,), int64, numbers of ``domain_names``; or (n, S), bool
    domain_names : sequence of str
    metric : str, optional
        The metric that is looked at by domain; by default the task's main one.

    Returns
    -------
    dict
        By the names of the metrics, and of ``metric`` by ``{metric}_domain_mean`` and ``{metric}_domain_worst``; these
        two are absent where ``by_domain`` has no domain.

    Examples
    --------
    >>> logits = [[2.0, 1.0], [0.0, 1.0], [3.0, 0.0]]
    >>> figures = evaluate(Task("classification", 2), logits, [0, 1, 1], [0, 0, 1], ["rome", "oslo"])
    >>> figures["accuracy_domain_mean"], figures["accuracy_domain_worst"]
    (0.5, 0.0)
    """
    decided, wanted = decide(task, prediction), _as_wanted(task, target)
    figures = {name: METRICS[name].function(decided, wanted) for name in metrics_for(task)}
    metric = metric or main_metric(task)
    if by := list(by_domain(task, prediction, target, domain, domain_names, metric).values()):
        worst = np.min if METRICS[metric].higher_is_better else np.max  # NaN, if there is one, is the worst
        figures |= {f"{metric}_domain_mean": float(np.mean(by)), f"{metric}_domain_worst": float(worst(by))}
    return figures


def by_domain(
    task: Task,
    prediction: Values,
    target: Values,
    domain: Values,
    domain_names: Sequence[str],
    metric: str | None = None,
) -> dict[str, float]:
    """Return one metric in each domain; parameters as of ``evaluate``.

    A domain without samples is absent, and so is one whose targets leave the metric undefined whatever is predicted: a
    correlation needs targets that differ.
    """
    metric = metric or main_metric(task)
    if metric not in metrics_for(task):
        raise ValueError(f"metric must be one of {', '.join(metrics_for(task))} for {task.kind}, got {metric!r}")
    decided, wanted = decide(task, prediction), _as_wanted(task, target)
    members = _members(domain, len(domain_names), len(wanted))
    figures = {}
    for number, name in enumerate(domain_names):
        here = members(number)
        if here.any() and _defined(metric, wanted[here]):
            figures[name] = METRICS[metric].function(decided[here], wanted[here])
    return figures


def decide(task: Task, prediction: Values) -> NDArray[np.float64] | NDArray[np.int64]:
    """Return predictions as metrics take them: the likeliest class (n,), numbers, or 1 for each likely label (n, C)."""
    values = _array(prediction)
    if values.ndim == 1 and task.outputs == 1:
        values = values[:, None]
    if values.ndim != 2 or values.shape[1] != task.outputs:
        raise ValueError(f"prediction must be of shape (n, {task.outputs}), got {values.shape}")
    finite = np.isfinite(values).all(axis=1)
    if not finite.all():
        row = int(finite.argmin())
        raise ValueError(f"prediction must be finite, got {values[row].tolist()} in row {row}")
    if task.kind == "classification":
        return np.asarray(values.argmax(axis=1))
    return values if task.kind == "regression" else (values > 0).astype(np.int64)


def _as_wanted(task: Task, target: Values) -> NDArray[np.float64]:
    """Return targets in the shape that ``decide`` gives predictions."""
    values = _array(target)
    return values[:, None] if task.kind == "regression" and values.ndim == 1 else values


def _members(domain: Values, domains: int, rows: int) -> Callable[[int], NDArray[np.bool_]]:
    """Return a function that says which rows belong to a domain."""
    values = _array(domain)
    if len(values) != rows:
        raise ValueError(f"domain must have a row for each of the {rows} targets, got {len(values)}")
    if values.ndim == 2:
        if values.shape[1] != domains:
            raise ValueError(f"domain must have a column for each of the {domains} names, got shape {values.shape}")
        return lambda number: values[:, number] > 0
    if rows and (values.min() < 0 or values.max() >= domains):
        raise ValueError(f"domain must be from 0 to {domains - 1}, got {values.min()} to {values.max()}")
    return lambda number: values == number


def _defined(metric: str, target: NDArray[np.float64]) -> bool:
    if metric == "pearson_r":
        return not _constant(target).any()
    return bool(target.any()) if metric == "macro_f1" and target.ndim == 2 else True


def _counts(predicted: Floats, wanted: Floats) -> tuple[Floats, Floats, Floats]:
    """Return for each class or label how often it was predicted right, how often predicted and how often the target."""
    if predicted.ndim == 2:
        return (predicted * wanted).sum(axis=0), predicted.sum(axis=0), wanted.sum(axis=0)
    classes, numbers = np.unique(np.concatenate([predicted, wanted]), return_inverse=True)
    guess, truth = np.split(numbers, 2)
    right = truth[guess == truth]
    hits, guesses, truths = (np.bincount(part, minlength=len(classes)) for part in (right, guess, truth))
    return hits.astype(np.float64), guesses.astype(np.float64), truths.astype(np.float64)


def _pair(prediction: Values, target: Values) -> tuple[Floats, Floats]:
    predicted, wanted = _array(prediction), _array(target)
    if predicted.shape != wanted.shape:
        raise ValueError(f"prediction and target must be of one shape, got {predicted.shape} and {wanted.shape}")
    if not len(predicted):
        raise ValueError("prediction must have at least one row, got none")
    if np.isnan(predicted).any() or np.isnan(wanted).any():
        raise ValueError("prediction and target must not be NaN")
    return predicted, wanted


def _array(values: Values) -> Floats:
    if isinstance(values, Tensor):
        values = values.detach().cpu().double().numpy()
    return np.asarray(values, dtype=np.float64)


def _constant(values: Floats) -> NDArray[np.bool_]:
    return np.asarray(values.min(axis=0) == values.max(axis=0))


def _standard(values: Floats) -> Floats:
    """Return columns with mean 0 and length 1."""
    centred = values - values.mean(axis=0)
    return np.asarray(centred / np.linalg.norm(centred, axis=0))
