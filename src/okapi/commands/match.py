"""``okapi match``."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rich.console import Console
from rich.text import Text

from okapi.console import print_files, print_notes, stdout, working
from okapi.data import Table, TableError, check_output, read_table
from okapi.data.io import check_memory, write_files
from okapi.matching import CaliperMatcher, MatchingWarning
from okapi.matching.diagnostics.effect import check_outcome
from okapi.messages import as_options, listed
from okapi.numbers import plural
from okapi.report.matching import (
    Matching,
    balance_tables,
    effect_lines,
    matched_by,
    matching_report,
    precision_table,
    removed_table,
    summary,
)
from okapi.table import spreadsheet_safe

MOST_DIRECTIONS, MOST_COVARIATES, MOST_NAMES = 10, 8, 12  # printed
MOST_CLASSES = 20  # whole numbers with more values than this are quantities, not classes
_COLUMNS = ("domain", "id", "image", "target", "exact", "columns", "propensity", "separator")
_ROLES = ("treatment", "treated", "effect", "anti_exact", "prognostic", "missing")


class Samples(NamedTuple):
    """What is matched: a table, who is treated, prognostic scores, and what to know about them."""

    table: Table
    treated: Any
    prognosis: NDArray[Any] | None
    notes: list[str]


def match(
    file: Path,
    *,
    out: Path | None = None,
    table_one: Path | None = None,
    report: Path | None = None,
    safe_csv: bool = False,
    **settings: Any,
) -> None:
    """Match the samples of a table, print what came out, and write matches and report.

    Settings and paths are checked before the table is read; nothing is written before all is done.

    Parameters
    ----------
    file : Path
    out, table_one, report : Path, optional
        Files for the matches, for Table 1 and for the report.
    safe_csv : bool, default False
        Whether no text in a CSV file may begin as a formula.
    **settings
        Columns, as `okapi.data.read_table` takes them; ``treatment`` and ``treated`` in place of ``domain``;
        ``effect``, the outcome; ``prognostic``, columns that the prognostic caliper compares; ``missing``; settings
        of `CaliperMatcher`.
    """
    if settings["prognostic"] and settings["prognostic_caliper"] is None:
        settings["prognostic_caliper"] = "auto"
    matcher, columns = matcher_and_columns(settings)
    check_paths(file, out, report, table_one)
    if table_one is not None and columns["treatment"] is None:
        raise ValueError("table_one needs treatment: it compares treated and controls")
    matcher.check_settings()
    check_prognostic(matcher.prognostic_caliper, columns)
    with working(f"Reading {file}") as now:
        samples = read_samples(file, matcher, columns, report=report is not None)
        now(f"Matching {len(samples.table):,} samples")
        matching = match_table(samples.table, matcher, samples.treated, samples.prognosis)
        matching = replace(matching, notes=[*samples.notes, *matching.notes, *_missing_images(samples.table)])
        if report is not None:
            now("Making the report")
            html = matching_report(matching, title=f"Matches of {file.name}")
    print_matching(stdout(), matching)
    pairs = matcher.to_frame(matching.matches)
    frames: dict[Path, Any] = {} if out is None else {out: spreadsheet_safe(pairs) if safe_csv else pairs}
    if table_one is not None:
        frames[table_one] = matcher.table_one(matching.matches)
    write_files(frames | ({} if report is None else {report: html}))
    print_files(stdout(), {"Matches": out, "Table 1": table_one, "Report": report})


def matcher_and_columns(settings: dict[str, Any]) -> tuple[CaliperMatcher, dict[str, Any]]:
    """Return the matcher, and the roles of columns."""
    settings = dict(settings)
    columns: dict[str, Any] = {name: settings.pop(name) or None for name in (*_COLUMNS, *_ROLES)}
    lists = ("exact", "anti_exact", "prognostic")
    columns |= {name: list(dict.fromkeys(columns[name] or ())) for name in lists}
    settings["covariate_calipers"] = _widths(settings["covariate_calipers"])
    if (columns["domain"] is None) == (columns["treatment"] is None):
        got = "neither" if columns["domain"] is None else "both"
        raise ValueError(f"domain or treatment must be given, the column that says where a sample belongs; got {got}")
    if columns["treatment"] is None:
        if unfit := [name for name in ("treated", "effect") if columns[name] is not None]:
            raise ValueError(f"{unfit[0]} needs treatment, the column that says who was treated; got a domain")
        if settings["estimand"] not in (None, "both"):
            raise ValueError(f"estimand={settings['estimand']!r} needs treatment in place of domain")
        settings["estimand"] = "both"
    roles: dict[str, Any] = {name: columns[name] or None for name in ("exact", "anti_exact")}
    return CaliperMatcher(**settings, **roles), columns


def _widths(given: Sequence[str]) -> dict[str, float] | None:
    """Return calipers on covariates from words such as age=5."""
    widths = {}
    for word in given:
        name, equals, width = word.rpartition("=")
        try:
            widths[name] = float(width)
        except ValueError:
            equals = ""
        if not equals:
            raise ValueError(f"covariate_calipers must be such as age=5, got {word!r}")
    return widths or None


def check_paths(file: Path, out: Path | None, report: Path | None, table_one: Path | None = None) -> None:
    """Reject paths that could not be written in the end, and that of the table itself."""
    for path in (out, table_one):
        if path is not None and check_output(path).exists() and file.exists() and path.samefile(file):
            raise ValueError(f"{path} is the table that is read; name another file to write to")
    if report is not None:
        check_output(report, [".html", ".htm"])


def check_prognostic(caliper: float | str | None, columns: dict[str, Any]) -> None:
    """Reject a prognostic score without a caliper, a caliper without one, and one that has another role."""
    prognostic = columns["prognostic"]
    if prognostic and caliper is None:
        raise ValueError(f"prognostic_caliper must be given with a prognostic score, got none for {listed(prognostic)}")
    if not prognostic and caliper is not None:
        raise ValueError(f"prognostic_caliper needs columns of a prognostic score, got none for {caliper}")
    for role in ("columns", "exact"):
        if both := sorted({*prognostic, columns["effect"]} & set(columns[role] or ())):
            raise ValueError(f"{role} names {listed(both)}, a prognostic score or the outcome, which is no covariate")
    if columns["effect"] in prognostic and columns["effect"] is not None:
        raise ValueError(
            f"prognostic names {columns['effect']!r}, the outcome of effect: pairs chosen by it hide the effect; a "
            "prognostic score is predicted from what was known before the treatment"
        )


def read_samples(file: Path, matcher: CaliperMatcher, columns: dict[str, Any], *, report: bool = False) -> Samples:
    """Read a table and the roles of its columns, checked against the matcher and memory."""
    group = columns["treatment"] or columns["domain"]
    exact, prognostic = [*columns["exact"], *columns["anti_exact"]], columns["prognostic"]
    if group in exact:
        raise ValueError(f"exact names the domain, {group!r}: pairs are between domains, so none would agree")
    read = {name: columns[name] for name in _COLUMNS} | {"domain": group, "outcome": columns["effect"]}
    read["exact"] = [*exact, *(name for name in prognostic if name not in exact)]
    table = read_table(file, **read, missing=columns["missing"] or "error")
    treated = None if columns["treatment"] is None else treated_group(table, group, columns["treated"])
    if table.outcome is not None:
        try:
            table = replace(table, outcome=check_outcome(table.outcome))
        except ValueError as error:
            raise TableError(f"{file}: column {columns['effect']!r}, {error}") from None
    prognosis, given = None, table.exact
    if prognostic and given is not None:
        prognosis = _prognosis(file, given[prognostic])
        table = replace(table, exact=given[exact] if exact else None)
    if repeated := set(table.names) & set(exact):
        raise ValueError(f"exact and columns both name {sorted(repeated)}: a column is matched exactly or by distance")
    if table.target is not None and is_quantity(table.target):
        infinite = np.isinf(table.target.astype(np.float64))
        if infinite.any():
            raise TableError(f"{file}: row {int(infinite.argmax()) + 1}, the target is not a finite number")
    _check_memory(table, matcher, columns["treatment"] is not None, report)
    table.check_finite()
    return Samples(table, treated, prognosis, _notes_of(table, columns))


def treated_group(table: Table, column: str, named: str | None) -> Any:
    """Return which of the two groups of a treatment is the treated one; reads True and False in text."""
    groups = pd.unique(table.domain).tolist()
    if len(groups) != 2:
        raise TableError(
            f"{table.path}: the treatment {column!r} has {len(groups)} groups, {listed(map(str, groups))}; two are "
            "wanted: leave out the rows of others, or match all groups by --domain"
        )
    if named is not None:
        found = [group for group in groups if str(group) == named or (_is_number(group) and str(float(group)) == named)]
        if not found:
            raise TableError(
                f"{table.path}: treated must be one of {listed(map(str, groups))} of {column!r}, got {named!r}"
            )
        return found[0]
    words = {str(group).lower(): group for group in groups}
    for treated, control in (("1", "0"), ("1.0", "0.0"), ("true", "false")):
        if set(words) == {treated, control}:
            return words[treated]
    raise TableError(f"{table.path}: treated must be named: which of {listed(map(str, groups))} of {column!r} is it?")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number)


def _notes_of(table: Table, columns: dict[str, Any]) -> list[str]:
    """Return what was left out as suspicious, and what was missing."""
    notes = []
    if table.suspicious and columns["columns"] is None:
        why = "; ".join(f"{name!r} {reason}" for name, reason in table.suspicious.items())
        notes.append(f"Left out as probably no covariates: {why}. To keep some, name the covariates by --columns.")
    if table.missing:
        of_columns = ", ".join(f"{number:,} in {name}" for name, number in table.missing.items())
        imputed = "imputed by the median or the most frequent category, with an indicator of each column"
        left_out = f"{plural(table.dropped, 'row')} of {len(table) + table.dropped:,} left out"
        notes.append(f"Missing values: {of_columns}; {left_out if table.dropped else imputed}.")
    return notes


def _prognosis(file: Path, given: pd.DataFrame) -> NDArray[Any]:
    """Return prognostic scores as `CaliperMatcher.fit` takes them: classes, a quantity, or several numbers."""
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


def _check_memory(table: Table, matcher: CaliperMatcher, treatment: bool, report: bool) -> None:
    """Reject a table of which matching would make copies that do not fit into memory.

    Counts what is made for certain, so that nothing is rejected that would fit: for the propensities a scaled copy;
    then the vectors of the distance, and of them the sorted queries and keys of the search, at least 2 bytes a value.
    """
    size, width = table.X.size, 8 if isinstance(table.X, pd.DataFrame) else table.X.dtype.itemsize
    euclidean = table.embeddings or matcher.embeddings or matcher.centre
    distance = matcher.distance or ("propensity" if treatment else "euclidean" if euclidean else "mahalanobis")
    estimated = table.propensity is None and (report or matcher.needs_propensity() or distance == "propensity")
    vectors = {"euclidean": width * matcher.centre, "cosine": width, "propensity": 0}.get(distance, 8)
    sides = 2 if matcher.estimand in ("both", "ate") else 1
    searched = 0 if distance == "propensity" or matcher.fixed_caliper is not None else 2 * sides
    advice = "choose fewer columns or rows, or store float32" + (", or give known propensities" if estimated else "")
    check_memory(table.path, size * max(width * estimated, vectors + searched), " to be matched", advice)


def match_table(
    table: Table, matcher: CaliperMatcher, treated: Any = None, prognosis: NDArray[Any] | None = None
) -> Matching:
    """Fit the matcher to the table and match; what it warns of becomes notes."""
    if table.embeddings and matcher.distance is None:
        matcher.set_params(embeddings=True)
    scores = {"propensity_scores": table.propensity, "prognosis": prognosis}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", MatchingWarning)
        matcher.fit(covariates_of(table), table.domain, treated=treated, **scores)
        matches = matcher.match()
        matching = Matching(table, matcher, matches, table.target is not None and is_quantity(table.target))
        _ = matching.balance, matching.effect
    notes = notes_of(caught)
    if matcher.centre:
        notes.append("Vectors were centred by the mean of their domain before the distance; balance is of the columns.")
    return replace(matching, notes=notes)


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
    return [f"{line[:1].upper()}{line[1:]}." for line in dict.fromkeys(lines)]


def _missing_images(table: Table) -> list[str]:
    named = [] if table.images is None else [path for path in table.images if path]
    missing = [path for path in named if not Path(path).is_file()]
    return [f"{len(missing):,} of {len(named):,} images are missing, the first is {missing[0]}"] if missing else []


def print_matching(console: Console, matching: Matching) -> None:
    """Print the effect, what was read, what each rule left, and how well the domains are balanced."""
    for line in effect_lines(matching):
        console.print(Text(line), soft_wrap=not console.is_terminal)
    console.print(Text(matched_by(matching)), soft_wrap=not console.is_terminal)
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
        "Columns left out": table.left_out,
    }
    for label, names in lists.items():
        more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
        if names:
            console.print(Text(f"{label}: {', '.join(names[:MOST_NAMES])}{more}"))
    options = {name: f"--{name.replace('_', '-')}" for name in CaliperMatcher().get_params() if "_" in name}
    print_notes(console, [as_options(note, options) for note in notes])
