"""``okapi match``."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rich.console import Console
from rich.text import Text

from okapi.console import print_files, print_notes, stdout, working
from okapi.data import Table, TableError, check_output, read_table
from okapi.data.io import check_memory, write_files
from okapi.matching import CaliperMatcher, SeparableDomainsWarning
from okapi.messages import as_options
from okapi.numbers import plural
from okapi.report.matching import Matching, balance_tables, matching_report, precision_table, removed_table, summary
from okapi.table import spreadsheet_safe

MOST_DIRECTIONS, MOST_COVARIATES, MOST_NAMES = 10, 8, 12  # printed
MOST_CLASSES = 20  # whole numbers with more values than this are quantities, not classes


def match(
    file: Path,
    *,
    out: Path | None = None,
    report: Path | None = None,
    safe_csv: bool = False,
    prognostic: Sequence[str] = (),
    **settings: Any,
) -> None:
    """Match the samples of a table, print what came out, and write matches and report.

    Settings and paths are checked before the table is read; nothing is written before all is done.

    Parameters
    ----------
    file : Path
    out, report : Path, optional
        Files for the matches and the report.
    safe_csv : bool, default False
        Whether no text in a CSV file may begin as a formula.
    prognostic : sequence of str
        Columns that the prognostic caliper compares.
    **settings
        Columns, as `okapi.data.read_table` takes them, and settings of `CaliperMatcher`.
    """
    if prognostic and settings["prognostic_caliper"] is None:
        settings["prognostic_caliper"] = "auto"
    matcher, columns = matcher_and_columns(settings)
    check_paths(file, out, report)
    matcher.check_settings()
    check_prognosis(matcher.prognostic_caliper, prognostic, columns)
    with working(f"Reading {file}") as now:
        table, prognosis = read_samples(file, matcher, prognostic, columns, report=report is not None)
        now(f"Matching {len(table):,} samples")
        matching = match_table(table, matcher, prognosis)
        matching = replace(matching, notes=[*matching.notes, *_missing_images(table)])
        if report is not None:
            now("Making the report")
            html = matching_report(matching, title=f"Matches of {file.name}")
    print_matching(stdout(), matching)
    pairs = matcher.to_frame(matching.matches)
    frames = {} if out is None else {out: spreadsheet_safe(pairs) if safe_csv else pairs}
    write_files(frames | ({} if report is None else {report: html}))
    print_files(stdout(), {"Matches": out, "Report": report})


def matcher_and_columns(settings: dict[str, Any]) -> tuple[CaliperMatcher, dict[str, Any]]:
    """Return the matcher, and the columns as `read_table` takes them."""
    settings = dict(settings)
    names = ("domain", "id", "image", "target", "exact", "columns", "propensity", "separator")
    columns: dict[str, Any] = {name: settings.pop(name) or None for name in names}
    columns["exact"] = columns["exact"] or ()
    return CaliperMatcher(**settings, exact=list(columns["exact"]) or None), columns


def check_paths(file: Path, out: Path | None, report: Path | None) -> None:
    """Reject paths that could not be written in the end, and that of the table itself."""
    if out is not None and check_output(out).exists() and file.exists() and out.samefile(file):
        raise ValueError(f"{out} is the table that is read; name another file to write to")
    if report is not None:
        check_output(report, [".html", ".htm"])


def check_prognosis(caliper: float | str | None, prognostic: Sequence[str], columns: dict[str, Any]) -> None:
    """Reject a prognostic score without a caliper, a caliper without one, and one that is a covariate."""
    if prognostic and caliper is None:
        raise ValueError(
            f"prognostic_caliper must be given with a prognostic score, got none for {', '.join(prognostic)}"
        )
    if not prognostic and caliper is not None:
        raise ValueError(f"prognostic_caliper needs columns of a prognostic score, got none for {caliper}")
    if both := set(prognostic) & set(columns["columns"] or ()):
        raise ValueError(f"prognostic and columns both name {sorted(both)}: a prognostic score is no covariate")


def read_samples(
    file: Path, matcher: CaliperMatcher, prognostic: Sequence[str], columns: dict[str, Any], *, report: bool = False
) -> tuple[Table, NDArray[Any] | None]:
    """Read a table and the prognostic scores of its samples, checked against the matcher and memory."""
    exact, prognostic = list(columns["exact"]), list(dict.fromkeys(prognostic))
    if columns["domain"] in exact:
        domain = columns["domain"]
        raise ValueError(f"exact names the domain, {domain!r}: pairs are between domains, so none would agree")
    both = [*exact, *(name for name in prognostic if name not in exact)]
    table = read_table(file, **{**columns, "exact": both})
    prognosis = None
    if prognostic and table.exact is not None:
        prognosis = _prognosis(file, table.exact[prognostic])
        table = replace(table, exact=table.exact[exact] if exact else None)
    if repeated := set(table.names) & set(matcher.exact or ()):
        raise ValueError(f"exact and columns both name {sorted(repeated)}: a column is matched exactly or by distance")
    n_domains = len(pd.unique(table.domain))
    if matcher.estimand != "both" and n_domains != 2:
        raise ValueError(f"estimand={matcher.estimand!r} needs two domains, {file} has {n_domains}")
    if table.target is not None and is_quantity(table.target):
        infinite = np.isinf(table.target.astype(np.float64))
        if infinite.any():
            raise TableError(f"{file}: row {int(infinite.argmax()) + 1}, the target is not a finite number")
    _check_memory(table, matcher, report)
    table.check_finite()
    return table, prognosis


def _prognosis(file: Path, given: pd.DataFrame) -> NDArray[Any]:
    """Return prognostic scores as `CaliperMatcher.fit` takes it: classes, a quantity, or several numbers."""
    numbers = given.apply(pd.to_numeric, errors="coerce")
    wrong = numbers.isna().to_numpy()
    if given.shape[1] == 1:
        quantity = numbers.iloc[:, 0].to_numpy(np.float64)
        classes = wrong.any() or not is_quantity(quantity)
        return np.asarray(given.iloc[:, 0].to_numpy(dtype=str) if classes else quantity)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        value = f"row {row + 1}, column {given.columns[column]!r} is '{given.iloc[row, column]}'"
        raise TableError(f"{file}: {value}; several columns of a prognostic score must hold numbers")
    return np.asarray(numbers, dtype=np.float64)


def _check_memory(table: Table, matcher: CaliperMatcher, report: bool) -> None:
    """Reject a table of which matching would make copies that do not fit into memory.

    Counts what is made for certain, so that nothing is rejected that would fit: for the propensities a scaled copy;
    then the vectors of the distance, and of them the sorted queries and keys of the search, at least 2 bytes a value.
    """
    size, width = table.X.size, 8 if isinstance(table.X, pd.DataFrame) else table.X.dtype.itemsize
    estimated = table.propensity is None and (report or matcher.needs_propensity())
    vectors = {"cosine": width, "mahalanobis": 8, "scaled_euclidean": 8}.get(matcher.distance, width * matcher.centre)
    sides = 2 if matcher.estimand == "both" else 1
    searched = 0 if matcher.distance == "propensity" or matcher.fixed_caliper is not None else 2 * sides
    advice = "choose fewer columns or rows, or store float32" + (", or give known propensities" if estimated else "")
    check_memory(table.path, size * max(width * estimated, vectors + searched), " to be matched", advice)


def match_table(table: Table, matcher: CaliperMatcher, prognosis: NDArray[Any] | None = None) -> Matching:
    """Fit the matcher to the table and match; what it warns of becomes notes."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SeparableDomainsWarning)
        matcher.fit(covariates_of(table), table.domain, propensity_scores=table.propensity, prognosis=prognosis)
    matches = matcher.match()
    notes = notes_of(caught)
    if matcher.centre:
        notes.append("Vectors were centred by the mean of their domain before the distance; balance is of the columns.")
    if not len(matches):
        notes.append("Nothing was matched: no query has as many admissible keys as k asks for.")
    return Matching(table, matcher, matches, table.target is not None and is_quantity(table.target), notes)


