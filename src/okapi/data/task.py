"""What is to be predicted: one class of several, numbers, or any of several labels."""

from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor

from okapi.config import Kind


@dataclass(frozen=True)
class Task:
    """What is to be predicted.

    Parameters
    ----------
    kind : {"classification", "regression", "multilabel"}
    outputs : int
        Classes, numbers or labels: the width of a prediction.

    Examples
    --------
    >>> Task("classification", 10)
    Task(kind='classification', outputs=10)
    """

    kind: Kind
    outputs: int = 1

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(f"kind must be one of {', '.join(get_args(Kind))}, got {self.kind!r}")
        least = 2 if self.kind == "classification" else 1
        if self.outputs < least:
            raise ValueError(f"outputs must be at least {least} for {self.kind}, got {self.outputs}")

    def check_target(self, target: Tensor, rows: Tensor | None = None) -> None:
        """Reject targets (n,) or (n, outputs) that are out of range or missing, naming the first bad row.

        ``rows`` are the numbers by which rows are called; by default their positions.
        """
        several = target.ndim == 2
        if self.kind == "classification":
            wanted = f"a whole number from 0 to {self.outputs - 1}"
            fits = target.ndim == 1 and not target.is_floating_point()
            good = (target >= 0) & (target < self.outputs) if fits else None
        elif self.kind == "regression":
            wanted = "a finite number"
            fits = target.shape[1] == self.outputs if several else target.ndim == 1 and self.outputs == 1
            good = target.isfinite() if fits else None
        else:
            wanted = "0 or 1"
            fits = several and target.shape[1] == self.outputs
            good = (target == 0) | (target == 1) if fits else None
        if good is None:
            shape = "(n,)" if self.kind == "classification" else f"(n, {self.outputs})"
            raise ValueError(
                f"target must be of shape {shape} for {self.kind}, each {wanted}; "
                f"got shape {tuple(target.shape)} of {target.dtype}"
            )
        bad = torch.nonzero(~(good.all(1) if several else good)).flatten()
        if len(bad):
            row = int(bad[0])
            name = row if rows is None else int(rows[row])
            raise ValueError(
                f"target of row {name} must be {wanted}, got {target[row].tolist()} ({len(bad)} such rows)"
            )
