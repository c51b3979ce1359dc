"""Contact sheets: images of a data set by domain and class, and pairs that are nearly the same, side by side."""

import io
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from okapi.data.dataset import Dataset
from okapi.data.images import Images
from okapi.data.inspection import Inspection
from okapi.numbers import count
from okapi.report.gallery import eight_bit
from okapi.report.plots import INK, short_name

MOST_DOMAINS, MOST_CLASSES, MOST_SAMPLES, MOST_PAIRS = 12, 10, 10, 24
_SIDE, _GAP, _LINE, _MARGIN = 80, 6, 16, 150  # pixels


class _Cell(NamedTuple):
    """Images that stand together, two in a line, and what stands below them."""

    images: list[Image.Image]
    caption: str = ""


def contact_sheet(inspection: Inspection, title: str, seed: int = 0) -> bytes:
    """Return images of the largest domains, a row each, by class; of a regression, by target from low to high.

    Parameters
    ----------
    inspection : Inspection
        Of images; those that cannot be read are left out.
    title : str
    seed : int
        By which images are drawn.

    Returns
    -------
    bytes
        A PNG file.
    """
    domains, counts = inspection.domain_names(), inspection.domains()["all"]
    shown, rng = domains[:MOST_DOMAINS], np.random.default_rng(seed)
    if inspection.class_names:
        names, classes = _classes(inspection)
        rows = [_by_class(inspection, name, classes, rng) for name in shown]
    else:
        names, rows = [], [_by_target(inspection, name, rng) for name in shown]
        title = f"{title}, each row by target, from low to high"
    if len(domains) > len(shown):
        title = f"{title} ({len(shown)} of {count(len(domains))} domains)"
    return _sheet(rows, [f"{short_name(name)}\n{count(counts[name])}" for name in shown], names, title)


def pair_sheet(inspection: Inspection, pairs: pd.DataFrame, title: str) -> bytes:
    """Return the first pairs of duplicates, three in a row, each with its ids and splits: a PNG file."""
    read, cells = image_reader(inspection.dataset), []
    for pair in pairs.head(MOST_PAIRS).to_dict("records"):
        rows = [int(pair["row"]), int(pair["other"])]
        of = [f"{inspection.split[row]}: …{inspection.dataset.ids[row][-20:]}" for row in rows]
        cells.append(_Cell([read(row) for row in rows], "\n".join([*of, f"{pair['bits']} of 64 bits differ"])))
    more = f", {len(cells)} of {count(len(pairs))}" if len(pairs) > len(cells) else ""
    return _sheet([cells[start : start + 3] for start in range(0, len(cells), 3)], [], [], f"{title}{more}")


def _classes(inspection: Inspection) -> tuple[list[str], list[NDArray[np.bool_]]]:
    """Return the largest classes, with how many samples they have, and which samples these are."""
    table, target = inspection.classes(), inspection.dataset.target.numpy()
    names = [str(name) for name in table.index[table["all"] > 0]][:MOST_CLASSES]
    numbers = [inspection.class_names.index(name) for name in names]
    members = [target[:, number] == 1 if target.ndim == 2 else target == number for number in numbers]
    if not inspection.labelled.all():
        names, members = [*names, "no class"], [*members, ~inspection.labelled]
    return [f"{short_name(n)}\n{count(int(m.sum()))}" for n, m in zip(names, members, strict=True)], members


def _by_class(
    inspection: Inspection, domain: str, classes: Sequence[NDArray[np.bool_]], rng: np.random.Generator
) -> list[_Cell]:
    read, here = image_reader(inspection.dataset), _readable(inspection, domain)
    return [_Cell([read(row) for row in _draw(here & members, 4, rng)]) for members in classes]


def _by_target(inspection: Inspection, domain: str, rng: np.random.Generator) -> list[_Cell]:
    read, here = image_reader(inspection.dataset), _readable(inspection, domain)
    target = inspection.dataset.target.numpy().reshape(len(inspection.dataset), -1)[:, 0]
    known = here & np.isfinite(target)
    rows = sorted(_draw(known if known.any() else here, MOST_SAMPLES, rng), key=lambda row: float(target[row]))
    return [_Cell([read(row)], f"{target[row]:.3g}" if known[row] else "no target") for row in rows]


