"""Weak and strong views of samples: transforms drawn from a given generator, and those of images after WILDS 2.0."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, degrees
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor
from torch.nn import functional

from okapi.config import ViewSettings

Transform: TypeAlias = Callable[[Tensor, np.random.Generator], Tensor]
"""Takes one sample and a random generator, and returns the sample distorted; never changes the one it was given."""


class Drawing(Protocol):
    """A transform that can draw for one sample after another and then distort all at once, which is faster."""

    def draw(self, shape: torch.Size, rng: np.random.Generator) -> Any:
        """Return the random numbers of a sample of that shape."""

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
        """Return the random numbers of each transform, where all can draw."""
        return [transform.draw(shape, rng) for transform in self.transforms if can_draw(transform)]

    def of_rows(self, samples: Tensor, drawn: Sequence[list[Any]]) -> Tensor:
        """Return many samples after all transforms."""
        drawing = [transform for transform in self.transforms if can_draw(transform)]
        for transform, numbers in zip(drawing, zip(*drawn, strict=True), strict=True):
            samples = transform.of_rows(samples, numbers)
        return samples


@dataclass(frozen=True)
class Shift:
    """Moves an image (channels, H, W) by up to ``pixels`` along each side; its edge is repeated where it left."""

    pixels: int

    def __post_init__(self) -> None:
        _check("pixels", self.pixels, self.pixels >= 0, "0 or more")

    def __call__(self, sample: Tensor, rng: np.random.Generator) -> Tensor:
        """Return the image moved."""
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
    """Paints a rectangle of an image (channels, H, W) in its mean; each side is up to ``most`` of the image's."""

    most: float

    def __post_init__(self) -> None:
        _check("most", self.most, 0 <= self.most <= 1, "in [0, 1]")

    def __call__(self, sample: Tensor, rng: np.random.Generator) -> Tensor:
        """Return the image without what the rectangle covers."""
        height, width = _sides(sample.shape)
        tall, wide, down, right = rng.random(4)
        rows, columns = round(tall * self.most * height), round(wide * self.most * width)
        top, left = int(down * (height - rows + 1)), int(right * (width - columns + 1))
        erased = sample.clone()
        erased[:, top : top + rows, left : left + columns] = sample.mean()
        return erased


@dataclass(frozen=True)
class Flip:
    """Mirrors an image (channels, H, W), in half of all cases, along one dimension: -1, left to right, or -2."""

    dim: int = -1

    def __post_init__(self) -> None:
        _check("dim", self.dim, self.dim in (-1, -2), "-1 or -2")

    def __call__(self, sample: Tensor, rng: np.random.Generator) -> Tensor:
        """Return the image, mirrored or as it is."""
        _sides(sample.shape)
        return sample.flip(self.dim) if rng.random() < 0.5 else sample


