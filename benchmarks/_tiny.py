"""Tiny data in the layout of the real files, for ``--smoke``."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

PACS = ("art_painting", "cartoon", "photo", "sketch")
EACH = 600  # samples of a domain: half of some of them fill a batch of 64
CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")


def write_pacs_features(folder: Path, each: int = EACH) -> Path:
    """Write ``pacs_features.npz`` with 12 features of each sample, so many in a domain; return its path."""
    x, domain, y, name = _draw(PACS, (12,), each)
    path = folder / "pacs_features.npz"
    np.savez(path, x=x.astype(np.float16), domain=domain, label=np.array(CLASSES)[y], path=name)
    return path


def write_digits(folder: Path) -> Path:
    """Write ``digits.npz`` with images of 1 x 16 x 16; return its path."""
    x, domain, y, name = _draw(("mnist", "usps", "optdigits"), (1, 16, 16))
    np.savez(folder / "digits.npz", x=x.astype(np.float16), y=y, domain=domain, id=name)
    return folder / "digits.npz"


def write_lsms(folder: Path) -> Path:
    """Write ``lsms.npz`` with a number to predict for each of 12 features; return its path."""
    x, domain, y, name = _draw(("tanzania", "uganda", "nigeria", "malawi"), (12,))
    place = np.arange(len(y), dtype=np.float32)
    np.savez(folder / "lsms.npz", x=x, y=y + x[:, 0], country=domain, lat=place, lon=place, id=name)
    return folder / "lsms.npz"


def _draw(domains: Sequence[str], shape: tuple[int, ...], each: int = EACH) -> tuple[np.ndarray, ...]:
    """Draw classes, shifted by domain; return inputs (n, *shape), domains (n,), classes (n,) and names (n,)."""
    rng, n = np.random.default_rng(0), each * len(domains)
    y, domain = np.arange(n) % len(CLASSES), np.repeat(domains, each)
    x = rng.random((n, *shape), dtype=np.float32)
    x.reshape(n, -1)[:, 0] += 2 * y
    x.reshape(n, -1)[:, 1] += np.arange(n) // each
    return x, domain, y, np.array([f"{name}/{row}.png" for row, name in enumerate(domain)])
