"""What was predicted instead of what: confusion of classes, errors of labels, predicted against true numbers."""

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from markupsafe import Markup
from numpy.typing import NDArray

from okapi.report.plots import BLUE, INK, finish, new_figure, to_svg
from okapi.report.rendering import inline_svg
from okapi.report.run_tables import PageTable
from okapi.report.runs import RunRecord
from okapi.report.terminal import count

MOST_CLASSES = 16
MOST_LABELS = 40
MOST_POINTS = 1500
OTHERS = "others"


@dataclass(frozen=True)
class Cell:
    """How often a class was taken for another, the share of its samples, and whether that is right."""

    n: int
    share: float
    right: bool


@dataclass(frozen=True)
class Confusion:
    """What to show of the predictions on a split: one of a matrix, a table or a figure.

    Parameters
    ----------
    names : list of str
        Of the rows, true classes, and columns, predicted ones.
    rows : list of lists of Cell
    table : PageTable, optional
    figure : Markup, optional
    notes : list of str
    """

    names: list[str] = field(default_factory=list)
    rows: list[list[Cell]] = field(default_factory=list)
    table: PageTable | None = None
    figure: Markup | None = None
    notes: list[str] = field(default_factory=list)


def read_confusion(record: RunRecord, split: str) -> Confusion:
    """Return what the file of predictions on a split says; of one that cannot be used, why."""
    path = record.path / f"predictions-{split}.parquet"
    command = f"okapi evaluate {record.path} --split {split} writes it anew"
    if not path.is_file():
        return Confusion(notes=[f"{path} is missing; {command}."])
    try:
        table = pq.read_table(path)
        about = json.loads((table.schema.metadata or {}).get(b"okapi", b"{}"))
        frame, names = table.to_pandas(), [str(name) for name in about.get("class_names", [])]
    except (OSError, ValueError, AttributeError, TypeError) as error:  # Arrow's errors are among them
        return Confusion(notes=[f"{path} cannot be read: {' '.join(str(error).split())[:200]}; {command}."])
    notes = []
    if about.get("sha256") != record.run.results.get("weights", {}).get("sha256"):
        notes.append(f"{path} is of other weights than the run has; {command}.")
    try:
        found = _confusion(frame, names)
    except (KeyError, ValueError, TypeError, IndexError):
        return Confusion(notes=[f"{path} was edited: its columns are not those of predictions; {command}."])
    return Confusion(found.names, found.rows, found.table, found.figure, [*notes, *found.notes])


def _confusion(frame: pd.DataFrame, names: list[str]) -> Confusion:
    if "target" not in frame:
        labels = [name.removeprefix("target_") for name in map(str, frame) if name.startswith("target_")]
        if not labels:
            raise KeyError("target")
        several = "probability_0" in frame
        return _labels(frame, names or labels) if several else _numbers(frame["target_0"], frame["prediction_0"], " 0")
    if "probability_0" not in frame:
        return _numbers(frame["target"], frame["prediction"], "")
    return _classes(frame, names)


def _classes(frame: pd.DataFrame, names: list[str]) -> Confusion:
    notes = []
    good = frame["target"].notna() & frame["prediction"].notna()
    if not good.all():
        notes.append(f"{count((~good).sum())} of {count(len(frame))} predictions are missing (NaN) and left out.")
    target = frame.loc[good, "target"].astype(int).to_numpy()
    predicted = frame.loc[good, "prediction"].astype(int).to_numpy()
    size = max([len(names), *(target + 1), *(predicted + 1)]) if len(target) else len(names)
    called = [names[number] if number < len(names) else str(number) for number in range(size)]
    matrix = np.zeros((size, size), dtype=np.int64)
    np.add.at(matrix, (target, predicted), 1)
    occurring, predicted_at_all = matrix.sum(1) > 0, matrix.sum(0) > 0
    if never := [called[number] for number in np.flatnonzero(occurring & ~predicted_at_all)]:
        more = f" and {len(never) - 10} more" if len(never) > 10 else ""
        notes.append(f"Never predicted: {', '.join(never[:10])}{more}.")
    matrix, called, cut = _largest(matrix, called)
    if cut:
        notes.append(cut)
    totals = matrix.sum(1)
    rows = [
        [
            Cell(int(n), n / max(1, totals[row]), row == column and called[row] != OTHERS)
            for column, n in enumerate(matrix[row])
        ]
        for row in range(len(matrix))
    ]
    return Confusion(called, rows, notes=notes)


