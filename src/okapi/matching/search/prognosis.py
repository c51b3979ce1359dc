"""The prognostic caliper, on what is known or predicted of the outcomes of a pair, arranged for a blocked search."""

import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from okapi.matching.search.pair_values import PairFilter
from okapi.matching.search.plan import FAR, Block, Plan, Tile, at, cut

ROWS, CHUNK = 128, 128  # keys whose outcomes share a box
SMALL = 4  # a piece is at least this part of its size: groups of outcomes that are smaller share one
NEAR = 2  # chunks between two spans up to which they are searched as one
FEW_DOMAINS = 16  # up to here keys lie by domain first: a block skips its own
BOXES = 1 << 22  # sides of boxes that are compared at a time


class PrognosticCaliper:
    """A pair is admissible only if its outcomes are no further apart than a limit, by Euclidean distance.

    Parameters
    ----------
    query, key : Tensor of shape (n, c) and (m, c), float64
        Class probabilities, or numbers: one or several outcomes of each sample.
    limit : float
    """

    def __init__(self, query: Tensor, key: Tensor, limit: float) -> None:
        self.query, self.key, self.limit = query, key, limit

    def admits(self, query: Tensor, key: Tensor) -> Tensor:
        """Return which pairs of rows, of one shape, are admissible: settled in float64."""
        apart = (self.query[query] - self.key[key]).square_().sum(-1).sqrt_()
        return apart <= self.limit

    def ordered(self, query_order: Tensor, key_order: Tensor) -> "OrderedPrognoses":
        """Return what excludes pairs in these orders of the rows."""
        return OrderedPrognoses(self.query[query_order], self.key[key_order], self.limit)


