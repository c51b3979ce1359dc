"""The gallery: queries with their matches, as small images, texts or names."""

import base64
import io
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from os import PathLike

import numpy as np
from markupsafe import Markup
from PIL import Image, ImageOps, UnidentifiedImageError

from okapi.report.page import render, svg_uri

IMAGE_BYTES = 2_000_000
SIZE = 96  # pixels of the longest side


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A sample as the gallery shows it.

    Parameters
    ----------
    name, domain : str
    label : str, optional
        Its class or target, where that is known.
    image : str, optional
        A data URI.
    text : str, optional
    distance : float, optional
        Of a match, to its query.
    mark : {"", "right", "wrong"}
        Whether a match has the label of its query, where both are known.
    """

    name: str
    domain: str
    label: str | None = None
    image: str | None = None
    text: str | None = None
    distance: float | None = None
    mark: str = ""


@dataclass(frozen=True, kw_only=True)
class Query:
    """A query with its matches, nearest first."""

    sample: Sample
    keys: Sequence[Sample]

    @property
    def agreement(self) -> str:
        """Whether matches have the label of the query: "right" if none that is known is wrong."""
        marks = {key.mark for key in self.keys} - {""}
        return "some wrong" if "wrong" in marks else "right" if marks else "not known"


def gallery_html(queries: Sequence[Query], classes: bool = False) -> Markup:
    """Return queries that can be filtered by domain, agreement and, if asked to, class, and sorted by distance."""
    return render(
        "gallery.jinja",
        queries=queries,
        classes=classes,
        marked=any(key.mark for query in queries for key in query.keys),
        visual=any(query.sample.image for query in queries),
        most_keys=max((len(query.keys) for query in queries), default=0),
    )


def within_size(queries: Sequence[Query], most: int = IMAGE_BYTES) -> list[Query]:
    """Return the first queries whose images have so many bytes together, one at the least."""
    shown: list[Query] = []
    used = 0
    for query in queries:
        used += sum(len(sample.image or "") for sample in (query.sample, *query.keys))
        if used > most and shown:
            break
        shown.append(query)
    return shown


def cut(text: str, most: int) -> str:
    """Return a text that is not too long for a page."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def thumbnails(paths: Iterable[str | PathLike[str]], size: int = SIZE) -> dict[str, str]:
    """Return a small version of each image file as a data URI, by path.

    Parameters
    ----------
    paths : iterable of paths
        Anything that Pillow opens. Images of more than 8 bits are stretched from their darkest to their brightest
        pixel. A file that cannot be shown gives a placeholder that says why.
    size : int, default=96
        Longest side in pixels.
    """
    return {str(path): _thumbnail(str(path), size) for path in paths}


def _thumbnail(path: str, size: int) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as image:
                image.draft(None, (2 * size, 2 * size))  # JPEG decodes a smaller image sooner
                small = eight_bit(ImageOps.exif_transpose(image))
        return data_uri(small, size)
    except FileNotFoundError:
        return placeholder("file not found", size)
    except Exception as error:  # an image is never worth the page: Pillow's readers raise almost anything
        reason = "not an image" if isinstance(error, UnidentifiedImageError) else str(error)
        return placeholder(reason or type(error).__name__, size)


def data_uri(image: Image.Image, size: int = SIZE) -> str:
    """Return an RGB image as a data URI, its longest side at most ``size`` pixels."""
    small = image.copy()
    small.thumbnail((size, size))
    file = io.BytesIO()
    small.save(file, "WEBP", quality=75)
    return f"data:image/webp;base64,{base64.b64encode(file.getvalue()).decode()}"


def eight_bit(image: Image.Image) -> Image.Image:
    """Return an RGB image; what shines through is white."""
    if image.mode.startswith(("I", "F")):
        values = np.nan_to_num(np.asarray(image, dtype=np.float64))
        low, high = values.min(), values.max()
        image = Image.fromarray(((values - low) * (255 / max(high - low, 1e-12))).astype(np.uint8))
    if image.has_transparency_data:
        solid = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", solid.size, "white"), solid)
    return image.convert("RGB")


def placeholder(reason: str, size: int = SIZE) -> str:
    """Return an image that says why there is none, as a data URI."""
    words = re.findall(r"\S{1,14}", reason)[:6]
    lines = "".join(f'<tspan x="50%" dy="1.2em">{escape(word)}</tspan>' for word in words)
    return svg_uri(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{size}" height="{size}" viewBox="0 0 96 96">'
        f'<rect width="96" height="96" fill="#8884"/><text y="{47 - 6 * len(words)}%" fill="#888" '
        f'text-anchor="middle" font-size="11" font-family="sans-serif">{lines}</text></svg>'
    )
