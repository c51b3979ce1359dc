"""Small images inside a page, as data URIs."""

import base64
import io
import re
import warnings
from collections.abc import Iterable
from html import escape
from os import PathLike

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

SIZE = 96  # pixels of the longest side


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


def svg_uri(svg: str) -> str:
    """Return an SVG as a data URI."""
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


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
