"""Admissible pairs, arranged for a blocked search.

A *plan* states admissibility in the form the search needs: an order of the queries and of the keys, blocks of queries
with the few keys that can be admissible to any query of the block, and a way to exclude the rest pair by pair. The
calipers thereby save work instead of hiding work done.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

NARROW = 64  # queries per block where their windows must be narrow, twice that where a pair costs little
CHEAP = 256  # columns of vectors up to which it does
WIDE = 256  # queries per block where all keys are searched: the matrix product is faster
FAR = 1e12  # a score from here on marks an inadmissible pair: scores of scaled data are far below
LINE = 16  # numbers in a line of the cache
COUNTED, SETTLED = 1 << 12, 1 << 16  # keys of a block, and pairs of these, that are counted together
STEEP = 2.0**42  # half of it is beyond FAR


@dataclass(frozen=True, eq=False)
class Block:
    """Queries ``rows`` and the keys that may be admissible to them, as positions in the plan's order.

    The keys are those of some spans, and those ``picked`` one by one.
    """

    rows: slice
    spans: tuple[slice, ...] = ()
    picked: Tensor | None = None

    def chunks(self, size: int) -> Iterator[slice]:
        """Yield the keys of the spans in pieces of at most ``size``."""
        for span in self.spans:
            for start in range(span.start, span.stop, size):
                yield slice(start, min(start + size, span.stop))


class Tile(NamedTuple):
    """Some queries of a block and keys of one domain, among which there may be admissible pairs.

    ``rows`` are places within the block. The rest has one value per query: the place of its domain among those
    present, its score of its own and of the key's domain, and minus the squares of the thresholds of the two.
    """

    rows: Tensor
    columns: slice
    group: Tensor
    own: Tensor
    score: Tensor
    less_query: Tensor
    less_key: Tensor


class Band(NamedTuple):
    """Keys of one domain, as tiles of which each query of a block has one; ``width`` is that of the widest."""

    width: int
    tiles: Iterator[Tile]


Scratch = Callable[[str, int, int], Tensor]  # returns memory of that name and shape, used again and again


class Plan(ABC):
    """Admissibility of pairs, arranged for a blocked search.

    Attributes
    ----------
    query_order, key_order : Tensor of shape (n,), int64
        Rows of the admissible queries and keys in the order in which blocks and spans count them.
    blocks : list of Block
    """

    query_order: Tensor
    key_order: Tensor
    blocks: list[Block]

    @abstractmethod
    def exclude_(self, scores: Tensor, rows: slice | Tensor, columns: slice, block: Block) -> None:
        """Raise the scores (r, c) of inadmissible pairs beyond `FAR`, in place; some may be left for `admits`."""

    def exclude_picked_(self, scores: Tensor, rows: slice | Tensor, picked: Tensor, block: Block) -> None:
        """Do the same for keys that a block picks one by one."""
        raise NotImplementedError

    def tiles(self, block: Block, columns: slice) -> Iterator[Tile] | None:
        """Yield parts of a block's columns which cover all of them, for `outside`; None: it is one part."""
        return None

    def bands(self, block: Block, size: int) -> Iterator[Band] | None:
        """Yield the parts of a block's pairs that hold admissible ones, at most ``size`` wide; None: it is one part."""
        return None

    def outside(self, tile: Tile, scratch: Scratch) -> Tensor:
        """Return numbers for a tile's pairs (r, c): 0 or less inside the calipers, else beyond `FAR`."""
        raise NotImplementedError

    def admits(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return which pairs of queries and keys, positions of one shape, are admissible among those not excluded."""
        return torch.ones_like(rows, dtype=torch.bool)

    def _left(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield positions of queries and of keys, shape (p,), of the pairs that are not excluded, some at a time."""
        for block in self.blocks:
            n_rows = block.rows.stop - block.rows.start
            for columns in block.chunks(COUNTED):
                scores = torch.zeros(n_rows, columns.stop - columns.start, device=self.key_order.device)
                self.exclude_(scores, block.rows, columns, block)
                row, column = (scores < FAR).nonzero(as_tuple=True)
                yield row + block.rows.start, column + columns.start
            for picked in () if block.picked is None else block.picked.split(COUNTED):
                scores = torch.zeros(n_rows, len(picked), device=self.key_order.device)
                self.exclude_picked_(scores, block.rows, picked, block)
                row, column = (scores < FAR).nonzero(as_tuple=True)
                yield row + block.rows.start, picked[column]

    def count_pairs(self) -> int:
        """Return the number of admissible pairs."""
        total = torch.zeros((), dtype=torch.int64, device=self.key_order.device)
        for rows, columns in self._left():
            for pairs in zip(rows.split(SETTLED), columns.split(SETTLED), strict=True):
                total += self.admits(*pairs).sum()
        return int(total)


def cut(start: int, stop: int, size: int) -> Iterator[slice]:
    """Cut a range into blocks of at most ``size`` of even length."""
    n_blocks = -(-(stop - start) // size)
    for i in range(n_blocks):
        yield slice(start + (stop - start) * i // n_blocks, start + (stop - start) * (i + 1) // n_blocks)


def at(values: Tensor, positions: Sequence[int]) -> Tensor:
    """Return the values at positions that the host knows."""
    return values[torch.tensor(positions, dtype=torch.int64, device=values.device)]


def spread(width: int) -> int:
    """Return how far apart rows of that width had better lie: an odd number of lines, or a cache holds few."""
    return width + (LINE - width) % (2 * LINE)


class DomainPlan(Plan):
    """No std-caliper: a pair is admissible iff its domains differ.

    Keys lie grouped by domain, so a block of queries skips the keys of its own domain, or excludes them where the block
    spans several domains.
    """

    def __init__(self, query_rows: Tensor, key_rows: Tensor, query_domain: Tensor, key_domain: Tensor) -> None:
        self.query_domain, order = query_domain[query_rows].sort(stable=True)
        self.query_order = query_rows[order]
        self.key_domain, order = key_domain[key_rows].sort(stable=True)
        self.key_order = key_rows[order]
        rows = list(self._row_blocks())
        first = at(self.query_domain, [block.start for block in rows])
        last = at(self.query_domain, [block.stop - 1 for block in rows])
        own = zip(
            torch.searchsorted(self.key_domain, first).tolist(),
            torch.searchsorted(self.key_domain, last, right=True).tolist(),
            (first == last).tolist(),
            strict=True,
        )
        n_keys = len(self.key_order)
        self.blocks = []
        self._own_span = {}
        for block, (start, stop, single) in zip(rows, own, strict=True):
            spans = (slice(0, start), slice(stop, n_keys)) if single else (slice(0, n_keys),)
            self.blocks.append(Block(block, spans))
            self._own_span[block.start] = slice(start, stop)

    def _row_blocks(self) -> Iterator[slice]:
        """Blocks end where a domain ends, as long as that leaves no small blocks."""
        sizes = torch.unique_consecutive(self.query_domain, return_counts=True)[1].tolist()
        start = stop = 0
        for size in sizes:
            if size >= WIDE // 4 and stop > start:
                yield from cut(start, stop, WIDE)
                start = stop
            stop += size
            if size >= WIDE // 4:
                yield from cut(start, stop, WIDE)
                start = stop
        yield from cut(start, stop, WIDE)

    def exclude_(self, scores: Tensor, rows: slice | Tensor, columns: slice, block: Block) -> None:
        """See `Plan`."""
        own = self._own_span[block.rows.start]
        start, stop = max(own.start, columns.start), min(own.stop, columns.stop)
        if start < stop:
            same = self.query_domain[rows, None] == self.key_domain[start:stop]
            scores[:, start - columns.start : stop - columns.start].masked_fill_(same, torch.inf)

    def count_pairs(self) -> int:
        """See `Plan`."""
        own = torch.searchsorted(self.key_domain, self.query_domain, right=True)
        own -= torch.searchsorted(self.key_domain, self.query_domain)
        return len(self.query_order) * len(self.key_order) - int(own.sum())


class WindowPlan(Plan):
    """Two domains, std-caliper: keys sorted by propensity, so each query's admissible keys are one window.

    Parameters
    ----------
    query_score, key_score : Tensor of shape (n,), float64
        Propensity on the caliper's scale.
    threshold : dict
        The caliper of each direction: (query domain, key domain) -> greatest admissible difference.
    width : int
        Columns of the vectors searched, which tell what a pair costs.
    """

    def __init__(
        self,
        query_rows: Tensor,
        key_rows: Tensor,
        query_domain: Tensor,
        key_domain: Tensor,
        query_score: Tensor,
        key_score: Tensor,
        threshold: dict[tuple[int, int], Tensor],
        width: int,
    ) -> None:
        query_sides = [_sorted_side(query_rows, query_domain, query_score, d) for d in (0, 1)]
        key_sides = [_sorted_side(key_rows, key_domain, key_score, d) for d in (0, 1)]
        self.query_order = torch.cat([query_sides[d][0] for d in (0, 1)])
        self.key_order = torch.cat([key_sides[d][0] for d in (0, 1)])
        first, last, block_rows = [], [], []
        row_offset = 0
        for a, b in ((0, 1), (1, 0)):
            key_offset = 0 if b == 0 else len(key_sides[0][0])
            low, high = windows(query_sides[a][1], key_sides[b][1], threshold[a, b])
            first.append(low + key_offset)
            last.append(high + key_offset)
            block_rows += list(cut(row_offset, row_offset + len(low), NARROW if width > CHEAP else 2 * NARROW))
            row_offset += len(low)
        self.first, self.last = torch.cat(first), torch.cat(last)
        # Half a position from the keys, times a power of two: differences are exact, and beyond any score.
        exact = torch.float32 if len(self.key_order) < 1 << 23 else torch.float64
        self.begin, self.end = (((edge - 0.5) * STEEP).to(exact)[:, None] for edge in (self.first, self.last))
        self.position = torch.arange(len(self.key_order), device=self.key_order.device).to(exact) * STEEP
        self._set_blocks(block_rows)

    def _set_blocks(self, block_rows: list[slice]) -> None:
        heads = [rows.start for rows in block_rows]
        tails = [rows.stop - 1 for rows in block_rows]
        ends = [at(bound, end) for bound in (self.first, self.last) for end in (heads, tails)]
        edges = torch.stack(ends, 1).tolist()
        self.blocks = []
        self._inner = {}
        for rows, (start, inner_start, inner_stop, stop) in zip(block_rows, edges, strict=True):
            self.blocks.append(Block(rows, (slice(start, max(start, stop)),)))
            self._inner[rows.start] = inner_start, inner_stop

    def exclude_(self, scores: Tensor, rows: slice | Tensor, columns: slice, block: Block) -> None:
        """Exclude outside each query's window; only the margins of the block's window differ between its queries.

        A score becomes no less than how far its key lies outside, which is below any score inside: quicker than a mask.
        """
        inner_start, inner_stop = self._inner[block.rows.start]
        if inner_start > inner_stop:  # some window ends before another begins: both bounds everywhere
            inner_start, inner_stop = columns.stop, columns.start
        before = slice(columns.start, min(inner_start, columns.stop))
        if before.start < before.stop:
            _raise_(scores[:, : before.stop - columns.start], self.begin[rows] - self.position[before])
        after = slice(max(inner_stop, columns.start), columns.stop)
        if after.start < after.stop:
            _raise_(scores[:, after.start - columns.start :], self.position[after] - self.end[rows])

    def count_pairs(self) -> int:
        """See `Plan`."""
        return int((self.last - self.first).clamp(min=0).sum())


def _raise_(scores: Tensor, least: Tensor) -> None:
    torch.maximum(scores, least.to(scores.dtype), out=scores)


def _sorted_side(rows: Tensor, domain: Tensor, score: Tensor, which: int) -> tuple[Tensor, Tensor]:
    """Return the rows of one domain in order of their score, and those scores."""
    rows = rows[domain[rows] == which]
    sorted_score, order = score[rows].sort(stable=True)
    return rows[order], sorted_score


def windows(query_score: Tensor, key_score: Tensor, threshold: Tensor) -> tuple[Tensor, Tensor]:
    """Return first and last + 1 position of the keys with ``|query - key| <= threshold``; keys ascending.

    The bisection evaluates that very difference, which rounding keeps monotone: a pair on the caliper's edge is judged
    as it would be alone.
    """
    levels = len(key_score).bit_length()
    keys = torch.nn.functional.pad(key_score, (0, (1 << levels) - 1 - len(key_score)), value=torch.inf)

    def bisect(before: Callable[[Tensor], Tensor]) -> Tensor:
        """Return for each query the number of keys that satisfy ``before``, which the first ones do."""
        count = torch.zeros_like(query_score, dtype=torch.int64)
        for level in reversed(range(levels)):
            step = 1 << level
            count.add_(before(keys[count + (step - 1)]), alpha=step)
        return count

    return bisect(lambda key: query_score - key > threshold), bisect(lambda key: key - query_score <= threshold)


class SetPlan(Plan):
    """Sets of domain labels: admissible iff they do not intersect and, with a caliper, the score vectors are near.

    Keys are sorted by the label whose scores vary most: two vectors are at least as far apart as in one coordinate.
    """

    def __init__(
        self,
        query_rows: Tensor,
        key_rows: Tensor,
        query_domain: Tensor,
        key_domain: Tensor,
        query_score: Tensor | None = None,
        key_score: Tensor | None = None,
        threshold: Tensor | None = None,
    ) -> None:
        self.query_order, self.key_order = query_rows, key_rows
        self.threshold = threshold
        n_keys = len(key_rows)
        rows = list(cut(0, len(query_rows), WIDE if threshold is None else NARROW))
        edges = [(0, n_keys)] * len(rows)
        if threshold is not None and query_score is not None and key_score is not None and rows:
            label = int(key_score[key_rows].double().var(0, correction=0).argmax()) if n_keys else 0
            query_sorted, order = query_score[query_rows, label].double().sort(stable=True)
            self.query_order = query_rows[order]
            key_sorted, order = key_score[key_rows, label].double().sort(stable=True)
            self.key_order = key_rows[order]
            first, last = windows(query_sorted, key_sorted, threshold)
            ends = at(first, [r.start for r in rows]), at(last, [r.stop - 1 for r in rows])
            edges = torch.stack(ends, 1).tolist()
            self.query_score = query_score[self.query_order].double()
            self.key_score = key_score[self.key_order].double()
        self.query_set = query_domain[self.query_order].float()
        self.key_set = key_domain[self.key_order].float()
        self.blocks = [
            Block(r, (slice(start, max(start, stop)),)) for r, (start, stop) in zip(rows, edges, strict=True)
        ]

    def exclude_(self, scores: Tensor, rows: slice | Tensor, columns: slice, block: Block) -> None:
        """See `Plan`."""
        scores.masked_fill_(self.query_set[rows] @ self.key_set[columns].T > 0, torch.inf)
        if self.threshold is not None:
            query, key = self.query_score[rows], self.key_score[columns]
            apart = torch.cdist(query, key, compute_mode="donot_use_mm_for_euclid_dist")
            scores.masked_fill_(apart > self.threshold, torch.inf)
