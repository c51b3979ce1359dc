"""The map: encodings in two dimensions, coloured by domain or class."""

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from okapi.report.gallery import cut
from okapi.report.matched import Encoded, class_text, domain_text
from okapi.report.palette import MOST, Look, look, scale
from okapi.report.rendering import SVG

MOST_POINTS = 4000
WIDTH, HEIGHT, MARGIN = 720, 480, 12
OTHER, UNKNOWN = "other", "not known"
_BINS = 5  # of numbers
_SMALLEST = 20  # samples that UMAP needs to find neighbours in


@dataclass(frozen=True)
class Colouring:
    """What points are coloured by: each one's category, and the looks of these; ``key`` begins their CSS classes."""

    key: str
    title: str
    category: list[int]
    legend: list[tuple[str, Look, int]]


@dataclass(frozen=True)
class Map:
    """Drawings by name, what they may be coloured by, and how many samples they show."""

    drawings: list[tuple[str, str, Markup]]
    colourings: list[Colouring]
    shown: int
    samples: int

    @property
    def style(self) -> str:
        """CSS that gives each category its look."""
        rules = []
        for colouring in self.colourings:
            for number, (_, its, _) in enumerate(colouring.legend):
                where = f".by-{colouring.key} .{colouring.key}{number}"
                fill = "none" if its.hollow else its.css
                rules.append(f"{where} {{ fill: {fill}; stroke: {its.css if its.hollow else 'none'}; }}")
        return "\n".join(rules)


def draw_map(encoded: Encoded, most: int = MOST_POINTS) -> Map:
    """Return the map of at most so many samples: by principal components and, where it is installed, by UMAP."""
    places = np.arange(len(encoded.rows))
    if len(places) > most:
        places = np.sort(np.random.default_rng(encoded.config.seed).choice(places, most, replace=False))
    colourings = _colourings(encoded, places)
    titles = _titles(encoded, places)
    vectors = encoded.encodings[places]
    found, explained = principal_components(vectors)
    caption = f"PCA: the first two principal components have {explained:.0%} of the variance"
    drawings = [("PCA", caption, found)]
    if find_spec("umap") is not None and len(places) >= _SMALLEST:
        drawings.append(
            ("UMAP", "UMAP: near samples stay near, distances between clusters mean little", _umap(vectors))
        )
    svgs = [(name, caption, _draw(points, colourings, titles, caption)) for name, caption, points in drawings]
    return Map(svgs, colourings, len(places), len(encoded.rows))


def principal_components(vectors: NDArray[np.float32]) -> tuple[NDArray[np.float64], float]:
    """Return vectors (n, d) projected on their first two principal components, (n, 2), and the share of variance."""
    centred = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    left, size, axes = np.linalg.svd(centred, full_matrices=False)
    # The sign of a component is arbitrary: its largest loading is made positive, so that a map is drawn one way only.
    sign = np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(1)])
    found = np.zeros((len(vectors), 2))
    found[:, : min(2, len(size))] = (left * size * sign)[:, :2]
    variance = size**2
    return found, float(variance[:2].sum() / variance.sum()) if variance.sum() > 0 else 1.0


def _umap(vectors: NDArray[np.float32]) -> NDArray[np.float64]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a seed costs it its threads
        reducer = import_module("umap").UMAP(random_state=0, n_neighbors=min(15, len(vectors) - 1))
        return np.asarray(reducer.fit_transform(vectors), dtype=np.float64)


def _colourings(encoded: Encoded, places: NDArray[np.int64]) -> list[Colouring]:
    data, rows = encoded.dataset, encoded.rows[places].tolist()
    found = [_by_name("domain", "domain", [domain_text(data, row) for row in rows])]
    if data.task.kind == "regression" and data.task.outputs == 1:
        found.append(_by_number([float(data.target[row].reshape(-1)[0]) for row in rows]))
    elif data.task.kind != "regression":
        found.append(_by_name("class", "class", [class_text(data, row) or UNKNOWN for row in rows]))
    found.append(_by_name("split", "split", encoded.split[places].tolist()))
    return found


def _by_name(key: str, title: str, names: Sequence[str]) -> Colouring:
    """Give the most frequent names a look each; the rest are other."""
    counts = Counter(names)
    unknown = counts.pop(UNKNOWN, 0)
    frequent = [name for name, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    own = sorted(frequent[:MOST], key=lambda name: (not name.isdigit(), int(name) if name.isdigit() else 0, name))
    legend = [(name, look(number), counts[name]) for number, name in enumerate(own)]
    numbers = {name: number for number, name in enumerate(own)}
    for rest, label in ((sum(counts[name] for name in frequent[MOST:]), OTHER), (unknown, UNKNOWN)):
        if rest:
            numbers[label if label == UNKNOWN else "\0other"] = len(legend)
            legend.append((label, look(MOST), rest))
    return Colouring(key, title, [numbers.get(name, numbers.get("\0other", 0)) for name in names], legend)


def _by_number(values: Sequence[float]) -> Colouring:
    """Colour numbers by the fifth that they are in."""
    array = np.array(values)
    known = np.isfinite(array)
    edges = np.unique(np.quantile(array[known], np.linspace(0, 1, _BINS + 1))) if known.any() else np.zeros(1)
    count = max(1, len(edges) - 1)
    bins = np.clip(np.searchsorted(edges, array, side="right") - 1, 0, count - 1)
    named = [f"{low:.3g} to {high:.3g}" for low, high in pairwise(edges)] or [f"{edges[0]:.3g}"]
    legend = [(name, scale(i, count), int(((bins == i) & known).sum())) for i, name in enumerate(named)]
    if not known.all():
        legend.append((UNKNOWN, look(MOST), int((~known).sum())))
    return Colouring("class", "target", np.where(known, bins, count).tolist(), legend)


def _titles(encoded: Encoded, places: NDArray[np.int64]) -> list[str]:
    data = encoded.dataset
    titles = []
    for place in places.tolist():
        row = int(encoded.rows[place])
        parts = [cut(str(data.ids[row]), 80), domain_text(data, row), class_text(data, row), str(encoded.split[place])]
        titles.append(" · ".join(part for part in parts if part))
    return titles


def _draw(points: NDArray[np.float64], colourings: Sequence[Colouring], titles: Sequence[str], caption: str) -> Markup:
    """Return points as SVG, each with a class for its category by each colouring and its title."""
    low, high = points.min(0), points.max(0)
    span = np.where(high > low, high - low, 1)
    across = MARGIN + (points[:, 0] - low[0]) / span[0] * (WIDTH - 2 * MARGIN)
    down = HEIGHT - MARGIN - (points[:, 1] - low[1]) / span[1] * (HEIGHT - 2 * MARGIN)
    radius = 4 if len(points) <= 500 else 3 if len(points) <= 2000 else 2.4
    parts = []
    for i in np.random.default_rng(0).permutation(len(points)).tolist():  # so that no domain lies on top of all others
        classes = " ".join(f"{colouring.key}{colouring.category[i]}" for colouring in colourings)
        parts.append(
            f'<circle class="{classes}" cx="{across[i]:.1f}" cy="{down[i]:.1f}" r="{radius}">'
            f"<title>{escape(titles[i])}</title></circle>"
        )
    label = escape(f"Map of {len(points)} samples. {caption}")
    head = f'<svg xmlns="{SVG}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">'
    return Markup(f"{head}{''.join(parts)}</svg>")
