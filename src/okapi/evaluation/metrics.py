"""How good predictions are: pure functions of predictions and targets, and which of them a task has.

Accuracy, macro-F1, macro recall (here ``balanced_accuracy``), Pearson's r and the mean squared error are those of
WILDS: p-lambda/wilds, wilds/common/metrics/all_metrics.py.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from okapi.data.task import Task
from okapi.evaluation.calibration import ece
from okapi.evaluation.values import Floats, Values, pair


def accuracy(prediction: Values, target: Values) -> float:
    """Return the share of samples whose predicted class (n,) is the target (n,).

    Of several labels, both (n, C): the share of all labels that are right.

    Examples
    --------
    >>> accuracy([0, 1, 1, 2], [0, 1, 2, 2])
    0.75
    """
    predicted, wanted = pair(prediction, target)
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
    hits, predicted, wanted = _counts(*pair(prediction, target))
    present = wanted > 0
    return float((2 * hits / np.maximum(predicted + wanted, 1))[present].mean()) if present.any() else float("nan")


def balanced_accuracy(prediction: Values, target: Values) -> float:
    """Return the mean, over the classes that occur among the targets (n,), of the share that is predicted right.

    Examples
    --------
    >>> balanced_accuracy([0, 0, 0, 1], [0, 0, 1, 1])
    0.75
    """
    hits, _, wanted = _counts(*pair(prediction, target))
    present = wanted > 0
    return float((hits[present] / wanted[present]).mean()) if present.any() else float("nan")


def mse(prediction: Values, target: Values) -> float:
    """Return the mean squared error of numbers (n,) or (n, D).

    Examples
    --------
    >>> mse([1.0, 2.0], [1.0, 4.0])
    2.0
    """
    predicted, wanted = pair(prediction, target)
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
    predicted, wanted = (values.reshape(len(values), -1) for values in pair(prediction, target))
    if _constant(predicted).any() or _constant(wanted).any():
        return float("nan")
    return float(np.mean(np.clip((_standard(predicted) * _standard(wanted)).sum(axis=0), -1, 1)))


class Metric(NamedTuple):
    """A function of predictions and targets, whether more is better, and what it calls a prediction.

    ``decision`` is what ``decide`` returns, ``probability`` what ``probabilities`` does.
    """

    function: Callable[[Values, Values], float]
    higher_is_better: bool
    takes: Literal["decision", "probability"] = "decision"


METRICS = {
    "accuracy": Metric(accuracy, higher_is_better=True),
    "macro_f1": Metric(macro_f1, higher_is_better=True),
    "balanced_accuracy": Metric(balanced_accuracy, higher_is_better=True),
    "mse": Metric(mse, higher_is_better=False),
    "pearson_r": Metric(pearson_r, higher_is_better=True),
    "ece": Metric(ece, higher_is_better=False, takes="probability"),
}
SUFFIXES = ("_domain_mean", "_domain_worst", "_group_mean", "_group_worst")
_OF_TASK = {
    "classification": ("accuracy", "macro_f1", "balanced_accuracy", "ece"),
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


def plain_metric(figure: str) -> str:
    """Return the metric of a figure, without what is done with it over domains or groups.

    Examples
    --------
    >>> plain_metric("accuracy_group_worst")
    'accuracy'
    """
    return next((figure.removesuffix(suffix) for suffix in SUFFIXES if figure.endswith(suffix)), figure)


def is_defined(metric: str, target: Floats) -> bool:
    """Return whether targets (n,) or (n, C) leave a metric defined, whatever is predicted of them."""
    if metric == "pearson_r":
        return not _constant(target).any()
    return bool(target.any()) if metric == "macro_f1" and target.ndim == 2 else True


def higher_is_better(metric: str) -> bool:
    """Return whether more of a figure is better; the figure is called as in ``evaluate``.

    Examples
    --------
    >>> higher_is_better("accuracy_domain_worst"), higher_is_better("mse")
    (True, False)
    """
    plain = plain_metric(metric)
    if plain not in METRICS:
        raise ValueError(f"metric must be one of {', '.join(METRICS)}, or such with a suffix, got {metric!r}")
    return METRICS[plain].higher_is_better


def _counts(predicted: Floats, wanted: Floats) -> tuple[Floats, Floats, Floats]:
    """Return for each class or label how often it was predicted right, how often predicted and how often the target."""
    if predicted.ndim == 2:
        return (predicted * wanted).sum(axis=0), predicted.sum(axis=0), wanted.sum(axis=0)
    classes, numbers = np.unique(np.concatenate([predicted, wanted]), return_inverse=True)
    guess, truth = np.split(numbers, 2)
    right = truth[guess == truth]
    hits, guesses, truths = (np.bincount(part, minlength=len(classes)) for part in (right, guess, truth))
    return hits.astype(np.float64), guesses.astype(np.float64), truths.astype(np.float64)


def _constant(values: Floats) -> NDArray[np.bool_]:
    return np.asarray(values.min(axis=0) == values.max(axis=0))


def _standard(values: Floats) -> Floats:
    """Return columns with mean 0 and length 1."""
    centred = values - values.mean(axis=0)
    centred = centred / np.abs(centred).max(axis=0)  # else the squares of very small ones would be 0
    return np.asarray(centred / np.linalg.norm(centred, axis=0))
