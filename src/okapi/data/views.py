"""Distorted views of a sample: small transforms of pictures of any number of channels, drawn from a given generator."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

Transform: TypeAlias = Callable[[Tensor, np.random.Generator], Tensor]
"""Takes one sample and a source of chance, and returns the sample distorted; never changes the one it was given."""


class Drawing(Protocol):
    """A transform that can draw for one sample after another and then distort all at once, which is faster."""

    def draw(self, shape: torch.Size, rng: np.random.Generator) -> Any:
        """Return what chance says to a sample of that shape."""

    def of_rows(self, samples: Tensor, drawn: Sequence[Any]) -> Tensor:
        """Return samples, row below row, each distorted as was drawn for it."""


@dataclass(frozen=True, kw_only=True)
class Views:
    """How samples are distorted in training; evaluation sees them as they are.

    Parameters
    ----------
    labelled, unlabelled : Transform, optional
        Of every labelled and of every unlabelled training sample; FixMatch calls the latter the weak view.
    strong : Transform, optional
        Of the second view that FixMatch compares with the first. It is given the sample itself, not the first view.
    """

    labelled: Transform | None = None
    unlabelled: Transform | None = None
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

    def draw(self, shape: torch.Size, rng: np.random.Generator) -> list[Any]:
        """Return what chance says to each transform, where all can draw."""
        return [transform.draw(shape, rng) for transform in self.transforms if can_draw(transform)]

    def of_rows(self, samples: Tensor, drawn: Sequence[list[Any]]) -> Tensor:
        """Return many samples after all transforms."""
        drawing = [transform for transform in self.transforms if can_draw(transform)]
        for transform, its in zip(drawing, zip(*drawn, strict=True), strict=True):
            samples = transform.of_rows(samples, its)
        return samples


@dataclass(frozen=True)
class Shift:
    """Moves a picture (channels, H, W) by up to ``pixels`` along each side; its edge is repeated where it left."""

    pixels: int

    def __post_init__(self) -> None:
        _check("pixels", self.pixels, self.pixels >= 0, "0 or more")

    def __call__(self, sample: Tensor, rng: np.random.Generator) -> Tensor:
        """Return the picture moved."""
        height, width = _sides(sample.shape)
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
        return self.of_rows(sample[None], [self.draw(sample.shape, rng)])[0]

    def draw(self, shape: torch.Size, rng: np.random.Generator) -> NDArray[np.float32]:
        """Return the noise of a sample."""
        return rng.standard_normal(shape, dtype=np.float32)

    def of_rows(self, samples: Tensor, drawn: Sequence[NDArray[np.float32]]) -> Tensor:
        """Return many samples with the noise of each."""
        return torch.add(samples, torch.from_numpy(np.stack(drawn)).to(samples.dtype), alpha=self.std)


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
        height, width = _sides(sample.shape)
        tall, wide, down, right = rng.random(4)
        rows, columns = round(tall * self.most * height), round(wide * self.most * width)
        top, left = int(down * (height - rows + 1)), int(right * (width - columns + 1))
        erased = sample.clone()
        erased[:, top : top + rows, left : left + columns] = sample.mean()
        return erased


@dataclass(frozen=True)
class Flip:
    """Mirrors a picture (channels, H, W), in half of all cases, along one dimension: -1, left to right, or -2."""

    dim: int = -1

    def __post_init__(self) -> None:
        _check("dim", self.dim, self.dim in (-1, -2), "-1 or -2")

    def __call__(self, sample: Tensor, rng: np.random.Generator) -> Tensor:
        """Return the picture, mirrored or as it is."""
        _sides(sample.shape)
        return sample.flip(self.dim) if rng.random() < 0.5 else sample


@dataclass(frozen=True)
class Cutout:
    """Paints a square of a picture (channels, H, W): its side is up to ``most`` of the width, its middle anywhere.

    What of the square is not in the picture is lost. ``fill`` is the colour: a number for each channel, or for all.
    """

    most: float
    fill: tuple[float, ...] = (0.0,)

    def __post_init__(self) -> None:
        _check("most", self.most, 0 <= self.most <= 1, "in [0, 1]")

    def __call__(self, sample: Tensor, rng: np.random.Generator) -> Tensor:
        """Return the picture without what the square covers."""
        height, width = _sides(sample.shape)
        size, down, right = rng.random(3)
        half = size * self.most * width / 2
        top, bottom, left, right = (
            max(0, round(end)) for middle in (down * height, right * width) for end in (middle - half, middle + half)
        )
        painted = sample.clone()
        painted[:, top:bottom, left:right] = sample.new_tensor(self.fill)[:, None, None]
        return painted


@dataclass(frozen=True, kw_only=True)
class Affine:
    """Turns, scales, shears and moves a picture (channels, H, W); where it left it is 0.

    Parameters
    ----------
    degrees, shear : float
        The largest angle by which it is turned, and by which its columns lean; in degrees, to either side.
    scale : tuple of two floats
        The least and the largest factor by which it grows.
    translate : float
        The longest way that it is moved along each side, as a share of that side; whole pixels.
    """

    degrees: float = 0.0
    shear: float = 0.0
    scale: tuple[float, float] = (1.0, 1.0)
    translate: float = 0.0

    def __post_init__(self) -> None:
        _check("scale", self.scale[0], 0 < self.scale[0] <= self.scale[1], "two numbers, greater than 0, in order")

    def __call__(self, sample: Tensor, rng: np.random.Generator) -> Tensor:
        """Return the picture turned, scaled, sheared and moved; every pixel is one of the picture's, or 0."""
        return self.of_rows(sample[None], [self.draw(sample.shape, rng)])[0]

    def draw(self, shape: torch.Size, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return where the pixels of a picture come from: a matrix (2, 3)."""
        angle, lean = np.deg2rad(rng.uniform(-1, 1, 2) * (self.degrees, self.shear))
        factor = rng.uniform(*self.scale)
        move = np.rint(rng.uniform(-1, 1, 2) * self.translate * _sides(shape)[::-1])
        cos, sin = np.cos(angle), np.sin(angle)
        turn = factor * np.array([[cos, -sin], [sin, cos]]) @ [[1, -np.tan(lean)], [0, 1]]
        return _origins(shape, turn, move)

    def of_rows(self, samples: Tensor, drawn: Sequence[NDArray[np.float64]]) -> Tensor:
        """Return many pictures, each with the pixels from where it was drawn."""
        return _gathered(samples, np.stack(drawn))


def moved(sample: Tensor, turn: NDArray[np.float64], move: NDArray[np.float64]) -> Tensor:
    """Return a picture whose pixel at (x, y) = p, from the middle, has gone to ``turn @ p + move``; the rest is 0."""
    return _gathered(sample[None], _origins(sample.shape, turn, move)[None])[0]


def _origins(shape: torch.Size, turn: NDArray[np.float64], move: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the matrix (2, 3) that tells every pixel where it came from, in units of half a side."""
    half = np.array(_sides(shape)[::-1]) / 2
    back = np.linalg.inv(turn)
    return np.concatenate([back * half, -back @ move[:, None]], axis=1) / half[:, None]


def _gathered(samples: Tensor, origins: NDArray[np.float64]) -> Tensor:
    """Return pictures (n, channels, H, W) with the pixels from where matrices (n, 2, 3) say."""
    grid = functional.affine_grid(torch.from_numpy(origins).to(samples.dtype), list(samples.shape), align_corners=False)
    return functional.grid_sample(samples, grid, mode="nearest", align_corners=False)


def can_draw(transform: Transform | None) -> TypeGuard[Drawing]:
    """Return whether a transform can draw apart from distorting."""
    if isinstance(transform, Compose):
        return all(map(can_draw, transform.transforms))
    return isinstance(transform, Noise | Affine)


def _sides(shape: torch.Size) -> tuple[int, int]:
    if len(shape) != 3:
        raise ValueError(f"a picture (channels, H, W) is wanted, got a sample of shape {tuple(shape)}")
    return shape[1], shape[2]


def _check(name: str, value: float, good: bool, wanted: str) -> None:
    if not good:
        raise ValueError(f"{name} must be {wanted}, got {value}")
