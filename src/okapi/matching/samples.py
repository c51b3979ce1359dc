"""Samples as a matcher sees them, and matches of new ones."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from okapi.matching.caliper_nn import to_tensor
from okapi.matching.calipers import Side
from okapi.matching.matches import Matches

Array = NDArray[Any]

CHECKED = 2**23  # numbers checked at a time


class Samples(NamedTuple):
    """Samples as a matcher sees them: covariates (n, p), domains and scores, exact columns, and ids (n,)."""

    covariates: Array
    side: Side
    exact: pd.DataFrame | None
    ids: Array | None


@dataclass(frozen=True, eq=False)
class NewMatches(Matches):
    """Matches of new samples to those fitted. They know the new samples, which ``query`` counts."""

    queries: Samples


def ids_of(X: Any) -> Array | None:
    """Return the index of a DataFrame; of an array there is none."""
    return X.index.to_numpy() if isinstance(X, pd.DataFrame) else None


def side_of(codes: Array, scores: Array | None, outcome: Tensor | None) -> Side:
    """Return numbers of domains, scores and outcomes of some samples as `Calipers` take them."""
    propensity = None if scores is None else to_tensor(scores, "propensity_scores")
    return Side(to_tensor(codes, "domain"), propensity, outcome)


def check_finite(numbers: Array, names: list[str]) -> None:
    """Refuse covariates (n, p) that are not finite, by row and column."""
    step = max(1, CHECKED // numbers.shape[1])
    for start in range(0, len(numbers), step):
        finite = np.isfinite(numbers[start : start + step])
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            raise ValueError(f"X must be finite, row {start + row}, column {names[column]!r} holds NaN or infinity")


def check_labels(labels: Array, n: int) -> Array:
    """Return labels of domains, one for each of n samples."""
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1 or len(labels) != n:
        raise ValueError(f"domain must have shape ({n},), or ({n}, S) for booleans, got {labels.shape}")
    missing = pd.isna(labels)
    if missing.any():
        raise ValueError(f"domain is missing in row {int(missing.argmax())}")
    return labels
