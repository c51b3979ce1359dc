"""Samples that come twice: exact duplicates, and images that differ by little more than size or compression.

Exact duplicates have the same content: all pixels at full size, however files are compressed; all numbers; all words.
Near duplicates of image files are found by a perceptual hash of the library imagehash, an extra: 64 bits that say which
of the lowest frequencies of a small grey image are above their median. Drawings on white share many of those bits and
are no duplicates, so where hashes agree the small images are compared themselves. Images that were mirrored, turned or
cropped are not found.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from okapi.config import ImageSettings
from okapi.data.dataset import Dataset
from okapi.data.images import Images, to_pixels
from okapi.data.sample_files import ImageError, in_threads
from okapi.data.text import Texts
from okapi.data.wilds.poverty import SatelliteImages

Integers = NDArray[np.int64]
Grey = NDArray[np.uint8]

SIDE = 32  # pixels of the grey image that is hashed
LEAST_SIDE = 64  # pixels; in smaller images a common background outweighs what differs
LIKENESS = 0.95  # least correlation of the grey images of near duplicates
NEAR_NEEDS = 'near duplicates are found with imagehash: pip install "okapi-ssl[duplicates]"'
_GREY = ImageSettings(size=SIDE, colour="grey")
_FLAT = 2.0  # grey levels of 255; what differs by less is noise, and so would its hash be
_QUICK = 5_000  # so many samples in memory are done before anybody asks what takes so long
_AT_A_TIME = 2**23  # pairs whose bits are compared at once
_COMPARED = 2**12  # pairs whose grey images are


class Fingerprint(NamedTuple):
    """What is known of a sample's input.

    Parameters
    ----------
    digest : bytes, optional
        The same for inputs that are the same; None if it cannot be read.
    grey : array (32, 32), uint8, optional
        Of an image in a file that is neither flat nor smaller than ``LEAST_SIDE``.
    size : tuple of int, optional
        Of an image: width and height, as it is looked at.
    mode : str
        Of an image: what its file holds, such as RGB.
    fault : str
        Why it cannot be read, beginning with its name; empty if it can.
    """

    digest: bytes | None
    grey: Grey | None = None
    size: tuple[int, int] | None = None
    mode: str = ""
    fault: str = ""


def fingerprints(dataset: Dataset) -> list[Fingerprint]:
    """Return the fingerprint of each sample, in order; images in files are decoded at full size by several threads."""
    inputs = dataset.inputs
    quick = isinstance(inputs, Tensor | Mapping | Texts) and len(dataset) < _QUICK
    doing = "" if quick else f"Reading {what(dataset)}"
    return list(in_threads(_reader(inputs, dataset.ids), len(dataset), doing, what(dataset)))


def what(dataset: Dataset) -> str:
    """Return what samples are: images, texts or just samples, of features."""
    if is_images(dataset):
        return "images"
    return "texts" if isinstance(dataset.inputs, Texts) else "samples"


def is_images(dataset: Dataset) -> bool:
    """Return whether samples can be looked at: they are in files of images, or arrays (channels, H, W)."""
    inputs = dataset.inputs
    return inputs.ndim == 4 if isinstance(inputs, Tensor) else isinstance(inputs, Images | SatelliteImages)


def can_find_near() -> bool:
    """Return whether near duplicates can be found: whether imagehash is installed."""
    return find_spec("imagehash") is not None


def find_duplicates(prints: Sequence[Fingerprint], split: Integers, most: int | None = None) -> pd.DataFrame:
    """Return each sample that has an earlier duplicate, with one of these.

    Parameters
    ----------
    prints : sequence of n Fingerprint
    split : array (n,), int64
        Splits in the order in which they are used: a sample is earlier than those of a later split, and than those
        further down in its own.
    most : int, optional
        How many of 64 bits the hashes of near duplicates may differ in; None: only exact ones are looked for.

    Returns
    -------
    DataFrame
        Columns ``row``, ``other``, ``exact`` and ``bits``: of the earlier duplicates the one in the earliest split,
        there an exact one, or else the nearest. Exact ones come first, then the nearest.

    Examples
    --------
    >>> prints = [Fingerprint(b"a"), Fingerprint(b"b"), Fingerprint(b"a")]
    >>> find_duplicates(prints, np.array([1, 0, 0])).values.tolist()
    [[0, 2, True, 0]]
    """
    order = np.lexsort((np.arange(len(prints)), split))
    order = order[[prints[row].digest is not None for row in order.tolist()]]
    digests = pd.Series(order, index=[prints[row].digest for row in order.tolist()])
    first = digests.groupby(level=0, sort=False).transform("first").to_numpy(dtype=np.int64)  # of the same content
    other = np.where(first == order, -1, first)
    bits = np.zeros(len(order), dtype=np.int64)
    if most is not None:
        hashed = np.array([row for row in order[first == order].tolist() if prints[row].grey is not None], dtype=int)
        near, differing = _nearest([prints[row].grey for row in hashed.tolist()], split[hashed], most)
        partner, distance = np.full(len(prints), -1), np.zeros(len(prints), dtype=np.int64)
        partner[hashed], distance[hashed] = np.where(near >= 0, hashed[near], -1), differing
        close = partner[first]
        better = (close >= 0) & ((other < 0) | (split[close] < split[other]))
        other, bits = np.where(better, close, other), np.where(better, distance[first], 0)
        exact = ~better
    else:
        exact = np.ones(len(order), dtype=bool)
    frame = pd.DataFrame({"row": order, "other": other, "exact": exact, "bits": bits})
    frame = frame[frame["other"] >= 0].sort_values(["exact", "bits", "row"], ascending=[False, True, True])
    return frame.reset_index(drop=True)


def _nearest(greys: Sequence[Any], split: Integers, most: int) -> tuple[Integers, Integers]:
    """Return the nearest earlier image in the earliest split of each of n ordered ones, -1 for none; and their bits."""
    import imagehash

    count = len(greys)
    none = np.iinfo(np.int64).max
    best = np.full(count, none)  # split, bits and place in one number
    hashes = np.array([imagehash.phash(Image.fromarray(grey)).hash.ravel() for grey in greys], dtype=np.float32)
    signs = 2 * hashes.reshape(count, 64) - 1
    step = max(1, _AT_A_TIME // max(count, 1))
    for start in range(0, count, step):
        alike = signs[start : start + step] @ signs[: start + step].T  # 64 less twice the bits that differ
        one, two = np.nonzero(alike >= 64 - 2 * most)
        one, two, differing = one + start, two, (64 - alike[one, two].astype(np.int64)) // 2
        earlier = two < one
        one, two, differing = one[earlier], two[earlier], differing[earlier]
        near = _correlated(greys, one, two)
        one, two, differing = one[near], two[near], differing[near]
        np.minimum.at(best, one, (split[two] * 65 + differing) * count + two)
    found = best < none
    code, place = np.divmod(np.where(found, best, 0), max(count, 1))
    return np.where(found, place, -1), np.where(found, code % 65, 0)


def _correlated(greys: Sequence[Any], rows: Integers, others: Integers) -> NDArray[np.bool_]:
    """Return whether grey images correlate as duplicates do, (m,)."""
    correlated = np.zeros(len(rows), dtype=bool)
    for start in range(0, len(rows), _COMPARED):
        part = slice(start, start + _COMPARED)
        one, two = (_standardised([greys[row] for row in chosen[part].tolist()]) for chosen in (rows, others))
        correlated[part] = np.einsum("ij,ij->i", one, two) >= LIKENESS
    return correlated


def _standardised(greys: Sequence[Any]) -> NDArray[np.float32]:
    flat = np.stack(greys).reshape(len(greys), -1).astype(np.float32)
    flat -= flat.mean(axis=1, keepdims=True)
    return np.asarray(flat / np.linalg.norm(flat, axis=1, keepdims=True))


def _reader(inputs: Any, ids: Sequence[str]) -> Callable[[int], Fingerprint]:
    """Return what makes the fingerprint of a row."""
    if isinstance(inputs, Images):
        return lambda row: _of_file(inputs, row)
    if isinstance(inputs, SatelliteImages):
        return lambda row: _of_satellite(inputs, row, ids[row])
    if isinstance(inputs, Texts):
        return lambda row: Fingerprint(_digest(" ".join(inputs.text(row).split()).encode()))
    if isinstance(inputs, Tensor):
        return lambda row: _of_tensor(inputs[row])
    return lambda row: Fingerprint(_digest(*map(_bytes, inputs[row].values())))


def _of_file(images: Images, row: int) -> Fingerprint:
    try:
        with images.opened(row) as image:
            mode = image.mode
            grey = to_pixels(image, _GREY)[0]  # rejects what training would reject
            turned = ImageOps.exif_transpose(image)
            # A palette is looked up and what is opaque is said to be: the same colours are the same bytes.
            pixels = turned if turned.mode.startswith("I") else turned.convert("RGBA")
            digest = _digest(repr((pixels.mode, pixels.size)).encode(), pixels.tobytes())
    except ImageError as error:
        return Fingerprint(None, fault=str(error))
    small = (grey // 257 if grey.dtype == np.uint16 else grey).astype(np.uint8)
    comparable = min(turned.size) >= LEAST_SIDE and small.std() >= _FLAT
    return Fingerprint(digest, small if comparable else None, turned.size, mode)


def _of_satellite(images: SatelliteImages, row: int, name: str) -> Fingerprint:
    try:
        image = images[row]
    except ImageError as error:
        return Fingerprint(None, fault=str(error))
    if not bool(image.isfinite().all()):
        return Fingerprint(None, fault=f"{name} holds pixels that are not finite")
    return _of_tensor(image)


def _of_tensor(values: Tensor) -> Fingerprint:
    if values.ndim != 3:
        return Fingerprint(_digest(_bytes(values)))
    channels, height, width = values.shape
    mode = f"{channels} channel{'s' if channels > 1 else ''}"
    return Fingerprint(_digest(_bytes(values)), size=(width, height), mode=mode)


def _digest(*parts: bytes) -> bytes:
    return hashlib.blake2b(b"\0".join(parts), digest_size=16).digest()


def _bytes(values: Tensor) -> bytes:
    return bytes((values + 0).contiguous().numpy().tobytes())  # 0 and -0 are the same number