class OrderedPrognoses:
    """Outcomes in the order of a search, which exclude pairs in float32.

    They are kept times so large a power of two that half of what a squared distance exceeds its limit by, if that is
    more than rounding can do, outdoes every distance; and that an admissible pair is as far below.

    Parameters
    ----------
    query, key : Tensor of shape (n, c) and (m, c), float64
    limit : float
    """

    def __init__(self, query: Tensor, key: Tensor, limit: float) -> None:
        center = key.mean(0) if len(key) else key.new_zeros(key.shape[1:])
        sides = query - center, key - center
        width = query.shape[1]
        reach = width**0.5 * sum(float(side.abs().amax()) if side.numel() else 0.0 for side in sides)
        unit = 2.0 ** max(-900, min(900, math.frexp(reach)[1]))
        limit = min(limit, 2 * reach) / unit  # no pair is further apart than the reach
        # A few times what rounding to float32 can do to a squared distance.
        slack = 2 * torch.finfo(torch.float32).eps * (width + 8 + limit**2)
        scale = 2.0 ** (math.frexp(32 * FAR / slack)[1] // 2)
        self.query, self.key = ((side * (scale / unit)).float() for side in sides)
        self.key_norm = self.key.square().sum(1) / 2
        self.query_norm = (self.query.square().sum(1) - (limit**2 + slack) * scale**2)[:, None] / 2

    def exclude_(self, scores: Tensor, rows: slice | Tensor, keys: slice | Tensor) -> None:
        """Raise the scores (r, c) of pairs at these places that are surely inadmissible beyond `FAR`, in place."""
        excess = torch.addmm(self.key_norm[keys], self.query[rows], self.key[keys].T, alpha=-1)
        torch.maximum(scores, excess.add_(self.query_norm[rows]), out=scores)


class FilteredPlan(Plan):
    """Another plan with a further caliper: the windows of the plan narrow the search, in them the caliper decides."""

    def __init__(self, plan: Plan, caliper: PrognosticCaliper | PairFilter) -> None:
        self.plan, self.caliper = plan, caliper
        self.query_order, self.key_order = plan.query_order, plan.key_order
        self.blocks = [replace(block, mixed=None) for block in plan.blocks]
        self.prognoses = caliper.ordered(plan.query_order, plan.key_order)

    def strips(self, block: Block) -> Iterator[list[Tile]]:
        """See `Plan`."""
        return self.plan.strips(block)

    def exclude_(self, scores: Tensor, rows: slice | Tensor, keys: slice | Tensor) -> None:
        """See `Plan`."""
        self.plan.exclude_(scores, rows, keys)
        self.prognoses.exclude_(scores, rows, keys)

    def admits(self, rows: Tensor, keys: Tensor) -> Tensor:
        """See `Plan`."""
        near = self.caliper.admits(self.query_order[rows], self.key_order[keys])
        return self.plan.admits(rows, keys) & near


class PrognosticPlan(Plan):
    """A prognostic caliper and no std-caliper: a pair is admissible iff domains differ and outcomes are near.

    Queries and keys lie in order of their outcomes: one number by itself, several by the greatest and how great it is.
    A block of queries is searched among the chunks of keys whose box of outcomes is near its own; where there are few
    domains, both lie by domain first and a block's chunks are of others than its own.

    Parameters
    ----------
    query_rows, key_rows : Tensor of shape (n,), int64
    query_domain, key_domain : Tensor, int64, of all samples
    caliper : PrognosticCaliper
    """

    def __init__(
        self,
        query_rows: Tensor,
        key_rows: Tensor,
        query_domain: Tensor,
        key_domain: Tensor,
        caliper: PrognosticCaliper,
    ) -> None:
        self.caliper = caliper
        domains = torch.cat([query_domain[query_rows], key_domain[key_rows]]).unique()
        self.by_domain = len(domains) <= FEW_DOMAINS
        self.query_order = self._ordered(query_rows, caliper.query, query_domain)
        self.key_order = self._ordered(key_rows, caliper.key, key_domain)
        self.query_domain, self.key_domain = query_domain[self.query_order], key_domain[self.key_order]
        rows = self._pieces(caliper.query, self.query_order, self.query_domain, ROWS)
        chunks = self._pieces(caliper.key, self.key_order, self.key_domain, CHUNK)
        near = self._near(rows, chunks)
        groups = (_first(self.key_domain, chunks) if self.by_domain else torch.zeros(len(chunks))).tolist()
        spans = (tuple(_spans(chunks, groups, kept)) for kept in near)
        self.blocks = [Block(block, its) for block, its in zip(rows, spans, strict=True)]
        self.prognoses = caliper.ordered(self.query_order, self.key_order)

    def _ordered(self, rows: Tensor, prognosis: Tensor, domain: Tensor) -> Tensor:
        """Return rows in order of their outcomes, within their domain where there are few."""
        values, largest = prognosis[rows].max(1)
        order = values.argsort(stable=True)
        order = order[largest[order].argsort(stable=True)]
        if self.by_domain:
            order = order[domain[rows[order]].argsort(stable=True)]
        return rows[order]

    def _pieces(self, prognosis: Tensor, order: Tensor, domain: Tensor, size: int) -> list[slice]:
        """Cut an order where a domain ends, if it lies by domain, and where another outcome becomes the greatest."""
        label = prognosis[order].argmax(1)
        if self.by_domain:
            label = label + prognosis.shape[1] * domain
        groups, counts = torch.unique_consecutive(label, return_counts=True)
        domains = (groups // prognosis.shape[1] if self.by_domain else torch.zeros_like(groups)).tolist()
        pieces, start, stop = [], 0, 0
        for number, count in enumerate(counts.tolist()):
            stop += count
            ends = number + 1 == len(domains) or domains[number + 1] != domains[number]
            if ends or stop - start >= size // SMALL:
                pieces += list(cut(start, stop, size))
                start = stop
        return pieces

    def _near(self, rows: list[slice], chunks: list[slice]) -> list[list[int]]:
        """Return for each block of queries the numbers of the chunks that may hold admissible keys."""
        if not rows or not chunks:
            return [[] for _ in rows]
        low, high = _boxes(self.caliper.query, self.query_order, rows)
        key_low, key_high = _boxes(self.caliper.key, self.key_order, chunks)
        own = _first(self.query_domain, rows), _first(self.key_domain, chunks)
        found = []
        limit = self.caliper.limit * (1 + 1e-9)
        for part in cut(0, len(rows), max(1, BOXES // (len(chunks) * low.shape[1]))):
            gap = torch.maximum(low[part, None] - key_high, key_low - high[part, None]).clamp_(min=0)
            near = gap.square_().sum(-1).sqrt_() <= limit
            if self.by_domain:
                near &= own[0][part, None] != own[1]
            found += [kept.nonzero()[:, 0].tolist() for kept in near.cpu()]
        return found

    def exclude_(self, scores: Tensor, rows: slice | Tensor, keys: slice | Tensor) -> None:
        """See `Plan`."""
        self.prognoses.exclude_(scores, rows, keys)
        if not self.by_domain:
            scores.masked_fill_(self.query_domain[rows, None] == self.key_domain[keys], torch.inf)

    def admits(self, rows: Tensor, keys: Tensor) -> Tensor:
        """See `Plan`."""
        return self.caliper.admits(self.query_order[rows], self.key_order[keys])


def _boxes(prognosis: Tensor, order: Tensor, pieces: list[slice]) -> tuple[Tensor, Tensor]:
    """Return the smallest and the greatest outcomes (p, c) of the rows of each piece."""
    sizes = torch.tensor([piece.stop - piece.start for piece in pieces], device=order.device)
    number = torch.arange(len(pieces), device=order.device).repeat_interleave(sizes)
    index = number[:, None].expand(-1, prognosis.shape[1])
    empty = prognosis.new_zeros(len(pieces), prognosis.shape[1])
    values = prognosis[order]
    low = empty.scatter_reduce(0, index, values, "amin", include_self=False)
    return low, empty.scatter_reduce(0, index, values, "amax", include_self=False)


def _first(domain: Tensor, pieces: list[slice]) -> Tensor:
    return at(domain, [piece.start for piece in pieces])


def _spans(chunks: list[slice], groups: list[int], kept: list[int]) -> Iterator[slice]:
    """Join chunks of one group that lie close to one another into spans."""
    first = 0
    for place, number in enumerate(kept):
        after = kept[place + 1] if place + 1 < len(kept) else None
        if after is None or after - number > NEAR or groups[after] != groups[number]:
            yield slice(chunks[kept[first]].start, chunks[number].stop)
            first = place + 1
