"""A file that is matched or tuned on: what is asked of it, how it is read, and what is said of it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rich.console import Console
from rich.text import Text

from okapi.data import Table, TableError, check_output, read_table
from okapi.data.io import check_memory
from okapi.matching import CaliperMatcher
from okapi.report.terminal import plural

MOST_CLASSES = 20  # whole numbers with more values than this are quantities, not classes


def check_outputs(source: Path, out: Path | None, report: Path | None) -> None:
    """Refuse paths that could not be written in the end, and those of the table itself."""
    if out is not None and check_output(out).exists() and source.exists() and out.samefile(source):
        raise ValueError(f"{out} is the table that is read; name another file to write to")
    if report is not None:
        check_output(report, [".html", ".htm"])


def check_outcome_columns(matcher: CaliperMatcher, outcome: Sequence[str], columns: Sequence[str] | None) -> None:
    """Refuse an outcome without its caliper, a caliper without an outcome, and an outcome that is a covariate."""
    if outcome and matcher.outcome_caliper is None:
        raise ValueError(f"outcome_caliper must be given with an outcome, got none for {', '.join(outcome)}")
    if not outcome and matcher.outcome_caliper is not None:
        raise ValueError(f"outcome_caliper needs columns of the outcome, got none for {matcher.outcome_caliper}")
    if both := set(outcome) & set(columns or ()):
        raise ValueError(f"outcome and columns both name {sorted(both)}: an outcome is no covariate")


def read_with_outcome(path: Path, outcome: Sequence[str], **roles: Any) -> tuple[Table, NDArray[Any] | None]:
    """Read a table and, as `CaliperMatcher.fit` takes it, the outcome, of which no row may be missing.

    One column of quantities or of classes, as a target would be; several are numbers, such as predicted probabilities.
    """
    exact, outcome = list(roles.pop("exact", ())), list(dict.fromkeys(outcome))
    if roles["domain"] in exact:
        raise ValueError(f"exact names the domain, {roles['domain']!r}: pairs are between domains, so none would agree")
    table = read_table(path, exact=[*exact, *(name for name in outcome if name not in exact)], **roles)
    if not outcome or table.exact is None:
        return table, None
    given = table.exact[outcome]
    table = replace(table, exact=table.exact[exact] if exact else None)
    numbers = given.apply(pd.to_numeric, errors="coerce")
    wrong = numbers.isna().to_numpy()
    if len(outcome) == 1 and (wrong.any() or not is_quantity(numbers.iloc[:, 0].to_numpy())):
        return table, given.iloc[:, 0].to_numpy(dtype=str)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        found = f"row {row + 1}, column {outcome[column]!r} is '{given.iloc[row, column]}'"
        raise TableError(f"{path}: {found}; several columns of an outcome must hold numbers")
    values = numbers.to_numpy(dtype=np.float64)
    return table, values[:, 0] if len(outcome) == 1 else values


def check_roles(table: Table, matcher: CaliperMatcher) -> None:
    """Refuse a table that does not go with the matcher, before its covariates are gone through."""
    if both := set(table.names) & set(matcher.exact or ()):
        raise ValueError(f"exact and columns both name {sorted(both)}: a column is matched exactly or by distance")
    n_domains = len(pd.unique(table.domain))
    if matcher.estimand != "both" and n_domains != 2:
        raise ValueError(f"estimand={matcher.estimand!r} needs two domains, {table.path} has {n_domains}")
    if table.target is not None and is_quantity(table.target):
        infinite = np.isinf(table.target.astype(np.float64))
        if infinite.any():
            raise TableError(f"{table.path}: row {int(infinite.argmax()) + 1}, the target is not a finite number")


def check_matching_memory(table: Table, matcher: CaliperMatcher, *, page: bool = False) -> None:
    """Refuse a table of which matching would make copies that do not fit into memory.

    Counts what is made for certain, so that nothing is refused that would fit: for the propensities a scaled copy; then
    the vectors of the distance, and of them the sorted queries and keys of the search, of 2 bytes a value at least.
    """
    size, width = table.X.size, 8 if isinstance(table.X, pd.DataFrame) else table.X.dtype.itemsize
    estimated = table.propensity is None and (page or matcher.needs_propensity())
    vectors = {"cosine": width, "mahalanobis": 8, "scaled_euclidean": 8}.get(matcher.distance, width * matcher.centre)
    sides = 2 if matcher.estimand == "both" else 1
    searched = 0 if matcher.distance == "propensity" or matcher.fixed_caliper is not None else 2 * sides
    needed = size * max(width if estimated else 0, vectors + searched)
    advice = "choose fewer columns or rows, or store float32"
    if estimated:
        advice += ", or give known propensities"
    check_memory(table.path, needed, " to be matched", advice)


def covariates_of(table: Table) -> pd.DataFrame:
    """Return covariates and exact columns, named, by id; a memory map stays one."""
    X = table.X
    frame = X if isinstance(X, pd.DataFrame) else pd.DataFrame(X, columns=list(table.names), copy=False)
    if table.exact is not None:
        frame = pd.concat([frame, table.exact], axis=1)
    return frame if table.ids is None else frame.set_axis(table.ids, axis=0)


def as_sentence(text: str) -> str:
    """Return a warning as a sentence of prose."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def missing_images(table: Table) -> list[str]:
    """Return a note on files of images that do not exist, if there are any."""
    named = [] if table.images is None else [path for path in table.images if path]
    missing = [path for path in named if not Path(path).is_file()]
    if not missing:
        return []
    return [f"{len(missing):,} of {len(named):,} images are missing, the first is {missing[0]}"]


def print_read(console: Console, table: Table) -> None:
    """Print what a table holds."""
    domains = pd.Series(table.domain).value_counts().sort_index()
    named = [f"{name} ({number:,})" for name, number in domains.items()]
    lines = [
        f"{table.path}: {len(table):,} samples of {len(domains):,} domains, {plural(len(table.names), 'covariate')}",
        f"Domains: {_listed(named, 12)}",
        f"Covariates: {_listed(table.names, 12)}",
    ]
    if table.left_out:
        lines.append(f"Columns left out: {_listed(table.left_out, 12)}")
    for line in lines:
        console.print(Text(line))


def _listed(names: Sequence[str], most: int) -> str:
    rest = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def is_quantity(target: NDArray[Any]) -> bool:
    """Whether a target is a quantity rather than a class: a number that is not whole, or one of many."""
    values = pd.Series(target).dropna()
    if not pd.api.types.is_numeric_dtype(values) or pd.api.types.is_bool_dtype(values):
        return False
    return bool((values != values.round()).any()) or values.nunique() > MOST_CLASSES
