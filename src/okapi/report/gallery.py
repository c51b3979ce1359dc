"""The gallery: queries of a run with their matches, as pictures, texts or names."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from okapi.data.dataset import Dataset
from okapi.data.duplicates import is_images
from okapi.data.text import Texts
from okapi.matching import MatchPrecision
from okapi.report.contact_sheet import picture_reader
from okapi.report.matched import Encoded, Matched, class_text, domain_text, precision_of
from okapi.report.page import data_uri, placeholder

MOST_QUERIES = 60
PICTURE_BYTES = 2_000_000
SIZE = 96  # pixels of a picture
_EXCERPT, _NAME = 240, 100  # characters


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A sample as the gallery shows it; ``mark`` says whether a match is "right", "wrong" or neither is known."""

    name: str
    domain: str
    label: str | None
    split: str
    picture: str | None
    text: str | None
    distance: float = 0.0
    mark: str = ""


@dataclass(frozen=True, kw_only=True)
class Query:
    """A query with its matches, nearest first; ``agreement`` is "right" if none that is known is wrong."""

    sample: Shown
    keys: list[Shown]
    agreement: str


@dataclass(frozen=True)
class Gallery:
    """Queries, of how many, and how far the targets of all matches agree where both are known."""

    queries: list[Query]
    matched: int
    asked: int
    precision: MatchPrecision
    is_visual: bool

    @property
    def marked(self) -> bool:
        """Whether some matches are known to be right or wrong, which those of numbers are not."""
        return self.precision.kind != "regression" and self.precision.overall["pairs"] > 0

    @property
    def domains(self) -> list[str]:
        """Domains of the queries, sorted."""
        return sorted({query.sample.domain for query in self.queries})

    @property
    def labels(self) -> list[str]:
        """Classes of the queries, sorted, numbers as numbers."""
        found = {query.sample.label for query in self.queries if query.sample.label is not None}
        return sorted(found, key=lambda text: (not text.isdigit(), int(text) if text.isdigit() else 0, text))


def make_gallery(encoded: Encoded, matched: Matched, most: int = MOST_QUERIES) -> Gallery:
    """Return a gallery of at most so many queries, in turn from each domain and class, the same for the same run."""
    data, matches = encoded.dataset, matched.matches
    query = matched.pool[matches.query.numpy()]
    key, distance = matched.pool[matches.key.numpy()], matches.distance.numpy()
    labels = [class_text(data, int(row)) for row in encoded.rows]
    is_class = data.task.kind != "regression"
    mark = _marks(labels, query, key) if is_class else np.full(key.shape, "", dtype=object)
    show = _Showing(encoded, labels)
    chosen = _in_turn(encoded, query, labels if is_class else [None] * len(labels), most)
    queries: list[Query] = []
    used = 0
    for place in chosen:
        keys = [
            show(int(sample), distance=float(far), mark=str(said))
            for sample, far, said in zip(key[place], distance[place], mark[place], strict=True)
        ]
        sample = show(int(query[place]))
        used += sum(len(one.picture or "") for one in (sample, *keys))
        if used > PICTURE_BYTES and queries:
            break
        said = set(mark[place]) - {""}
        agreement = "wrong" if "wrong" in said else "right" if said else "unknown"
        queries.append(Query(sample=sample, keys=keys, agreement=agreement))
    asked = len(matched.pool)
    if direction := matched.settings.direction:
        asked = int((matched.domain == direction[0]).sum()) if matched.domain.ndim == 1 else asked
    return Gallery(queries, len(query), asked, precision_of(encoded, matched), show.is_visual)


def _marks(labels: list[str | None], query: NDArray[np.int64], key: NDArray[np.int64]) -> NDArray[Any]:
    """Return for each match "right" if it is of the query's class, "wrong" if not, or "" where that is not known."""
    named: Any = np.array(labels, dtype=object)
    known = np.array([label is not None for label in labels])
    both = known[query][:, None] & known[key]
    return np.where(both, np.where(named[query][:, None] == named[key], "right", "wrong"), "")


def _in_turn(encoded: Encoded, query: NDArray[np.int64], labels: list[str | None], most: int) -> list[int]:
    """Return places of queries, one from each domain and class, then another, by the run's seed."""
    rng = np.random.default_rng(encoded.config.seed)
    groups: dict[tuple[str, str | None], list[int]] = {}
    for place in rng.permutation(len(query)).tolist():
        sample = int(query[place])
        group = domain_text(encoded.dataset, int(encoded.rows[sample])), labels[sample]
        groups.setdefault(group, []).append(place)
    order = list(groups.values())
    turns = [group[turn] for turn in range(max(map(len, order), default=0)) for group in order if turn < len(group)]
    return turns[:most]


class _Showing:
    """Makes what is shown of a sample, a picture of each once."""

    def __init__(self, encoded: Encoded, labels: list[str | None]) -> None:
        self._encoded, self._labels = encoded, labels
        self._pictures: dict[int, str] = {}
        self.is_visual = is_images(encoded.dataset)
        self._read = picture_reader(encoded.dataset) if self.is_visual else None

    def __call__(self, sample: int, distance: float = 0.0, mark: str = "") -> Shown:
        data, row = self._encoded.dataset, int(self._encoded.rows[sample])
        if self._read is not None and row not in self._pictures:
            self._pictures[row] = _picture(self._read, row)
        return Shown(
            name=cut(str(data.ids[row]), _NAME),
            domain=domain_text(data, row),
            label=self._labels[sample],
            split=str(self._encoded.split[sample]),
            picture=self._pictures.get(row),
            text=_excerpt(data, row),
            distance=distance,
            mark=mark,
        )


def _picture(read: Callable[[int], Any], row: int) -> str:
    try:
        return data_uri(read(row), SIZE)
    except Exception as error:  # a picture is never worth the page
        return placeholder(str(error) or type(error).__name__, SIZE)


def _excerpt(dataset: Dataset, row: int) -> str | None:
    return cut(" ".join(dataset.inputs.text(row).split()), _EXCERPT) if isinstance(dataset.inputs, Texts) else None


def cut(text: str, most: int) -> str:
    """Return a text that is not too long for a page."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
