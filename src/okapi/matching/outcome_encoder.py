"""Outcomes as the prognostic caliper compares them."""

from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from okapi.matching.caliper_nn import check_outcome


class Outcomes:
    """How outcomes are compared, as learnt from those of the samples fitted.

    Numbers (n,) are divided by their standard deviation; classes (n,), that is strings, booleans or categories, become
    a column of 0 and 1 for each class; columns (n, C) of numbers stay as they are.

    Parameters
    ----------
    outcome : array-like of shape (n,) or (n, C)
    n : int
        Number of samples.
    """

    def __init__(self, outcome: ArrayLike | Tensor, n: int) -> None:
        given = _array(outcome)
        self._columns = given.shape[1:]
        self._classes = np.unique(_names(given, n)) if _is_classes(given) else None
        self._scale = 1.0
        if self._classes is None and not self._columns:
            self._scale = float(_numbers(given, n).std()) if n > 1 else 0.0
        self._scale = self._scale or 1.0

    @property
    def unit(self) -> str:
        """What a distance of outcomes counts, in words."""
        if self._classes is not None:
            return "0 within a class, √2 between two"
        return "standard deviations" if not self._columns else f"over {self._columns[0]} columns"

    def values(self, outcome: ArrayLike | Tensor, n: int) -> Tensor:
        """Return the outcomes of n samples, (n, c) and float64, whose Euclidean distance is compared."""
        given = _array(outcome)
        if given.shape[1:] != self._columns or _is_classes(given) != (self._classes is not None):
            wanted = "numbers" if self._classes is None else "classes"
            shape = f" of shape ({n}, {self._columns[0]})" if self._columns else f" of shape ({n},)"
            raise ValueError(f"outcome must be {wanted}{shape}, as in fit, got {given.dtype} of shape {given.shape}")
        if self._classes is None:
            return _numbers(given, n) / self._scale
        names = _names(given, n)
        code = np.searchsorted(self._classes, names).clip(max=len(self._classes) - 1)
        unknown = self._classes[code] != names
        if unknown.any():
            row = int(unknown.argmax())
            raise ValueError(f"outcome holds {names.tolist()[row]!r} in row {row}, which was not there in fit")
        values = torch.zeros(n, len(self._classes), dtype=torch.float64)
        values[torch.arange(n), torch.from_numpy(code)] = 1.0
        return values


def _array(outcome: ArrayLike | Tensor) -> NDArray[Any]:
    return np.asarray(outcome.detach().cpu().numpy() if isinstance(outcome, Tensor) else outcome)


def _is_classes(outcome: NDArray[Any]) -> bool:
    return outcome.ndim == 1 and outcome.dtype.kind not in "iuf"


def _numbers(outcome: NDArray[Any], n: int) -> Tensor:
    return check_outcome(outcome, "outcome", n, torch.device("cpu"))


def _names(outcome: NDArray[Any], n: int) -> NDArray[Any]:
    """Return classes by their names; none may be missing."""
    if len(outcome) != n:
        raise ValueError(f"outcome must have shape ({n},) or ({n}, C), got {outcome.shape}")
    missing = pd.isna(outcome)
    if missing.any():
        raise ValueError(f"outcome is missing in row {int(missing.argmax())}")
    return outcome.astype(str)
