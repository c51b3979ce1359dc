"""Plan without a std-caliper: a pair is admissible iff its domains differ."""

from collections.abc import Iterator

import torch
from torch import Tensor

from okapi.matching.search.plan import Block, Plan, at, cut

ROWS = 256  # queries per block: enough for the product to be fast
FEW = 64  # queries of a domain up to which they share a block with those of others


class DomainPlan(Plan):
    """Keys lie by domain: a block of one domain skips its own keys, one of several domains has them excluded.

    Parameters
    ----------
    query_rows, key_rows : Tensor of shape (n,), int64
        The admissible rows.
    query_domain, key_domain : Tensor, int64, of all samples
    """

    def __init__(self, query_rows: Tensor, key_rows: Tensor, query_domain: Tensor, key_domain: Tensor) -> None:
        self.query_domain, order = query_domain[query_rows].sort(stable=True)
        self.query_order = query_rows[order]
        self.key_domain, order = key_domain[key_rows].sort(stable=True)
        self.key_order = key_rows[order]
        rows = list(self._row_blocks())
        first = at(self.query_domain, [block.start for block in rows])
        last = at(self.query_domain, [block.stop - 1 for block in rows])
        start = torch.searchsorted(self.key_domain, first).tolist()
        stop = torch.searchsorted(self.key_domain, last, right=True).tolist()
        n_keys = len(self.key_order)
        self.blocks = [
            Block(block, (slice(0, begin), slice(end, n_keys)), mixed=())
            if one_domain
            else Block(block, (slice(0, n_keys),), mixed=(slice(begin, end),))
            for block, begin, end, one_domain in zip(rows, start, stop, (first == last).tolist(), strict=True)
        ]

    def _row_blocks(self) -> Iterator[slice]:
        """Yield blocks that end where a domain ends, unless domains have few queries."""
        sizes = torch.unique_consecutive(self.query_domain, return_counts=True)[1].tolist()
        start = stop = 0
        for size in sizes:
            if size >= FEW:
                yield from cut(start, stop, ROWS)
                start = stop
            stop += size
            if size >= FEW:
                yield from cut(start, stop, ROWS)
                start = stop
        yield from cut(start, stop, ROWS)

    def exclude_(self, scores: Tensor, rows: slice | Tensor, keys: slice | Tensor) -> None:
        """See `Plan`."""
        scores.masked_fill_(self.query_domain[rows, None] == self.key_domain[keys], torch.inf)

    def count_pairs(self) -> int:
        """See `Plan`; quicker."""
        own = torch.searchsorted(self.key_domain, self.query_domain, right=True)
        own -= torch.searchsorted(self.key_domain, self.query_domain)
        return len(self.query_order) * len(self.key_order) - int(own.sum())
