"""Built-in data to match: handwritten digits as photographed at four sites, no two of which look alike."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

UPSCALE = 8  # pixels of a file for a pixel of the data


class Look(NamedTuple):
    """How a site takes images: ``light + contrast * image``, on a background that brightens to the right.

    Exposure differs from image to image too, so that what one site takes may look like what another does.
    """

    contrast: float
    light: float
    background: float  # brightness at the right edge
    blur: float  # standard deviation of the Gaussian, in pixels
    favours: tuple[int, ...]  # digits that are three times as frequent as the others


LOOKS = {
    "harbour": Look(contrast=0.90, light=0.05, background=0.05, blur=0.0, favours=(0, 1, 2)),
    "hospital": Look(contrast=0.70, light=0.15, background=0.10, blur=0.2, favours=(2, 3, 4)),
    "library": Look(contrast=0.85, light=0.10, background=0.05, blur=0.4, favours=(5, 6, 7)),
    "station": Look(contrast=0.75, light=0.05, background=0.25, blur=0.3, favours=(7, 8, 9)),
}
EXPOSURE = 0.1  # standard deviation of contrast, light and background within a site
NOISE = 0.08  # of every pixel


@dataclass(frozen=True, eq=False)
class Sites:
    """Images of digits from several sites.

    Parameters
    ----------
    images : array of shape (n, 8, 8), float32 in [0, 1]
    label : array of shape (n,), int64
        The digit.
    site : array of shape (n,), str
    """

    images: NDArray[np.float32]
    label: NDArray[np.int64]
    site: NDArray[Any]

    def __len__(self) -> int:
        return len(self.label)

    def write_images(self, folder: Path) -> list[Path]:
        """Write each image as a PNG file, enlarged, and return the files; the folder is made if need be."""
        from PIL import Image

        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"{site}-{i:04d}.png" for i, site in enumerate(self.site)]
        for image, path in zip(self.images, paths, strict=True):
            small = Image.fromarray(np.uint8(np.rint(255 * image)))
            small.resize((8 * UPSCALE, 8 * UPSCALE), Image.Resampling.BICUBIC).save(path)
        return paths


def load_four_sites(seed: int = 0) -> Sites:
    """Make the data set from the 1,797 digits that scikit-learn brings; the same seed gives the same images.

    Every digit is photographed at one site only, so that no pair of samples shows the same stroke of the pen.

    Examples
    --------
    >>> sites = load_four_sites()
    >>> sites.images.shape, sorted(set(sites.site.tolist()))
    ((1797, 8, 8), ['harbour', 'hospital', 'library', 'station'])
    """
    from sklearn.datasets import load_digits

    rng = np.random.default_rng(seed)
    images, label = load_digits(return_X_y=True)
    images = images.reshape(-1, 8, 8) / 16
    weight = np.array([[3.0 if digit in look.favours else 1.0 for digit in range(10)] for look in LOOKS.values()])
    share = np.cumsum(weight / weight.sum(axis=0), axis=0)  # of each digit, up to and with each site
    site = (rng.random(len(label)) > share[:, label]).sum(axis=0)
    for number, look in enumerate(LOOKS.values()):
        images[site == number] = _photograph(images[site == number], look, rng)
    return Sites(images.astype(np.float32), label.astype(np.int64), np.array(list(LOOKS))[site])


def _photograph(images: NDArray[Any], look: Look, rng: np.random.Generator) -> NDArray[Any]:
    from scipy.ndimage import gaussian_filter

    def around(mean: float) -> NDArray[Any]:
        return mean + EXPOSURE * rng.standard_normal((len(images), 1, 1))

    blurred = gaussian_filter(images, sigma=(0, look.blur, look.blur)) if look.blur else images
    gradient = np.linspace(0, 1, images.shape[2])
    lit = around(look.light) + around(look.contrast) * blurred + around(look.background) * gradient
    return np.asarray(np.clip(lit + NOISE * rng.standard_normal(images.shape), 0, 1))
