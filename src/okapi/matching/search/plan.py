"""What a search needs to know of admissible pairs: blocks, exclusion and admission."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, overload

import torch
from torch import Tensor

FAR = 1e12  # a score from here on marks an inadmissible pair: scores of scaled data are far below
PIECE = 2048  # keys per matrix product: its result stays in the cache until pairs are excluded
COUNTED = 1 << 16  # pairs judged in float64 at a time


class Tile(NamedTuple):
    """Queries of a block, as places within it (None: all), and keys to compare them with."""

    rows: Tensor | None
    keys: slice


@dataclass(frozen=True, eq=False)
class Block:
    """Queries that are searched together. Queries and keys are positions in the plan's orders.

    Parameters
    ----------
    rows : slice
        The queries.
    spans : tuple of slice
        The keys that may be admissible to any of them.
    mixed : tuple of slice, optional
        The keys among which there are inadmissible ones (None: all of them); elsewhere none has to be excluded.
    picked : Tensor of shape (n,), int64, optional
        Keys picked one by one, which ``spans`` and tiles count then instead of all.
    """

    rows: slice
    spans: tuple[slice, ...]
    mixed: tuple[slice, ...] | None = None
    picked: Tensor | None = None

    @overload
    def keys(self, places: slice) -> slice | Tensor: ...
    @overload
    def keys(self, places: Tensor) -> Tensor: ...
    def keys(self, places: slice | Tensor) -> slice | Tensor:
        """Return the positions of keys at these places of the spans."""
        return places if self.picked is None else self.picked[places]

    def strips(self) -> Iterator[list[Tile]]:
        """Yield all pairs of the block in pieces, as `Plan.strips` does."""
        for span in self.spans:
            for start in range(span.start, span.stop, PIECE):
                yield [Tile(None, slice(start, min(start + PIECE, span.stop)))]

    def to_exclude(self, keys: slice) -> Iterator[slice]:
        """Yield the parts of some keys in which pairs have to be excluded."""
        for mixed in (keys,) if self.mixed is None else self.mixed:
            part = slice(max(mixed.start, keys.start), min(mixed.stop, keys.stop))
            if part.start < part.stop:
                yield part


class Plan(ABC):
    """Admissible pairs, arranged for a search.

    Attributes
    ----------
    query_order, key_order : Tensor of shape (n,), int64
        Rows of the admissible queries and keys in the order in which blocks count them.
    blocks : list of Block
    """

    query_order: Tensor
    key_order: Tensor
    blocks: list[Block]

    @abstractmethod
    def exclude_(self, scores: Tensor, rows: slice | Tensor, keys: slice | Tensor) -> None:
        """Raise the scores (r, c) of inadmissible pairs to `FAR` or more, in place; some may be left to `admits`."""

    def admits(self, rows: Tensor, keys: Tensor) -> Tensor:
        """Return which pairs of queries and keys, positions of one shape, are admissible among those not excluded."""
        return torch.ones_like(rows, dtype=torch.bool)

    def strips(self, block: Block) -> Iterator[list[Tile]]:
        """Yield the pairs of a block that may be admissible: lists of tiles, each query in at most one of a list."""
        return block.strips()

    def inside(self, block: Block) -> Iterator[tuple[slice | Tensor, Tensor]]:
        """Yield positions of a block's keys, piece by piece, and which pairs with its queries (r, c) are admissible."""
        for ((_, places),) in block.strips():
            keys = block.keys(places)
            shape = block.rows.stop - block.rows.start, places.stop - places.start
            scores = torch.zeros(shape, device=self.key_order.device)
            self.exclude_(scores, block.rows, keys)
            inside = scores < FAR
            for pairs in inside.nonzero().split(COUNTED):
                row, column = pairs.T
                inside[row, column] = self.admits(row + block.rows.start, block.keys(column + places.start))
            yield keys, inside

    def count_pairs(self) -> int:
        """Return the number of admissible pairs."""
        return sum(int(inside.sum()) for block in self.blocks for _, inside in self.inside(block))


def cut(start: int, stop: int, size: int) -> Iterator[slice]:
    """Cut a range into blocks of at most ``size`` of even length."""
    n_blocks = -(-(stop - start) // size)
    for i in range(n_blocks):
        yield slice(start + (stop - start) * i // n_blocks, start + (stop - start) * (i + 1) // n_blocks)


def at(values: Tensor, positions: Sequence[int]) -> Tensor:
    """Return the values at positions that the host knows."""
    return values[torch.tensor(positions, dtype=torch.int64, device=values.device)]
