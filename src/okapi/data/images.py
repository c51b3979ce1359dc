"""Images: decoded when they are asked for, brought to one size, cached on request, checked at the start."""

import copy
import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from okapi.config import ImageSettings, Verify
from okapi.console import say
from okapi.data.sample_files import (
    ArrayCache,
    ImageError,
    find_faults,
    in_threads,
    key_of,
    leads_out,
    missing_files,
    reject,
)

if TYPE_CHECKING:  # which knows its inputs
    from okapi.data.dataset import Dataset

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".pgm", ".ppm", ".tif", ".tiff", ".webp")

Pixels: TypeAlias = NDArray[np.uint8] | NDArray[np.uint16]
_Images = TypeVar("_Images", bound="Images")

_FORMAT = 1  # of the cache: another number where the same files and settings would give other pixels
_QUICK = 20_000  # so many headers are read before anybody asks what takes so long


class Images(ABC):
    """Images of one size and colour, each decoded when it is asked for: item ``row`` is a tensor (C, size, size).

    Its numbers are float32 in [0, 1].

    Parameters
    ----------
    settings : ImageSettings
    """

    def __init__(self, settings: ImageSettings) -> None:
        self.settings = settings
        self.unreadable: dict[int, str] = {}  # why, by row

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def called(self, row: int) -> str:
        """Return the name by which errors call an image."""

    @abstractmethod
    def source(self, row: int) -> str | IO[bytes]:
        """Return what Pillow is to open."""

    @abstractmethod
    def only(self: _Images, rows: NDArray[np.int64]) -> _Images:
        """Return some of the images, (m,)."""

    def __getitem__(self, row: int) -> Tensor:
        return to_tensor(self.pixels(row))

    def pixels(self, row: int) -> Pixels:
        """Return an image at training size, (C, size, size), uint8 or, if it has 16 bits, uint16."""
        with self.opened(row) as image:
            return to_pixels(image, self.settings)

    def description(self) -> dict[str, Any]:
        """Return what is needed to turn an image file into an input; ``range`` is that of pixels."""
        settings = self.settings
        shape = [settings.channels, settings.size, settings.size]
        made = {"size": settings.size, "colour": settings.colour, "fit": settings.fit}
        return {"kind": "images", "shape": shape, "range": [0, 1], **made}

    @contextmanager
    def opened(self, row: int) -> Iterator[Image.Image]:
        """Open an image, not decoded yet; whatever goes wrong then is an ImageError that names it."""
        name = self.called(row)
        try:
            with Image.open(self.source(row)) as image:
                _check_area(image)
                yield image
        except ImageError as error:
            raise ImageError(f"{name} {error}") from error
        except FileNotFoundError as error:
            raise ImageError(f"{name} does not exist") from error
        except UnidentifiedImageError as error:
            raise ImageError(f"{name} is no image that Pillow can read") from error
        except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
            raise ImageError(f"{name} {_too_large()}") from error
        except Exception as error:  # Pillow's readers raise almost anything at a broken file
            raise ImageError(f"{name} cannot be decoded: {error or type(error).__name__}") from error

    def mode(self, row: int) -> str:
        """Return what an image's header says of its pixels, such as RGB."""
        with self.opened(row) as image:
            _check_mode(image)
            return str(image.mode)

    def faults(self, verify: Verify) -> dict[int, str]:
        """Look at every image as ``ImageSettings.verify`` says, and return why some cannot be used, by row."""
        if verify in ("nothing", "exists"):
            return {}
        quick = verify == "headers" and len(self) < _QUICK
        read = self.mode if verify == "headers" else self.pixels
        return find_faults(read, len(self), "" if quick else f"Checking {verify} of images")

    def check(self) -> None:
        """Decode every image, and name those that cannot be used, all at once."""
        reject(self.faults("pixels"), len(self))

    def _look(self) -> dict[int, str]:
        return self.faults("pixels" if self.settings.unreadable == "skip" else self.settings.verify)

    def _check_start(self) -> None:
        """Look at the images as the settings say; those that cannot be used are rejected or noted."""
        self.unreadable = self._look()
        if self.settings.unreadable == "error":
            reject(self.unreadable, len(self))


