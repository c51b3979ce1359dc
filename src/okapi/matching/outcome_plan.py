"""The prognostic caliper, on what is known or predicted of the outcomes of a pair, arranged for a blocked search."""

from collections.abc import Iterator

import torch
from torch import Tensor

from okapi.matching.plans import NARROW, Block, Plan, Scratch, Tile, cut

CHUNK = 128  # keys whose outcomes share a box
SMALL = 4  # a piece is at least this part of its size: groups of outcomes that are smaller share one
NEAR = 2  # chunks between two spans up to which they are searched as one
FEW_DOMAINS = 16  # up to here keys lie by domain first: a block skips its own
BOXES = 1 << 22  # sides of boxes that are compared at a time


class OutcomeCaliper:
    """A pair is admissible only if its outcomes are no further apart than a limit, by Euclidean distance.

    Parameters
    ----------
    query, key : Tensor of shape (n, c) and (m, c), float64
        Class probabilities, or numbers: one or several outcomes of each sample.
    limit : float
    """

    def __init__(self, query: Tensor, key: Tensor, limit: float) -> None:
        self.query, self.key, self.limit = query, key, limit
        center = key.mean(0) if len(key) else key.new_zeros(key.shape[1:])
        self._query, self._key = (query - center).float(), (key - center).float()
        self._query_norm, self._key_norm = ((x * x).sum(1) for x in (self._query, self._key))
        largest = sum(float(norm.amax()) ** 0.5 if len(norm) else 0.0 for norm in (self._query_norm, self._key_norm))
        # What rounding to float32 can do to a squared distance, and a little more.
        self.slack = 2 * torch.finfo(torch.float32).eps * ((query.shape[1] + 8) * largest**2 + limit**2)

    def admits(self, query: Tensor, key: Tensor) -> Tensor:
        """Return which pairs of rows, of one shape, are admissible: settled in float64."""
        apart = (self.query[query] - self.key[key]).square_().sum(-1).sqrt_()
        return apart <= self.limit

    def exclude_(self, scores: Tensor, query: Tensor, key: Tensor) -> None:
        """Raise the scores (r, c) of pairs of rows that are surely inadmissible beyond `FAR`, in place."""
        widest = (self._query_norm[query] - (self.limit**2 + self.slack)) / 2
        excess = torch.addmm((self._key_norm[key] / 2)[None], self._query[query], self._key[key].T, alpha=-1)
        scores.masked_fill_(excess.add_(widest[:, None]) > 0, torch.inf)


class FilteredPlan(Plan):
    """Another plan with a prognostic caliper: its windows narrow the search, outcomes leave out pairs within them."""

    def __init__(self, plan: Plan, caliper: OutcomeCaliper) -> None:
        self.plan, self.caliper = plan, caliper
        self.query_order, self.key_order, self.blocks = plan.query_order, plan.key_order, plan.blocks
        self.tiles_cover_all = plan.tiles_cover_all
        self._begin = 0  # of the block whose tiles are being filled

    def exclude_(self, scores: Tensor, rows: slice | Tensor, columns: slice, block: Block) -> None:
        """See `Plan`."""
        self.plan.exclude_(scores, rows, columns, block)
        self.caliper.exclude_(scores, self.query_order[rows], self.key_order[columns])

    def exclude_picked_(self, scores: Tensor, rows: slice | Tensor, picked: Tensor, block: Block) -> None:
        """See `Plan`."""
        self.plan.exclude_picked_(scores, rows, picked, block)
        self.caliper.exclude_(scores, self.query_order[rows], self.key_order[picked])

    def tiles(self, block: Block, columns: slice) -> Iterator[Tile] | None:
        """See `Plan`."""
        self._begin = block.rows.start
        return self.plan.tiles(block, columns)

    def outside(self, tile: Tile, scratch: Scratch) -> Tensor:
        """See `Plan`."""
        outside = self.plan.outside(tile, scratch)
        self.caliper.exclude_(outside, self.query_order[self._begin + tile.rows], self.key_order[tile.columns])
        return outside

    def admits(self, rows: Tensor, columns: Tensor) -> Tensor:
        """See `Plan`."""
        outcomes = self.caliper.admits(self.query_order[rows], self.key_order[columns])
        return self.plan.admits(rows, columns) & outcomes


