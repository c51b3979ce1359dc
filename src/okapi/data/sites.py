"""The built-in data set: handwritten digits as photographed at 96 sites, no two of which look alike."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from okapi.config import SitesSettings
from okapi.data.augment import Compose, Contrast, Erase, Noise, Shift, Views
from okapi.data.dataset import Dataset
from okapi.data.task import Task

SIDE = 32  # pixels of an image
SITES = {
    group: tuple(f"{group}-{number:02d}" for number in range(count))
    for group, count in {"labelled": 12, "unlabelled": 48, "validation": 12, "test": 24}.items()
}
SPLIT_SITES = {  # split: (whose sites, share of the digits, images at each site)
    "train": ("labelled", 0.34, 200),
    "unlabelled": ("unlabelled", 0.22, 50),
    "id_val": ("labelled", 0.08, 40),
    "id_test": ("labelled", 0.09, 60),
    "ood_val": ("validation", 0.09, 50),
    "ood_test": ("test", 0.09, 50),
    "unlabelled_test": ("unlabelled", 0.09, 25),
}


def sites_dataset(settings: SitesSettings | None = None) -> Dataset:
    """Return the built-in data set for training: images (n, 1, 32, 32) in [0, 1]; domains are the sites."""
    settings = settings or SitesSettings()
    rolls = _take_images(settings)
    weak = Compose((Shift(2), Noise(0.02)))
    names = tuple(name for group in SITES.values() for name in group)
    counts = [len(roll.label) for roll in rolls]
    split = np.repeat([roll.split for roll in rolls], counts)
    if settings.fully_labelled:
        split[split == "unlabelled"] = "train"
    return Dataset(
        inputs=torch.from_numpy(np.concatenate([roll.images for roll in rolls])[:, None]),
        target=torch.from_numpy(np.concatenate([roll.label for roll in rolls])),
        domain=torch.from_numpy(np.repeat([names.index(roll.site) for roll in rolls], counts)),
        split=split,
        task=Task("classification", 10),
        domain_names=names,
        ids=[f"{roll.site}-{roll.split}-{i:03d}-digit-{d:04d}" for roll in rolls for i, d in enumerate(roll.digit)],
        views=Views(
            labelled=weak,
            unlabelled=weak,
            strong=Compose((Shift(4), Contrast(0.5), Erase(0.5), Noise(0.05))),
        ),
    )


class _Roll(NamedTuple):
    """The images of one split at one site."""

    site: str
    split: str
    images: NDArray[np.float32]  # (n, 32, 32)
    label: NDArray[np.int64]
    digit: NDArray[np.int64]  # number of the digit in scikit-learn's


def _take_images(settings: SitesSettings) -> list[_Roll]:
    """Return the images, split by split; those of a split at a site depend on no other."""
    from sklearn.datasets import load_digits

    strokes, label = load_digits(return_X_y=True)
    strokes = strokes.reshape(-1, 8, 8) / 16
    rolls = []
    for number, (split, digits) in enumerate(_partition(len(label), settings.seed).items()):
        group, _, count = SPLIT_SITES[split]
        for site in SITES[group]:
            camera = _set_up(site, settings)
            rng = np.random.default_rng((settings.seed, 2, number, *site.encode()))
            weight = camera.frequency[label[digits]] / np.bincount(label[digits], minlength=10)[label[digits]]
            digit = rng.choice(digits, count, p=weight / weight.sum())
            rolls.append(_Roll(site, split, camera.photograph(strokes[digit], rng), label[digit], digit))
    return rolls


def _partition(count: int, seed: int) -> dict[str, NDArray[np.int64]]:
    """Return the digits of each split."""
    order = np.random.default_rng((seed, 0)).permutation(count)
    ends = np.rint(count * np.cumsum([share for _, share, _ in SPLIT_SITES.values()])).astype(int)
    return dict(zip(SPLIT_SITES, np.split(order, ends[:-1]), strict=True))


@dataclass(frozen=True)
class _Camera:
    """A camera that stands at a site: all its images have the same background, and digits of about the same size."""

    background: NDArray[Any]  # (32, 32)
    ink: float  # brightness of a digit, which hides the background
    blur: float  # standard deviation of the Gaussian, in pixels
    scale: float  # pixels for a pixel of a digit
    frequency: NDArray[Any]  # (10,), of the classes

    def photograph(self, strokes: NDArray[Any], rng: np.random.Generator) -> NDArray[np.float32]:
        """Return images (n, 32, 32) of digits (n, 8, 8), each at a place and an exposure of its own."""
        from scipy.ndimage import gaussian_filter

        def around(mean: float, spread: float) -> NDArray[Any]:
            return mean + spread * rng.uniform(-1, 1, (len(strokes), 1, 1))

        scale = self.scale * around(1, 0.1)
        down, right = (_enlarge(scale, around(0.5, 0.3)) for _ in range(2))
        drawn = down @ strokes @ right.transpose(0, 2, 1)
        scene = gaussian_filter(self.background + drawn * (self.ink - self.background), (0, self.blur, self.blur))
        lit = around(1, 0.1) * scene + around(0, 0.05)
        return np.asarray(np.clip(lit + 0.03 * rng.standard_normal(lit.shape), 0, 1), dtype=np.float32)


def _enlarge(scale: NDArray[Any], place: NDArray[Any]) -> NDArray[Any]:
    """Return matrices (n, 32, 8) that interpolate eight pixels, at a place from 0, one edge, to 1, the other."""
    first = place * (SIDE - 8 * scale)
    where = (np.arange(SIDE)[:, None] + 0.5 - first) / scale - 0.5
    return np.asarray(np.maximum(0, 1 - np.abs(where - np.arange(8))))


def _set_up(site: str, settings: SitesSettings) -> _Camera:
    """Return the camera of a site; it differs from the others' in proportion to the difficulty."""
    from scipy.ndimage import gaussian_filter

    rng = np.random.default_rng((settings.seed, 1, *site.encode()))

    def vary(mean: float, factor: float, low: float, high: float) -> float:
        """Return the mean times or over at most the factor, at difficulty 1."""
        return float(np.clip(mean * factor ** (settings.difficulty * rng.uniform(-1, 1)), low, high))

    scale = vary(2.2, 1.5, 1, 3.6)
    blur = vary(0.6, 2, 0.1, 2)
    contrast = vary(0.5, 1.5, 0.2, 0.8)
    if rng.random() < min(0.5, 0.3 * settings.difficulty):
        contrast = -contrast  # digits are dark
    light = 0.5 + 0.1 * settings.difficulty * rng.uniform(-1, 1)
    gradient = 0.3 * settings.difficulty * rng.uniform(-1, 1, (2, 1)) * np.linspace(-0.5, 0.5, SIDE)
    grain = vary(1.5, 2, 0.5, 5)
    texture = gaussian_filter(rng.standard_normal((SIDE, SIDE)), grain, mode="wrap")
    texture *= vary(0.05, 2, 0, 0.25) / texture.std()
    frequency = np.exp(settings.difficulty * rng.standard_normal(10))
    return _Camera(
        background=light - contrast / 2 + gradient[0][:, None] + gradient[1] + texture,
        ink=light + contrast / 2,
        blur=blur,
        scale=scale,
        frequency=frequency / frequency.sum(),
    )
