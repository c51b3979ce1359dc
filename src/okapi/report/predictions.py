"""The report of predictions: the most unusual samples, each with its nearest labelled ones."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from okapi.numbers import count, fixed, share
from okapi.report.gallery import Query, Sample, gallery_html, thumbnails, within_size
from okapi.report.page import Section, page, table_section
from okapi.table import Column, Table

SHOWN = 60  # samples: half with the greatest shift, half drawn at random


class Labelled(NamedTuple):
    """The nearest labelled samples of some rows: ids, labels and distances, each (n, k), and the folder of images."""

    id: NDArray[Any]
    label: NDArray[Any]
    distance: NDArray[np.float64]
    folder: Path | None


def explanation(frame: pd.DataFrame, rows: NDArray[np.int64], labelled: Labelled, data: Path, classes: bool) -> str:
    """Return the report as HTML that loads nothing from elsewhere.

    Parameters
    ----------
    frame : DataFrame
        As of ``Predictor.frame``, with ``domain_shift``.
    rows : array (n,)
        Those that are shown, as from ``unusual``.
    labelled : Labelled
        Of these rows.
    data : Path
        Where the samples come from; where they are images, their thumbnails are shown.
    classes : bool
        Whether classes are predicted.
    """
    facts = {
        "samples": len(frame),
        "median domain shift": fixed(2)(float(frame["domain_shift"].median())),
        "samples with a shift above 3": share(float((frame["domain_shift"] > 3).mean())),
    }
    sections = []
    if classes:
        sections.append(table_section(_counts(frame)))
    images = _images(frame["id"].iloc[rows], data)
    known = _images(labelled.id.ravel(), labelled.folder)
    queries = []
    for place, row in enumerate(rows.tolist()):
        neighbours = [
            Sample(name=name, domain="labelled", label=label, image=known.get(name), distance=distance)
            for name, label, distance in zip(*(part[place].tolist() for part in labelled[:3]), strict=True)
        ]
        queries.append(Query(sample=_sample(frame.iloc[row], images), keys=neighbours))
    shown = within_size(queries)
    about = (
        f"{len(shown)} of {len(frame):,} samples, half of them those furthest from all labelled samples, half drawn at "
        "random; each with its nearest labelled samples. Distances are in units of the median distance of validation "
        "samples from their nearest labelled one: far above 1 the model has seen nothing alike."
    )
    body = gallery_html(shown)
    sections.append(Section(title="Nearest labelled samples", name="nearest", body=body, about=about))
    return page(title=data.name, kicker="predictions", facts=facts, sections=sections)


def unusual(shift: NDArray[Any]) -> NDArray[np.int64]:
    """Return the rows with the greatest shift, then others at random, the same ones every time."""
    order = np.argsort(-shift, kind="stable")
    most, rest = order[: SHOWN // 2], order[SHOWN // 2 :]
    return np.concatenate([most, np.random.default_rng(0).permutation(rest)[: SHOWN - len(most)]])


def _sample(row: pd.Series, images: Mapping[str, str]) -> Sample:
    name = str(row["id"])
    predicted = row.get("prediction")
    label = None if predicted is None else (predicted if isinstance(predicted, str) else f"{predicted:.4g}")
    return Sample(name=name, domain="new", label=label, image=images.get(name))


def _images(ids: Iterable[Any], data: Path | None) -> dict[str, str]:
    """Return thumbnails by id, of those that are paths of files below ``data``, or beside it."""
    if data is None:
        return {}
    folder = data if data.is_dir() else data.parent
    files = {str(name): folder / str(name) for name in ids if Path(str(name)).suffix and (folder / str(name)).is_file()}
    made = thumbnails(files.values())
    return {name: made[str(path)] for name, path in files.items()}


def _counts(frame: pd.DataFrame) -> Table:
    shares = frame["prediction"].value_counts()
    rows = [[str(name), int(count), count / len(frame)] for name, count in shares.items()]
    columns = ["prediction", Column("samples", count), Column("share", share)]
    return Table(title="Predictions", name="predictions", columns=columns, rows=rows)
