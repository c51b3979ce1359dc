"""``okapi tune``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from okapi.commands.match import columns_of
from okapi.matching import CaliperMatcher
from okapi.report.tuning import tune_file

GRID = ("fixed_caliper", "std_caliper", "temperature", "caliper_scale", "k", "outcome_caliper")


def tune(
    file: Path,
    *,
    jobs: int = 1,
    out: Path | None = None,
    report: Path | None = None,
    outcome: Sequence[str] = (),
    **settings: Any,
) -> None:
    """Match a table with every combination of settings, compare them, and print a command line with the best."""
    grid = {name: settings.pop(name) for name in GRID}
    roles = columns_of(settings)
    matcher = CaliperMatcher(**settings, exact=list(roles["exact"]) or None)
    tune_file(file, matcher, grid, jobs=jobs, out=out, report=report, outcome=outcome, **roles)
