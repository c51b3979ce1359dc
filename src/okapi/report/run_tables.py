"""Tables of runs: results by run and by method, and the worst domains and groups."""

from collections.abc import Sequence
from math import isfinite
from typing import Any

import pandas as pd

from okapi.benchmark.compare import SPLITS
from okapi.evaluation import METRICS, plain_metric
from okapi.numbers import count, fixed
from okapi.report.runs import RunRecord
from okapi.table import Cell, Column, Table

_four = fixed(4)
PREFERRED = ("ood_test", "unlabelled_test", "ood_val", "id_test", "id_val")
"""Splits, in the order in which worst groups and confusion are shown."""


def runs_table(records: Sequence[RunRecord]) -> Table:
    """Return a row for each run: how its weights were selected, and the main metrics of each split."""
    splits = _columns(records)
    rows = []
    for record in records:
        metrics = record.run.figures if record.is_finished else {}
        values = [_finite(metrics.get(split, {}).get(name)) for split, name in splits]
        failed = record.run.state == "failed"
        seed = record.run.cell.seed if record.method else None
        rows.append([record.name, record.method or None, seed, Cell(state(record), "bad" if failed else ""), *values])
    columns = ["run", "method", Column("seed", str), "weights"]
    columns += [Column(name.replace("_", " "), _four, split) for split, name in splits]
    return Table(title="Runs", name="runs", columns=columns, rows=rows, meanings={})


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


def group_tables(records: Sequence[RunRecord], shown_run: RunRecord, split: str) -> list[Table]:
    """Return the domains, and the groups, of a split with the metric of each method, the worst of the shown run first.

    A method with several runs has the mean over those that have the domain.
    """
    metric = plain_metric(shown_run.metric or "")
    tables = []
    for kind, title in (("domains", "Worst domains"), ("groups", "Worst groups")):
        of_run = _by_name(shown_run, split, kind, metric)
        if of_run is None:
            continue
        methods = list(dict.fromkeys([shown_run.method, *(record.method for record in records if record.method)]))
        means = [(method, _mean(records, method, split, kind, metric)) for method in methods]
        columns = {method: mean for method, mean in means if mean is not None}
        order = columns[shown_run.method].reindex(of_run.index)
        order = order.sort_values(ascending=METRICS[metric].higher_is_better, kind="stable", na_position="last")
        single = sum(record.is_finished for record in records) == 1
        rows = [
            [str(name), int(of_run["n"][name]), *(_finite(mean.get(name)) for mean in columns.values())]
            for name in order.index
        ]
        by = f"By {metric.replace('_', ' ')}, the worst first"
        by += "." if single else f" for {shown_run.method}; of several runs of a method the mean."
        heads = ["name", Column("n", count), *(Column(metric if single else method, _four) for method in columns)]
        caption = f"{about_split(shown_run, split)} {by}"
        tables.append(Table(title=title, name=f"worst-{kind}", columns=heads, rows=rows, caption=caption))
    return tables


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and isfinite(value) else None


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
