"""From a file to well-chosen calipers: what a grid search prints, and its report."""

import shlex
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from okapi.console import stderr, stdout, working
from okapi.data.io import write_files
from okapi.matching import CaliperMatcher, SeparableDomainsWarning
from okapi.matching.diagnostics.tuning import Tuning, check_grid, settings_of, tune
from okapi.report.matching import in_options, report_settings
from okapi.report.matching_plots import pareto_plot
from okapi.report.page import tune_page
from okapi.report.plots import to_svg
from okapi.report.table_file import (
    as_sentence,
    check_matching_memory,
    check_outcome_columns,
    check_outputs,
    check_roles,
    covariates_of,
    print_read,
    read_with_outcome,
)
from okapi.report.terminal import count, decimal, plural, print_files, print_notes, print_table, share

MOST_ROWS = 20  # printed; the file has them all
_SHOWN = {  # settings and their headings, short enough for a terminal of 80 columns
    "fixed_caliper": "fixed",
    "std_caliper": "std",
    "caliper_scale": "scale",
    "temperature": "temp.",
    "k": "k",
    "outcome_caliper": "outcome",
}


def tune_file(
    path: Path,
    matcher: CaliperMatcher,
    grid: Mapping[str, Sequence[Any]],
    *,
    jobs: int = 1,
    out: Path | None = None,
    report: Path | None = None,
    outcome: Sequence[str] = (),
    **roles: Any,
) -> None:
    """Read a table, try every combination of the grid, print them and write the table and the report.

    Parameters
    ----------
    path : Path
    matcher : CaliperMatcher
        Has the settings that are not in the grid.
    grid : mapping
        Values to try by setting, as `okapi.matching.tune` takes them.
    jobs : int
        Worker processes.
    out, report : Path, optional
        Files for the table of combinations and the report.
    outcome : sequence of str
        Columns that the outcome calipers compare.
    **roles
        Columns, as `okapi.data.read_table` takes them.
    """
    check_outputs(path, out, report)
    check_grid(grid)
    matcher.check_settings()
    tried = [caliper for caliper in grid["outcome_caliper"] if caliper is not None]
    check_outcome_columns(CaliperMatcher(outcome_caliper=next(iter(tried), None)), outcome, roles.get("columns"))
    with working(f"Reading {path}"):
        table, outcomes = read_with_outcome(path, outcome, **roles)
        check_roles(table, matcher)
        check_matching_memory(table, matcher)
        table.check_finite()
    with warnings.catch_warnings(record=True) as caught, _bar() as bar:
        warnings.simplefilter("always", SeparableDomainsWarning)
        task = bar.add_task("Estimating propensities", total=None)
        tuning = tune(
            covariates_of(table),
            table.domain,
            **grid,
            matcher=matcher,
            propensity_scores=table.propensity,
            outcome=outcomes,
            n_jobs=jobs,
            progress=lambda done, total: bar.update(task, description="Matching", completed=done, total=total),
        )
    notes = [as_sentence(str(warning.message).splitlines()[0]) for warning in caught]
    named = {"outcome": list(outcome)} if tuning.table.outcome_caliper.notna().iloc[0] else {}
    command = match_command(path, matcher, tuning, **roles, **named)
    html = None
    if report is not None:
        html = tune_page(
            title=f"Calipers for {path.name}",
            facts=_facts(tuning),
            settings={
                **report_settings(table, matcher),
                **{name.replace("_", " "): _values(grid[name]) for name in grid},
            },
            combinations=_report_table(tuning),
            figures=[("Balance against retained queries, one mark a combination; the ring is the best", _svg(tuning))],
            notes=[*notes, *([f"The best: {command}"] if command else [])],
        )
    console = stdout()
    print_read(console, table)
    print_notes(console, in_options(notes))
    print_tuning(console, tuning)
    frames = {} if out is None else {out: tuning.table}
    write_files(frames | ({} if report is None or html is None else {report: html}))
    print_files(console, {"Table": out, "Report": report})
    console.print()
    if command is None:
        console.print(Text("No combination matched a query: widen the calipers."))
    else:
        console.print(Text("To match with the best:"))
        console.print(Text(f"  {command}"), soft_wrap=True)


def _bar() -> Progress:
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    return Progress(*columns, console=stderr(), transient=True)


def _svg(tuning: Tuning) -> str:
    return to_svg(pareto_plot(tuning))


def _facts(tuning: Tuning) -> dict[str, object]:
    best = tuning.table.iloc[0]
    return {
        "combinations": len(tuning.table),
        "on the Pareto front": int(tuning.table.pareto.sum()),
        "retained by the best": share(best.retained),
        "max |SMD| of the best": decimal(best.max_abs_smd),
        "mean |SMD| of the best": decimal(best.mean_abs_smd),
        "max |SMD| before": decimal(best.max_abs_smd_before),
        "mean |SMD| before": decimal(best.mean_abs_smd_before),
    }


