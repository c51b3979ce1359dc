"""The memory bank: the newest rows that were pushed, in a ring."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class MemoryBank(nn.Module):
    """The newest ``capacity`` rows; a new row overwrites the oldest. Starts empty.

    The rows, the place of the next one and the number of rows held are buffers: they follow the module to its device
    and into its ``state_dict``.

    Parameters
    ----------
    capacity : int
    shape : sequence of int
        Shape of one row; () for a number.
    dtype : torch.dtype
        Any; rows are cast to it.

    Examples
    --------
    >>> bank = MemoryBank(3)
    >>> bank.push(torch.tensor([1.0, 2.0]))
    >>> bank.push(torch.tensor([3.0, 4.0]))
    >>> len(bank), bank.rows()
    (3, tensor([4., 2., 3.]))
    """

    slots: Tensor
    pointer: Tensor
    fill: Tensor

    def __init__(self, capacity: int, shape: Sequence[int] = (), dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, got {capacity}")
        self.capacity = capacity
        self.register_buffer("slots", torch.zeros(capacity, *shape, dtype=dtype))
        self.register_buffer("pointer", torch.zeros((), dtype=torch.int64))
        self.register_buffer("fill", torch.zeros((), dtype=torch.int64))

    def __len__(self) -> int:
        return int(self.fill)

    def rows(self) -> Tensor:
        """Return the rows held, shape (len, ...), in the order of their slots; a view, which the next push changes."""
        return self.slots[: len(self)]

    @torch.no_grad()
    def push(self, rows: Tensor) -> None:
        """Overwrite the oldest rows with new ones, shape (n, ...). Of more rows than fit the newest are kept."""
        if rows.shape[1:] != self.slots.shape[1:]:
            raise ValueError(
                f"rows must be of shape (n, {', '.join(map(str, self.slots.shape[1:]))}), got {tuple(rows.shape)}"
            )
        surplus = max(0, len(rows) - self.capacity)
        newest = rows[surplus:]
        places = torch.arange(len(newest), device=self.slots.device) + (self.pointer + surplus)
        self.slots[places % self.capacity] = newest.to(self.slots)
        self.pointer.add_(len(rows)).remainder_(self.capacity)
        self.fill.add_(len(rows)).clamp_(max=self.capacity)

    def extra_repr(self) -> str:
        """Describe the bank in a print of the module."""
        return f"capacity={self.capacity}, shape={tuple(self.slots.shape[1:])}, dtype={self.slots.dtype}"
