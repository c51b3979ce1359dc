"""Pictures: decoded when they are asked for, brought to one size, cached on request."""

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from okapi.config import ImageSettings, Verify
from okapi.data.cache import ArrayCache, in_threads
from okapi.data.paths import leads_out, missing_files

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".pgm", ".ppm", ".tif", ".tiff", ".webp")
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

Pixels: TypeAlias = NDArray[np.uint8] | NDArray[np.uint16]

_FORMAT = 1  # of the cache: another number where the same files and settings would give other pixels
_NAMED = 12  # broken pictures that an error names
_QUICK = 20_000  # so many headers are read before anybody asks what takes so long


class ImageError(ValueError):
    """Pictures that cannot be used; the message names the files."""


def normalisation(settings: ImageSettings) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the mean and the standard deviation by which pixels in [0, 1] are normalised."""
    mean, std = (IMAGENET_MEAN, IMAGENET_STD) if settings.colour == "rgb" else ((0.0,), (1.0,))
    return settings.mean or mean, settings.std or std


class Pictures(ABC):
    """Pictures of one size and colour, each decoded when it is asked for: item ``row`` is a tensor (C, size, size).

    Parameters
    ----------
    settings : ImageSettings
    """

    def __init__(self, settings: ImageSettings) -> None:
        self.settings = settings
        self._mean, self._std = (
            torch.tensor(part, dtype=torch.float32)[:, None, None] for part in normalisation(settings)
        )

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def called(self, row: int) -> str:
        """Return the name by which errors call a picture."""

    @abstractmethod
    def source(self, row: int) -> str | IO[bytes]:
        """Return what Pillow is to open."""

    def __getitem__(self, row: int) -> Tensor:
        return self.normalised(self.pixels(row))

    def pixels(self, row: int) -> Pixels:
        """Return a picture at training size, (C, size, size), uint8 or, if it has 16 bits, uint16."""
        with self.opened(row) as image:
            return to_pixels(image, self.settings)

    def normalised(self, pixels: Pixels) -> Tensor:
        """Return pixels as an input, float32."""
        most = np.iinfo(pixels.dtype).max
        return (torch.from_numpy(pixels.astype(np.float32) / most) - self._mean) / self._std

    @contextmanager
    def opened(self, row: int) -> Iterator[Image.Image]:
        """Open a picture, not decoded yet; whatever goes wrong then is an ImageError that names it."""
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
            raise ImageError(f"{name} is no picture that Pillow can read") from error
        except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
            raise ImageError(f"{name} {_too_large()}") from error
        except Exception as error:  # Pillow's readers raise almost anything at a broken file
            raise ImageError(f"{name} cannot be decoded: {error or type(error).__name__}") from error

    def check(self, verify: Verify = "pixels") -> None:
        """Look at every picture, and name those that cannot be used, all at once."""
        if verify == "exists":
            return

        def fault(row: int) -> str | None:
            try:
                if verify == "pixels":
                    self.pixels(row)
                else:
                    with self.opened(row) as image:
                        _check_mode(image)
            except ImageError as error:
                return str(error)
            return None

        quick = verify == "headers" and len(self) < _QUICK
        label = None if quick else f"Checking {verify} of pictures"
        refuse(filter(None, in_threads(fault, len(self), label)), len(self))


class ImageFiles(Pictures):
    """Pictures in files of one folder.

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
        self.check("exists")
        if settings.cache is None:
            super().check(settings.verify)
        elif not self._cache.usable():
            self._build_cache()  # which decodes, and so checks, all of them

    def __len__(self) -> int:
        return len(self._names)

    def called(self, row: int) -> str:
        """Return the path of a picture."""
        return self.source(row)

    def source(self, row: int) -> str:
        """Return the path of a picture."""
        return str(self.root / os.fsdecode(self._names[row]))

    def __getitem__(self, row: int) -> Tensor:
        if self.settings.cache is None:
            return super().__getitem__(row)
        return self.normalised(self._cache[row])

    def check(self, verify: Verify = "pixels") -> None:
        """Look at every file, and name those that cannot be used, all at once."""
        refuse(missing_files(self.root, map(os.fsdecode, self._names)), len(self))
        super().check(verify)

    @cached_property
    def _cache(self) -> ArrayCache:
        settings = self.settings
        key = hashlib.sha256(repr((_FORMAT, settings.size, settings.fit, settings.colour)).encode())
        for row, name in enumerate(self._names):
            found = Path(self.source(row)).stat()
            key.update(b"%s\0%d\0%d\0" % (name, found.st_size, found.st_mtime_ns))
        shape = (len(self), settings.channels, settings.size, settings.size)
        return ArrayCache(settings.cache or "", f"pictures-{key.hexdigest()[:24]}", shape, ("uint8", "uint16"))

    def _build_cache(self) -> None:
        try:
            self._fill_cache(_Fill(self, np.uint8))
        except _DeepError:
            self._fill_cache(_Fill(self, np.uint16))

    def _fill_cache(self, fill: "_Fill") -> None:
        what = f"pictures of {self.settings.size} pixels"
        self._cache.build(fill, fill.dtype.__name__, what, finish=fill.finish)


class _DeepError(Exception):
    """A picture of 16 bits among those that were thought to have 8."""


class _Fill:
    """Gives a cache its pixels; pictures that are broken are named when all were looked at."""

    def __init__(self, files: ImageFiles, dtype: type[np.uint8] | type[np.uint16]) -> None:
        self.files, self.dtype = files, dtype
        self.faults: list[str] = []

    def __call__(self, row: int) -> NDArray[Any]:
        try:
            pixels = self.files.pixels(row)
        except ImageError as error:
            self.faults.append(str(error))
            return np.zeros(1, dtype=self.dtype)
        if pixels.dtype == self.dtype:
            return pixels
        if self.dtype == np.uint8:
            raise _DeepError
        return pixels.astype(np.uint16) * 257  # 257 v out of 65,535 is v out of 255, exactly

    def finish(self) -> None:
        refuse(sorted(self.faults), len(self.files))


def to_pixels(image: Image.Image, settings: ImageSettings) -> Pixels:
    """Return an open picture at training size, (C, size, size), uint8 or, if it has 16 bits, uint16."""
    _check_mode(image)
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):
        return _deep_pixels(image, settings)
    if image.has_transparency_data:
        solid = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", solid.size, "white"), solid)
    pixels = np.asarray(_fitted(image.convert("RGB" if settings.colour == "rgb" else "L"), settings))
    return np.ascontiguousarray(pixels.transpose(2, 0, 1) if pixels.ndim == 3 else pixels[None])


def refuse(faults: Iterable[str], total: int) -> None:
    """Raise an ImageError that says how many pictures cannot be used, and why the first; none is fine."""
    sentences = list(faults)
    if sentences:
        more = [f"... and {len(sentences) - _NAMED} more"] if len(sentences) > _NAMED else []
        lines = "\n  ".join([*sentences[:_NAMED], *more])
        raise ImageError(f"{len(sentences)} of {total} pictures cannot be used:\n  {lines}")


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
    """Return a picture at training size; the kernel of a smaller one is widened, so that nothing flickers."""
    side: Any = min(image.size)
    left, top = ((length - side) / 2 for length in image.size)
    box = (left, top, left + side, top + side) if settings.fit == "crop" else None
    return image.resize((settings.size, settings.size), Image.Resampling.BICUBIC, box=box)
