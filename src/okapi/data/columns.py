"""Columns of a table: that they are there, and what their cells say, as numbers, truth values or categories."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv

from okapi.data.formats import Source, TableError
from okapi.messages import did_you_mean, listed

Place: TypeAlias = Callable[[int, str], str]
"""Row and column in, what an error calls that cell out."""

_OTHER_MARKS = {"\t": "tabs", ";": "';'"}
_TRUTH = {"1": 1.0, "1.0": 1.0, "true": 1.0, "0": 0.0, "0.0": 0.0, "false": 0.0}


def check_names(source: str | Path, columns: Sequence[str], wanted: Iterable[str]) -> None:
    """Refuse a column that is not there, and say which is meant."""
    for name in wanted:
        if name not in columns:
            if len(columns) == 1 and (found := [mark for mark in _OTHER_MARKS if mark in columns[0]]):
                mark = _OTHER_MARKS[found[0]]
                raise TableError(f"{source} has one column, {columns[0]!r}: it seems separated by {mark}, not ','")
            hint = did_you_mean(name, columns) or "."
            raise TableError(f"{source} has no column {name!r}{hint} It has {listed(columns)}")


def read_labels(source: Source, names: list[str]) -> pd.DataFrame:
    """Return columns of labels or text; a cell of a CSV file that is not UTF-8 is named."""
    try:
        return source.labels(names)
    except TableError as error:
        if not source.path.name.lower().endswith((".csv", ".csv.gz")) or "UTF8" not in str(error):
            raise
        raise TableError(_not_utf8(source.path, names)) from error


def to_numbers(values: pd.Series, place: Place) -> NDArray[np.float64]:
    """Return a column as numbers; an empty cell is NaN, and one that holds something else is named by ``place``."""
    numbers = _as_numbers(values.mask(missing(values)))
    if (bad := ~np.isfinite(numbers) & ~missing(values)).any():
        row = int(bad.argmax())
        raise TableError(f"{place(row, str(values.name))}: {str(values.iloc[row])!r} is not a finite number")
    return numbers


def to_truth(values: pd.Series, place: Place) -> NDArray[np.float64]:
    """Return a column of 0 and 1, or of false and true; an empty cell is NaN."""
    truth = np.asarray(values.astype(str).str.lower().map(_TRUTH), dtype=np.float64)
    if (bad := np.isnan(truth) & ~missing(values)).any():
        row = int(bad.argmax())
        raise TableError(f"{place(row, str(values.name))} must be 0 or 1, got {str(values.iloc[row])!r}")
    return truth


def first_not_utf8(array: Any) -> int | None:
    """Return the first row of an Arrow array of text or bytes that is not UTF-8, or none."""
    try:
        array.cast(pa.large_string()).validate(full=True)
    except pa.ArrowInvalid:
        for row, value in enumerate(array.cast(pa.large_binary())):
            try:
                (value.as_py() or b"").decode()
            except UnicodeDecodeError:
                return row
    return None


def missing(values: pd.Series) -> NDArray[np.bool_]:
    """Return which cells are empty."""
    return (values.isna() | values.isin([""])).to_numpy(dtype=bool)


def fractions(values: pd.Series) -> NDArray[np.bool_]:
    """Return which values are numbers, but not whole, be it as text."""
    numbers = _as_numbers(values)
    return np.asarray(np.isfinite(numbers) & (numbers != np.rint(numbers)))


def categories(values: pd.Series) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Return names of what a column holds, in order, and the number of each row's.

    Numbers that are whole are called so, though an empty cell among them may have made 1 into 1.0.
    """
    numbers, text = _as_numbers(values), values.astype(str).to_numpy(dtype=object)
    known = ~missing(values)
    whole = np.where(np.isfinite(numbers), np.rint(numbers), 0).astype(np.int64)
    plain = (whole.astype(str) == text) | (np.char.add(whole.astype(str), ".0") == text)
    given = whole if known.any() and plain[known].all() else text
    found, places = np.unique(np.where(known, given, given[known.argmax()]), return_inverse=True)
    return tuple(str(value) for value in found.tolist()), places.astype(np.int64)


def _not_utf8(path: Path, names: list[str]) -> str:
    """Say which cell of a CSV file is not UTF-8: Arrow says the column only."""
    try:
        table = csv.read_csv(
            path,
            read_options=csv.ReadOptions(use_threads=False),
            parse_options=csv.ParseOptions(newlines_in_values=True),
            convert_options=csv.ConvertOptions(include_columns=names, column_types=dict.fromkeys(names, pa.binary())),
        )
    except pa.ArrowInvalid:
        return f"{path} is not UTF-8"
    for name in names:
        row = first_not_utf8(table[name].combine_chunks())
        if row is not None:
            return f"{path}: row {row + 1}, column {name!r} is not UTF-8"
    return f"{path} is not UTF-8"


def _as_numbers(values: pd.Series) -> NDArray[np.float64]:
    return pd.to_numeric(values, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
