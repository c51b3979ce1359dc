"""The report of predictions: the most unusual samples, each with its nearest labelled ones."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from okapi.numbers import count, fixed, share
from okapi.report.gallery import Query, Sample, gallery_html, thumbnails, within_size
from okapi.report.page import Section, page, table_section
from okapi.table import Column, Table

if TYPE_CHECKING:
    from okapi.training import Predictor

SHOWN = 60  # samples: half with the greatest shift, half drawn at random
NEIGHBOURS = 3


def explanation(model: "Predictor", frame: pd.DataFrame, encoding: Any, data: Path) -> str:
    """Return the report as HTML that loads nothing from elsewhere.

    Parameters
    ----------
    model : Predictor
        With a reference.
    frame : DataFrame
        As of ``Predictor.frame``.
    encoding : array (n, d)
    data : Path
        Where the samples come from; where they are images, their thumbnails are shown.
    """
    reference = model.reference
    if reference is None:
        raise ValueError(f"{model.run.path} has no reference.npz: the nearest labelled samples are not known")
    rows = _chosen(frame["domain_shift"].to_numpy())
    distance, index = reference.nearest(encoding[rows], NEIGHBOURS)
    facts = {
        "samples": len(frame),
        "median domain shift": fixed(2)(float(frame["domain_shift"].median())),
        "samples with a shift above 3": share(float((frame["domain_shift"] > 3).mean())),
    }
    sections = []
    if model.task.kind == "classification":
        sections.append(table_section(_counts(frame)))
    images = _images(frame["id"].iloc[rows], data) | _images(reference.id[index.ravel()], model.data_folder)
    queries = []
    for place, row in enumerate(rows):
        sample = _sample(frame.iloc[int(row)], images)
        neighbours = [
            Sample(
                name=str(reference.id[number]),
                domain="labelled",
                label=str(reference.label[number]),
                image=images.get(str(reference.id[number])),
                distance=float(far),
            )
            for far, number in zip(distance[place], index[place], strict=True)
        ]
        queries.append(Query(sample=sample, keys=neighbours))
    shown = within_size(queries)
    about = (
        f"{len(shown)} of {len(frame):,} samples, half of them those furthest from all labelled samples, half drawn at "
        "random; each with its nearest labelled samples. Distances are in units of the median distance of validation "
        "samples from their nearest labelled one: far above 1 the model has seen nothing alike."
    )
    body = gallery_html(shown)
    sections.append(Section(title="Nearest labelled samples", name="nearest", body=body, about=about))
    return page(title=data.name, kicker="predictions", facts=facts, sections=sections)


def _chosen(shift: Any) -> Any:
    """Return rows: those with the greatest shift, then others at random, the same ones every time."""
    order = np.argsort(-shift, kind="stable")
    most, rest = order[: SHOWN // 2], order[SHOWN // 2 :]
    return np.concatenate([most, np.random.default_rng(0).permutation(rest)[: SHOWN - len(most)]])


def _sample(row: pd.Series, images: Mapping[str, str]) -> Sample:
    name = str(row["id"])
    predicted = row.get("prediction")
    label = None if predicted is None else (predicted if isinstance(predicted, str) else f"{predicted:.4g}")
    return Sample(name=name, domain=f"shift {row['domain_shift']:.2f}", label=label, image=images.get(name))


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
