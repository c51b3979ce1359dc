"""``okapi tune``."""

import shlex
import warnings
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from okapi.commands.match import (
    check_paths,
    check_prognostic,
    covariates_of,
    matcher_and_columns,
    notes_of,
    print_samples,
    read_samples,
)
from okapi.console import print_files, stderr, stdout, working
from okapi.data.io import write_files
from okapi.matching import CaliperMatcher, MatchingWarning
from okapi.matching import tune as search
from okapi.matching.diagnostics.tuning import Tuning, check_grid
from okapi.report.matching import report_settings
from okapi.report.tuning_report import setting_text, tuning_report, tuning_table

GRID = ("fixed_caliper", "std_caliper", "temperature", "caliper_scale", "k", "prognostic_caliper")
MOST_ROWS = 20  # printed; the file has them all
_FLAGS = {
    "two_way": "--one-way",
    "replace": "--no-replace",
    "allow_fewer": "--allow-fewer",
    "centre": "--centre",
    "embeddings": "--embeddings",
}


def tune(
    file: Path,
    *,
    jobs: int = 1,
    out: Path | None = None,
    report: Path | None = None,
    **settings: Any,
) -> None:
    """Match a table with every combination of settings, compare them, and print a command line with the best.

    Parameters
    ----------
    file : Path
    jobs : int, default 1
        Worker processes.
    out, report : Path, optional
        Files for the table of combinations and the report.
    **settings
        Of those in ``GRID`` the values to try; the others as `okapi.commands.match.match` takes them.
    """
    grid = {name: settings.pop(name) for name in GRID}
    matcher, columns = matcher_and_columns(settings)
    check_paths(file, out, report)
    check_grid(grid)
    matcher.check_settings()
    tried = [caliper for caliper in grid["prognostic_caliper"] if caliper is not None]
    check_prognostic(next(iter(tried), None), columns)
    with working(f"Reading {file}"):
        samples = read_samples(file, matcher, columns)
        table = samples.table
    if table.embeddings and matcher.distance is None:
        matcher.set_params(embeddings=True)
    with warnings.catch_warnings(record=True) as caught, _bar() as bar:
        warnings.simplefilter("always", MatchingWarning)
        task = bar.add_task("Estimating propensities", total=None)
        tuning = search(
            covariates_of(table),
            table.domain,
            treated=samples.treated,
            **grid,
            matcher=matcher,
            propensity_scores=table.propensity,
            prognosis=samples.prognosis,
            n_jobs=jobs,
            progress=lambda done, total: bar.update(task, description="Matching", completed=done, total=total),
        )
    notes = [*samples.notes, *notes_of(caught)]
    if tuning.table.prognostic_caliper.isna().iloc[0]:
        columns["prognostic"] = []
    command = match_command(file, matcher, tuning, **columns)
    files: dict[Path, Any] = {} if out is None else {out: tuning.table}
    if report is not None:
        files[report] = tuning_report(
            tuning,
            title=f"Calipers for {file.name}",
            settings=report_settings(table, matcher),
            grid=grid,
            notes=[*notes, *([f"The best: {command}"] if command else [])],
        )
    console = stdout()
    print_samples(console, table, notes)
    tuning_table(tuning).print(console, MOST_ROWS, "which --out and --report list")
    write_files(files)
    print_files(console, {"Table": out, "Report": report})
    console.print()
    if command is None:
        console.print(Text("No combination matched a query: widen the calipers."))
    else:
        console.print(Text(f"To match with the best:\n  {command}"), soft_wrap=True)


def _bar() -> Progress:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    return Progress(*columns, console=stderr(), transient=True)


def match_command(file: Path, matcher: CaliperMatcher, tuning: Tuning, **columns: Any) -> str | None:
    """Return the command line that matches with the best combination; None where nothing was matched."""
    if not tuning.table.retained.any():
        return None
    usual = CaliperMatcher().get_params(deep=False)
    chosen = {**matcher.get_params(deep=False), **tuning.best}
    usual["estimand"] = "both"  # which a domain has in any case
    chosen = {name: value for name, value in chosen.items() if value is not None and value != usual[name]}
    words = ["okapi", "match", str(file)]
    for name, value in {**chosen, **columns}.items():
        if name in _FLAGS:
            words.append(_FLAGS[name])
        elif isinstance(value, dict):
            words += [f"--{name.replace('_', '-')}", *(f"{column}={width:g}" for column, width in value.items())]
        elif value:
            values = value if isinstance(value, list | tuple) else [value]
            words += [f"--{name.replace('_', '-')}", *map(setting_text, values)]
    return shlex.join(words)
