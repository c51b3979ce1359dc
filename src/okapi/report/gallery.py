"""The gallery: queries with their matches, as images, texts or names."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from okapi.report.page import render

IMAGE_BYTES = 2_000_000


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
