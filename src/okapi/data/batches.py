"""What a batch is: labelled samples and unlabelled ones, each with inputs, domains and ids."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

Inputs: TypeAlias = Tensor | Mapping[str, Tensor]
"""What an encoder takes: a tensor (n, ...), or named tensors (n, ...) such as a tokeniser's."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Samples:
    """Samples of one pool, labelled or unlabelled.

    Parameters
    ----------
    inputs : tensor (n, ...) or mapping of such
    domain : tensor (n,), int64; or (n, S), bool
        Where a sample comes from, or the set of its domain labels.
    id : tensor (n,), int64
        Rows of the data set.
    target : tensor (n,), int64, of classes; (n,) or (n, D), float, of a regression; (n, C), float of 0 and 1; optional
    strong : like inputs, optional
        A second, strongly distorted view of the same samples; FixMatch needs it.
    match : like inputs, of as many rows as ``matched`` is true, optional
        The sample that each matched one is paired with; OfflineOkapi needs it.
    matched : tensor (n,), bool, optional
        Which samples have a match.
    """

    inputs: Inputs
    domain: Tensor
    id: Tensor
    target: Tensor | None = None
    strong: Inputs | None = None
    match: Inputs | None = None
    matched: Tensor | None = None

    def __len__(self) -> int:
        return len(self.id)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "Samples":
        """Return the samples on another device."""
        return _each(self, lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "Samples":
        """Return the samples in memory that a GPU reads without a copy."""
        return _each(self, Tensor.pin_memory)


@dataclass(frozen=True, eq=False)
class Batch:
    """What one training step sees: samples with targets and, unless the algorithm is supervised only, others without.

    Parameters
    ----------
    labelled : Samples
    unlabelled : Samples, optional
    """

    labelled: Samples
    unlabelled: Samples | None = None

    def __len__(self) -> int:
        return len(self.labelled) + (0 if self.unlabelled is None else len(self.unlabelled))

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "Batch":
        """Return the batch on another device."""
        unlabelled = self.unlabelled
        return Batch(
            self.labelled.to(device, non_blocking), None if unlabelled is None else unlabelled.to(device, non_blocking)
        )

    def pin_memory(self) -> "Batch":
        """Return the batch in memory that a GPU reads without a copy."""
        return Batch(self.labelled.pin_memory(), None if self.unlabelled is None else self.unlabelled.pin_memory())


def join(parts: Sequence[Inputs]) -> Inputs:
    """Return several inputs as one, row below row."""
    first = parts[0]
    if isinstance(first, Tensor):
        return torch.cat([_tensor(part) for part in parts])
    return {name: torch.cat([_mapping(part)[name] for part in parts]) for name in first}


def take(inputs: Inputs, rows: Any) -> Inputs:
    """Return some rows of inputs: a slice, an index or a mask."""
    if isinstance(inputs, Tensor):
        return inputs[rows]
    return {name: tensor[rows] for name, tensor in inputs.items()}


def _each(samples: Samples, change: Any) -> Samples:
    def changed(value: Any) -> Any:
        return {k: change(v) for k, v in value.items()} if isinstance(value, Mapping) else change(value)

    present = {field.name: getattr(samples, field.name) for field in fields(samples)}
    return replace(samples, **{name: changed(value) for name, value in present.items() if value is not None})


def _tensor(inputs: Inputs) -> Tensor:
    if not isinstance(inputs, Tensor):
        raise TypeError(f"inputs must all be tensors or all be mappings, got {type(inputs).__name__} beside a tensor")
    return inputs


def _mapping(inputs: Inputs) -> Mapping[str, Tensor]:
    if isinstance(inputs, Tensor):
        raise TypeError("inputs must all be tensors or all be mappings, got a tensor beside a mapping")
    return inputs
