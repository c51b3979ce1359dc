"""Distorted views of a sample: small transforms of pictures of any number of channels, drawn from a given generator."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

Transform: TypeAlias = Callable[[Tensor, np.random.Generator], Tensor]
"""Takes one sample and a source of chance, and returns the sample distorted; never changes the one it was given."""


@dataclass(frozen=True, kw_only=True)
class Views:
    """How samples are distorted in training; evaluation sees them as they are.

    Parameters
    ----------
    train : Transform, optional
        Of every training sample; FixMatch calls it the weak view.
    strong : Transform, optional
        Of the second view that FixMatch compares with the first. It is given the sample itself, not the weak view.
    """

    train: Transform | None = None
    strong: Transform | None = None


@dataclass(frozen=True)
class Compose:
    """Several transforms, one after another.

    Examples
    --------
    >>> distort = Compose((Shift(1), Noise(0.1)))
    >>> distort(torch.zeros(1, 8, 8), np.random.default_rng(0)).shape
    torch.Size([1, 8, 8])
    """

    transforms: tuple[Transform, ...]

    def __call__(self, sample: Tensor, rng: np.random.Generator) -> Tensor:
        """Return the sample after all transforms."""
        for transform in self.transforms:
            sample = transform(sample, rng)
        return sample


@dataclass(frozen=True)
class Shift:
    """Moves a picture (channels, H, W) by up to ``pixels`` along each side; its edge is repeated where it left."""

    pixels: int

    def __post_init__(self) -> None:
        _check("pixels", self.pixels, self.pixels >= 0, "0 or more")

    def __call__(self, sample: Tensor, rng: np.random.Generator) -> Tensor:
        """Return the picture moved."""
        height, width = _sides(sample)
        top, left = (int((2 * self.pixels + 1) * chance) for chance in rng.random(2))
        padded = functional.pad(sample, 4 * [self.pixels], mode="replicate")
        return padded[..., top : top + height, left : left + width]


@dataclass(frozen=True)
class Noise:
    """Adds Gaussian noise of this standard deviation to every number of a sample of any shape."""

    std: float

    def __post_init__(self) -> None:
        _check("std", self.std, self.std >= 0, "0 or more")

    def __call__(self, sample: Tensor, rng: np.random.Generator) -> Tensor:
        """Return the sample with noise."""
        noise = torch.from_numpy(rng.standard_normal(sample.shape, dtype=np.float32))
        return torch.add(sample, noise.to(sample.dtype), alpha=self.std)


@dataclass(frozen=True)
class Brightness:
    """Adds one number, uniform in [-most, most], to all of a sample."""

    most: float

    def __post_init__(self) -> None:
        _check("most", self.most, self.most >= 0, "0 or more")

    def __call__(self, sample: Tensor, rng: np.random.Generator) -> Tensor:
        """Return the sample lighter or darker."""
        return sample + rng.uniform(-self.most, self.most)


@dataclass(frozen=True)
class Contrast:
    """Scales what differs from a sample's mean by one factor, uniform in [1 - most, 1 + most]."""

    most: float

    def __post_init__(self) -> None:
        _check("most", self.most, 0 <= self.most <= 1, "in [0, 1]")

    def __call__(self, sample: Tensor, rng: np.random.Generator) -> Tensor:
        """Return the sample with more contrast or less."""
        factor = rng.uniform(1 - self.most, 1 + self.most)
        return torch.add(factor * sample, sample.mean(), alpha=1 - factor)


@dataclass(frozen=True)
class Erase:
    """Paints a rectangle of a picture (channels, H, W) in its mean; each side is up to ``most`` of the picture's."""

    most: float

    def __post_init__(self) -> None:
        _check("most", self.most, 0 <= self.most <= 1, "in [0, 1]")

    def __call__(self, sample: Tensor, rng: np.random.Generator) -> Tensor:
        """Return the picture without what the rectangle covers."""
        height, width = _sides(sample)
        tall, wide, down, right = rng.random(4)
        rows, columns = round(tall * self.most * height), round(wide * self.most * width)
        top, left = int(down * (height - rows + 1)), int(right * (width - columns + 1))
        erased = sample.clone()
        erased[:, top : top + rows, left : left + columns] = sample.mean()
        return erased


def _sides(sample: Tensor) -> tuple[int, int]:
    if sample.ndim != 3:
        raise ValueError(f"a picture (channels, H, W) is wanted, got a sample of shape {tuple(sample.shape)}")
    return sample.shape[1], sample.shape[2]


def _check(name: str, value: float, good: bool, wanted: str) -> None:
    if not good:
        raise ValueError(f"{name} must be {wanted}, got {value}")