class ImageFiles(Images):
    """Images in files of one folder.

    Parameters
    ----------
    root : path
        The folder.
    names : sequence of str
        Paths of the files, from the folder; none may lead out of it.
    settings : ImageSettings
        What it says of checks is done at once, and a cache that is missing, or broken, is built.
    """

    def __init__(self, root: str | os.PathLike[str], names: Sequence[str], settings: ImageSettings) -> None:
        super().__init__(settings)
        self.root = Path(root)
        if out := [name for name in names if leads_out(name)]:
            raise ImageError(f"{self.root}: path {out[0]!r} leads out of the folder ({len(out)} such paths)")
        # One array: of a list every worker process would come to own a copy, by counting references to its items.
        self._names = np.array([os.fsencode(name) for name in names], dtype=np.bytes_)
        self._place = np.arange(len(names))  # in the cache
        self._check_start()

    def __len__(self) -> int:
        return len(self._names)

    def called(self, row: int) -> str:
        """Return the path of an image."""
        return self.source(row)

    def source(self, row: int) -> str:
        """Return the path of an image."""
        return str(self.root / os.fsdecode(self._names[row]))

    def only(self, rows: NDArray[np.int64]) -> "ImageFiles":
        """Return some of the images, (m,)."""
        chosen = copy.copy(self)
        chosen._names, chosen._place, chosen.unreadable = self._names[rows], self._place[rows], {}
        return chosen

    def __getitem__(self, row: int) -> Tensor:
        if self.settings.cache is None:
            return super().__getitem__(row)
        return to_tensor(self._cache[int(self._place[row])])

    def faults(self, verify: Verify) -> dict[int, str]:
        """Look at every file as ``ImageSettings.verify`` says, and return why some cannot be used, by row."""
        if verify == "nothing":
            return {}
        missing = missing_files(self.root, [os.fsdecode(name) for name in self._names])
        if missing and self.settings.unreadable == "error":
            return missing
        return super().faults(verify) | missing

    def _look(self) -> dict[int, str]:
        settings = self.settings
        if settings.cache is None:
            return super()._look()
        if (missing := self.faults("exists")) and settings.unreadable == "error":
            return missing
        if not self._cache.usable():
            self._build_cache()
        return self._cache.faults()

    @cached_property
    def _cache(self) -> ArrayCache:
        settings = self.settings
        names = [os.fsdecode(name) for name in self._names]
        key = key_of(self.root, names, _FORMAT, settings.size, settings.fit, settings.colour)
        shape = (len(self), settings.channels, settings.size, settings.size)
        return ArrayCache(settings.cache or "", f"images-{key}", shape, ("uint8", "uint16"))

    def _build_cache(self) -> None:
        def is_deep(row: int) -> bool:
            try:
                return self.mode(row).startswith("I")
            except ImageError:
                return False

        deep = any(list(in_threads(is_deep, len(self))))

        def read(row: int) -> Pixels:
            pixels = self.pixels(row)
            # 257 v out of 65,535 is v out of 255, exactly
            return pixels.astype(np.uint16) * 257 if deep and pixels.dtype == np.uint8 else pixels

        doing = f"Caching images of {self.settings.size} pixels in {self.settings.cache}"
        self._cache.build(read, "uint16" if deep else "uint8", doing, self.settings.unreadable)


def without_unreadable(dataset: "Dataset") -> "Dataset":
    """Return a data set without the images that its inputs have found unreadable; how many is said, by split."""
    inputs: Any = dataset.inputs
    faults: dict[int, str] = getattr(inputs, "unreadable", {})
    if not faults:
        return dataset
    split = np.asarray(dataset.split)
    counts = ", ".join(f"{count:,} of {name}" for name, count in Counter(split[list(faults)].tolist()).items())
    first = faults[min(faults)]
    say(f"{len(faults):,} of {len(dataset):,} images cannot be read and are left out: {counts}. The first: {first}")
    kept = np.setdiff1d(np.arange(len(dataset)), list(faults))
    rows = torch.from_numpy(kept)
    return replace(
        dataset,
        inputs=inputs.only(kept),
        target=dataset.target[rows],
        domain=dataset.domain[rows],
        split=split[kept],
        ids=[dataset.ids[row] for row in kept.tolist()],
        groups=None if dataset.groups is None else dataset.groups[rows],
    )


def to_pixels(image: Image.Image, settings: ImageSettings) -> Pixels:
    """Return an open image at training size, (C, size, size), uint8 or, if it has 16 bits, uint16."""
    _check_mode(image)
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):
        return _deep_pixels(image, settings)
    if image.has_transparency_data:
        solid = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", solid.size, "white"), solid)
    pixels = np.asarray(_fitted(image.convert("RGB" if settings.colour == "rgb" else "L"), settings))
    return np.ascontiguousarray(pixels.transpose(2, 0, 1) if pixels.ndim == 3 else pixels[None])


def to_tensor(pixels: Pixels) -> Tensor:
    """Return pixels as an input: float32 in [0, 1]."""
    return torch.from_numpy(pixels.astype(np.float32) / np.iinfo(pixels.dtype).max)


def _check_area(image: Image.Image) -> None:
    most = Image.MAX_IMAGE_PIXELS
    if most is not None and image.width * image.height > most:
        raise ImageError(_too_large(f"{image.width} x {image.height}"))


def _too_large(size: str = "so many") -> str:
    most = Image.MAX_IMAGE_PIXELS
    return (
        f"claims {size} pixels, more than {most:,}: a small file may unfold into gigabytes. If it is yours, raise "
        "PIL.Image.MAX_IMAGE_PIXELS"
    )


def _check_mode(image: Image.Image) -> None:
    if image.mode.startswith("F"):
        raise ImageError("holds floating-point pixels; 8 or 16 bits are wanted")


def _deep_pixels(image: Image.Image, settings: ImageSettings) -> NDArray[np.uint16]:
    values = np.asarray(image)
    if values.size and not 0 <= values.min() <= values.max() <= 65535:
        raise ImageError(f"holds pixels from {values.min()} to {values.max()}; 8 or 16 bits are wanted")
    fitted = np.asarray(_fitted(Image.fromarray(values.astype(np.float32)), settings))
    pixels = np.rint(np.clip(fitted, 0, 65535)).astype(np.uint16)
    return np.repeat(pixels[None], settings.channels, axis=0)


def _fitted(image: Image.Image, settings: ImageSettings) -> Image.Image:
    """Return an image at training size; the kernel of a smaller one is widened, so that nothing flickers."""
    side: Any = min(image.size)
    left, top = ((length - side) / 2 for length in image.size)
    box = (left, top, left + side, top + side) if settings.fit == "crop" else None
    return image.resize((settings.size, settings.size), Image.Resampling.BICUBIC, box=box)
