"""Outcomes, known or predicted, as the prognostic caliper compares them."""

from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from okapi.matching.checks import check_prognosis


class PrognosisEncoder:
    """Encodes outcomes by what was learnt from those of the samples fitted.

    Numbers (n,) are divided by their standard deviation; classes (n,), that is strings, booleans or categories, become
    a column of 0 and 1 for each class; columns (n, C) of numbers stay as they are.

    Parameters
    ----------
    prognosis : array-like of shape (n,) or (n, C)
    n : int
        Number of samples.
    """

    def __init__(self, prognosis: ArrayLike | Tensor | None, n: int) -> None:
        values = _array(prognosis)
        self._columns = values.shape[1:]
        self._classes = np.unique(_names(values, n)) if _is_classes(values) else None
        self._scale = 1.0
        if self._classes is None and not self._columns and n > 1:
            self._scale = float(check_prognosis(values, "prognosis", n).std()) or 1.0

    @property
    def unit(self) -> str:
        """What a distance of outcomes counts, in words."""
        if self._classes is not None:
            return "0 within a class, √2 between two"
        return "standard deviations" if not self._columns else f"over {self._columns[0]} columns"

    def encode(self, prognosis: ArrayLike | Tensor | None, n: int) -> Tensor:
        """Return the outcomes of n samples, (n, c) and float64, whose Euclidean distance is compared."""
        values = _array(prognosis)
        if values.shape[1:] != self._columns or _is_classes(values) != (self._classes is not None):
            wanted = "numbers" if self._classes is None else "classes"
            shape = f" of shape ({n}, {self._columns[0]})" if self._columns else f" of shape ({n},)"
            raise ValueError(
                f"prognosis must be {wanted}{shape}, as in fit, got {values.dtype} of shape {values.shape}"
            )
        if self._classes is None:
            return check_prognosis(values, "prognosis", n) / self._scale
        names = _names(values, n)
        code = np.searchsorted(self._classes, names).clip(max=len(self._classes) - 1)
        unknown = self._classes[code] != names
        if unknown.any():
            row = int(unknown.argmax())
            raise ValueError(f"prognosis holds {names.tolist()[row]!r} in row {row}, which was not there in fit")
        return torch.from_numpy(np.eye(len(self._classes))[code])


def _array(prognosis: ArrayLike | Tensor | None) -> NDArray[Any]:
    if prognosis is None:
        raise ValueError("prognosis is needed by prognostic_caliper, got None")
    return np.asarray(prognosis.detach().cpu().numpy() if isinstance(prognosis, Tensor) else prognosis)


def _is_classes(prognosis: NDArray[Any]) -> bool:
    return prognosis.ndim == 1 and prognosis.dtype.kind not in "iuf"


def _names(prognosis: NDArray[Any], n: int) -> NDArray[Any]:
    """Return classes by their names; none may be missing."""
    if len(prognosis) != n:
        raise ValueError(f"prognosis must have shape ({n},) or ({n}, C), got {prognosis.shape}")
    missing = pd.isna(prognosis)
    if missing.any():
        raise ValueError(f"prognosis is missing in row {int(missing.argmax())}")
    return prognosis.astype(str)