def covariates_of(table: Table) -> pd.DataFrame:
    """Return covariates and exact columns, named, by id; a memory map stays one."""
    X = table.X
    frame = X if isinstance(X, pd.DataFrame) else pd.DataFrame(X, columns=list(table.names), copy=False)
    if table.exact is not None:
        frame = pd.concat([frame, table.exact], axis=1)
    return frame if table.ids is None else frame.set_axis(table.ids, axis=0)


def is_quantity(target: NDArray[Any]) -> bool:
    """Whether a target is a quantity rather than a class: a number that is not whole, or one of many."""
    values = pd.Series(target).dropna()
    if not pd.api.types.is_numeric_dtype(values) or pd.api.types.is_bool_dtype(values):
        return False
    return bool((values != values.round()).any()) or values.nunique() > MOST_CLASSES


def notes_of(caught: Sequence[warnings.WarningMessage]) -> list[str]:
    """Return warnings as sentences."""
    lines = [str(warning.message).splitlines()[0].rstrip(".") for warning in caught]
    return [f"{line[:1].upper()}{line[1:]}." for line in lines]


def _missing_images(table: Table) -> list[str]:
    named = [] if table.images is None else [path for path in table.images if path]
    missing = [path for path in named if not Path(path).is_file()]
    return [f"{len(missing):,} of {len(named):,} images are missing, the first is {missing[0]}"] if missing else []


def print_matching(console: Console, matching: Matching) -> None:
    """Print what was read, what each rule left, and how well the domains are balanced."""
    print_samples(console, matching.table, matching.notes)
    removed_table(matching).print(console)
    domains, covariates = balance_tables(matching)
    domains.print(console, MOST_DIRECTIONS, "which --report lists")
    if covariates.rows:
        covariates.print(console, MOST_COVARIATES, "which --report lists")
    if matching.precision is not None:
        precision_table(matching.precision).print(console, MOST_DIRECTIONS, "which --report lists")
    console.print()
    for label, value in summary(matching).items():
        console.print(Text(f"{label}: {value}"), soft_wrap=not console.is_terminal)


def print_samples(console: Console, table: Table, notes: Sequence[str]) -> None:
    """Print what a table holds, and notes, in which settings of the matcher are called by their options."""
    domains = pd.Series(table.domain).value_counts().sort_index()
    counted = f"{plural(len(table), 'sample')} of {plural(len(domains), 'domain')}"
    console.print(Text(f"{table.path}: {counted}, {plural(len(table.names), 'covariate')}"))
    lists = {
        "Domains": [f"{name} ({number:,})" for name, number in domains.items()],
        "Covariates": table.names,
        "Columns left out": [
            f"{name} ({table.suspicious[name]})" if name in table.suspicious else name for name in table.left_out
        ],
    }
    for label, names in lists.items():
        more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
        if names:
            console.print(Text(f"{label}: {', '.join(names[:MOST_NAMES])}{more}"))
    options = {name: f"--{name.replace('_', '-')}" for name in CaliperMatcher().get_params() if "_" in name}
    print_notes(console, [as_options(note, options) for note in notes])
