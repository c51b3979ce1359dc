"""Turns a data set into batches: the batch of a step is a function of the seed and the step, in any process."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as MapDataset

from okapi.data.batches import Batch, Inputs, Samples
from okapi.data.dataset import Dataset
from okapi.data.sampling import Integers, Stream
from okapi.data.views import Transform, can_draw

Strong: TypeAlias = Literal["none", "unlabelled", "all"]
_Item = TypeVar("_Item")
_FIRST, _STRONG, _MATCH = range(3)  # kinds of view: each draws from a stream of its own


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
        dataset: Dataset,
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
        number = torch.from_numpy(rows)
        match, matched = None, None
        if self.matches is not None:
            partner = self.matches[number]
            matched = partner >= 0
            match = self._first_view(partner[matched].numpy(), step, _MATCH)
        return Samples(
            inputs=self._first_view(rows, step, _FIRST),
            domain=self.dataset.domain[number],
            id=number,
            target=self.dataset.target[number] if target else None,
            strong=self._view(rows, step, len(rows) * [self.dataset.views.strong], _STRONG) if strong else None,
            match=match,
            matched=matched,
        )

    def _first_view(self, rows: Integers, step: int, kind: int) -> Inputs:
        """Return each row as its own pool, labelled or unlabelled, is viewed."""
        views = self.dataset.views
        chosen = [views.unlabelled if unlabelled else views.labelled for unlabelled in self._is_unlabelled[rows]]
        return self._view(rows, step, chosen, kind)

    def _view(self, rows: Integers, step: int, transforms: Sequence[Transform | None], kind: int) -> Inputs:
        if not any(transforms):
            return self.dataset.read(rows)
        generators = view_generators(self.seed, step, rows.tolist(), kind)
        only = transforms[0]
        if all(transform is only for transform in transforms) and can_draw(only):
            samples = _tensor(self.dataset.read(rows), rows[0])
            return only.of_rows(samples, [only.draw(samples.shape[1:], generator) for generator in generators])
        distorted: list[Inputs] = []
        for row, transform, generator in zip(rows.tolist(), transforms, generators, strict=True):
            sample = _tensor(self.dataset.sample(row), row)
            distorted.append(sample if transform is None else transform(sample, generator))
        return self.dataset.stack(distorted, rows.tolist())


def view_generators(seed: int, step: int, rows: Iterable[int], kind: int) -> Iterator[np.random.Generator]:
    """Yield the source of chance of one view of each sample at one step: one object, wound on to each in its turn.

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
    """Return a loader of the batches of steps ``first`` to ``last - 1``, in order, made by so many processes beside."""
    return _loader(batches, range(first, last), workers, pin_memory)


def evaluation_batches(
    dataset: Dataset, split: str, batch_size: int, rank: int = 0, world: int = 1, workers: int = 0
) -> DataLoader[Samples]:
    """Return a loader of a split's samples as they are, with targets: every sample once.

    Of several processes each gets a share of its own; shares differ by one sample at most, and nothing is repeated to
    make them even.
    """
    rows = dataset.rows(split)
    if not len(rows):
        raise ValueError(f"split {split!r} has no samples")
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    if world < 1 or not 0 <= rank < world:
        raise ValueError(f"rank must be from 0 to world - 1, got rank {rank} of {world}")
    share = rows.tensor_split(world)[rank]
    chunks = _Chunks(dataset, [chunk for chunk in share.split(batch_size) if len(chunk)])
    return _loader(chunks, range(len(chunks.chunks)), workers, pin_memory=False)


class _Chunks(MapDataset[Samples]):
    """Samples as they are, some rows at a time."""

    def __init__(self, dataset: Dataset, chunks: list[Tensor]) -> None:
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
