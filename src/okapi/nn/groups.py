"""Sums over groups of rows."""

import torch
from torch import Tensor
from torch.nn.functional import one_hot


def sums_by_group(rows: Tensor, group: Tensor, groups: int) -> Tensor:
    """Return the sum of the rows (n, d) of each group (n,), shape (groups, d), in full precision.

    By a matrix product: a GPU scatters additions in any order, and ranks that sum the same rows must agree to the bit.
    """
    with torch.autocast(rows.device.type, enabled=False):
        return one_hot(group, groups).to(rows.dtype).T @ rows
