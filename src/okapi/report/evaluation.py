"""What an evaluation prints: figures, the worst domains and groups, and what to know before one believes them."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from math import isfinite
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.text import Text

from okapi.console import stderr, stdout
from okapi.evaluation import METRICS, plain_metric, worst_first
from okapi.files import without_nan, write_bytes
from okapi.report.terminal import count, print_table
from okapi.training.evaluating import Evaluation

_GAPS = ("demographic_parity_gap", "equal_opportunity_gap")


def print_evaluation(evaluation: Evaluation, most: int = 10) -> None:
    """Print figures and tables to stdout, at most so many rows of each, and notes to stderr.

    Parameters
    ----------
    evaluation : Evaluation
    most : int
        Rows of the tables of domains and of groups; the worst come first.
    """
    console, record = stdout(), evaluation.record
    weights = record.weights
    by = "the last" if weights.which == "last" else f"selected by {record.selector}"
    title = f"{evaluation.split}: {count(record.n)} samples, weights of step {weights.step}, {by}"
    columns, rows = _figures(evaluation.metrics)
    print_table(console, title, columns, rows, words=["metric"])
    if gaps := [
        (name.replace("_", " "), _shown(evaluation.metrics[name])) for name in _GAPS if name in evaluation.metrics
    ]:
        print_table(console, "Largest gap between domains", ["gap", "value"], gaps, words=["gap"])
    _print_groups(console, "Domains", evaluation.domains, evaluation.metric, most)
    if evaluation.groups is not None:
        _print_groups(console, "Groups, which may overlap", evaluation.groups, evaluation.metric, most)
    console.print()
    console.print(Text(f"Predictions: {evaluation.predictions}"))
    for note in evaluation.notes:
        stderr().print(Text(f"Note: {note}"), soft_wrap=True)


def write_records(path: Path, evaluations: Sequence[Evaluation]) -> None:
    """Write what was added to results.json, one object a split, to a JSON file."""
    records = [without_nan(asdict(evaluation.record)) for evaluation in evaluations]
    write_bytes(path, (json.dumps(records, indent=2, allow_nan=False) + "\n").encode())


def _figures(figures: dict[str, float]) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows: a metric a row, over all samples, over domains and over groups."""
    kinds = {
        "": "all samples",
        "_domain_mean": "mean of domains",
        "_domain_worst": "worst domain",
        "_group_mean": "mean of groups",
        "_group_worst": "worst group",
    }
    metrics = [name for name in figures if name in METRICS]
    there = [kind for kind in kinds if any(f"{metric}{kind}" in figures for metric in metrics)]
    rows = [[metric, *(_shown(figures.get(f"{metric}{kind}")) for kind in there)] for metric in metrics]
    return ["metric", *(kinds[kind] for kind in there)], rows


def _print_groups(console: Console, title: str, table: pd.DataFrame, metric: str, most: int) -> None:
    if table.empty:
        return
    shown = worst_first(table, plain_metric(metric)).head(most)
    rows = [[str(row["name"]), count(row["n"]), *map(_shown, row.iloc[2:])] for _, row in shown.iterrows()]
    some = f", the worst {len(shown)} of {count(len(table))} by {metric}" if len(shown) < len(table) else ""
    print_table(console, f"{title}{some}", ["name", "n", *table.columns[2:]], rows, words=["name"])


def _shown(value: float | None) -> str:
    return f"{value:.4f}" if value is not None and isfinite(value) else "–"
