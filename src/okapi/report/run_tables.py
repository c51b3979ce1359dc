"""Tables of runs: results by run and by method, and the worst domains and groups."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import pandas as pd

from okapi.benchmark import Table
from okapi.benchmark.results import SPLITS
from okapi.evaluation import METRICS, plain_metric
from okapi.report.rendering import NOTHING
from okapi.report.runs import RunRecord
from okapi.report.terminal import count

MOST_ROWS = 300
MOST_GROUPS = 40
PREFERRED = ("ood_test", "ood_val", "id_test", "id_val")
"""Splits, in the order in which worst groups and confusion are shown."""


@dataclass(frozen=True)
class PageTable:
    """A table as the template takes it: cells are a text and a class."""

    id: str
    title: str
    header: list[tuple[str, bool]]
    rows: list[list[tuple[str, str]]]
    n_rows: int
    about: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    worst: bool = False
    ruled: bool = False


def benchmark_table(number: int, table: Table, title: str) -> PageTable:
    """Return a table of a benchmark with the same texts; the best of a column is marked, as it says below."""
    rows = []
    for row in table.rows:
        cells = [(row[0].text, "")]
        for entry in row[1:]:
            cells.append((f"{entry.text} †" if entry.alike else entry.text, "number best" if entry.best else "number"))
        rows.append(cells)
    header = [(heading, place > 0) for place, heading in enumerate(table.headings)]
    return PageTable(
        id=f"benchmark-{number}",
        title=title,
        header=header,
        rows=rows,
        n_rows=len(rows),
        about=[table.caption],
        notes=[*table.legend("Bold"), *table.notes],
    )


def runs_table(records: Sequence[RunRecord]) -> PageTable:
    """Return a row for each run: how its weights were selected, and the main figures of each split."""
    columns = _columns(records)
    header = [("run", False), ("method", False), ("seed", True), ("weights", False)]
    header += [(f"{split} {name.replace('_', ' ')}", True) for split, name in columns]
    rows = []
    for record in records[:MOST_ROWS]:
        figures = record.run.figures if record.is_finished else {}
        values = [shown(figures.get(split, {}).get(name)) for split, name in columns]
        failed = record.run.state == "failed"
        seed = str(record.run.cell.seed) if record.method else NOTHING
        rows.append(
            [
                (record.name, ""),
                (record.method or NOTHING, ""),
                (seed, "number"),
                (state(record), "over" if failed else ""),
                *((value, "number") for value in values),
            ]
        )
    return PageTable(id="runs", title="Runs", header=header, rows=rows, n_rows=len(records))


def state(record: RunRecord) -> str:
    """Return in words how far a run is and how its weights were selected."""
    if record.is_finished:
        chosen = record.run.results["selection"]
        oracle = " (which looks at ood_test)" if chosen.get("selector") == "oracle" else ""
        text = f"step {chosen.get('step')}, selected by {chosen.get('selector')}{oracle}"
        return f"{text}; then it failed: {record.run.reason}" if record.run.state == "failed" else text
    if record.run.state == "failed":
        return f"cannot be shown: {record.run.reason}"
    return f"not finished: step {record.step} of {record.steps or '?'}"


def chosen_split(record: RunRecord) -> str | None:
    """Return the split whose domains and confusion are shown: the first of ``PREFERRED`` that was evaluated."""
    return next((split for split in PREFERRED if record.evaluation(split)), None)


def about_split(record: RunRecord, split: str) -> str:
    """Return which split it is, how the weights were selected and how often the split was opened."""
    found = record.evaluation(split) or {}
    weights, selector = found.get("weights", {}), found.get("selector")
    text = f"{record.name} on {split}, {count(found.get('n', 0))} samples; weights of step {weights.get('step')}, "
    text += f"selected by {selector}"
    if selector == "oracle":
        text += ", which looks at ood_test: no honest figure"
    opened = record.run.results.get("opened", {}).get(split)
    if opened is None:
        return f"{text}."
    times, several = int(opened["times"]), len(opened["sha256"])
    often = "once" if times == 1 else f"{times} times"
    return f"{text}. {split} has been opened {often}" + (f", with {several} different weights." if several > 1 else ".")


def group_tables(records: Sequence[RunRecord], shown_run: RunRecord, split: str) -> list[PageTable]:
    """Return the domains, and the groups, of a split with the metric of each method, the worst of the shown run first.

    A method with several runs has the mean over those that have the domain.
    """
    metric = plain_metric(shown_run.metric or "")
    tables = []
    for kind, title in (("domains", "Worst domains"), ("groups", "Worst groups")):
        own = _by_name(shown_run, split, kind, metric)
        if own is None:
            continue
        methods = list(dict.fromkeys([shown_run.method, *(record.method for record in records if record.method)]))
        found = [(method, _mean(records, method, split, kind, metric)) for method in methods]
        columns = {method: its for method, its in found if its is not None}
        order = columns[shown_run.method].reindex(own.index)
        order = order.sort_values(ascending=METRICS[metric].higher_is_better, kind="stable", na_position="last")
        single = sum(record.is_finished for record in records) == 1
        header = [("name", False), ("n", True), *((metric if single else method, True) for method in columns)]
        rows = []
        for name in order.index[:MOST_GROUPS]:
            values = [shown(its.get(name)) for its in columns.values()]
            number = own["n"][name]
            rows.append([(str(name), ""), (count(number), "number"), *((value, "number") for value in values)])
        by = f"By {metric.replace('_', ' ')}, the worst first"
        by += "." if single else f" for {shown_run.method}; of several runs of a method the mean."
        tables.append(
            PageTable(id=f"worst-{kind}", title=title, header=header, rows=rows, n_rows=len(order), about=[by])
        )
    return tables


def shown(value: Any) -> str:
    """Return a figure as tables print it."""
    return f"{value:.4f}" if isinstance(value, int | float) and isfinite(value) else NOTHING


def _columns(records: Sequence[RunRecord]) -> list[tuple[str, str]]:
    """Return splits and figures that some run has: its metric, and that of its worst domain."""
    wanted: dict[tuple[str, str], None] = {}
    for split in SPLITS:
        for record in records:
            figures = record.run.figures.get(split, {}) if record.metric else {}
            names = (record.metric or "", f"{plain_metric(record.metric or '')}_domain_worst")
            wanted |= dict.fromkeys((split, name) for name in names if name in figures)
    return list(wanted)


def _by_name(record: RunRecord, split: str, kind: str, metric: str) -> pd.DataFrame | None:
    """Return ``n`` and ``value`` of each domain or group of an evaluation; None where there are none."""
    found = (record.evaluation(split) or {}).get(kind)
    if not found or metric not in METRICS:
        return None
    frame = pd.DataFrame(found)
    frame["value"] = pd.to_numeric(frame[metric], errors="coerce") if metric in frame else float("nan")
    return frame.drop_duplicates("name").set_index("name")[["n", "value"]]


def _mean(records: Sequence[RunRecord], method: str, split: str, kind: str, metric: str) -> pd.Series | None:
    tables = [_by_name(record, split, kind, metric) for record in records if record.method == method]
    values = [table["value"] for table in tables if table is not None]
    return pd.concat(values, axis=1).mean(axis=1) if values else None
