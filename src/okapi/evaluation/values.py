"""Predictions and targets as metrics take them: arrays of float64, checked."""

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, softmax
from torch import Tensor

from okapi.data.task import Task

Values: TypeAlias = Tensor | ArrayLike
Floats: TypeAlias = NDArray[np.float64]


def decide(task: Task, prediction: Values) -> NDArray[np.float64] | NDArray[np.int64]:
    """Return predictions as metrics take them: the likeliest class (n,), numbers, or 1 for each likely label (n, C)."""
    values = outputs(task, prediction)
    if task.kind == "classification":
        return np.asarray(values.argmax(axis=1))
    return values if task.kind == "regression" else (values > 0).astype(np.int64)


def probabilities(task: Task, prediction: Values) -> Floats:
    """Return the probabilities that logits (n, C) say: of each class, summing to 1, or of each label alone."""
    if task.kind == "regression":
        raise ValueError("a regression predicts numbers, which have no probabilities")
    values = outputs(task, prediction)
    return np.asarray(softmax(values, axis=1) if task.kind == "classification" else expit(values))


def outputs(task: Task, prediction: Values) -> Floats:
    """Return what a network gives as (n, outputs), refusing another shape and the first row that is not finite."""
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


def wanted(task: Task, target: Values) -> Floats:
    """Return targets in the shape that ``decide`` gives predictions."""
    values = as_array(target)
    return values[:, None] if task.kind == "regression" and values.ndim == 1 else values


def pair(prediction: Values, target: Values) -> tuple[Floats, Floats]:
    """Return predictions and targets of one shape, with rows and without NaN."""
    predicted, truth = as_array(prediction), as_array(target)
    if predicted.shape != truth.shape:
        raise ValueError(f"prediction and target must be of one shape, got {predicted.shape} and {truth.shape}")
    if not len(predicted):
        raise ValueError("prediction must have at least one row, got none")
    if np.isnan(predicted).any() or np.isnan(truth).any():
        raise ValueError("prediction and target must not be NaN")
    return predicted, truth


def members(group: Values, names: int, rows: int, called: str = "group") -> NDArray[np.bool_]:
    """Return which rows belong to which group, (n, names), from numbers (n,) or from what is that already."""
    values = as_array(group)
    if len(values) != rows:
        raise ValueError(f"{called} must have a row for each of the {rows} targets, got {len(values)}")
    if values.ndim == 2:
        if values.shape[1] != names:
            raise ValueError(f"{called} must have a column for each of the {names} names, got shape {values.shape}")
        return np.asarray(values > 0)
    if rows and (values.min() < 0 or values.max() >= names):
        raise ValueError(f"{called} must be from 0 to {names - 1}, got {values.min():g} to {values.max():g}")
    return np.asarray(values[:, None] == np.arange(names))


def as_array(values: Values) -> Floats:
    """Return numbers as float64, from wherever they are."""
    if isinstance(values, Tensor):
        values = values.detach().cpu().double().numpy()
    return np.asarray(values, dtype=np.float64)
