"""The momentum encoder: an exponential moving average (EMA) of a module."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from okapi.nn.schedules import Schedule, as_schedule


class MomentumEncoder(nn.Module):
    """An exponential moving average of a module: ``theta' = zeta theta' + (1 - zeta) theta``.

    Always in evaluation mode and without gradients. Floating-point buffers are averaged too, others are copied.

    Parameters
    ----------
    module : nn.Module
        What to follow; it is copied.
    decay : float or schedule
        zeta, in [0, 1].

    Examples
    --------
    >>> online = nn.Linear(1, 1, bias=False)
    >>> momentum = MomentumEncoder(online, decay=0.75)
    >>> _ = nn.init.zeros_(momentum.average.module.weight), nn.init.ones_(online.weight)
    >>> momentum.update(online, step=0)
    >>> momentum(torch.ones(1, 1)).item()
    0.25
    """

    updated_at: Tensor

    def __init__(self, module: nn.Module, decay: float | Schedule = 0.996) -> None:
        super().__init__()
        self.decay = as_schedule(decay)
        self.average = AveragedModel(module, use_buffers=True)
        self.average.n_averaged.fill_(1)  # at 0 the first update would copy the module instead of following it
        self.register_buffer("updated_at", torch.full((), -1, dtype=torch.int64))
        self.requires_grad_(False)
        self.train()

    def train(self, mode: bool = True) -> "MomentumEncoder":
        """Stay in evaluation mode whatever the mode of the surrounding module."""
        return super().train(False)

    @torch.no_grad()
    def update(self, module: nn.Module, step: int) -> None:
        """Move one step towards the module; a second call of the same step, as when gradients add up, does nothing."""
        if step == int(self.updated_at):
            return
        self.updated_at.fill_(step)
        self.average.multi_avg_fn = _average(self.decay(step))
        self.average.update_parameters(module)

    @torch.no_grad()
    def forward(self, *inputs: Any) -> Any:
        """Return the averaged module's output."""
        return self.average(*inputs)


def _average(decay: float) -> Callable[..., None]:
    """Return AveragedModel's rule for tensors of one type."""
    average_floats = get_ema_multi_avg_fn(decay)

    def average(averaged: list[Tensor], current: list[Tensor], count: Any) -> None:
        if averaged[0].is_floating_point():
            average_floats(averaged, current, count)
        else:
            torch._foreach_copy_(averaged, current)

    return average
