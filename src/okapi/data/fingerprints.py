"""What is to be known of each sample's input, in one pass: can it be read, how large is it, what would a copy share."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from okapi.config import ImageSettings
from okapi.data.dataset import Dataset
from okapi.data.duplicates import SIDE, perceptual_hash
from okapi.data.images import Images, to_pixels
from okapi.data.sample_files import ImageError, in_threads
from okapi.data.text import Texts
from okapi.data.wilds.poverty import SatelliteImages

Grey = NDArray[np.uint8]

LEAST_SIDE = 64  # pixels; in smaller pictures a common background outweighs what differs
_GREY = ImageSettings(size=SIDE, colour="grey")
_DEVIATIONS = 4.0  # from the middle of the grey scale to either end, for pictures that are no shares of full light
_QUICK = 5_000  # so many samples in memory are done before anybody asks what takes so long
_SAMPLED = 1_000


class Fingerprint(NamedTuple):
    """What is known of a sample's input.

    Parameters
    ----------
    digest : bytes, optional
        The same for inputs that are the same; None if it cannot be read.
    hash : int, optional
        Of a picture that is neither flat nor smaller than ``LEAST_SIDE``, by ``perceptual_hash``.
    grey : array (32, 32), uint8, optional
        What was hashed.
    size : tuple of int, optional
        Of a picture: width and height, as it is looked at.
    mode : str
        Of a picture: what its file holds, such as RGB.
    fault : str
        Why it cannot be read, beginning with its name; empty if it can.
    """

    digest: bytes | None
    hash: int | None = None
    grey: Grey | None = None
    size: tuple[int, int] | None = None
    mode: str = ""
    fault: str = ""


def fingerprints(dataset: Dataset) -> list[Fingerprint]:
    """Return the fingerprint of each sample, in order.

    Images in files are decoded at full size by several threads; two are the same if all their pixels are, however
    the files are compressed. Texts are the same but for white space; numbers are the same if all of them are.
    """
    inputs = dataset.inputs
    in_memory = isinstance(inputs, Tensor | Mapping | Texts)
    label = "" if in_memory and len(dataset) < _QUICK else f"Reading {what(dataset)}"
    return list(in_threads(_reader(inputs, dataset.ids), len(dataset), label))


def what(dataset: Dataset) -> str:
    """Return what samples are: pictures, texts or just samples, of features."""
    if is_pictures(dataset):
        return "pictures"
    return "texts" if isinstance(dataset.inputs, Texts) else "samples"


def is_pictures(dataset: Dataset) -> bool:
    """Return whether samples can be looked at: they are in files of pictures, or arrays (channels, H, W)."""
    inputs = dataset.inputs
    if isinstance(inputs, Tensor):
        return inputs.ndim == 4
    return isinstance(inputs, Images | SatelliteImages)


def digest(*parts: bytes) -> bytes:
    """Return 16 bytes that are the same for the same parts, and else are not."""
    return hashlib.blake2b(b"\0".join(parts), digest_size=16).digest()


def _reader(inputs: Any, ids: Sequence[str]) -> Callable[[int], Fingerprint]:
    """Return what makes the fingerprint of a row."""
    if isinstance(inputs, Images):
        return lambda row: _of_file(inputs, row)
    if isinstance(inputs, SatelliteImages):
        return lambda row: _of_satellite(inputs, row, ids[row])
    if isinstance(inputs, Texts):
        return lambda row: Fingerprint(digest(" ".join(inputs.text(row).split()).encode()))
    if isinstance(inputs, Tensor) and inputs.ndim == 4:
        middle, spread = _scale(inputs)
        return lambda row: _of_tensor(inputs[row], middle, spread)
    if isinstance(inputs, Tensor):
        return lambda row: Fingerprint(digest(_bytes(inputs[row])))
    return lambda row: Fingerprint(digest(*map(_bytes, inputs[row].values())))


def _of_file(pictures: Images, row: int) -> Fingerprint:
    try:
        with pictures.opened(row) as image:
            mode = image.mode
            grey = to_pixels(image, _GREY)[0]  # refuses what training would refuse
            turned = ImageOps.exif_transpose(image)
            # A palette is looked up and what is opaque is said to be: the same colours are the same bytes.
            pixels = turned if turned.mode.startswith("I") else turned.convert("RGBA")
            same = digest(repr((pixels.mode, pixels.size)).encode(), pixels.tobytes())
    except ImageError as error:
        return Fingerprint(None, fault=str(error))
    if grey.dtype == np.uint16:
        grey = grey // 257
    return _with_hash(same, grey.astype(np.uint8), turned.size, mode)


def _of_satellite(images: SatelliteImages, row: int, name: str) -> Fingerprint:
    try:
        image = images[row]
    except ImageError as error:
        return Fingerprint(None, fault=str(error))
    if not bool(image.isfinite().all()):
        return Fingerprint(None, fault=f"{name} holds pixels that are not finite")
    return _of_tensor(image, 0.0, 1.0)


def _of_tensor(image: Tensor, middle: float, spread: float) -> Fingerprint:
    channels, height, width = image.shape
    colours = image[:3].mean(0).numpy()
    small = np.asarray(Image.fromarray(colours).resize((SIDE, SIDE), Image.Resampling.BICUBIC))
    grey = np.clip(127.5 + 127.5 * (small - middle) / (_DEVIATIONS * spread), 0, 255).astype(np.uint8)
    return _with_hash(digest(_bytes(image)), grey, (width, height), f"{channels} channel{'s' if channels > 1 else ''}")


def _with_hash(same: bytes, grey: Grey, size: tuple[int, int], mode: str) -> Fingerprint:
    number = perceptual_hash(grey) if min(size) >= LEAST_SIDE else None
    return Fingerprint(same, number, None if number is None else grey, size, mode)


def _scale(inputs: Tensor) -> tuple[float, float]:
    """Return the mean and the deviation of pictures in memory."""
    step = max(1, len(inputs) // _SAMPLED)
    values = inputs[::step].double()
    return float(values.mean()), max(float(values.std()), torch.finfo(torch.float32).tiny)


def _bytes(values: Tensor) -> bytes:
    return bytes((values + 0).contiguous().numpy().tobytes())  # 0 and -0 are the same number
