"""What was predicted instead of what: confusion of classes, errors of labels, predicted against true numbers."""

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from markupsafe import Markup
from numpy.typing import NDArray
from sklearn.metrics import confusion_matrix, f1_score, precision_score, recall_score

from okapi.benchmark import RunRecord
from okapi.numbers import count, decimal
from okapi.report.page import Section, figures_html, table_html
from okapi.report.plots import BLUE, INK, finish, new_figure
from okapi.table import Cell, Column, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_CLASSES = 16
SCORES = (recall_score, precision_score, f1_score)
MOST_LABELS = 40
MOST_POINTS = 1500
OTHERS = "others"


def confusion_section(record: RunRecord, split: str, about: str = "") -> Section:
    """Return what the file of predictions on a split shows, or why it cannot be used."""
    shown, notes = read_confusion(record, split)
    title = shown.title if isinstance(shown, Table) else "Predictions"
    body = Markup("")
    if isinstance(shown, Table):
        body = table_html(shown, most=MOST_LABELS)
    elif shown is not None:
        body = figures_html([(str(shown.get_label()), shown)])
    return Section(title=title, name="predictions", body=body, about=about, notes=notes)


def read_confusion(record: RunRecord, split: str) -> "tuple[Table | Figure | None, list[str]]":
    """Return a matrix of classes, a table of labels or a figure of numbers, and notes; None of a file that is bad."""
    path = record.path / f"predictions-{split}.parquet"
    command = f"okapi evaluate {record.path} --split {split} writes it anew"
    if not path.is_file():
        return None, [f"{path} is missing; {command}."]
    try:
        table = pq.read_table(path)
        about = json.loads((table.schema.metadata or {}).get(b"okapi", b"{}"))
        frame, names = table.to_pandas(), [str(name) for name in about.get("class_names", [])]
    except (OSError, ValueError, AttributeError, TypeError) as error:  # Arrow's errors are among them
        return None, [f"{path} cannot be read: {' '.join(str(error).split())[:200]}; {command}."]
    notes = []
    if record.results and about.get("sha256") != record.results.weights.sha256:
        notes.append(f"{path} is of other weights than the run has; {command}.")
    try:
        shown, more = _confusion(frame, names)
    except (KeyError, ValueError, TypeError, IndexError):
        return None, [f"{path} was edited: its columns are not those of predictions; {command}."]
    return shown, [*notes, *more]


def _confusion(frame: pd.DataFrame, names: list[str]) -> "tuple[Table | Figure | None, list[str]]":
    if "target" in frame:
        return _classes(frame, names) if "probability_0" in frame else _numbers(frame["target"], frame["prediction"])
    labels = [name.removeprefix("target_") for name in map(str, frame) if name.startswith("target_")]
    if "probability_0" in frame:
        return _labels(frame, names or labels)
    return _numbers(frame["target_0"], frame["prediction_0"], " 0")


def _classes(frame: pd.DataFrame, names: list[str]) -> tuple[Table, list[str]]:
    notes = []
    good = frame["target"].notna() & frame["prediction"].notna()
    if not good.all():
        notes.append(f"{count((~good).sum())} of {count(len(frame))} predictions are missing (NaN) and left out.")
    target, predicted = (frame.loc[good, name].astype(int).to_numpy() for name in ("target", "prediction"))
    size = max(len(names), *(target + 1), *(predicted + 1)) if len(target) else len(names)
    called = [names[number] if number < len(names) else str(number) for number in range(size)]
    matrix = confusion_matrix(target, predicted, labels=np.arange(size))
    notes += _never([called[number] for number in np.flatnonzero(matrix.any(1) & ~matrix.any(0))])
    matrix, called, left_out = _largest(matrix, called)
    shares = matrix / np.maximum(1, matrix.sum(1, keepdims=True))
    counted = [list(zip(*pair, strict=True)) for pair in zip(matrix.tolist(), shares.tolist(), strict=True)]
    rows = [
        [name, *(_cell(number, part, to == row and name != OTHERS) for to, (number, part) in enumerate(cells))]
        for row, (name, cells) in enumerate(zip(called, counted, strict=True))
    ]
    caption = "Rows are true classes, columns predicted ones; the darker, the larger the share of its row."
    columns = ["true \\ predicted", *(Column(name, count) for name in called)]
    table = Table(title="Confusion", name="confusion", columns=columns, rows=rows, caption=caption, meanings={})
    return table, [*notes, *left_out]


