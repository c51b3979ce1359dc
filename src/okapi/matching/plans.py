"""Admissible pairs, arranged for a blocked search.

A *plan* states admissibility in the form the search needs: an order of the queries and of the keys, blocks of queries
with the few keys that can be admissible to any query of the block, and a way to exclude the rest pair by pair. The
calipers thereby save work instead of hiding work done.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = 64  # queries per block: enough rows for an efficient matrix product, few enough for narrow windows
SMALL_GROUP = 4  # a query domain with fewer queries than this is searched together with others

Columns = slice | Tensor


@dataclass(frozen=True)
class Block:
    """Queries ``rows`` (positions in the plan's order) and the spans of keys that may be admissible to them."""

    rows: slice
    spans: tuple[slice, ...]
    scanned: int | None = None  # how many of the spans' keys a scan keeps, where the plan can scan


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
    def exclude_(self, scores: Tensor, rows: slice | Tensor, columns: Columns, block: Block) -> None:
        """Set the scores of inadmissible pairs to infinity, in place."""

    def scan(self, block: Block) -> Tensor:
        """Return the positions of the keys that may be admissible to the block, where ``block.scanned`` is set."""
        raise NotImplementedError

    def count_pairs(self) -> int:
        """Return the number of admissible pairs."""
        total = torch.zeros((), dtype=torch.int64, device=self.key_order.device)
        for block in self.blocks:
            for columns in column_chunks(self, block, 1 << 14):
                width = columns.stop - columns.start if isinstance(columns, slice) else len(columns)
                scores = torch.zeros(block.rows.stop - block.rows.start, width, device=self.key_order.device)
                self.exclude_(scores, block.rows, columns, block)
                total += (scores == 0).sum()
        return int(total)


def column_chunks(plan: Plan, block: Block, size: int) -> Iterator[Columns]:
    """Yield the keys of a block in pieces of at most ``size``: slices of the key order, or positions in it."""
    if block.scanned is not None:
        if block.scanned:
            yield from plan.scan(block).split(size)
        return
    for span in block.spans:
        for start in range(span.start, span.stop, size):
            yield slice(start, min(start + size, span.stop))


def cut(start: int, stop: int, size: int = BLOCK) -> Iterator[slice]:
    """Cut a range into blocks of at most ``size`` of even length."""
    n_blocks = -(-(stop - start) // size)
    for i in range(n_blocks):
        yield slice(start + (stop - start) * i // n_blocks, start + (stop - start) * (i + 1) // n_blocks)


def _at(values: Tensor, positions: Sequence[int]) -> Tensor:
    return values[torch.tensor(positions, dtype=torch.int64, device=values.device)]


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
        first = _at(self.query_domain, [block.start for block in rows])
        last = _at(self.query_domain, [block.stop - 1 for block in rows])
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
            if size >= BLOCK // 2 and stop > start:
                yield from cut(start, stop)
                start = stop
            stop += size
            if size >= BLOCK // 2:
                yield from cut(start, stop)
                start = stop
        yield from cut(start, stop)

    def exclude_(self, scores: Tensor, rows: slice | Tensor, columns: Columns, block: Block) -> None:
        """See `Plan`."""
        assert isinstance(columns, slice)
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
    ) -> None:
        query_sides = [_sorted_side(query_rows, query_domain, query_score, d) for d in (0, 1)]
        key_sides = [_sorted_side(key_rows, key_domain, key_score, d) for d in (0, 1)]
        self.query_order = torch.cat([query_sides[d][0] for d in (0, 1)])
        self.key_order = torch.cat([key_sides[d][0] for d in (0, 1)])
        first, last, block_rows = [], [], []
        row_offset = 0
        for a, b in ((0, 1), (1, 0)):
            key_offset = 0 if b == 0 else len(key_sides[0][0])
            low, high = _windows(query_sides[a][1], key_sides[b][1], threshold[a, b])
            first.append(low + key_offset)
            last.append(high + key_offset)
            block_rows += list(cut(row_offset, row_offset + len(low)))
            row_offset += len(low)
        self.first, self.last = torch.cat(first), torch.cat(last)
        self._set_blocks(block_rows)

    def _set_blocks(self, block_rows: list[slice]) -> None:
        heads = [rows.start for rows in block_rows]
        tails = [rows.stop - 1 for rows in block_rows]
        ends = [_at(bound, at) for bound in (self.first, self.last) for at in (heads, tails)]
        edges = torch.stack(ends, 1).tolist()
        self.blocks = []
        self._inner = {}
        for rows, (start, inner_start, inner_stop, stop) in zip(block_rows, edges, strict=True):
            self.blocks.append(Block(rows, (slice(start, max(start, stop)),)))
            self._inner[rows.start] = (inner_start, max(inner_start, inner_stop))

    def exclude_(self, scores: Tensor, rows: slice | Tensor, columns: Columns, block: Block) -> None:
        """Exclude outside each query's window; only the margins of the block's window differ between its queries."""
        assert isinstance(columns, slice)
        inner_start, inner_stop = self._inner[block.rows.start]
        for start, stop in ((columns.start, inner_start), (inner_stop, columns.stop)):
            start, stop = max(start, columns.start), min(stop, columns.stop)
            if start < stop:
                position = torch.arange(start, stop, device=scores.device)
                outside = (position < self.first[rows, None]) | (position >= self.last[rows, None])
                scores[:, start - columns.start : stop - columns.start].masked_fill_(outside, torch.inf)

    def count_pairs(self) -> int:
        """See `Plan`."""
        return int((self.last - self.first).clamp(min=0).sum())


def _sorted_side(rows: Tensor, domain: Tensor, score: Tensor, which: int) -> tuple[Tensor, Tensor]:
    """Return the rows of one domain in order of their score, and those scores."""
    rows = rows[domain[rows] == which]
    sorted_score, order = score[rows].sort(stable=True)
    return rows[order], sorted_score


def _windows(query_score: Tensor, key_score: Tensor, threshold: Tensor) -> tuple[Tensor, Tensor]:
    """Return first and last + 1 position of the keys with ``|query - key| <= threshold``; both inputs ascending.

    The bisection evaluates that very difference, which rounding keeps monotone: a pair on the caliper's edge is judged
    as it would be alone.
    """
    first = _bisect(query_score, key_score, lambda q, k: q - k <= threshold)
    last = _bisect(query_score, key_score, lambda q, k: k - q > threshold)
    return first, last


def _bisect(query_score: Tensor, key_score: Tensor, holds: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Return for each query the first position whose key satisfies ``holds``, which is false up to there."""
    n = len(key_score)
    low = torch.zeros(len(query_score), dtype=torch.int64, device=query_score.device)
    if n == 0:
        return low
    high = torch.full_like(low, n)
    for _ in range(n.bit_length()):
        middle = (low + high) // 2
        done = low >= high
        true = holds(query_score, key_score[middle.clamp(max=n - 1)])
        high = torch.where(true & ~done, middle, high)
        low = torch.where(~true & ~done, middle + 1, low)
    return low


@dataclass(frozen=True)
class ScoreCaliper:
    """The std-caliper between any two domains.

    Parameters
    ----------
    caliper : float
        In standard deviations.
    present : Tensor of shape (A,), int64
        The domains that have queries, ascending.
    query_variance : Tensor of shape (A, S)
        Variance of every score over the queries of each of them.
    key_cross_variance : Tensor of shape (A, S)
        Column b: variance over the keys of domain b, of the score of each of them.
    key_own_variance : Tensor of shape (S,)
        Variance over the keys of a domain of their score of that domain.
    """

    caliper: float
    present: Tensor
    query_variance: Tensor
    key_cross_variance: Tensor
    key_own_variance: Tensor

    def thresholds(self, domain: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the position of query domains (r,) in ``present`` and the limits for d = a and d = b, (r, S) each."""
        position = torch.searchsorted(self.present, domain)
        of_query_domain = self.query_variance[position].gather(1, domain[:, None])
        of_query = self.caliper * ((of_query_domain + self.key_cross_variance[position]) / 2).sqrt()
        of_key = self.caliper * ((self.query_variance[position] + self.key_own_variance) / 2).sqrt()
        return position, of_query, of_key


class ScorePlan(Plan):
    """Any number of domains, std-caliper: ``|e_q[d] - e_k[d]| <= c sigma`` for the query's and for the key's domain.

    A block holds queries of one domain a with similar ``e[a]``; one scan over the keys keeps those that can meet either
    condition for some query of the block. Domains with very few queries share blocks, without a scan.

    Parameters
    ----------
    query_score, key_score : Tensor of shape (n, S)
        Propensities on the caliper's scale.
    caliper : ScoreCaliper
    """

    def __init__(
        self,
        query_rows: Tensor,
        key_rows: Tensor,
        query_domain: Tensor,
        key_domain: Tensor,
        query_score: Tensor,
        key_score: Tensor,
        caliper: ScoreCaliper,
    ) -> None:
        self.caliper = caliper
        own = query_score[query_rows, query_domain[query_rows]]
        order = own.argsort(stable=True)
        order = order[query_domain[query_rows][order].argsort(stable=True)]
        self.query_order = query_rows[order]
        self.query_domain = query_domain[self.query_order]
        self.query_own = own[order].double()
        self.query_score = query_score[self.query_order]
        self.key_domain, order = key_domain[key_rows].sort(stable=True)
        self.key_order = key_rows[order]
        self.key_own = key_score[self.key_order, self.key_domain].double()
        # (A, n): the keys' score of each query domain, one row per block of queries
        self.key_cross = torch.stack([key_score[self.key_order, d] for d in caliper.present.tolist()] or [self.key_own])
        self._set_blocks()

    def _set_blocks(self) -> None:
        sizes = torch.unique_consecutive(self.query_domain, return_counts=True)[1]
        everything = (slice(0, len(self.key_order)),)
        singles: list[slice] = []
        mixed: list[slice] = []
        start = 0
        for size in sizes.tolist():
            if size >= SMALL_GROUP:
                singles += cut(start, start + size)
            elif mixed and mixed[-1].stop == start and start + size - mixed[-1].start <= BLOCK:
                mixed[-1] = slice(mixed[-1].start, start + size)
            else:
                mixed.append(slice(start, start + size))
            start += size
        self.blocks = [Block(rows, everything) for rows in mixed]
        self._single = {rows.start for rows in singles}
        if singles:
            counts = torch.stack([self._scan_mask(rows).sum() for rows in singles]).tolist()
            self.blocks += [Block(r, everything, scanned=n) for r, n in zip(singles, counts, strict=True)]

    def _scan_mask(self, rows: slice) -> Tensor:
        """Return which keys may be admissible to a block of one domain, shape (n_keys,)."""
        position, of_query, of_key = self.caliper.thresholds(self.query_domain[rows.start : rows.start + 1])
        cross = self.key_cross[position[0]].double()
        own = self.query_own[rows]
        score = self.query_score[rows]
        limit = of_query[0][self.key_domain]
        mask = (cross - own.amax() <= limit) & (own.amin() - cross <= limit)
        limit = of_key[0][self.key_domain]
        mask &= self.key_own - score.amax(0).double()[self.key_domain] <= limit
        mask &= score.amin(0).double()[self.key_domain] - self.key_own <= limit
        return mask & (self.key_domain != self.query_domain[rows.start])

    def scan(self, block: Block) -> Tensor:
        """See `Plan`. Compacts a mask whose count is known, so that no device waits for the host."""
        assert block.scanned is not None
        mask = self._scan_mask(block.rows)
        target = torch.where(mask, mask.cumsum(0) - 1, block.scanned)
        found = torch.empty(block.scanned + 1, dtype=torch.int64, device=mask.device)
        found.scatter_(0, target, torch.arange(len(mask), device=mask.device))
        return found[: block.scanned]

    def exclude_(self, scores: Tensor, rows: slice | Tensor, columns: Columns, block: Block) -> None:
        """See `Plan`."""
        key_domain = self.key_domain[columns]
        domain = self.query_domain[rows]
        if block.rows.start in self._single:
            domain = domain[:1]  # one row of thresholds serves the whole block
        position, of_query, of_key = self.caliper.thresholds(domain)
        cross = self.key_cross[position][:, columns].double()
        admissible = (self.query_own[rows, None] - cross).abs_() <= of_query[:, key_domain]
        own = self.query_score[rows].index_select(1, key_domain).double()
        admissible &= own.sub_(self.key_own[columns]).abs_() <= of_key[:, key_domain]
        admissible &= domain[:, None] != key_domain
        scores.masked_fill_(admissible.logical_not_(), torch.inf)


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
        rows = list(cut(0, len(query_rows)))
        edges = [(0, n_keys)] * len(rows)
        if threshold is not None and query_score is not None and key_score is not None and rows:
            label = int(key_score[key_rows].double().var(0, correction=0).argmax()) if n_keys else 0
            query_sorted, order = query_score[query_rows, label].double().sort(stable=True)
            self.query_order = query_rows[order]
            key_sorted, order = key_score[key_rows, label].double().sort(stable=True)
            self.key_order = key_rows[order]
            first, last = _windows(query_sorted, key_sorted, threshold)
            ends = _at(first, [r.start for r in rows]), _at(last, [r.stop - 1 for r in rows])
            edges = torch.stack(ends, 1).tolist()
            self.query_score = query_score[self.query_order].double()
            self.key_score = key_score[self.key_order].double()
        self.query_set = query_domain[self.query_order].float()
        self.key_set = key_domain[self.key_order].float()
        self.blocks = [
            Block(r, (slice(start, max(start, stop)),)) for r, (start, stop) in zip(rows, edges, strict=True)
        ]

    def exclude_(self, scores: Tensor, rows: slice | Tensor, columns: Columns, block: Block) -> None:
        """See `Plan`."""
        scores.masked_fill_(self.query_set[rows] @ self.key_set[columns].T > 0, torch.inf)
        if self.threshold is not None:
            query, key = self.query_score[rows], self.key_score[columns]
            apart = torch.cdist(query, key, compute_mode="donot_use_mm_for_euclid_dist")
            scores.masked_fill_(apart > self.threshold, torch.inf)
