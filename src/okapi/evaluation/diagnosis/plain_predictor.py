"""What a plain model makes of encodings: the measure that pairs are compared with."""

import warnings
from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge, RidgeCV

from okapi.data.task import Task
from okapi.evaluation.metrics import Floats

INVERSE_PENALTY = 10.0  # C of the logistic regression, for encodings whose variances add up to 1
PENALTIES = tuple(10.0**power for power in range(-3, 4))  # of the ridge, chosen by leaving one out
NEVER = 30.0  # by how much the logit of a class that was not seen lies below the least of the others


class Predictor:
    """A logistic regression of classes or a ridge of numbers, on encodings scaled by one number.

    Parameters
    ----------
    task : Task
    """

    def __init__(self, task: Task) -> None:
        self.task = task

    def fit(self, X: NDArray[Any], target: NDArray[Any]) -> "Predictor":
        """Fit to encodings (n, d) and targets (n,)."""
        self._scale = float(np.sqrt(X.var(axis=0).sum())) or 1.0
        if self.task.kind == "regression":
            self._model: Any = RidgeCV(alphas=PENALTIES)
        else:
            self._model = LogisticRegression(C=INVERSE_PENALTY, max_iter=1000, warm_start=True)
        return self._refit(X, target)

    def fitted_to(self, X: NDArray[Any], target: NDArray[Any]) -> "Predictor":
        """Return another one, fitted to other samples of the same classes with the same scale and penalty."""
        other = Predictor(self.task)
        other._scale = self._scale
        other._model = deepcopy(self._model) if self.task.kind != "regression" else Ridge(alpha=self._model.alpha_)
        return other._refit(X, target)

    def _refit(self, X: NDArray[Any], target: NDArray[Any]) -> "Predictor":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            self._model.fit(X / self._scale, target)
        return self

    def outputs(self, X: NDArray[Any]) -> Floats:
        """Return logits (n, C), or numbers (n, 1)."""
        if self.task.kind == "regression":
            return np.asarray(self._model.predict(X / self._scale), dtype=np.float64).reshape(-1, 1)
        seen = np.asarray(self._model.decision_function(X / self._scale), dtype=np.float64)
        seen = np.stack([np.zeros_like(seen), seen], axis=1) if seen.ndim == 1 else seen
        logits = np.repeat(seen.min(axis=1, keepdims=True) - NEVER, self.task.outputs, axis=1)
        logits[:, self._model.classes_] = seen
        return logits
