"""Weak and strong views of PovertyMap's satellite images, after WILDS 2.0."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from okapi.config import ViewSettings
from okapi.data.augment import Affine, Compose, Cutout, Flip, Views, choose_views

# Bounds, order and that Cutout paints 0, the mean: p-lambda/wilds, examples/transforms.py; mean and standard deviation
# of the bands' reflectance: wilds/datasets/poverty_dataset.py. There the jittered bands are left as reflectance, a
# variable being mixed up, so that the network sees them in two units; here they are normalised again.
RED, GREEN, BLUE = 2, 1, 0  # of the channels
MEAN, STD = (0.104145, 0.088619, 0.059183), (0.051458, 0.031880, 0.022926)  # red, green, blue
_LUMA = (0.2989, 0.587, 0.114)


def poverty_views(settings: ViewSettings) -> Views:
    """Return the views of satellite images (8, H, W).

    Weak: mirrored or not, along both sides. Strong: that, turned, scaled and moved a little, other colours in the bands
    that are seen by eye, and Cutout.
    """
    flips = (Flip(-1), Flip(-2))
    affine = Affine(degrees=10, translate=0.1, shear=0.1, scale=(0.9, 1.1))
    jitter = ColourJitter(brightness=0.8, contrast=0.8, saturation=0.8, hue=0.1)
    return choose_views(settings, weak=Compose(flips), strong=Compose((*flips, affine, jitter, Cutout(0.5))))


@dataclass(frozen=True, kw_only=True)
class ColourJitter:
    """Changes the colours of the bands red, green and blue, as reflectance in [0, 1]; other bands stay as they are.

    The four changes come in an order that is drawn, too.

    Parameters
    ----------
    brightness, contrast, saturation : float in [0, 1]
        Each factor is drawn from [1 - it, 1 + it].
    hue : float in [0, 0.5]
        The hue is turned by a share of the circle drawn from [-hue, hue].
    """

    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0

    def __post_init__(self) -> None:
        for name, most in (("brightness", 1.0), ("contrast", 1.0), ("saturation", 1.0), ("hue", 0.5)):
            if not 0 <= getattr(self, name) <= most:
                raise ValueError(f"{name} must be in [0, {most}], got {getattr(self, name)}")

    def __call__(self, sample: Tensor, rng: np.random.Generator) -> Tensor:
        """Return the image with other colours."""
        bands = [RED, GREEN, BLUE]
        mean, std = (sample.new_tensor(values)[:, None, None] for values in (MEAN, STD))
        rgb = torch.addcmul(mean, sample[bands], std).clamp_(0, 1)
        changes = self._changes(rng)
        for number in rng.permutation(len(changes)):
            change, strength = changes[number]
            rgb = change(rgb, strength)
        jittered = sample.clone()
        jittered[bands] = rgb.sub_(mean).div_(std)
        return jittered

    def _changes(self, rng: np.random.Generator) -> list[tuple[Callable[[Tensor, float], Tensor], float]]:
        most = np.array([self.brightness, self.contrast, self.saturation, self.hue])
        drawn = np.array([1, 1, 1, 0]) + rng.uniform(-most, most)
        return list(zip((brighten, contrast, saturate, turn_hue), drawn.tolist(), strict=True))


def brighten(rgb: Tensor, factor: float) -> Tensor:
    """Return colours (3, H, W), in [0, 1], so much brighter."""
    return (rgb * factor).clamp_(0, 1)


def contrast(rgb: Tensor, factor: float) -> Tensor:
    """Return colours (3, H, W), in [0, 1], so much further from their mean grey."""
    return torch.lerp(_grey(rgb).mean(), rgb, factor).clamp_(0, 1)


def saturate(rgb: Tensor, factor: float) -> Tensor:
    """Return colours (3, H, W), in [0, 1], so much further from their own grey."""
    return torch.lerp(_grey(rgb), rgb, factor).clamp_(0, 1)


def turn_hue(rgb: Tensor, share: float) -> Tensor:
    """Return colours (3, H, W), in [0, 1], with their hue turned by a share of the circle, as in HSV."""
    red, green, blue = rgb
    value, largest = rgb.max(0)
    chroma = value - rgb.amin(0)
    # In sixths of the circle, from red.
    differences = torch.stack([green - blue, blue - red, red - green]).div_(chroma.clamp(min=1e-12))
    hue = differences.gather(0, largest[None])[0] + 2 * largest
    offsets = rgb.new_tensor([5, 3, 1])[:, None, None]  # of red, green and blue on that circle
    place = (offsets + (hue + 6 * share)).remainder_(6)
    return torch.addcmul(value, torch.minimum(place, 4 - place).clamp_(0, 1), chroma, value=-1)


def _grey(rgb: Tensor) -> Tensor:
    return torch.einsum("c,chw->hw", rgb.new_tensor(_LUMA), rgb)