def _draw(members: NDArray[np.bool_], most: int, rng: np.random.Generator) -> list[int]:
    rows = np.flatnonzero(members)
    return sorted(rng.choice(rows, min(most, len(rows)), replace=False).tolist())


def _readable(inspection: Inspection, domain: str) -> NDArray[np.bool_]:
    return np.asarray(inspection.belongs(domain) & [found.digest is not None for found in inspection.prints])


def _sheet(rows: Sequence[Sequence[_Cell]], row_names: Sequence[str], names: Sequence[str], title: str) -> bytes:
    """Return cells below the names of their columns and beside the names of their rows: a PNG file."""
    from matplotlib.figure import Figure

    most, lines = (max(value for row in rows for value in map(measure, row)) for measure in (_images, _lines))
    across, down = min(2, most), -(-most // 2)
    wide, tall = across * _SIDE + 2 * _GAP, down * _SIDE + 2 * _GAP + lines * _LINE
    columns = max(len(row) for row in rows)
    paper = Image.new("RGB", (columns * wide, len(rows) * tall), "white")
    margin = _MARGIN if row_names else _GAP
    width, height = max(paper.width + margin + _GAP, 520), paper.height + 4 * _LINE + _GAP
    figure = Figure(figsize=(width / 100, height / 100), dpi=100)
    axes = figure.add_axes((margin / width, _GAP / height, paper.width / width, paper.height / height))
    for down_, row in enumerate(rows):
        for across_, cell in enumerate(row):
            left, top = across_ * wide, down_ * tall
            for place, image in enumerate(cell.images):
                _paste(paper, image, left + place % 2 * _SIDE, top + place // 2 * _SIDE)
            caption = cell.caption.replace("$", r"\$")
            axes.text(left, top + down * _SIDE + 2, caption, size=6, color=INK, va="top", linespacing=1.3)
    axes.imshow(np.asarray(paper), interpolation="nearest", aspect="auto")
    axes.xaxis.tick_top()
    axes.set_xticks([(number + 0.5) * wide - _GAP for number in range(len(names))], names)
    axes.set_yticks([number * tall + down * _SIDE / 2 for number in range(len(row_names))], row_names)
    axes.tick_params(length=0, labelsize=7, labelcolor=INK)
    axes.spines[:].set_visible(False)
    figure.suptitle(title.replace("$", r"\$"), x=_GAP / width, y=1 - _GAP / height, ha="left", size=9, color=INK)
    content = io.BytesIO()
    figure.savefig(content, format="png")
    return content.getvalue()


def _images(cell: _Cell) -> int:
    return max(1, len(cell.images))


def _lines(cell: _Cell) -> int:
    return len(cell.caption.splitlines())


def _paste(paper: Image.Image, image: Image.Image, left: int, top: int) -> None:
    """Put an image into the middle of a square, at its own aspect ratio; pixels of a small one stay squares."""
    side = _SIDE - 2
    method = Image.Resampling.NEAREST if max(image.size) < side else Image.Resampling.BICUBIC
    small = ImageOps.contain(image, (side, side), method)
    paper.paste(small, (left + (side - small.width) // 2, top + (side - small.height) // 2))


def image_reader(dataset: Dataset) -> Callable[[int], Image.Image]:
    """Return what shows a row as an RGB image, turned as its EXIF data says."""
    inputs: Any = dataset.inputs
    if isinstance(inputs, Images):
        return lambda row: _of_file(inputs, row)
    if isinstance(inputs, Tensor):
        step = max(1, len(inputs) // 500)
        low, high = np.quantile(inputs[::step].numpy(), (0.005, 0.995)).tolist()
        return lambda row: _of_channels(inputs[row, :3].numpy(), low, high)
    return lambda row: _of_bands(inputs[row].numpy())


def _of_file(images: Images, row: int) -> Image.Image:
    with images.opened(row) as image:
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