class OutcomePlan(Plan):
    """A prognostic caliper and no std-caliper: a pair is admissible iff domains differ and outcomes are near.

    Queries and keys lie in order of their outcomes: one number by itself, several by the greatest and how great it is.
    A block of queries is searched among the chunks of keys whose box of outcomes is near its own.

    Parameters
    ----------
    query_rows, key_rows : Tensor of shape (n,), int64
    query_domain, key_domain : Tensor, int64, of all samples
    caliper : OutcomeCaliper
    """

    def __init__(
        self,
        query_rows: Tensor,
        key_rows: Tensor,
        query_domain: Tensor,
        key_domain: Tensor,
        caliper: OutcomeCaliper,
    ) -> None:
        self.caliper = caliper
        domains = torch.cat([query_domain[query_rows], key_domain[key_rows]]).unique()
        self.by_domain = len(domains) <= FEW_DOMAINS
        self.query_order = self._ordered(query_rows, caliper.query, query_domain)
        self.key_order = self._ordered(key_rows, caliper.key, key_domain)
        self.query_domain, self.key_domain = query_domain[self.query_order], key_domain[self.key_order]
        rows = self._pieces(caliper.query, self.query_order, self.query_domain, 2 * NARROW)
        chunks = self._pieces(caliper.key, self.key_order, self.key_domain, CHUNK)
        near = self._near(rows, chunks)
        self.blocks = [Block(block, tuple(_spans(chunks, kept))) for block, kept in zip(rows, near, strict=True)]

    def _ordered(self, rows: Tensor, outcome: Tensor, domain: Tensor) -> Tensor:
        """Return rows in order of their outcomes, within their domain where there are few."""
        values, largest = outcome[rows].max(1)
        order = values.argsort(stable=True)
        order = order[largest[order].argsort(stable=True)]
        if self.by_domain:
            order = order[domain[rows[order]].argsort(stable=True)]
        return rows[order]

    def _pieces(self, outcome: Tensor, order: Tensor, domain: Tensor, size: int) -> list[slice]:
        """Cut an order where a domain ends, if it lies by domain, and where another outcome becomes the greatest."""
        label = outcome[order].argmax(1)
        if self.by_domain:
            label = label + outcome.shape[1] * domain
        groups, counts = torch.unique_consecutive(label, return_counts=True)
        domains = (groups // outcome.shape[1] if self.by_domain else torch.zeros_like(groups)).tolist()
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

    def exclude_(self, scores: Tensor, rows: slice | Tensor, columns: slice, block: Block) -> None:
        """See `Plan`."""
        self.caliper.exclude_(scores, self.query_order[rows], self.key_order[columns])
        scores.masked_fill_(self.query_domain[rows, None] == self.key_domain[columns], torch.inf)

    def admits(self, rows: Tensor, columns: Tensor) -> Tensor:
        """See `Plan`."""
        return self.caliper.admits(self.query_order[rows], self.key_order[columns])


def _boxes(outcome: Tensor, order: Tensor, pieces: list[slice]) -> tuple[Tensor, Tensor]:
    """Return the smallest and the greatest outcomes (p, c) of the rows of each piece."""
    sizes = torch.tensor([piece.stop - piece.start for piece in pieces], device=order.device)
    number = torch.arange(len(pieces), device=order.device).repeat_interleave(sizes)
    index = number[:, None].expand(-1, outcome.shape[1])
    empty = outcome.new_zeros(len(pieces), outcome.shape[1])
    values = outcome[order]
    low = empty.scatter_reduce(0, index, values, "amin", include_self=False)
    return low, empty.scatter_reduce(0, index, values, "amax", include_self=False)


def _first(domain: Tensor, pieces: list[slice]) -> Tensor:
    return domain[torch.tensor([piece.start for piece in pieces], device=domain.device)]


def _spans(chunks: list[slice], kept: list[int]) -> Iterator[slice]:
    """Join chunks that lie close to one another into spans."""
    first = 0
    for place, number in enumerate(kept):
        if place + 1 == len(kept) or kept[place + 1] - number > NEAR:
            yield slice(chunks[kept[first]].start, chunks[number].stop)
            first = place + 1
