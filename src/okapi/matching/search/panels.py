"""Scores of a block of queries with its keys, a panel at a time."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from okapi.matching.search.plan import PIECE, Block, Plan, Tile
from okapi.matching.search.selection import smallest
from okapi.matching.search.vectors import large_empty

PANEL = 1 << 22  # scores of a panel: they stay in the cache until the best are selected
LINE = 16  # numbers in a line of the cache


class Panel(NamedTuple):
    """Scores (r, c) of queries with strips of keys side by side, valid until the next panel is made.

    ``first`` (r, strips) is the position of the first key that a query is compared with in each strip.
    """

    scores: Tensor
    first: Tensor
    widths: list[int]

    def smallest(self, count: int) -> tuple[Tensor, Tensor]:
        """Return the smallest scores of each query, ascending, and the positions of their keys, both (r, count)."""
        score, column = smallest(self.scores, count)
        if len(self.widths) == 1:
            return score, column + self.first
        width = torch.tensor(self.widths, device=column.device)
        start = width.cumsum(0) - width
        strip = torch.searchsorted(start, column, right=True) - 1
        return score, column + (self.first - start).gather(1, strip)


class Panels:
    """Computes ``|k|^2 / 2 - q.k`` by matrix products, and raises the scores of inadmissible pairs.

    Parameters
    ----------
    plan : Plan
    queries, keys : Tensor of shape (n, d) and (m, d), float32
        In the plan's orders.
    half_norm : Tensor of shape (m,)
        Half the squared norms of the keys; infinite for those to leave out.
    """

    def __init__(self, plan: Plan, queries: Tensor, keys: Tensor, half_norm: Tensor) -> None:
        self.plan, self.queries, self.keys, self.half_norm = plan, queries, keys, half_norm
        self._memory: dict[str, Tensor] = {}

    def of_block(self, block: Block, rows: Tensor | None = None) -> Iterator[Panel]:
        """Yield the scores of a block's queries, or of those at positions ``rows`` of them."""
        strips = self.plan.strips(block) if rows is None else block.strips()
        n_rows = block.rows.stop - block.rows.start if rows is None else len(rows)
        of = block.rows if rows is None else rows
        for some in _side_by_side(strips, max(2 * PIECE, PANEL // n_rows)):
            yield self._panel(block, of, n_rows, some)

    def _panel(self, block: Block, rows: slice | Tensor, n_rows: int, strips: list[list[Tile]]) -> Panel:
        queries, widths = self.queries[rows], [_width(strip) for strip in strips]
        scores = self._scratch("panel", n_rows, _odd_lines(sum(widths)))[:, : sum(widths)]
        first = torch.empty(n_rows, len(strips), dtype=torch.int64, device=scores.device)
        for strip, out, start in zip(strips, scores.split(widths, 1), first.T, strict=True):
            for tile in strip:
                if tile.rows is None:
                    self._score(block, rows, queries, tile.keys, out)
                    start.fill_(tile.keys.start)
                    continue
                part = self._scratch("tile", len(tile.rows), out.shape[1])
                n_keys = tile.keys.stop - tile.keys.start
                part[:, n_keys:] = torch.inf
                some = self._gather("queries", queries, tile.rows)
                self._score(block, tile.rows + block.rows.start, some, tile.keys, part[:, :n_keys])
                out.index_copy_(0, tile.rows, part)
                start.index_fill_(0, tile.rows, tile.keys.start)
        return Panel(scores, first, widths)

    def _score(self, block: Block, rows: slice | Tensor, queries: Tensor, keys: slice, out: Tensor) -> None:
        """Write the scores of queries at positions ``rows`` with some keys to ``out``."""
        which = block.keys(keys)
        vectors = self.keys[which] if isinstance(which, slice) else self._gather("keys", self.keys, which)
        torch.addmm(self.half_norm[which], queries, vectors.T, alpha=-1, out=out)
        for part in block.to_exclude(keys):
            self.plan.exclude_(out[:, part.start - keys.start : part.stop - keys.start], rows, block.keys(part))

    def _gather(self, name: str, vectors: Tensor, rows: Tensor) -> Tensor:
        """Return some of the vectors, in scratch of that name."""
        return torch.index_select(vectors, 0, rows, out=self._scratch(name, len(rows), vectors.shape[1]))

    def _scratch(self, name: str, n_rows: int, width: int) -> Tensor:
        """Return memory that is used again and again; what is not used of it costs nothing."""
        memory = self._memory.get(name)
        if memory is None or memory.numel() < n_rows * width:
            size = max(PANEL, n_rows * width * 5 // 4)
            memory = self._memory[name] = large_empty(1, size, self.queries.device)[0]
        return memory[: n_rows * width].view(n_rows, width)


def _side_by_side(strips: Iterator[list[Tile]], most: int) -> Iterator[list[list[Tile]]]:
    """Yield as many strips at a time as are at most so wide together, at least one."""
    some: list[list[Tile]] = []
    width = 0
    for strip in strips:
        if some and width + _width(strip) > most:
            yield some
            some, width = [], 0
        some.append(strip)
        width += _width(strip)
    if some:
        yield some


def _width(strip: list[Tile]) -> int:
    widths: list[int] = [tile.keys.stop - tile.keys.start for tile in strip]
    return max(widths)


def _odd_lines(width: int) -> int:
    """Return how far apart rows of that width had better lie: an odd number of lines, or a cache holds few."""
    return width + (LINE - width) % (2 * LINE)
