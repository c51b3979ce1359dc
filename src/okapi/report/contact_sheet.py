"""Contact sheets: pictures of a data set by domain and class, and pairs that are nearly the same, side by side."""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont, ImageOps
from torch import Tensor

from okapi.data.dataset import Dataset
from okapi.data.images import Images
from okapi.data.inspection import Inspection
from okapi.numbers import count
from okapi.report.gallery import eight_bit

MOST_DOMAINS, MOST_CLASSES, MOST_SAMPLES, MOST_PAIRS = 12, 10, 10, 24
_SIDE, _PAIR_SIDE = 80, 128  # pixels of a picture's longer side
_GAP, _MARGIN, _LABELS, _LINE = 4, 16, 150, 18
_INK, _GREY, _PAPER = (30, 30, 30), (110, 110, 110), (255, 255, 255)


def contact_sheet(inspection: Inspection, title: str, seed: int = 0) -> Image.Image:
    """Return pictures of the largest domains, a row each, by class; of a regression, by target from low to high.

    Parameters
    ----------
    inspection : Inspection
        Of pictures; those that cannot be read are left out.
    title : str
    seed : int
        By which pictures are drawn.
    """
    domains, counts = inspection.domain_names(), inspection.domains()["all"]
    rng = np.random.default_rng(seed)
    chosen = _by_class(inspection, rng) if inspection.class_names else _by_target(inspection, rng)
    shown = domains[:MOST_DOMAINS]
    cut = f"{len(shown)} of {count(len(domains))} domains" if len(domains) > len(shown) else ""
    notes = ", ".join(filter(None, (cut, chosen.note)))
    row_names = [(name, count(counts[name])) for name in shown]
    return _grid(
        [chosen.cells(name) for name in shown], row_names, chosen.names, f"{title} ({notes})" if notes else title
    )


