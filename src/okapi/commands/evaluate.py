"""``okapi evaluate``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from okapi.report.evaluation import print_evaluation, write_records
from okapi.training.evaluating import Evaluator


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
