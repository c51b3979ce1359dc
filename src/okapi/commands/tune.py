"""``okapi tune``."""

import shlex
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from okapi.commands.match import (
    check_paths,
    check_prognosis,
    covariates_of,
    matcher_and_columns,
    notes_of,
    print_samples,
    read_samples,
)
from okapi.console import print_files, stderr, stdout, working
from okapi.data.io import write_files
from okapi.matching import CaliperMatcher, SeparableDomainsWarning
from okapi.matching import tune as search
from okapi.matching.diagnostics.tuning import Tuning, check_grid
from okapi.report.matching import report_settings
from okapi.report.tuning import setting_text, tuning_report, tuning_table

GRID = ("fixed_caliper", "std_caliper", "temperature", "caliper_scale", "k", "prognostic_caliper")
MOST_ROWS = 20  # printed; the file has them all
_FLAGS = {"two_way": "--one-way", "replace": "--no-replace", "allow_fewer": "--allow-fewer", "centre": "--centre"}


def tune(
    file: Path,
    *,
    jobs: int = 1,
    out: Path | None = None,
    report: Path | None = None,
    prognostic: Sequence[str] = (),
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
    prognostic : sequence of str
        Columns that the prognostic calipers compare.
    **settings
        Of those in ``GRID`` the values to try; columns, as `okapi.data.read_table` takes them; other settings of
        `CaliperMatcher`.
    """
    grid = {name: settings.pop(name) for name in GRID}
    matcher, columns = matcher_and_columns(settings)
    check_paths(file, out, report)
    check_grid(grid)
    matcher.check_settings()
    tried = [caliper for caliper in grid["prognostic_caliper"] if caliper is not None]
    check_prognosis(next(iter(tried), None), prognostic, columns)
    with working(f"Reading {file}"):
        table, prognosis = read_samples(file, matcher, prognostic, columns)
    with warnings.catch_warnings(record=True) as caught, _bar() as bar:
        warnings.simplefilter("always", SeparableDomainsWarning)
        task = bar.add_task("Estimating propensities", total=None)
        tuning = search(
            covariates_of(table),
            table.domain,
            **grid,
            matcher=matcher,
            propensity_scores=table.propensity,
            prognosis=prognosis,
            n_jobs=jobs,
            progress=lambda done, total: bar.update(task, description="Matching", completed=done, total=total),
        )
    notes = notes_of(caught)
    named = {"prognostic": list(prognostic)} if tuning.table.prognostic_caliper.notna().iloc[0] else {}
    command = match_command(file, matcher, tuning, **columns, **named)
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
    chosen = {name: value for name, value in chosen.items() if value is not None and value != usual[name]}
    words = ["okapi", "match", str(file)]
    for name, value in {**chosen, **columns}.items():
        if name in _FLAGS:
            words.append(_FLAGS[name])
        elif value:
            values = value if isinstance(value, list | tuple) else [value]
            words += [f"--{name.replace('_', '-')}", *map(setting_text, values)]
    return shlex.join(words)
