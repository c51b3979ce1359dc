"""The page of runs and benchmarks: results, curves, worst groups, confusion, matches and a map in one HTML file."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import pandas as pd

from okapi import __version__
from okapi.benchmark import RunRecord
from okapi.benchmark.compare import SPLITS
from okapi.evaluation import METRICS, plain_metric
from okapi.numbers import count, fixed
from okapi.report.benchmark import benchmark_tables
from okapi.report.confusion import confusion_section
from okapi.report.curves import curves_section
from okapi.report.matching import precision_table, target_agreement
from okapi.report.page import Section, page, settings_section, table_section
from okapi.report.run_matches import (
    MOST_QUERIES,
    Encoded,
    Matched,
    gallery_section,
    map_section,
    matching_section,
)
from okapi.report.run_records import Gathered
from okapi.table import Cell, Column, Table

MOST_BYTES = 5_000_000
_four = fixed(4)
PREFERRED = ("ood_test", "unlabelled_test", "ood_val", "id_test", "id_val")
"""Splits, in the order in which worst groups and confusion are shown."""


@dataclass(frozen=True, eq=False)
class Looked:
    """What a look into a run's data and model gives: samples, and their matches or why there are none."""

    encoded: Encoded
    matched: Matched | str


def report_page(gathered: Gathered, shown: RunRecord | None = None, looked: Looked | str | None = None) -> str:
    """Return the page; where it would be too large, with fewer matches.

    Parameters
    ----------
    gathered : Gathered
    shown : RunRecord, optional
        The run whose groups, confusion, matches and map are shown.
    looked : Looked or str, optional
        Its samples and matches, or why there are none.
    """
    queries = MOST_QUERIES
    while True:
        html = _page(gathered, shown, looked, queries)
        if len(html.encode()) < MOST_BYTES or not queries:
            return html
        queries //= 2


def _page(gathered: Gathered, shown: RunRecord | None, looked: Looked | str | None, queries: int) -> str:
    split = None if shown is None else chosen_split(shown)
    sections = [table_section(table) for table in [*_benchmarks(gathered), runs_table(gathered.runs)]]
    sections += curves_section(gathered.runs, gathered.methods)
    if shown is not None and split is not None:
        sections += [table_section(table) for table in group_tables(gathered.runs, shown, split)]
        sections.append(confusion_section(shown, split, about_split(shown, split)))
    facts, notes = _facts(gathered, shown, split), [*gathered.notes, *_notes(shown, split, looked)]
    if isinstance(looked, Looked):
        sections += _samples_sections(looked, queries)
        facts |= target_agreement(looked.matched.precision) if isinstance(looked.matched, Matched) else {}
    sections.append(settings_section(_settings(gathered, shown, looked)))
    kicker = "benchmark" if gathered.benchmarks else "training"
    return page(title=_title(gathered), kicker=kicker, facts=facts, notes=notes, sections=sections)


def _samples_sections(looked: Looked, queries: int) -> list[Section]:
    sections = [map_section(looked.encoded)]
    if isinstance(looked.matched, Matched):
        gallery = [gallery_section(looked.encoded, looked.matched, queries)] if queries else []
        precision = looked.matched.precision
        agreement = [table_section(precision_table(precision))] if precision.overall["pairs"] else []
        sections = [matching_section(looked.matched), *agreement, *gallery, *sections]
    return sections


def _notes(shown: RunRecord | None, split: str | None, looked: Looked | str | None) -> list[str]:
    notes = []
    if shown is not None and split is None:
        notes.append(
            f"No split of {shown.name} has been evaluated, so that worst groups and confusion are missing: "
            f"okapi evaluate {shown.path} --split ood_val"
        )
    if shown is not None and isinstance(looked, str):
        notes.append(f"Matches and map of {shown.name} are missing: {looked}")
    if isinstance(looked, Looked):
        notes += looked.encoded.notes
        notes += [looked.matched] if isinstance(looked.matched, str) else looked.matched.notes
    return notes


def _title(gathered: Gathered) -> str:
    if gathered.benchmarks:
        names = [results.out.resolve().name for results in gathered.benchmarks]
        return f"Benchmark {names[0]}" if len(names) == 1 else f"Benchmarks {', '.join(names)}"
    return f"Run {gathered.runs[0].name}" if len(gathered.runs) == 1 else f"{len(gathered.runs)} runs"


def _facts(gathered: Gathered, shown: RunRecord | None, split: str | None) -> dict[str, object]:
    finished = sum(record.results is not None for record in gathered.runs)
    facts: dict[str, object] = {
        "runs": f"{finished} of {len(gathered.runs)} finished" if finished < len(gathered.runs) else finished
    }
    if len(gathered.methods) > 1:
        facts["methods"] = len(gathered.methods)
    if shown is not None and shown.metric:
        metrics = shown.metrics
        where = split or next((name for name in ("ood_val", "id_val") if name in metrics), "")
        value = metrics.get(where, {}).get(shown.metric)
        if value is not None:
            facts[f"{shown.metric.replace('_', ' ')} on {where}, {shown.name}"] = f"{value:.4f}"
    return facts


