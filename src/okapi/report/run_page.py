"""The page of runs and benchmarks: results, curves, worst groups, confusion, matches and a map in one HTML file."""

import time
from dataclasses import dataclass, replace

from okapi import __version__
from okapi.report.benchmark import benchmark_tables
from okapi.report.confusion import confusion_section
from okapi.report.curves import curves_section
from okapi.report.page import Section, page, settings_section, table_section
from okapi.report.run_matches import (
    MOST_QUERIES,
    Encoded,
    Matched,
    gallery_section,
    map_section,
    matching_section,
    precision_fact,
)
from okapi.report.run_tables import about_split, chosen_split, group_tables, runs_table
from okapi.report.runs import Gathered, RunRecord
from okapi.table import Table

MOST_BYTES = 5_000_000


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
        facts |= precision_fact(looked.matched) if isinstance(looked.matched, Matched) else {}
    sections.append(settings_section(_settings(gathered, shown, looked)))
    kicker = "benchmark" if gathered.benchmarks else "training"
    return page(title=_title(gathered), kicker=kicker, facts=facts, notes=notes, sections=sections)


def _samples_sections(looked: Looked, queries: int) -> list[Section]:
    sections = [map_section(looked.encoded)]
    if isinstance(looked.matched, Matched):
        gallery = [gallery_section(looked.encoded, looked.matched, queries)] if queries else []
        sections = [matching_section(looked.matched), *gallery, *sections]
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
    finished = sum(record.is_finished for record in gathered.runs)
    facts: dict[str, object] = {
        "runs": f"{finished} of {len(gathered.runs)} finished" if finished < len(gathered.runs) else finished
    }
    if len(gathered.methods) > 1:
        facts["methods"] = len(gathered.methods)
    if shown is not None and shown.metric:
        metrics = shown.run.figures
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