def _cell(number: int, share: float, right: bool) -> Cell:
    return Cell(number, "good" if right else "bad", shade=share)


def _largest(matrix: NDArray[np.int64], names: list[str]) -> tuple[NDArray[np.int64], list[str], list[str]]:
    """Return the matrix of the classes that occur, the most frequent apart and the rest together."""
    size = matrix.sum(0) + matrix.sum(1)
    present = np.flatnonzero(size)
    if len(present) <= MOST_CLASSES:
        return matrix[np.ix_(present, present)], [names[number] for number in present], []
    frequent = np.sort(np.argsort(-matrix.sum(1) * (size.max() + 1) - size, kind="stable")[: MOST_CLASSES - 1])
    group = np.full(len(names), len(frequent))
    group[frequent] = np.arange(len(frequent))
    together = np.zeros((len(frequent) + 1,) * 2, dtype=np.int64)
    np.add.at(together, (group[:, None], group[None, :]), matrix)
    text = f"The {len(frequent)} most frequent of {len(present)} classes are shown; the rest are “{OTHERS}”."
    return together, [*(names[number] for number in frequent), OTHERS], [text]


def _labels(frame: pd.DataFrame, names: list[str]) -> tuple[Table, list[str]]:
    rows: list[list[Any]] = []
    for number, name in enumerate(names):
        target, predicted = (frame[f"{what}_{number}"].to_numpy() == 1 for what in ("target", "prediction"))
        recall, precision, f1 = (score(target, predicted, zero_division=np.nan) for score in SCORES)
        rows.append([name, int(target.sum()), int(predicted.sum()), recall, precision, f1])
    rows.sort(key=lambda row: np.nan_to_num(row[-1]))
    columns: list[Any] = ["label", Column("true", count), Column("predicted", count)]
    columns += [Column(name, decimal) for name in ("recall", "precision", "F1")]
    table = Table(title="Labels", name="labels", columns=columns, rows=rows)
    return table, _never([row[0] for row in rows if row[1] and not row[2]])


def _never(names: list[str]) -> list[str]:
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return [f"Never predicted: {', '.join(names[:10])}{more}."] if names else []


def _numbers(target: pd.Series, predicted: pd.Series, called: str = "") -> "tuple[Figure | None, list[str]]":
    values = np.stack([target.to_numpy(dtype=float), predicted.to_numpy(dtype=float)], axis=1)
    good, notes = values[np.isfinite(values).all(axis=1)], []
    if len(good) < len(values):
        notes.append(f"{count(len(values) - len(good))} of {count(len(values))} predictions are missing and left out.")
    if not len(good):
        return None, notes
    some = good
    if len(good) > MOST_POINTS:
        some = good[np.random.default_rng(0).choice(len(good), MOST_POINTS, replace=False)]
        notes.append(f"{count(MOST_POINTS)} of {count(len(good))} samples are drawn, chosen at random.")
    figure = new_figure(3.6, f"Predicted against true target{called}; on the line they are equal")
    axes = figure.add_subplot()
    axes.scatter(some[:, 0], some[:, 1], s=9, color=BLUE, alpha=0.5, linewidths=0)
    ends = [good.min(), good.max()]
    axes.plot(ends, ends, color=INK, linewidth=1, linestyle="--")
    axes.set_xlabel("true", color=INK, fontsize=8)
    axes.set_ylabel("predicted", color=INK, fontsize=8)
    finish(axes)
    return figure, notes
