"""Schedules: functions of the training step, so that nothing about them needs to be saved."""

from collections.abc import Callable
from dataclasses import dataclass
from math import cos, pi
from typing import TypeAlias

Schedule: TypeAlias = Callable[[int], float]


@dataclass(frozen=True)
class Constant:
    """The same value at every step."""

    value: float

    def __call__(self, step: int) -> float:
        """Return the value at a step."""
        return self.value


@dataclass(frozen=True)
class Linear:
    """From ``start`` at step 0 to ``end`` at step ``steps`` along a line; ``end`` from then on.

    Examples
    --------
    >>> warm_up = Linear(0.0, 1.0, steps=10)
    >>> warm_up(0), warm_up(5), warm_up(10), warm_up(11)
    (0.0, 0.5, 1.0, 1.0)
    """

    start: float
    end: float
    steps: int

    def __post_init__(self) -> None:
        if self.steps < 0:
            raise ValueError(f"steps must be at least 0, got {self.steps}")

    def __call__(self, step: int) -> float:
        """Return the value at a step."""
        if step >= self.steps:
            return self.end
        return self.start + (self.end - self.start) * step / self.steps


@dataclass(frozen=True)
class Cosine:
    """Linear from 0 to ``start`` over ``warm_up`` steps, then half a cosine wave down to ``end`` at step ``steps``.

    The first step of a warm-up is not lost: its value is ``start / warm_up``.

    Examples
    --------
    >>> rate = Cosine(1.0, 0.0, steps=10, warm_up=2)
    >>> rate(0), rate(1), rate(2), round(rate(6), 3), rate(10)
    (0.5, 1.0, 1.0, 0.5, 0.0)
    """

    start: float
    end: float
    steps: int
    warm_up: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.warm_up <= self.steps:
            raise ValueError(f"warm_up must be between 0 and steps ({self.steps}), got {self.warm_up}")

    def __call__(self, step: int) -> float:
        """Return the value at a step."""
        if step < self.warm_up:
            return self.start * (step + 1) / self.warm_up
        if step >= self.steps:
            return self.end
        progress = (step - self.warm_up) / (self.steps - self.warm_up)
        return self.end + (self.start - self.end) * (1 + cos(pi * progress)) / 2


def as_schedule(value: float | Schedule) -> Schedule:
    """Return a schedule; a number is the same at every step."""
    return value if callable(value) else Constant(value)