def pair_sheet(inspection: Inspection, pairs: pd.DataFrame, title: str) -> Image.Image:
    """Return the first pairs of duplicates three in a row, each with its ids and splits."""
    shown = pairs.head(MOST_PAIRS)
    wide, tall = 2 * _PAIR_SIDE + 5 * _GAP, _PAIR_SIDE + 3 * _LINE + 2 * _GAP
    columns = min(3, len(shown))
    height = 2 * _MARGIN + 2 * _LINE + -(-len(shown) // columns) * tall
    sheet, draw = _paper(max(2 * _MARGIN + columns * wide, 520), height)
    more = f", {len(shown)} of {count(len(pairs))}" if len(pairs) > len(shown) else ""
    draw.text((_MARGIN, _MARGIN), f"{title}{more}", fill=_INK, font=_font(14))
    show = picture_reader(inspection.dataset)
    for place, pair in enumerate(shown.to_dict("records")):
        left, top = _MARGIN + place % columns * wide, _MARGIN + 2 * _LINE + place // columns * tall
        for side, row in enumerate((int(pair["row"]), int(pair["other"]))):
            at = left + side * (_PAIR_SIDE + _GAP)
            _paste(sheet, show(row), at, top, _PAIR_SIDE)
            split = f"{inspection.split[row]}, {inspection.domain_of(row)}"
            draw.text((at, top + _PAIR_SIDE + 2), _fitted(split, _PAIR_SIDE), fill=_GREY, font=_font(11))
            name = _fitted(inspection.dataset.ids[row], _PAIR_SIDE, tail=True)
            draw.text((at, top + _PAIR_SIDE + 2 + _LINE), name, fill=_INK, font=_font(11))
        bits = f"{pair['bits']} of 64 bits differ"
        draw.text((left, top + _PAIR_SIDE + 2 + 2 * _LINE - 2), bits, fill=_GREY, font=_font(11))
    return sheet


class _Cell(NamedTuple):
    """Images that stand together, one row or two by two, and what stands below the first."""

    pictures: list[Image.Image]
    caption: str = ""


class _Chosen(NamedTuple):
    """What stands in the row of a domain, what columns are called and a remark."""

    cells: Callable[[str], list[_Cell]]
    names: list[tuple[str, str]]
    note: str


def _by_class(inspection: Inspection, rng: np.random.Generator) -> _Chosen:
    classes = inspection.classes()
    largest = [str(name) for name in classes.index[classes["all"] > 0]]
    target = inspection.dataset.target.numpy()
    of_class: dict[str, NDArray[np.bool_]] = {}
    for name in largest[:MOST_CLASSES]:
        number = inspection.class_names.index(name)
        of_class[name] = target[:, number] == 1 if target.ndim == 2 else target == number
    if not inspection.labelled.all():
        of_class["no class"] = ~inspection.labelled
    usable, show = _readable(inspection), picture_reader(inspection.dataset)

    def cells(domain: str) -> list[_Cell]:
        here = usable & inspection.belongs(domain)
        drawn = [_draw(np.flatnonzero(here & chosen), 4, rng) for chosen in of_class.values()]
        return [_Cell([show(row) for row in rows]) for rows in drawn]

    names = [(name, count(int(chosen.sum()))) for name, chosen in of_class.items()]
    cut = f"{MOST_CLASSES} of {count(len(largest))} classes" if len(largest) > MOST_CLASSES else ""
    return _Chosen(cells, names, cut)


def _by_target(inspection: Inspection, rng: np.random.Generator) -> _Chosen:
    target = inspection.dataset.target.numpy().reshape(len(inspection.dataset), -1)[:, 0]
    usable, show = _readable(inspection), picture_reader(inspection.dataset)

    def cells(domain: str) -> list[_Cell]:
        here = usable & inspection.belongs(domain)
        known = here & np.isfinite(target)
        drawn = _draw(np.flatnonzero(known if known.any() else here), MOST_SAMPLES, rng)
        rows = sorted(drawn, key=lambda row: float(target[row]))
        return [_Cell([show(row)], f"{target[row]:.3g}" if known[row] else "no target") for row in rows]

    return _Chosen(cells, [("", "")] * MOST_SAMPLES, "each row by target, from low to high")


def _draw(rows: NDArray[np.int64], most: int, rng: np.random.Generator) -> list[int]:
    return sorted(rng.choice(rows, min(most, len(rows)), replace=False).tolist())


def _readable(inspection: Inspection) -> NDArray[np.bool_]:
    return np.array([found.digest is not None for found in inspection.prints])


def _grid(
    rows: Sequence[Sequence[_Cell]], row_names: Sequence[tuple[str, str]], names: Sequence[tuple[str, str]], title: str
) -> Image.Image:
    """Return cells below the names of their columns and beside the names of their rows; a name has two lines."""
    single = all(len(cell.pictures) < 2 for row in rows for cell in row)
    side = _SIDE if single else 2 * _SIDE + _GAP
    captioned = any(cell.caption for row in rows for cell in row)
    wide, tall = side + 3 * _GAP, side + 3 * _GAP + (_LINE if captioned else 0)
    header = _MARGIN + 2 * _LINE + (2 * _LINE if any(name for name, _ in names) else 0)
    width = max(2 * _MARGIN + _LABELS + len(names) * wide, 520)
    sheet, draw = _paper(width, header + len(rows) * tall + _MARGIN)
    draw.text((_MARGIN, _MARGIN), _fitted(title, width - 2 * _MARGIN, 14), fill=_INK, font=_font(14))
    for column, name in enumerate(names):
        _label(draw, name, _MARGIN + _LABELS + column * wide, header - 2 * _LINE - 2, side)
    for number, (row, name) in enumerate(zip(rows, row_names, strict=True)):
        top = header + number * tall
        _label(draw, name, _MARGIN, top, _LABELS - 2 * _GAP)
        for column, cell in enumerate(row):
            left = _MARGIN + _LABELS + column * wide
            for place, picture in enumerate(cell.pictures):
                across, down = place % 2 * (_SIDE + _GAP), place // 2 * (_SIDE + _GAP)
                _paste(sheet, picture, left + across, top + down, _SIDE)
            draw.text((left, top + side + 2), _fitted(cell.caption, side), fill=_GREY, font=_font(11))
    return sheet


def _paper(width: int, height: int) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    sheet = Image.new("RGB", (width, height), _PAPER)
    return sheet, ImageDraw.Draw(sheet)


def _label(draw: ImageDraw.ImageDraw, name: tuple[str, str], left: int, top: int, width: int) -> None:
    draw.text((left, top), _fitted(name[0], width, 12), fill=_INK, font=_font(12))
    draw.text((left, top + _LINE - 2), name[1], fill=_GREY, font=_font(11))


def _paste(sheet: Image.Image, picture: Image.Image, left: int, top: int, side: int) -> None:
    """Put a picture into the middle of a square, at its own aspect ratio; pixels of a small one stay squares."""
    method = Image.Resampling.NEAREST if max(picture.size) < side else Image.Resampling.BICUBIC
    small = ImageOps.contain(picture, (side, side), method)
    sheet.paste(small, (left + (side - small.width) // 2, top + (side - small.height) // 2))
    ImageDraw.Draw(sheet).rectangle((left - 1, top - 1, left + side, top + side), outline=(225, 225, 225))


def picture_reader(dataset: Dataset) -> Callable[[int], Image.Image]:
    """Return what shows a row as an RGB picture, turned as its EXIF data says."""
    inputs: Any = dataset.inputs
    if isinstance(inputs, Images):
        return lambda row: _of_file(inputs, row)
    if isinstance(inputs, Tensor):
        step = max(1, len(inputs) // 500)
        low, high = np.quantile(inputs[::step].numpy(), (0.005, 0.995)).tolist()
        return lambda row: _of_channels(inputs[row, :3].numpy(), low, high)
    return lambda row: _of_bands(inputs[row].numpy())


def _of_file(pictures: Images, row: int) -> Image.Image:
    with pictures.opened(row) as image:
        return eight_bit(ImageOps.exif_transpose(image))


def _of_bands(image: NDArray[np.float32]) -> Image.Image:
    """Show the visible bands of a satellite image, blue, green and red, from its darkest to its brightest pixels."""
    visible = image[2::-1]
    low, high = np.quantile(visible, (0.02, 0.98)).tolist()
    return _of_channels(visible, low, high)


def _of_channels(image: NDArray[np.float32], low: float, high: float) -> Image.Image:
    scaled = np.clip((image - low) / max(high - low, 1e-12), 0, 1)
    pixels = np.rint(255 * scaled).astype(np.uint8).transpose(1, 2, 0)
    three = pixels if pixels.shape[2] == 3 else np.repeat(pixels[:, :, :1], 3, axis=2)
    return Image.fromarray(three)


@cache
def _font(size: int) -> ImageFont.FreeTypeFont:
    """Return a font that knows more alphabets than Pillow's own."""
    import matplotlib

    return ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf", size)


def _fitted(text: str, width: int, size: int = 11, tail: bool = False) -> str:
    """Return a text that is no wider, cut at its end, or at its beginning if the tail says more."""
    text = " ".join(text.split())
    if _font(size).getlength(text) <= width:
        return text
    while text and _font(size).getlength(f"…{text}") > width:
        text = text[1:] if tail else text[:-1]
    return f"…{text}" if tail else f"{text}…"
