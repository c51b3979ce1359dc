"""How good predictions are: pure functions of predictions and targets, and which of them a task has.

They are scikit-learn's where it has them. Accuracy, macro-F1, macro recall (here ``balanced_accuracy``), Pearson's r
and the mean squared error agree with WILDS: p-lambda/wilds, wilds/common/metrics/all_metrics.py. A metric that the
targets leave undefined is NaN, without a warning.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, softmax
from sklearn import metrics as sklearn_metrics
from torch import Tensor

from okapi.data.task import Task

Values: TypeAlias = Tensor | ArrayLike
Floats: TypeAlias = NDArray[np.float64]
BINS = 15


def decide(task: Task, prediction: Values) -> NDArray[np.float64] | NDArray[np.int64]:
    """Return predictions as metrics take them: the likeliest class (n,), numbers, or 1 for each likely label (n, C)."""
    values = outputs(task, prediction)
    if task.kind == "classification":
        return np.asarray(values.argmax(axis=1))
    return values if task.kind == "regression" else (values > 0).astype(np.int64)


def probabilities(task: Task, prediction: Values) -> Floats:
    """Return the probabilities of logits (n, C): of classes, summing to 1, or of each label alone."""
    if task.kind == "regression":
        raise ValueError("a regression predicts numbers, which have no probabilities")
    values = outputs(task, prediction)
    return np.asarray(softmax(values, axis=1) if task.kind == "classification" else expit(values))


def outputs(task: Task, prediction: Values) -> Floats:
    """Return what a network returns as (n, outputs), rejecting other shapes and rows that are not finite."""
    values = as_array(prediction)
    if values.ndim == 1 and task.outputs == 1:
        values = values[:, None]
    if values.ndim != 2 or values.shape[1] != task.outputs:
        raise ValueError(f"prediction must be of shape (n, {task.outputs}), got {values.shape}")
    finite = np.isfinite(values).all(axis=1)
    if not finite.all():
        row = int(finite.argmin())
        raise ValueError(f"prediction must be finite, got {values[row].tolist()} in row {row}")
    return values


def like_decisions(task: Task, target: Values) -> Floats:
    """Return targets in the shape in which ``decide`` returns predictions."""
    values = as_array(target)
    return values[:, None] if task.kind == "regression" and values.ndim == 1 else values


def as_array(values: Values) -> Floats:
    """Return numbers, from any device, as a float64 array."""
    if isinstance(values, Tensor):
        values = values.detach().cpu().double().numpy()
    return np.asarray(values, dtype=np.float64)


# Classes and labels


def accuracy(prediction: Values, target: Values) -> float:
    """Return the share of samples whose predicted class (n,) is the target (n,).

    Of several labels, both (n, C): the share of all labels that are right.

    Examples
    --------
    >>> accuracy([0, 1, 1, 2], [0, 1, 2, 2])
    0.75
    """
    predicted, truth = _pair(prediction, target)
    return float((predicted == truth).mean())  # scikit-learn's counts a sample only if all of its labels are right


def macro_f1(prediction: Values, target: Values) -> float:
    """Return the mean, over the classes that occur among the targets, of each one's F1.

    Of several labels, both (n, C) of 0 and 1: the mean over the labels that occur.

    Examples
    --------
    >>> macro_f1([0, 1, 1, 2], [0, 1, 1, 1])
    0.9
    """
    predicted, truth = _pair(prediction, target)
    if truth.ndim == 1:
        options = {"labels": np.unique(truth), "average": "macro", "zero_division": 0}
        return float(sklearn_metrics.f1_score(truth, predicted, **options))
    occurring = np.flatnonzero(truth.any(axis=0))
    scores = [sklearn_metrics.f1_score(truth[:, label], predicted[:, label], zero_division=0) for label in occurring]
    return float(np.mean(scores)) if scores else float("nan")


def balanced_accuracy(prediction: Values, target: Values) -> float:
    """Return the mean, over the classes that occur among the targets (n,), of the share that is predicted right.

    Examples
    --------
    >>> balanced_accuracy([0, 0, 0, 1], [0, 0, 1, 1])
    0.75
    """
    predicted, truth = _pair(prediction, target)
    return float(sklearn_metrics.recall_score(truth, predicted, labels=np.unique(truth), average="macro"))


def sensitivity(prediction: Values, target: Values) -> float:
    """Return the share of samples of class 1 that are predicted so; NaN where there is none."""
    return _recall(prediction, target, 1)


def specificity(prediction: Values, target: Values) -> float:
    """Return the share of samples of class 0 that are predicted so; NaN where there is none."""
    return _recall(prediction, target, 0)


def auroc(probability: Values, target: Values) -> float:
    """Return the area under the ROC curve: how often a sample of class 1 is likelier than one of class 0.

    Parameters
    ----------
    probability : array (n, 2)
    target : array (n,) of 0 and 1
        NaN where one of them is missing.

    Examples
    --------
    >>> auroc([[0.9, 0.1], [0.6, 0.4], [0.7, 0.3]], [0, 0, 1])
    0.5
    """
    given, truth = _distribution(probability, target)
    return float(sklearn_metrics.roc_auc_score(truth, given[:, 1])) if _has_two_classes(truth) else float("nan")


def log_loss(probability: Values, target: Values) -> float:
    """Return the mean of minus the logarithm of the probability (n, C) of the target (n,), in nats.

    Examples
    --------
    >>> round(log_loss([[0.5, 0.5], [1.0, 0.0]], [1, 0]), 4)  # ln(2) / 2
    0.3466
    """
    given, truth = _distribution(probability, target)
    return float(sklearn_metrics.log_loss(truth, given, labels=np.arange(given.shape[1])))


def reliability(probability: Values, target: Values, *, bins: int = BINS) -> pd.DataFrame:
    """Return how often a classifier is right where it is so and so confident: what a reliability diagram shows.

    A sample's confidence is the greatest of its probabilities (top-label), and it counts as right if that class is its
    target; of equally likely classes the first.

    Parameters
    ----------
    probability : array (n, C)
        Of each class; rows sum to 1.
    target : array (n,), whole numbers
    bins : int
        Bin ``b`` of ``1 .. bins`` is ``((b - 1) / bins, b / bins]``.

    Returns
    -------
    DataFrame
        One row for each bin with samples: ``bin``, from 0; ``n``; ``confidence`` and ``accuracy``, means over them.
    """
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")
    given, truth = _distribution(probability, target)
    samples = pd.DataFrame({"confidence": given.max(axis=1), "accuracy": given.argmax(axis=1) == truth})
    edges = np.arange(1, bins) / bins
    number = pd.Series(np.searchsorted(edges, samples.confidence, side="left"), name="bin")  # an edge: the bin below
    by_bin = samples.groupby(number)
    table = by_bin.mean()
    table.insert(0, "n", by_bin.size())
    return table.reset_index()


def ece(probability: Values, target: Values, *, bins: int = BINS) -> float:
    """Return the expected calibration error: ``sum_b n_b / n * |accuracy_b - confidence_b|``; 0 is perfect.

    Bins, confidences and parameters are those of ``reliability``. (Guo, Pleiss, Sun & Weinberger, 2017)

    Examples
    --------
    >>> round(ece([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]], [0, 1, 1]), 6)  # a third each: 0.1 + 0.8 + 0.3
    0.4
    """
    table = reliability(probability, target, bins=bins)
    return float(np.average((table.accuracy - table.confidence).abs(), weights=table.n))


# Numbers


def mse(prediction: Values, target: Values) -> float:
    """Return the mean squared error of numbers (n,) or (n, D).

    Examples
    --------
    >>> mse([1.0, 2.0], [1.0, 4.0])
    2.0
    """
    predicted, truth = _pair(prediction, target)
    return float(sklearn_metrics.mean_squared_error(truth, predicted))


def r2(prediction: Values, target: Values) -> float:
    """Return the share of the variance of numbers (n,) that is explained; of (n, D) the mean over the columns.

    0 is no better than the mean of the targets. NaN where targets are all the same.

    Examples
    --------
    >>> r2([1.0, 2.0, 4.0], [1.0, 2.0, 3.0])
    0.5
    """
    predicted, truth = _pair(prediction, target)
    return float(sklearn_metrics.r2_score(truth, predicted)) if _varies(truth) else float("nan")


def pearson_r(prediction: Values, target: Values) -> float:
    """Return Pearson's correlation of numbers (n,); of (n, D) the mean over the columns.

    NaN where predictions or targets are all the same.

    Examples
    --------
    >>> round(pearson_r([1.0, 2.0, 3.0], [2.0, 4.0, 6.0]), 6)
    1.0
    """
    predicted, truth = (values.reshape(len(values), -1) for values in _pair(prediction, target))
    if not (_varies(predicted) and _varies(truth)):
        return float("nan")
    return float(np.mean(np.clip((_standardised(predicted) * _standardised(truth)).sum(axis=0), -1, 1)))


# By task


class Metric(NamedTuple):
    """A function of predictions and targets (n,) or (n, C), and what it is for.

    ``takes`` is what it calls a prediction: what ``decide`` returns, or what ``probabilities`` does. ``is_defined``
    says whether targets leave it defined, whatever is predicted. ``two_classes``: it is for those only.
    """

    function: Callable[[Values, Values], float]
    higher_is_better: bool = True
    takes: Literal["decision", "probability"] = "decision"
    is_defined: Callable[[Floats], bool] = lambda truth: True
    two_classes: bool = False


def _varies(values: Floats) -> bool:
    return bool((values.min(axis=0) < values.max(axis=0)).all())


def _has_two_classes(truth: Floats) -> bool:
    return len(np.unique(truth)) == 2


METRICS = {
    "accuracy": Metric(accuracy),
    "macro_f1": Metric(macro_f1, is_defined=lambda truth: truth.ndim == 1 or bool(truth.any())),
    "balanced_accuracy": Metric(balanced_accuracy),
    "ece": Metric(ece, higher_is_better=False, takes="probability"),
    "log_loss": Metric(log_loss, higher_is_better=False, takes="probability"),
    "auroc": Metric(auroc, takes="probability", is_defined=_has_two_classes, two_classes=True),
    "sensitivity": Metric(sensitivity, is_defined=lambda truth: bool((truth == 1).any()), two_classes=True),
    "specificity": Metric(specificity, is_defined=lambda truth: bool((truth == 0).any()), two_classes=True),
    "mse": Metric(mse, higher_is_better=False),
    "pearson_r": Metric(pearson_r, is_defined=_varies),
    "r2": Metric(r2, is_defined=_varies),
}
SUFFIXES = ("_domain_mean", "_domain_worst", "_group_mean", "_group_worst")
_OF_TASK = {
    "classification": (
        "accuracy", "macro_f1", "balanced_accuracy", "ece", "log_loss", "auroc", "sensitivity", "specificity"
    ),
    "regression": ("pearson_r", "mse", "r2"),
    "multilabel": ("macro_f1", "accuracy"),
}  # fmt: skip


def metrics_for(task: Task) -> tuple[str, ...]:
    """Return the names of a task's metrics, the main one first.

    Examples
    --------
    >>> metrics_for(Task("regression"))
    ('pearson_r', 'mse', 'r2')
    """
    return tuple(name for name in _OF_TASK[task.kind] if task.outputs == 2 or not METRICS[name].two_classes)


def main_metric(task: Task) -> str:
    """Return the name of the metric by which models for a task are compared unless another is asked for."""
    return metrics_for(task)[0]


def plain_metric(name: str) -> str:
    """Return the name of a metric without what is done with it over domains or groups.

    Examples
    --------
    >>> plain_metric("accuracy_group_worst")
    'accuracy'
    """
    return next((name.removesuffix(suffix) for suffix in SUFFIXES if name.endswith(suffix)), name)


def higher_is_better(metric: str) -> bool:
    """Return whether more of a metric, alone or with a suffix, is better.

    Examples
    --------
    >>> higher_is_better("accuracy_domain_worst"), higher_is_better("mse")
    (True, False)
    """
    plain = plain_metric(metric)
    if plain not in METRICS:
        raise ValueError(f"metric must be one of {', '.join(METRICS)}, or such with a suffix, got {metric!r}")
    return METRICS[plain].higher_is_better


def _pair(prediction: Values, target: Values) -> tuple[Floats, Floats]:
    """Return predictions and targets of one shape, with rows and without NaN."""
    predicted, truth = as_array(prediction), as_array(target)
    if predicted.shape != truth.shape:
        raise ValueError(f"prediction and target must be of one shape, got {predicted.shape} and {truth.shape}")
    if not len(predicted):
        raise ValueError("prediction must have at least one row, got none")
    if np.isnan(predicted).any() or np.isnan(truth).any():
        raise ValueError("prediction and target must not be NaN")
    return predicted, truth


def _distribution(probability: Values, target: Values) -> tuple[Floats, Floats]:
    """Return probabilities (n, C), which sum to 1, and targets (n,)."""
    given, truth = as_array(probability), as_array(target)
    if given.ndim != 2 or truth.shape != given.shape[:1] or not len(truth):
        raise ValueError(f"probability must be (n, C) and target (n,), got {given.shape} and {truth.shape}")
    good = (np.abs(given.sum(axis=1) - 1) < 1e-4) & (given >= 0).all(axis=1)
    if not good.all():
        row = int(good.argmin())
        raise ValueError(f"probability must be at least 0 and sum to 1, got {given[row].tolist()} in row {row}")
    return given, truth


def _recall(prediction: Values, target: Values, positive: int) -> float:
    predicted, truth = _pair(prediction, target)
    options = {"labels": [positive], "average": None, "zero_division": np.nan}
    return float(sklearn_metrics.recall_score(truth, predicted, **options)[0])


def _standardised(values: Floats) -> Floats:
    """Return columns with mean 0 and length 1."""
    centred = values - values.mean(axis=0)
    centred = centred / np.abs(centred).max(axis=0)  # else the squares of very small ones would be 0
    return np.asarray(centred / np.linalg.norm(centred, axis=0))
