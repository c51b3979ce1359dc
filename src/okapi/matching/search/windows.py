"""Plan of the std-caliper between two domains: keys sorted by propensity, of which each query admits a window."""

from collections.abc import Callable

import torch
from torch import Tensor

from okapi.matching.search.plan import Block, Plan, at, cut

ROWS = 64  # queries per block, whose windows differ little, where a pair costs much
CHEAP = 256  # columns up to which it costs so little that blocks of twice as many are quicker
STEEP = 2.0**42  # what half a position beyond a window raises a score by: more than `FAR`


class WindowPlan(Plan):
    """Queries and keys by domain and propensity; the keys admissible to a query lie side by side.

    Parameters
    ----------
    query_rows, key_rows : Tensor of shape (n,), int64
        The admissible rows.
    query_domain, key_domain : Tensor, int64, of all samples
        0 or 1.
    query_score, key_score : Tensor of shape (n,), float64, of all samples
        Propensity on the caliper's scale.
    threshold : dict
        The caliper of each direction: (query domain, key domain) -> greatest admissible difference.
    width : int
        Columns of the vectors searched, which determine what a pair costs.
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
        query_sides = [_by_score(query_rows, query_domain, query_score, domain) for domain in (0, 1)]
        key_sides = [_by_score(key_rows, key_domain, key_score, domain) for domain in (0, 1)]
        self.query_order = torch.cat([rows for rows, _ in query_sides])
        self.key_order = torch.cat([rows for rows, _ in key_sides])
        n_of_0 = len(query_sides[0][0]), len(key_sides[0][0])
        first_of_0, last_of_0 = windows(query_sides[0][1], key_sides[1][1], threshold[0, 1])
        first_of_1, last_of_1 = windows(query_sides[1][1], key_sides[0][1], threshold[1, 0])
        self.first = torch.cat([first_of_0 + n_of_0[1], first_of_1])
        self.last = torch.cat([last_of_0 + n_of_0[1], last_of_1])
        size = ROWS if width > CHEAP else 2 * ROWS
        blocks = [*cut(0, n_of_0[0], size), *cut(n_of_0[0], len(self.query_order), size)]
        self.blocks = self._with_windows(blocks)
        # In float32, halves are exact up to here.
        exact = torch.float32 if len(self.key_order) < 1 << 22 else torch.float64
        self.middle = ((self.first + self.last - 1).to(exact) * (STEEP / 2))[:, None]
        self.reach = ((self.last - self.first).to(exact) * (STEEP / 2))[:, None]
        self.position = torch.arange(len(self.key_order), device=self.key_order.device).to(exact) * STEEP

    def _with_windows(self, blocks: list[slice]) -> list[Block]:
        """Return the blocks with the union of their windows; what is in all of them has no pair to exclude."""
        heads, tails = [rows.start for rows in blocks], [rows.stop - 1 for rows in blocks]
        edges = [at(self.first, heads), at(self.first, tails), at(self.last, heads), at(self.last, tails)]
        return [
            Block(
                rows,
                (slice(start, stop),),
                mixed=(slice(start, inner), slice(inner_stop, stop)) if inner < inner_stop else None,
            )
            for rows, (start, inner, inner_stop, stop) in zip(blocks, torch.stack(edges, 1).tolist(), strict=True)
        ]

    def exclude_(self, scores: Tensor, rows: slice | Tensor, keys: slice | Tensor) -> None:
        """See `Plan`.

        A score becomes no less than how far its key lies outside, which is below any score inside: quicker than a mask.
        """
        outside = (self.position[keys] - self.middle[rows]).abs_().sub_(self.reach[rows])
        torch.maximum(scores, outside.to(scores.dtype), out=scores)

    def count_pairs(self) -> int:
        """See `Plan`; quicker."""
        return int((self.last - self.first).sum())


def _by_score(rows: Tensor, domain: Tensor, score: Tensor, which: int) -> tuple[Tensor, Tensor]:
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