def _settings(gathered: Gathered, shown: RunRecord | None, looked: Looked | str | None) -> dict[str, object]:
    """Return what the page was made with and the config of the run shown."""
    settings: dict[str, object] = {"made": time.strftime("%Y-%m-%d %H:%M"), "Okapi": __version__}
    if isinstance(looked, Looked):
        settings |= {"samples encoded": len(looked.encoded.rows)}
    record = shown or (gathered.runs[0] if gathered.runs else None)
    if record is not None:
        settings["run"] = str(record.path)
        for section, content in record.config.items():
            inner = content.items() if isinstance(content, dict) else [("", content)]
            settings |= {f"{section}.{key}".rstrip("."): value for key, value in inner}
    return settings


def _benchmarks(gathered: Gathered) -> list[Table]:
    tables = []
    for number, results in enumerate(gathered.benchmarks):
        name = f" of {results.out.resolve().name}" if len(gathered.benchmarks) > 1 else ""
        for table in benchmark_tables(results):
            tables.append(replace(table, name=f"{table.name}-{number}", title=f"{table.title}{name}"))
    return tables


def runs_table(records: Sequence[RunRecord]) -> Table:
    """Return a row for each run: how its weights were selected, and the main metrics of each split."""
    splits = _columns(records)
    rows = []
    for record in records:
        metrics = record.metrics
        values = [_finite(metrics.get(split, {}).get(name)) for split, name in splits]
        failed = record.state == "failed"
        seed = record.cell.seed if record.method else None
        rows.append([record.name, record.method or None, seed, Cell(state(record), "bad" if failed else ""), *values])
    columns = ["run", "method", Column("seed", str), "weights"]
    columns += [Column(name.replace("_", " "), _four, split) for split, name in splits]
    return Table(title="Runs", name="runs", columns=columns, rows=rows, meanings={})


def state(record: RunRecord) -> str:
    """Return in words how far a run is and how its weights were selected."""
    if record.results:
        chosen = record.results.selection
        oracle = " (which looks at ood_test)" if chosen.selector == "oracle" else ""
        text = f"step {chosen.step}, selected by {chosen.selector}{oracle}"
        return f"{text}; then it failed: {record.reason}" if record.state == "failed" else text
    if record.state == "failed":
        return f"cannot be shown: {record.reason}"
    return f"not finished: step {record.step} of {record.steps or '?'}"


def chosen_split(record: RunRecord) -> str | None:
    """Return the split whose domains and confusion are shown: the first of ``PREFERRED`` that was evaluated."""
    return next((split for split in PREFERRED if record.evaluation(split)), None)


def about_split(record: RunRecord, split: str) -> str:
    """Return which split it is, how the weights were selected and how often the split was opened."""
    found = record.evaluation(split)
    if found is None or record.results is None:
        return f"{record.name} on {split}."
    text = f"{record.name} on {split}, {count(found.n)} samples; weights of step {found.weights.step}, "
    text += f"selected by {found.selector}"
    if found.selector == "oracle":
        text += ", which looks at ood_test: not an honest result"
    opened = record.results.opened.get(split)
    if opened is None:
        return f"{text}."
    times, several = opened.times, len(opened.sha256)
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
        single = sum(record.results is not None for record in records) == 1
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
    """Return splits and metrics that some run has: its metric, and that of its worst domain."""
    wanted: dict[tuple[str, str], None] = {}
    for split in SPLITS:
        for record in records:
            metrics = record.metrics.get(split, {}) if record.metric else {}
            names = (record.metric or "", f"{plain_metric(record.metric or '')}_domain_worst")
            wanted |= dict.fromkeys((split, name) for name in names if name in metrics)
    return list(wanted)


def _by_name(record: RunRecord, split: str, kind: str, metric: str) -> pd.DataFrame | None:
    """Return ``n`` and ``value`` of each domain or group of an evaluation; None where there are none."""
    found: list[dict[Any, Any]] | None = getattr(record.evaluation(split), kind, None)
    if not found or metric not in METRICS:
        return None
    frame = pd.DataFrame(found)
    frame["value"] = pd.to_numeric(frame[metric], errors="coerce") if metric in frame else float("nan")
    return frame.drop_duplicates("name").set_index("name")[["n", "value"]]


def _mean(records: Sequence[RunRecord], method: str, split: str, kind: str, metric: str) -> pd.Series | None:
    tables = [_by_name(record, split, kind, metric) for record in records if record.method == method]
    values = [table["value"] for table in tables if table is not None]
    return pd.concat(values, axis=1).mean(axis=1) if values else None
