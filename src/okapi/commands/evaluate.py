"""``okapi evaluate``."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Literal

import pandas as pd
from rich.text import Text

from okapi.console import is_collected, say, stdout
from okapi.evaluation import METRICS, plain_metric, worst_first
from okapi.files import write_json
from okapi.numbers import count, fixed
from okapi.table import Column, Table
from okapi.training.evaluating import Evaluation, Evaluator

_GAPS = ("demographic_parity_gap", "equal_opportunity_gap")


def evaluate(
    run: Path,
    *,
    split: Sequence[str] | None = None,
    weights: Literal["selected", "last"] = "selected",
    rows: int = 10,
    out: Path | None = None,
    force: bool = False,
    overrides: Sequence[tuple[str, str]] = (),
) -> None:
    """Measure a finished run on splits, and print the metrics."""
    if rows < 1:
        raise ValueError(f"--rows must be at least 1, got {rows}")
    evaluator = Evaluator(run, which=weights, overrides=list(overrides), force=force)
    splits = list(dict.fromkeys(split or []))
    evaluator.check_splits(splits)
    evaluations = []
    for name in splits:
        evaluations.append(evaluator.evaluate(name))
        print_evaluation(evaluations[-1], rows)
    if out is not None:
        write_records(out, evaluations)


def print_evaluation(evaluation: Evaluation, most: int = 10) -> None:
    """Print metrics and tables to stdout, at most so many rows of each, and notes to stderr.

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
    gaps = {name.replace("_", " "): evaluation.metrics[name] for name in _GAPS if name in evaluation.metrics}
    columns = ["gap", Column("value", fixed(4))]
    tables = [_metrics(evaluation.metrics, title)]
    tables += [Table(title="Largest gap between domains", columns=columns, rows=list(gaps.items()))] if gaps else []
    tables += _groups("Domains", evaluation.domains, evaluation.metric, most)
    if evaluation.groups is not None:
        tables += _groups("Groups, which may overlap", evaluation.groups, evaluation.metric, most)
    for table in tables:
        table.print(console)
    console.print()
    console.print(Text(f"Predictions: {evaluation.predictions}"))
    if not is_collected("notes", *evaluation.notes):
        for note in evaluation.notes:
            say(f"Note: {note}")


def write_records(path: Path, evaluations: Sequence[Evaluation]) -> None:
    """Write what was added to results.json, one object a split, to a JSON file."""
    write_json(path, [asdict(evaluation.record) for evaluation in evaluations])


def _metrics(measured: dict[str, float], title: str) -> Table:
    """Return a metric a row, over all samples, over domains and over groups."""
    kinds = {
        "": "all samples",
        "_domain_mean": "mean of domains",
        "_domain_worst": "worst domain",
        "_group_mean": "mean of groups",
        "_group_worst": "worst group",
    }
    metrics = [name for name in measured if name in METRICS]
    present = [kind for kind in kinds if any(f"{metric}{kind}" in measured for metric in metrics)]
    rows = [[metric, *(measured.get(f"{metric}{kind}") for kind in present)] for metric in metrics]
    columns = ["metric", *(Column(kinds[kind], fixed(4)) for kind in present)]
    return Table(title=title, name="metrics", columns=columns, rows=rows)


def _groups(title: str, table: pd.DataFrame, metric: str, most: int) -> list[Table]:
    """Return a row for each domain or group, the worst first; nothing where there are none."""
    if table.empty:
        return []
    shown = worst_first(table, plain_metric(metric)).head(most)
    some = f", the worst {len(shown)} of {count(len(table))} by {metric}" if len(shown) < len(table) else ""
    columns = ["name", Column("n", count), *(Column(str(name), fixed(4)) for name in table.columns[2:])]
    return [Table(title=f"{title}{some}", columns=columns, rows=shown.to_numpy(dtype=object).tolist())]
