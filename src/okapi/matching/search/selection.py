"""The smallest scores of every row."""

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
