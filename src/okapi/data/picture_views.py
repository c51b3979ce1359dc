"""Weak and strong views of pictures, after WILDS 2.0: which of them a pool gets, RandAugment and Cutout."""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from okapi.config import ViewSettings
from okapi.data.views import Compose, Cutout, Flip, Transform, Views

# What the views are made of, the pool of RandAugment with its bounds, that every operation is drawn with replacement,
# and the colour and size of Cutout: p-lambda/wilds, examples/transforms.py and
# examples/data_augmentation/randaugment.py. There training on labelled pictures alone is augmented by the same strong
# view. Its weak view also crops a picture to the size that it has, which does nothing. Its Cutout keeps a square whole
# that sticks out on the left or at the top, and moves it inside; ours is cut off on all sides.
_CUTOUT = (125 / 255, 123 / 255, 114 / 255)
_LUMA = (0.299, 0.587, 0.114)


def choose_views(settings: ViewSettings, *, weak: Transform, strong: Transform) -> Views:
    """Return the views of both pools, given what weak and strong ones are."""
    made = {"none": None, "weak": weak, "strong": strong}
    return Views(labelled=made[settings.labelled_view], unlabelled=made[settings.unlabelled_view], strong=strong)


def picture_views(settings: ViewSettings, mean: tuple[float, ...], std: tuple[float, ...]) -> Views:
    """Return the views of pictures, RGB or grey, that are (pixels - mean) / std, pixels being in [0, 1].

    Weak: mirrored or not. Strong: that, two operations of RandAugment and Cutout.
    """
    colour = _CUTOUT if len(mean) == 3 else (float(np.dot(_CUTOUT, _LUMA)),)
    fill = tuple((value - middle) / spread for value, middle, spread in zip(colour, mean, std, strict=True))
    return choose_views(settings, weak=Flip(), strong=Compose((Flip(), RandAugment(mean, std), Cutout(0.5, fill))))


@dataclass(frozen=True)
class RandAugment:
    """Distorts a picture by some operations of ``POOL``, each drawn anew, with a strength drawn within its bounds.

    They are defined for pixels of 8 bits, and Pillow does them: a picture (3, H, W) or (1, H, W) is brought back to
    pixels and, distorted, to (pixels - mean) / std again. One of 16 bits keeps 8.

    Parameters
    ----------
    mean, std : tuple of float
        One number a channel.
    operations : int
        How many.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    operations: int = 2

    def __post_init__(self) -> None:
        if self.operations < 0:
            raise ValueError(f"operations must be 0 or more, got {self.operations}")

    def __call__(self, sample: Tensor, rng: np.random.Generator) -> Tensor:
        """Return the picture distorted."""
        if sample.ndim != 3 or len(sample) not in (1, 3) or len(sample) != len(self.mean):
            raise ValueError(f"a picture ({len(self.mean)}, H, W) is wanted, got a sample of {tuple(sample.shape)}")
        mean, std = (sample.new_tensor(values)[:, None, None] for values in (self.mean, self.std))
        image = to_image(sample, mean, std)
        for number in rng.integers(len(POOL), size=self.operations):
            operation = POOL[number]
            image = operation.apply(image, rng.uniform(operation.least, operation.most))
        return to_input(image, mean, std)


def to_image(sample: Tensor, mean: Tensor, std: Tensor) -> Image.Image:
    """Return an input (C, H, W) as a picture; ``mean`` and ``std`` are (C, 1, 1)."""
    pixels = (
        torch.addcmul(255 * mean + 0.5, sample, 255 * std).clamp_(0, 255).to(torch.uint8)
    )  # which cuts decimals off
    bands = [Image.fromarray(band) for band in pixels.numpy()]
    return Image.merge("RGB", bands) if len(bands) == 3 else bands[0]


def to_input(image: Image.Image, mean: Tensor, std: Tensor) -> Tensor:
    """Return a picture as an input, to the bit as it would have been read."""
    pixels = np.stack([np.asarray(band) for band in image.split()])
    return torch.from_numpy(pixels).to(mean.dtype).div_(255).sub_(mean).div_(std)


class Operation(NamedTuple):
    """One way to distort a picture: what it does at a strength, and the bounds of its strength."""

    name: str
    apply: Callable[[Image.Image, float], Image.Image]
    least: float
    most: float


def _affine(image: Image.Image, *numbers: float) -> Image.Image:
    """Return a picture whose pixel at (x, y) is the one at (a x + b y + c, d x + e y + f), black where none is."""
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
