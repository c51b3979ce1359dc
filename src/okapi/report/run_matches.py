"""What a page shows of a run's samples: how they match, a gallery of matches, and a map of their encodings."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL.Image import Image
from torch import Tensor

from okapi.config import Config
from okapi.data.dataset import Dataset
from okapi.data.duplicates import is_images
from okapi.data.text import Texts
from okapi.matching import Balance, Matches, MatchPrecision
from okapi.numbers import count, plain, share
from okapi.report.contact_sheet import image_reader
from okapi.report.gallery import Query, Sample, cut, data_uri, gallery_html, placeholder, within_size
from okapi.report.matching_plots import love_plot, propensity_histograms
from okapi.report.page import Drawing, Section, figures_html
from okapi.report.plots import INK, MOST_LOOKS, Look, look, new_figure, short_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_QUERIES = 60
MOST_DIMENSIONS = 20
MOST_POINTS = 2000
OTHER, UNKNOWN, NO_DOMAIN = "other", "not known", "(none)"
SEALED = "Samples are of train, unlabelled, id_val and ood_val; test splits stay sealed."
_EXCERPT, _NAME = 240, 100  # characters


@dataclass(frozen=True, kw_only=True, eq=False)
class Encoded:
    """Samples of a run with their encodings; all else refers to them by their place here.

    Parameters
    ----------
    dataset : Dataset
    rows : array (n,)
        Which of its samples, split by split.
    encodings : array (n, d), float32
        Of unit length.
    predictions : tensor (n, outputs)
    config : Config
    notes : tuple of str
    """

    dataset: Dataset
    rows: NDArray[np.int64]
    encodings: NDArray[np.float32]
    predictions: Tensor
    config: Config
    notes: tuple[str, ...] = ()

    @cached_property
    def split(self) -> NDArray[np.str_]:
        """The split of each sample."""
        return np.asarray(self.dataset.split)[self.rows]

    @cached_property
    def domains(self) -> list[str]:
        """The domain of each sample; of several all, or "(none)"."""
        names, domain = np.array(self.dataset.domain_names, dtype=object), self.dataset.domain.numpy()[self.rows]
        return ["|".join(names[one]) or NO_DOMAIN for one in domain] if domain.ndim == 2 else names[domain].tolist()

    @cached_property
    def labels(self) -> list[str | None]:
        """The class of each sample, or its labels, or its number; None where it is not known."""
        return [_label(self.dataset, target) for target in self.dataset.target[torch.from_numpy(self.rows)]]

    def sample(self, place: int, distance: float | None = None, mark: str = "") -> Sample:
        """Return a sample as a gallery shows it."""
        data, row = self.dataset, int(self.rows[place])
        text = " ".join(data.inputs.text(row).split()) if isinstance(data.inputs, Texts) else None
        return Sample(
            name=cut(str(data.ids[row]), _NAME),
            domain=self.domains[place],
            label=self.labels[place],
            image=self._image(row),
            text=None if text is None else cut(text, _EXCERPT),
            distance=distance,
            mark=mark,
        )

    @cached_property
    def _picture(self) -> Callable[[int], Image] | None:
        return image_reader(self.dataset) if is_images(self.dataset) else None

    def _image(self, row: int) -> str | None:
        if self._picture is None:
            return None
        try:
            return data_uri(self._picture(row))
        except Exception as error:  # an image is never worth the page
            return placeholder(str(error) or type(error).__name__)


@dataclass(frozen=True, kw_only=True, eq=False)
class Matched:
    """Matches between samples.

    Parameters
    ----------
    pool : array (m,)
        Places among the samples of those that took part; all else is by place in the pool.
    domain : array (m,), int64; or (m, S), bool
    domain_names : list of str
    matches : Matches
    asked : int
        Samples that were to be matched.
    balance : Balance
    precision : MatchPrecision
        How far the targets of matches agree.
    propensity : array (m,) or (m, S)
    balanced_accuracy : float, optional
        How well propensities tell the domains apart.
    settings : mapping
        How they were matched; ``fixed_caliper`` and ``direction`` are drawn, too.
    notes : tuple of str
    """

    pool: NDArray[np.int64]
    domain: NDArray[Any]
    domain_names: list[str]
    matches: Matches
    asked: int
    balance: Balance
    precision: MatchPrecision
    propensity: NDArray[np.float64]
    balanced_accuracy: float | None
    settings: Mapping[str, Any]
    notes: tuple[str, ...] = ()


def matching_section(matched: Matched) -> Section:
    """Return propensities and balance before and after matching."""
    names, n_matched = matched.domain_names, len(matched.matches)
    domains = " and ".join(names) if len(names) == 2 else f"{len(names)} domains"
    used = ", ".join(f"{name.replace('_', ' ')} {plain(value)}" for name, value in matched.settings.items() if value)
    about = (
        f"Encodings of {count(len(matched.pool))} samples matched across {domains}: {used}. {count(n_matched)} of "
        f"{count(matched.asked)} queries are matched ({share(n_matched / max(1, matched.asked))}). {SEALED}"
    )
    return Section(title="Matching", name="matching", about=about, body=figures_html(matched_figures(matched)))


def matched_figures(matched: Matched) -> list[Drawing]:
    """Return captions and figures: propensities and balance before and after matching."""
    histograms = propensity_histograms(
        matched.propensity,
        matched.propensity,
        matches=matched.matches,
        query_domain=matched.domain,
        key_domain=matched.domain,
        fixed_caliper=matched.settings.get("fixed_caliper"),
        domain_names=matched.domain_names,
        direction=matched.settings.get("direction"),
    )
    caption = "Propensities given the encoding, by logistic regression, before and after matching"
    if matched.balanced_accuracy is not None:
        caption += f"; it tells the domains apart with a balanced accuracy of {share(matched.balanced_accuracy)}"
    love = (
        "Balance of the encodings, the largest differences: standardised mean differences (SMD) before and after "
        "matching, in pooled deviations before matching. Up to 0.1 is balanced by the usual rule"
    )
    return [(caption, histograms), (love, love_plot(matched.balance, max_covariates=MOST_DIMENSIONS))]


def gallery_section(encoded: Encoded, matched: Matched, most: int = MOST_QUERIES) -> Section:
    """Return a section of at most so many queries with their matches."""
    queries = make_gallery(encoded, matched, most)
    classes = encoded.dataset.task.kind != "regression"
    drawn = f"drawn in turn from domains{' and classes' if classes else ''}"
    about = f"{len(queries)} of {count(len(matched.matches))} matched queries, {drawn}."
    if any(key.mark for query in queries for key in query.keys):
        about += " ✓ is the same class, ✗ another; numbers are distances of encodings."
        if "unlabelled" in encoded.split.tolist():
            about += " Labels of unlabelled samples, where the data set has them, serve for these marks only."
    else:
        about += " Numbers are distances of encodings."
    body = gallery_html(queries, classes=classes)
    return Section(title="Matches", name="gallery", about=about, body=body)


def make_gallery(encoded: Encoded, matched: Matched, most: int = MOST_QUERIES) -> list[Query]:
    """Return at most so many queries, in turn from each domain and class, the same for the same run."""
    query, key = matched.pool[matched.matches.query.numpy()], matched.pool[matched.matches.key.numpy()]
    distance, compared = matched.matches.distance.numpy(), encoded.dataset.task.kind != "regression"
    queries = []
    for place in _in_turn(encoded, query, most):
        asked = int(query[place])
        pairs = zip(key[place].tolist(), distance[place].tolist(), strict=True)
        keys = [
            encoded.sample(other, far, _mark(encoded.labels[asked], encoded.labels[other]) if compared else "")
            for other, far in pairs
        ]
        queries.append(Query(sample=encoded.sample(asked), keys=keys))
    return within_size(queries)


def _mark(label: str | None, other: str | None) -> str:
    return "" if label is None or other is None else "right" if label == other else "wrong"


def _in_turn(encoded: Encoded, query: NDArray[np.int64], most: int) -> list[int]:
    """Return places of queries, one from each domain and class, then another."""
    groups: dict[tuple[str, str | None], list[int]] = {}
    for place in np.random.default_rng(encoded.config.seed).permutation(len(query)).tolist():
        sample = int(query[place])
        label = encoded.labels[sample] if encoded.dataset.task.kind != "regression" else None
        groups.setdefault((encoded.domains[sample], label), []).append(place)
    order = list(groups.values())
    turns = [group[turn] for turn in range(max(map(len, order), default=0)) for group in order if turn < len(group)]
    return turns[:most]


def map_section(encoded: Encoded) -> Section:
    """Return the map: encodings by their first two principal components, coloured by domain, target and split."""
    places = np.arange(len(encoded.rows))
    if len(places) > MOST_POINTS:
        places = np.sort(np.random.default_rng(encoded.config.seed).choice(places, MOST_POINTS, replace=False))
    points, explained = principal_components(encoded.encodings[places])
    left = f" of {count(len(encoded.rows))} that were encoded" if len(places) < len(encoded.rows) else ""
    about = (
        f"Encodings of {count(len(places))} samples{left} in two dimensions: the first two principal components, which "
        f"have {explained:.0%} of the variance. {SEALED}"
    )
    coloured: list[tuple[str, list[str]]] = [("domain", [encoded.domains[place] for place in places.tolist()])]
    target = _target(encoded)
    if target is None:
        coloured.append(("class", [encoded.labels[place] or UNKNOWN for place in places.tolist()]))
    coloured.append(("split", encoded.split[places].tolist()))
    figures: list[Drawing] = [(f"By {title}", _draw_map(points, title, names)) for title, names in coloured]
    if target is not None:
        figures.insert(1, ("By target", _draw_map(points, "target", target[places])))
    return Section(title="Map", name="map", about=about, body=figures_html(figures))


def _target(encoded: Encoded) -> NDArray[np.float64] | None:
    """Return the targets of a regression of one number."""
    data = encoded.dataset
    if data.task.kind != "regression" or data.task.outputs != 1:
        return None
    return np.asarray(data.target[torch.from_numpy(encoded.rows)].double().reshape(-1))


def _label(dataset: Dataset, target: Tensor) -> str | None:
    names = dataset.class_names or tuple(str(number) for number in range(dataset.task.outputs))
    if dataset.task.kind == "classification":
        return None if target < 0 else names[int(target)]
    if not bool(target.isfinite().all()):
        return None
    if dataset.task.kind == "regression":
        return ", ".join(f"{value:.3g}" for value in target.reshape(-1).tolist())
    return ", ".join(name for name, has in zip(names, target.tolist(), strict=True) if has) or "none"


def principal_components(vectors: NDArray[np.float32]) -> tuple[NDArray[np.float64], float]:
    """Return vectors (n, d) projected on their first two principal components, (n, 2), and the share of variance."""
    centred = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    left, size, axes = np.linalg.svd(centred, full_matrices=False)
    # The sign of a component is arbitrary: its largest loading is made positive, so that a map is drawn one way only.
    sign = np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(1)])
    points = np.zeros((len(vectors), 2))
    points[:, : min(2, len(size))] = (left * size * sign)[:, :2]
    variance = size**2
    return points, float(variance[:2].sum() / variance.sum()) if variance.sum() > 0 else 1.0


def categories(names: Sequence[str]) -> list[tuple[str, Look, NDArray[np.int64]]]:
    """Return the most frequent names with a look each, and the places that have them; the rest are other."""
    counts = Counter(name for name in names if name != UNKNOWN)
    frequent = sorted(counts, key=lambda name: (-counts[name], name))[:MOST_LOOKS]
    frequent.sort(key=lambda name: (not name.isdigit(), int(name) if name.isdigit() else 0, name))
    array = np.array(names, dtype=object)
    chosen = [(name, look(number), np.flatnonzero(array == name)) for number, name in enumerate(frequent)]
    other = np.flatnonzero(~np.isin(names, [*frequent, UNKNOWN]))
    rest = [(OTHER, look(MOST_LOOKS), other), (UNKNOWN, look(MOST_LOOKS), np.flatnonzero(array == UNKNOWN))]
    return [*chosen, *(group for group in rest if len(group[2]))]


def _draw_map(points: NDArray[np.float64], title: str, values: Any) -> "Figure":
    """Draw points coloured by name or number; names in a legend with how many there are of each."""
    numeric = isinstance(values, np.ndarray)
    groups = [] if numeric else categories(values)
    figure = new_figure(3.4 + 0.17 * -(-len(groups) // 2), f"Map of {len(points)} samples by {title}")
    axes = figure.add_subplot()
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_color("#cccccc")
    size = 12 if len(points) <= 500 else 6
    if numeric:
        drawn = axes.scatter(
            points[:, 0], points[:, 1], s=size, c=values, cmap="cividis", linewidths=0, plotnonfinite=True
        )
        figure.colorbar(drawn, ax=axes, shrink=0.8).ax.tick_params(labelsize=8)
        return figure
    colour: Any = np.empty((len(points), 2), dtype=object)
    for name, style, members in groups:
        colour[members] = ["none" if style.hollow else style.colour, style.colour]
        label = f"{short_name(name)} ({count(len(members))})"
        axes.scatter(
            [], [], s=16, facecolors=colour[members[0], 0], edgecolors=style.colour, linewidths=0.8, label=label
        )
    order = np.random.default_rng(0).permutation(len(points))  # so that no domain lies on top of all others
    faces, edges = colour[order, 0].tolist(), colour[order, 1].tolist()
    axes.scatter(points[order, 0], points[order, 1], s=size, facecolors=faces, edgecolors=edges, linewidths=0.6)
    figure.legend(loc="outside lower left", ncols=2, frameon=False, fontsize=8, labelcolor=INK, handletextpad=0.2)
    return figure