def _report_table(tuning: Tuning) -> pd.DataFrame:
    """Return the combinations as a reader wants them: settings as they were given, then balance, then the rest.

    Balance before matching is the same in all and stands among the facts.
    """
    table = tuning.table
    rows = [{name: _word(value) for name, value in settings_of(row).items()} for _, row in table.iterrows()]
    shown = pd.DataFrame(rows)  # of words: a column of numbers would turn None into NaN
    shown.insert(0, "pareto", np.where(table.pareto, "✓", ""))
    shown["retained"] = table.retained.map(share)
    smd = ["max_abs_smd", "mean_abs_smd"]
    rest = [name for name in table if name not in [*shown, *smd] and not str(name).endswith("_before")]
    both: pd.DataFrame = pd.concat([shown, table[[*smd, *rest]]], axis=1)
    return both


def _values(values: Sequence[Any]) -> str:
    return ", ".join(_word(value) for value in values)


def _word(value: Any) -> str:
    """Return a setting as it is given on the command line."""
    if value is None:
        return "none"
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def print_tuning(console: Console, tuning: Tuning) -> None:
    """Print the best combinations, those on the Pareto front marked; a setting that all share is printed once."""
    table = tuning.table
    settings = [settings_of(row) for _, row in table.iterrows()]
    varied = [name for name in _SHOWN if len({one[name] for one in settings}) > 1]
    metrics = ["retained", "keys\n(ESS)", "max\n|SMD|", "mean\n|SMD|", "VR\nok"]
    print_table(
        console,
        "Combinations, the best first; * on the Pareto front of retained queries and mean |SMD|",
        ["", *(_SHOWN[name] for name in varied), *metrics],
        [_row(row, varied) for _, row in table.head(MOST_ROWS).iterrows()],
        words=["", "scale"],
        about=_shared(settings[0], varied),
        close=True,
    )
    if len(table) > MOST_ROWS:
        more = plural(len(table) - MOST_ROWS, "more combination")
        console.print(Text(f"and {more}, which --out and --report list"))
    first = table.iloc[0]
    console.print()
    console.print(
        Text(
            f"Before matching: max |SMD| {decimal(first.max_abs_smd_before)}, mean |SMD| "
            f"{decimal(first.mean_abs_smd_before)}. SMD denominator: pooled deviation before matching."
        )
    )
    balanced = int((table.max_abs_smd <= 0.1).sum())
    brings = "brings" if balanced == 1 else "bring"
    rule = f"{count(balanced)} of {plural(len(table), 'combination')} {brings} every |SMD| to 0.1 or less. "
    if balanced:
        rule += "The best is the one of them that retains most queries."
    elif first.retained:
        rule += f"The best is the one with the lowest mean |SMD|; it retains {share(first.retained)} of the queries."
    console.print(Text(rule))


def _shared(settings: Mapping[str, Any], varied: Sequence[str]) -> str:
    """Return the settings that do not vary, as a line."""
    shared = [f"{name.replace('_', ' ')} {_word(settings[name])}" for name in _SHOWN if name not in varied]
    return f"The same in all: {', '.join(shared)}" if shared else ""


def _row(row: "pd.Series[Any]", varied: Sequence[str]) -> list[str]:
    settings = {name: _word(value) for name, value in settings_of(row).items()}
    settings["caliper_scale"] = settings["caliper_scale"].replace("probability", "prob.")
    return [
        "*" if row.pareto else "",
        *(settings[name] for name in varied),
        share(row.retained),
        share(row.ess_share),
        decimal(row.max_abs_smd),
        decimal(row.mean_abs_smd),
        share(row.variance_ratio_share),
    ]


def match_command(path: Path, matcher: CaliperMatcher, tuning: Tuning, **roles: Any) -> str | None:
    """Return the command line that matches with the best combination; None where nothing was matched."""
    if not tuning.table.retained.any():
        return None
    usual = CaliperMatcher().get_params(deep=False)
    chosen = {**matcher.get_params(deep=False), **tuning.best}
    named = {name: value for name, value in chosen.items() if value is not None and value != usual[name]}
    flags = {"two_way": "--one-way", "replace": "--no-replace", "allow_fewer": "--allow-fewer", "centre": "--centre"}
    words = ["okapi", "match", str(path)]
    for name, value in {**named, **roles}.items():
        if name in flags:
            words.append(flags[name])
        elif value:
            values = value if isinstance(value, list | tuple) else [value]
            words += [f"--{name.replace('_', '-')}", *map(_word, values)]
    return shlex.join(words)