@dataclass(frozen=True)
class Cutout:
    """Paints a square of an image (channels, H, W): its side is up to ``most`` of the width, its middle anywhere.

    What of the square is not in the image is lost. ``fill`` is the colour: a number for each channel, or for all.
    """

    most: float
    fill: tuple[float, ...] = (0.0,)

    def __post_init__(self) -> None:
        _check("most", self.most, 0 <= self.most <= 1, "in [0, 1]")

    def __call__(self, sample: Tensor, rng: np.random.Generator) -> Tensor:
        """Return the image without what the square covers."""
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
    """Turns, scales, shears and moves an image (channels, H, W); where it left it is 0.

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
        """Return the image turned, scaled, sheared and moved; every pixel is one of the image's, or 0."""
        return self.of_rows(sample[None], [self.draw(sample.shape, rng)])[0]

    def draw(self, shape: torch.Size, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return where the pixels of an image come from: a matrix (2, 3)."""
        angle, lean = np.deg2rad(rng.uniform(-1, 1, 2) * (self.degrees, self.shear))
        factor = rng.uniform(*self.scale)
        move = np.rint(rng.uniform(-1, 1, 2) * self.translate * _sides(shape)[::-1])
        cos, sin = np.cos(angle), np.sin(angle)
        turn = factor * np.array([[cos, -sin], [sin, cos]]) @ [[1, -np.tan(lean)], [0, 1]]
        return _origins(shape, turn, move)

    def of_rows(self, samples: Tensor, drawn: Sequence[NDArray[np.float64]]) -> Tensor:
        """Return many images, each with the pixels from where it was drawn."""
        return _gathered(samples, np.stack(drawn))


def moved(sample: Tensor, turn: NDArray[np.float64], move: NDArray[np.float64]) -> Tensor:
    """Return an image whose pixel at (x, y) = p, from the middle, has gone to ``turn @ p + move``; the rest is 0."""
    return _gathered(sample[None], _origins(sample.shape, turn, move)[None])[0]


def _origins(shape: torch.Size, turn: NDArray[np.float64], move: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the matrix (2, 3) that tells every pixel where it came from, in units of half a side."""
    half = np.array(_sides(shape)[::-1]) / 2
    back = np.linalg.inv(turn)
    return np.concatenate([back * half, -back @ move[:, None]], axis=1) / half[:, None]


def _gathered(samples: Tensor, origins: NDArray[np.float64]) -> Tensor:
    """Return images (n, channels, H, W) with the pixels from where matrices (n, 2, 3) say."""
    grid = functional.affine_grid(torch.from_numpy(origins).to(samples.dtype), list(samples.shape), align_corners=False)
    return functional.grid_sample(samples, grid, mode="nearest", align_corners=False)


# What the views are made of, the pool of RandAugment with its bounds, that every operation is drawn with replacement,
# and the colour and size of Cutout: p-lambda/wilds, examples/transforms.py and
# examples/data_augmentation/randaugment.py. There training on labelled images alone is augmented by the same strong
# view. Its weak view also crops an image to the size that it has, which does nothing. Its Cutout keeps a square whole
# that sticks out on the left or at the top, and moves it inside; ours is cut off on all sides.
_CUTOUT = (125 / 255, 123 / 255, 114 / 255)
_LUMA = (0.299, 0.587, 0.114)


def noise_views(train: float, strong: float, train_warp: float = 0.0, strong_warp: float = 0.0) -> Views:
    """Return views with noise of a standard deviation, after a warp of a share; none where both are 0."""

    def view(noise: float, warp: float) -> Transform | None:
        angle = degrees(warp / 2)
        affine = Affine(degrees=angle, shear=angle, scale=(1 - warp, 1 + warp), translate=warp / 2)
        if warp and noise:
            return Compose((affine, Noise(noise)))
        return affine if warp else Noise(noise) if noise else None

    first = view(train, train_warp)
    return Views(labelled=first, unlabelled=first, strong=view(strong, strong_warp))


def image_views(settings: ViewSettings, channels: int) -> Views:
    """Return the views of images (channels, H, W) with pixels in [0, 1], RGB or grey.

    Weak: mirrored or not. Strong: that, two operations of RandAugment and Cutout.
    """
    fill = _CUTOUT if channels == 3 else (float(np.dot(_CUTOUT, _LUMA)),)
    return choose_views(settings, weak=Flip(), strong=Compose((Flip(), RandAugment(), Cutout(0.5, fill))))


def choose_views(settings: ViewSettings, *, weak: Transform, strong: Transform) -> Views:
    """Return the views of both pools that settings name, given what weak and strong ones are."""
    made = {"none": None, "weak": weak, "strong": strong}
    return Views(labelled=made[settings.labelled_view], unlabelled=made[settings.unlabelled_view], strong=strong)


@dataclass(frozen=True)
class RandAugment:
    """Distorts an image by some operations of ``POOL``, each drawn anew, with a strength drawn within its bounds.

    They are defined for pixels of 8 bits, and Pillow does them: an image (3, H, W) or (1, H, W) with pixels in [0, 1]
    becomes one of Pillow's and comes back. One of 16 bits keeps 8.

    Parameters
    ----------
    operations : int
        How many.
    """

    operations: int = 2

    def __post_init__(self) -> None:
        _check("operations", self.operations, self.operations >= 0, "0 or more")

    def __call__(self, sample: Tensor, rng: np.random.Generator) -> Tensor:
        """Return the image distorted."""
        if sample.ndim != 3 or len(sample) not in (1, 3):
            raise ValueError(f"an image (3, H, W) or (1, H, W) is wanted, got a sample of {tuple(sample.shape)}")
        image = to_image(sample)
        for number in rng.integers(len(POOL), size=self.operations):
            operation = POOL[number]
            image = operation.apply(image, rng.uniform(operation.least, operation.most))
        return to_input(image).to(sample.dtype)


def to_image(sample: Tensor) -> Image.Image:
    """Return an input (C, H, W) in [0, 1] as an image of 8 bits."""
    pixels = (255 * sample + 0.5).clamp_(0, 255).to(torch.uint8)  # which cuts decimals off
    bands = [Image.fromarray(band) for band in pixels.numpy()]
    return Image.merge("RGB", bands) if len(bands) == 3 else bands[0]


def to_input(image: Image.Image) -> Tensor:
    """Return an image of 8 bits as an input, to the bit as it would have been read."""
    return torch.from_numpy(np.stack([np.asarray(band) for band in image.split()])).float().div_(255)


class Operation(NamedTuple):
    """One way to distort an image: what it does at a strength, and the bounds of its strength."""

    name: str
    apply: Callable[[Image.Image, float], Image.Image]
    least: float
    most: float


def _affine(image: Image.Image, *numbers: float) -> Image.Image:
    """Return an image whose pixel at (x, y) is the one at (a x + b y + c, d x + e y + f), black where none is."""
    return image.transform(image.size, Image.Transform.AFFINE, numbers)


POOL = (
    Operation("autocontrast", lambda image, _: ImageOps.autocontrast(image), 0, 1),
    Operation("brightness", lambda image, by: ImageEnhance.Brightness(image).enhance(by), 0.05, 0.95),
    Operation("colour", lambda image, by: ImageEnhance.Color(image).enhance(by), 0.05, 0.95),
    Operation("contrast", lambda image, by: ImageEnhance.Contrast(image).enhance(by), 0.05, 0.95),
    Operation("equalise", lambda image, _: ImageOps.equalize(image), 0, 1),
    Operation("identity", lambda image, _: image, 0, 1),
    Operation("posterise", lambda image, bits: ImageOps.posterize(image, int(bits)), 4, 8),
    Operation("rotate", lambda image, degrees: image.rotate(degrees), -30, 30),
    Operation("sharpness", lambda image, by: ImageEnhance.Sharpness(image).enhance(by), 0.05, 0.95),
    Operation("shear x", lambda image, by: _affine(image, 1, by, 0, 0, 1, 0), -0.3, 0.3),
    Operation("shear y", lambda image, by: _affine(image, 1, 0, 0, by, 1, 0), -0.3, 0.3),
    Operation("solarise", lambda image, above: ImageOps.solarize(image, ceil(above)), 0, 256),
    Operation("translate x", lambda image, by: _affine(image, 1, 0, by * image.width, 0, 1, 0), -0.3, 0.3),
    Operation("translate y", lambda image, by: _affine(image, 1, 0, 0, 0, 1, by * image.height), -0.3, 0.3),
)


def can_draw(transform: Transform | None) -> TypeGuard[Drawing]:
    """Return whether a transform can draw apart from distorting."""
    if isinstance(transform, Compose):
        return all(map(can_draw, transform.transforms))
    return isinstance(transform, Noise | Affine)


def _sides(shape: torch.Size) -> tuple[int, int]:
    if len(shape) != 3:
        raise ValueError(f"an image (channels, H, W) is wanted, got a sample of shape {tuple(shape)}")
    return shape[1], shape[2]


def _check(name: str, value: float, good: bool, wanted: str) -> None:
    if not good:
        raise ValueError(f"{name} must be {wanted}, got {value}")