def _largest(matrix: NDArray[np.int64], names: list[str]) -> tuple[NDArray[np.int64], list[str], str]:
    """Return the matrix of the classes that occur, the most frequent apart and the rest together."""
    size = matrix.sum(0) + matrix.sum(1)
    present = np.flatnonzero(size)
    if len(present) <= MOST_CLASSES:
        return matrix[np.ix_(present, present)], [names[number] for number in present], ""
    frequent = np.sort(np.argsort(-matrix.sum(1) * (size.max() + 1) - size, kind="stable")[: MOST_CLASSES - 1])
    group = np.full(len(names), len(frequent))
    group[frequent] = np.arange(len(frequent))
    together = np.zeros((len(frequent) + 1,) * 2, dtype=np.int64)
    np.add.at(together, (group[:, None], group[None, :]), matrix)
    text = f"The {len(frequent)} most frequent of {len(present)} classes are shown; the rest are “{OTHERS}”."
    return together, [*(names[number] for number in frequent), OTHERS], text


def _labels(frame: pd.DataFrame, names: list[str]) -> Confusion:
    rows: list[tuple[float, list[tuple[str, str]]]] = []
    for number, name in enumerate(names):
        target, predicted = (frame[f"{what}_{number}"].to_numpy() == 1 for what in ("target", "prediction"))
        hits, wanted, said = int((target & predicted).sum()), int(target.sum()), int(predicted.sum())
        f1 = 2 * hits / max(1, wanted + said)
        cells = [f"{part / whole:.3f}" if whole else "–" for part, whole in ((hits, wanted), (hits, said), (2 * f1, 2))]
        rows.append((f1, [(name, ""), *((text, "number") for text in (count(wanted), count(said), *cells))]))
    rows.sort(key=lambda row: row[0])
    header = [("label", False), *((name, True) for name in ("true", "predicted", "recall", "precision", "F1"))]
    table = PageTable(
        id="labels",
        title="Labels",
        header=header,
        rows=[row for _, row in rows[:MOST_LABELS]],
        n_rows=len(rows),
    )
    never = [row[0][0] for _, row in rows if row[2][0] == "0" and row[1][0] != "0"]
    return Confusion(table=table, notes=[f"Never predicted: {', '.join(never[:10])}."] if never else [])


def _numbers(target: pd.Series, predicted: pd.Series, called: str) -> Confusion:
    values = np.stack([target.to_numpy(dtype=float), predicted.to_numpy(dtype=float)], axis=1)
    good, notes = values[np.isfinite(values).all(axis=1)], []
    if len(good) < len(values):
        notes.append(f"{count(len(values) - len(good))} of {count(len(values))} predictions are missing and left out.")
    if not len(good):
        return Confusion(notes=notes)
    some: Any = good
    if len(good) > MOST_POINTS:
        some = good[np.random.default_rng(0).choice(len(good), MOST_POINTS, replace=False)]
        notes.append(f"{count(MOST_POINTS)} of {count(len(good))} samples are drawn, chosen at random.")
    caption = f"Predicted against true target{called}; on the line they are equal"
    figure = new_figure(3.6, caption)
    axes = figure.add_subplot()
    axes.scatter(some[:, 0], some[:, 1], s=9, color=BLUE, alpha=0.5, linewidths=0)
    ends = [good.min(), good.max()]
    axes.plot(ends, ends, color=INK, linewidth=1, linestyle="--")
    axes.set_xlabel("true", color=INK, fontsize=8)
    axes.set_ylabel("predicted", color=INK, fontsize=8)
    finish(axes)
    return Confusion(figure=inline_svg(to_svg(figure), "predictions", caption), notes=notes)
