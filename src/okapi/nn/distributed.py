"""Rows of all ranks, where training runs in several processes."""

import torch
import torch.distributed as dist
from torch import Tensor


def world_size() -> int:
    """Return the number of processes that train together; 1 outside of torch.distributed."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Return the number of this process among those that train together."""
    return dist.get_rank() if world_size() > 1 else 0


def rows_before(count: int, device: torch.device) -> int:
    """Return how many rows the ranks before this one have, which itself has ``count``."""
    if world_size() == 1:
        return 0
    counts = gather(torch.tensor([count], device=device))
    return sum(int(part) for part in counts[: rank()])


def average_gradient(gradient: Tensor) -> Tensor:
    """Return the mean over ranks of a gradient, as a hook of a parameter that DistributedDataParallel does not wrap."""
    if world_size() > 1:
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        gradient /= world_size()
    return gradient


@torch.no_grad()
def gather(rows: Tensor) -> list[Tensor]:
    """Return the rows (n_r, ...) of every rank, in the order of ranks; ranks may have different numbers of rows.

    Without torch.distributed: the rows as they are. No gradient passes.
    """
    if world_size() == 1:
        return [rows.detach()]
    rows = rows.detach()
    sizes = [torch.zeros(1, dtype=torch.int64, device=rows.device) for _ in range(world_size())]
    dist.all_gather(sizes, torch.tensor([len(rows)], device=rows.device))
    counts = [int(size) for size in sizes]
    as_sent = rows.to(torch.uint8) if rows.dtype == torch.bool else rows
    padded = as_sent.new_zeros((max(counts), *rows.shape[1:]))
    padded[: len(rows)] = as_sent
    received = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(received, padded)
    return [part[:count].to(rows.dtype) for part, count in zip(received, counts, strict=True)]
