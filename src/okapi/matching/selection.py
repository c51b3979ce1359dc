"""The smallest of many: scores of every row of a matrix, and distances of pairs that come bit by bit."""

import torch
from torch import Tensor

GROUP = 8  # scores of which the smallest is found before any are selected
NARROW = 64  # scores for each that is wanted up to which topk, which keeps a heap from here on, is quicker
SHORT = 1 << 16  # scores in all up to which it is, too


def smallest(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the ``count`` smallest scores of every row, ascending, fewer in a narrower matrix, and their columns.

    The best columns lie in the groups with the best minima. Minima are quick to find, selecting is not: so groups are
    selected first, in the same way, then columns of these few.
    """
    width = scores.shape[1]
    if width <= NARROW * count or scores.numel() <= SHORT:
        value, column = scores.topk(min(count, width), dim=1, largest=False)
        return value, column
    n_groups = width // GROUP
    grouped = scores[:, : GROUP * n_groups].unflatten(1, (GROUP, n_groups))
    group = smallest(grouped.amin(1), count)[1]
    members = grouped.gather(2, group[:, None].expand(-1, GROUP, -1)).flatten(1)
    members = torch.cat([members, scores[:, GROUP * n_groups :]], 1)  # and the columns that fill no group
    value, member = members.topk(count, dim=1, largest=False)
    column = group.gather(1, member % count) + member // count * n_groups
    return value, torch.where(member < GROUP * count, column, member + GROUP * (n_groups - count))


class Nearest:
    """The k nearest of a growing list of pairs, per row; ties to the lower index."""

    def __init__(self, n_rows: int, k: int, device: torch.device) -> None:
        self.n_rows, self.k = n_rows, k
        self.row = torch.empty(0, dtype=torch.int64, device=device)
        self.distance = torch.empty(0, dtype=torch.float64, device=device)
        self.index = torch.empty(0, dtype=torch.int64, device=device)

    def add(self, row: Tensor, distance: Tensor, index: Tensor) -> None:
        """Add pairs, each of shape (p,): the row they belong to, their distance and the index of the other side."""
        row, distance, index = (
            torch.cat([self.row, row]),
            torch.cat([self.distance, distance]),
            torch.cat([self.index, index]),
        )
        order = index.argsort(stable=True)
        order = order[distance[order].argsort(stable=True)]
        order = order[row[order].argsort(stable=True)]
        keep = order[self._rank(row[order]) < self.k]
        self.row, self.distance, self.index = row[keep], distance[keep], index[keep]

    def _rank(self, row: Tensor) -> Tensor:
        return torch.arange(len(row), device=row.device) - torch.searchsorted(row, row)

    def table(self) -> tuple[Tensor, Tensor]:
        """Return distances and indices (n_rows, k), nearest first; infinite and -1 where there are fewer."""
        distance = torch.full((self.n_rows, self.k), torch.inf, dtype=torch.float64, device=self.row.device)
        index = torch.full((self.n_rows, self.k), -1, device=self.row.device)
        rank = self._rank(self.row)
        distance[self.row, rank], index[self.row, rank] = self.distance, self.index
        return distance, index
