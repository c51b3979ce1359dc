"""What a batch is, and how a data set becomes batches: that of a step is a function of the seed and the step."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as MapDataset

from okapi.data.augment import Transform, can_draw
from okapi.data.sampling import Integers, Stream

if TYPE_CHECKING:  # which knows inputs
    from okapi.data.dataset import Dataset

Inputs: TypeAlias = Tensor | Mapping[str, Tensor]
"""What an encoder takes: a tensor (n, ...), or named tensors (n, ...) such as a tokeniser's."""

Strong: TypeAlias = Literal["none", "unlabelled", "all"]
_Item = TypeVar("_Item")
_FIRST, _STRONG, _MATCH = range(3)  # kinds of view: each draws from a stream of its own


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
        return self._each(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "Samples":
        """Return the samples in memory that a GPU reads without a copy."""
        return self._each(Tensor.pin_memory)

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Samples":
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        changed: dict[str, Any] = {
            name: {key: change(part) for key, part in value.items()} if isinstance(value, Mapping) else change(value)
            for name, value in values.items()
            if value is not None
        }
        return replace(self, **changed)


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
        unlabelled = None if self.unlabelled is None else self.unlabelled.to(device, non_blocking)
        return Batch(self.labelled.to(device, non_blocking), unlabelled)

    def pin_memory(self) -> "Batch":
        """Return the batch in memory that a GPU reads without a copy."""
        return Batch(self.labelled.pin_memory(), None if self.unlabelled is None else self.unlabelled.pin_memory())


def join(parts: Sequence[Inputs]) -> Inputs:
    """Return several inputs, all tensors or all mappings, as one, row below row."""
    if all(isinstance(part, Tensor) for part in parts):
        return torch.cat([part for part in parts if isinstance(part, Tensor)])
    mappings = [part for part in parts if not isinstance(part, Tensor)]
    if len(mappings) < len(parts):
        raise TypeError("inputs must all be tensors or all be mappings, got a tensor beside a mapping")
    return {name: torch.cat([part[name] for part in mappings]) for name in mappings[0]}


def take(inputs: Inputs, rows: Any) -> Inputs:
    """Return some rows of inputs: a slice, an index or a mask."""
    if isinstance(inputs, Tensor):
        return inputs[rows]
    return {name: tensor[rows] for name, tensor in inputs.items()}


class Batches(MapDataset[Batch]):
    """The batches of a run; item ``step`` is the whole batch of that step.

    Parameters
    ----------
    dataset : Dataset
    labelled : Stream
        Rows of the split train.
    unlabelled : Stream, optional
        Rows of the split unlabelled, whose targets no batch has.
    seed : int
        Of the views.
    strong : {"none", "unlabelled", "all"}
        Which samples get a second, strong view.
    matches : tensor (n,), int64, optional
        The row that each row is matched to, -1 for none: batches then hold the match of every sample that has one.
    """

    def __init__(
        self,
        dataset: "Dataset",
        *,
        labelled: Stream,
        unlabelled: Stream | None = None,
        seed: int,
        strong: Strong = "none",
        matches: Tensor | None = None,
    ) -> None:
        if not 0 <= seed < 2**64:
            raise ValueError(f"seed must be from 0 to 2**64 - 1, got {seed}")
        if strong not in ("none", "unlabelled", "all"):
            raise ValueError(f"strong must be 'none', 'unlabelled' or 'all', got {strong!r}")
        if strong != "none" and dataset.views.strong is None:
            raise ValueError(f"strong is {strong!r}, but the data set has no strong view (views.strong is None)")
        if matches is not None and matches.shape != (len(dataset),):
            raise ValueError(f"matches must be of shape ({len(dataset)},), got {tuple(matches.shape)}")
        self.dataset, self.labelled, self.unlabelled = dataset, labelled, unlabelled
        self.seed, self.strong, self.matches = seed, strong, matches
        self._is_unlabelled = np.asarray(dataset.split) == "unlabelled"

    def __getitem__(self, step: int) -> Batch:
        labelled = self._samples(self.labelled.rows_at(step), step, self.strong == "all", target=True)
        if self.unlabelled is None:
            return Batch(labelled)
        return Batch(labelled, self._samples(self.unlabelled.rows_at(step), step, self.strong != "none", target=False))

    def _samples(self, rows: Integers, step: int, strong: bool, target: bool) -> Samples:
        index = torch.from_numpy(rows)
        match, matched = None, None
        if self.matches is not None:
            partner = self.matches[index]
            matched = partner >= 0
            match = self._first_view(partner[matched].numpy(), step, _MATCH)
        return Samples(
            inputs=self._first_view(rows, step, _FIRST),
            domain=self.dataset.domain[index],
            id=index,
            target=self.dataset.target[index] if target else None,
            strong=self._view(rows, step, len(rows) * [self.dataset.views.strong], _STRONG) if strong else None,
            match=match,
            matched=matched,
        )

    def _first_view(self, rows: Integers, step: int, kind: int) -> Inputs:
        """Return each row as its own pool, labelled or unlabelled, is viewed."""
        views = self.dataset.views
        transforms = [views.unlabelled if unlabelled else views.labelled for unlabelled in self._is_unlabelled[rows]]
        return self._view(rows, step, transforms, kind)

    def _view(self, rows: Integers, step: int, transforms: Sequence[Transform | None], kind: int) -> Inputs:
        if not any(transforms):
            return self.dataset.read(rows)
        generators = view_generators(self.seed, step, rows.tolist(), kind)
        first = transforms[0]
        if all(transform is first for transform in transforms) and can_draw(first):
            samples = _tensor(self.dataset.read(rows), rows[0])
            return first.of_rows(samples, [first.draw(samples.shape[1:], generator) for generator in generators])
        distorted: list[Inputs] = []
        for row, transform, generator in zip(rows.tolist(), transforms, generators, strict=True):
            sample = _tensor(self.dataset.sample(row), row)
            distorted.append(sample if transform is None else transform(sample, generator))
        return self.dataset.stack(distorted, rows.tolist())


def view_generators(seed: int, step: int, rows: Iterable[int], kind: int) -> Iterator[np.random.Generator]:
    """Yield the random generator of each row's view at a step: one object, set to each row's state in its turn.

    Philox turns a counter into numbers: step and row stand in its upper half, so that no two views draw the same.
    """
    bits = np.random.Philox(key=np.array([seed, kind], dtype=np.uint64))
    generator, state = np.random.Generator(bits), bits.state
    for row in rows:
        state["state"]["counter"] = np.array([0, 0, row, step], dtype=np.uint64)
        bits.state = state  # what was left of the sample before is forgotten too
        yield generator


def batch_loader(
    batches: Batches, first: int, last: int, workers: int = 0, pin_memory: bool = False
) -> DataLoader[Batch]:
    """Return a loader of the batches of steps ``first`` to ``last - 1``, in order, read by so many worker processes."""
    return _loader(batches, range(first, last), workers, pin_memory)


def evaluation_batches(
    dataset: "Dataset", rows: Tensor, batch_size: int, rank: int = 0, world: int = 1, workers: int = 0
) -> DataLoader[Samples]:
    """Return a loader of the samples of some rows (m,) as they are, with targets: each once, in order.

    Of several processes each gets its share; shares differ by one sample at most, and nothing is repeated to make them
    even.
    """
    if not len(rows):
        raise ValueError("rows must not be empty")
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    if world < 1 or not 0 <= rank < world:
        raise ValueError(f"rank must be from 0 to world - 1, got rank {rank} of {world}")
    share = rows.tensor_split(world)[rank]
    chunks = [chunk for chunk in share.split(batch_size) if len(chunk)]
    return _loader(_Chunks(dataset, chunks), range(len(chunks)), workers, pin_memory=False)


class _Chunks(MapDataset[Samples]):
    """Samples as they are, some rows at a time."""

    def __init__(self, dataset: "Dataset", chunks: list[Tensor]) -> None:
        self.dataset, self.chunks = dataset, chunks

    def __getitem__(self, number: int) -> Samples:
        rows, data = self.chunks[number], self.dataset
        return Samples(inputs=data.read(rows.tolist()), domain=data.domain[rows], id=rows, target=data.target[rows])


def _tensor(inputs: Inputs, row: int) -> Tensor:
    if not isinstance(inputs, Tensor):
        raise TypeError(f"views are of tensors, got a {type(inputs).__name__} at row {row}")
    return inputs


def _loader(items: MapDataset[_Item], steps: range, workers: int, pin_memory: bool) -> DataLoader[_Item]:
    return DataLoader(
        items,
        batch_size=None,
        sampler=steps,
        num_workers=workers,
        pin_memory=pin_memory,
        # Without one of its own a loader would draw from torch's generator, and the model's dropout would change.
        generator=torch.Generator(),
    )
