"""What a data set is: samples with targets, domains and splits."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from okapi.data.augment import Views
from okapi.data.batches import Inputs, take
from okapi.data.splits import SPLITS
from okapi.data.task import Task
from okapi.messages import listed


class Rows(Protocol):
    """Samples that are read when they are asked for: row number in, one sample's input out."""

    def __len__(self) -> int: ...

    def __getitem__(self, row: int, /) -> Inputs: ...


@runtime_checkable
class Files(Protocol):
    """Samples in files that may be broken."""

    def check(self) -> None:
        """Read every file through, and name those that are broken, all at once."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """Samples, what is to be predicted of them, where they come from and what they are used for.

    Parameters
    ----------
    inputs : tensor (n, ...), mapping of such, or anything with a length whose item ``row`` is one sample's input
        The last is for samples that are read from files.
    target : tensor (n,), int64, of classes; (n,) or (n, D), float, of a regression; (n, C), float of 0 and 1
        Of an unlabelled sample: -1 or NaN, or the truth; no algorithm gets to see it.
    domain : tensor (n,), int64, numbers of ``domain_names``; or (n, S), bool, the set of a sample's domains
    split : array (n,) of str
        One of ``SPLITS`` for every sample.
    task : Task
    domain_names : tuple of str
    ids : sequence of str, optional
        By what a sample is called; by default its row number.
    views : Views
        How samples are distorted in training; by default not at all.
    class_names : tuple of str, optional
        What classes are called, or labels.
    groups : tensor (n, G), bool, optional
        Which groups a sample belongs to, of those that evaluation looks at where they are not the domains.
    group_names : tuple of str
        What they are called.
    recipe : mapping of str to JSON values
        How inputs are made from what is in a file, as ``inputs_from`` takes it: part of ``description``.

    Examples
    --------
    >>> data = Dataset(
    ...     inputs=torch.randn(4, 3), target=torch.tensor([0, 1, 1, -1]), domain=torch.tensor([0, 0, 1, 1]),
    ...     split=["train", "train", "ood_test", "unlabelled"], task=Task("classification", 2),
    ...     domain_names=("rome", "oslo"),
    ... )
    >>> data.check()
    >>> data.rows("train")
    tensor([0, 1])
    """

    inputs: Tensor | Mapping[str, Tensor] | Rows
    target: Tensor
    domain: Tensor
    split: Sequence[str] | NDArray[np.str_]
    task: Task
    domain_names: tuple[str, ...]
    ids: Sequence[str] = ()
    views: Views = field(default_factory=Views)
    class_names: tuple[str, ...] = ()
    groups: Tensor | None = None
    group_names: tuple[str, ...] = ()
    recipe: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "split", np.asarray(self.split, dtype=np.str_))
        if len(self.ids) == 0:
            object.__setattr__(self, "ids", [str(row) for row in range(len(self))])

    def __len__(self) -> int:
        return len(self.target)

    def rows(self, split: str) -> Tensor:
        """Return the rows of a split, int64, in order."""
        if split not in SPLITS:
            raise ValueError(f"split must be one of {listed(SPLITS)}, got {split!r}")
        return torch.from_numpy(np.flatnonzero(np.asarray(self.split) == split))

    def sample(self, row: int) -> Inputs:
        """Return one sample's input, with no dimension for rows."""
        return take(self.inputs, row) if isinstance(self.inputs, Tensor | Mapping) else self.inputs[row]

    def read(self, rows: Iterable[int]) -> Inputs:
        """Return the inputs of some rows as one, row below row."""
        rows = [int(row) for row in rows]
        if isinstance(self.inputs, Tensor | Mapping):
            return take(self.inputs, rows)
        return self.stack([self.inputs[row] for row in rows], rows)

    def stack(self, samples: Sequence[Inputs], rows: Sequence[int]) -> Inputs:
        """Return samples as one; if their sizes differ, name two that do. ``rows`` says where they come from."""
        if not samples:  # as wide as samples are
            return take(self.stack([self.sample(0)], [0]), slice(0))
        self._check_sizes(samples, rows)
        first = samples[0]
        if isinstance(first, Tensor):
            return torch.stack(list(samples))  # type: ignore[arg-type]
        return {name: torch.stack([sample[name] for sample in samples]) for name in first}  # type: ignore[index]

    def description(self) -> dict[str, Any]:
        """Return what inputs are and how they are made, as JSON values: what predicting for a file needs.

        ``kind`` is "images", "text", "arrays" or "table"; ``shape`` that of one sample's input.

        Examples
        --------
        >>> data = Dataset(
        ...     inputs=torch.zeros(2, 3, 8, 8), target=torch.tensor([0, 1]), domain=torch.tensor([0, 0]),
        ...     split=["train", "train"], task=Task("classification", 2), domain_names=("rome",),
        ... )
        >>> data.description()
        {'kind': 'images', 'shape': [3, 8, 8]}
        """
        describe = getattr(self.inputs, "description", None)
        if describe is not None or "shape" in self.recipe:
            return {**(describe() if describe is not None else {}), **self.recipe}
        sample = self.sample(int(self.rows("train")[0]))  # no other split is looked into
        first = sample if isinstance(sample, Tensor) else next(iter(sample.values()))
        kind = "text" if not isinstance(sample, Tensor) else "images" if sample.ndim == 3 else "arrays"
        return {"kind": kind, "shape": list(first.shape)}

    def check(self) -> None:
        """Reject a data set that cannot be learnt from, naming the first row that is wrong.

        Sizes of inputs are compared where they lie in memory; files are compared when they are read, and ``verify``
        reads them all.
        """
        self._check_lengths()
        split = np.asarray(self.split)
        if split.ndim != 1:
            raise ValueError(f"split must be of shape (n,), got {split.shape}")
        if len(unknown := np.flatnonzero(~np.isin(split, SPLITS))):
            row = int(unknown[0])
            raise ValueError(f"split of row {row} must be one of {listed(SPLITS)}, got {str(split[row])!r}")
        if not len(self.rows("train")):
            raise ValueError("split must name at least one sample 'train', got none")
        labelled = torch.from_numpy(np.flatnonzero(split != "unlabelled"))
        self.task.check_target(self.target[labelled], labelled)
        self._check_domain()
        self._check_groups()
        if isinstance(self.inputs, list | tuple):
            self._check_sizes(self.inputs, range(len(self)))
        if isinstance(self.inputs, Mapping) and self.views != Views():
            raise ValueError("views are of tensors, got inputs that are mappings")

    def verify(self) -> None:
        """Read every sample's file through, and name those that are broken, all at once.

        It takes as long as a pass over the data; samples that are in memory need none.
        """
        if isinstance(self.inputs, Files):
            self.inputs.check()

    def _check_lengths(self) -> None:
        parts = self.inputs.items() if isinstance(self.inputs, Mapping) else [("inputs", self.inputs)]
        lengths: list[tuple[str, Any]] = [*parts, ("domain", self.domain), ("split", self.split), ("ids", self.ids)]
        for name, part in lengths:
            if len(part) != len(self):
                raise ValueError(f"{name} must have a row for each of the {len(self)} targets, got {len(part)}")
        if self.class_names and len(self.class_names) != self.task.outputs:
            raise ValueError(
                f"class_names must be one for each of {self.task.outputs} outputs, got {len(self.class_names)}"
            )
        if len(set(self.ids)) < len(self):
            name, _ = Counter(self.ids).most_common(1)[0]
            rows = [row for row, other in enumerate(self.ids) if other == name]
            raise ValueError(f"ids must differ, got {name!r} in rows {rows[0]} and {rows[1]}")

    def _check_sizes(self, samples: Sequence[Inputs], rows: Sequence[int]) -> None:
        size = _shape(samples[0])
        for sample, row in zip(samples, rows, strict=True):
            if _shape(sample) != size:
                first, other = (
                    f"sample {self.ids[rows[0]]!r} is {size}",
                    f"sample {self.ids[row]!r} is {_shape(sample)}",
                )
                raise ValueError(f"inputs must be of one size: {first}, {other} (row {row})")

    def _check_domain(self) -> None:
        count, domain = len(self.domain_names), self.domain
        if domain.dtype == torch.bool and domain.ndim == 2 and domain.shape[1] == count:
            return
        if domain.dtype != torch.int64 or domain.ndim != 1:
            raise ValueError(
                f"domain must be of shape (n,) and int64, or (n, {count}) and bool; "
                f"got shape {tuple(domain.shape)} of {domain.dtype}"
            )
        if len(bad := torch.nonzero((domain < 0) | (domain >= count)).flatten()):
            row = int(bad[0])
            raise ValueError(f"domain of row {row} must be from 0 to {count - 1}, got {int(domain[row])}")

    def _check_groups(self) -> None:
        if self.groups is None:
            return
        shape = (len(self), len(self.group_names))
        if self.groups.dtype != torch.bool or tuple(self.groups.shape) != shape:
            raise ValueError(
                f"groups must be of shape {shape} and bool, got shape {tuple(self.groups.shape)} of {self.groups.dtype}"
            )


def _shape(sample: Inputs) -> Any:
    if isinstance(sample, Tensor):
        return tuple(sample.shape)
    return {name: tuple(tensor.shape) for name, tensor in sample.items()}
