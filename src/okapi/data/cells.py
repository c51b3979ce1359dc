"""Columns of a table as they are read: numbers with NaN and categories with None where something is missing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from okapi.data.io import NUMERIC, TableFile, categories, check_names, missing


@dataclass(frozen=True, eq=False)
class Cells:
    """The feature columns of a table, as they are read.

    Parameters
    ----------
    kinds : mapping of str to str
        "number", "boolean", "matrix" or "category" of each column.
    numbers : array (n, p)
        NaN where a number is missing.
    names : sequence of p str
    spans : mapping of str to slice
        Which of the p each column has.
    texts : mapping of str to array (n,), object
        Categories by name; None where it is missing.
    rows : array (n,), int64
        Their numbers in the file.
    """

    kinds: Mapping[str, str]
    numbers: NDArray[np.floating[Any]]
    names: Sequence[str]
    spans: Mapping[str, slice]
    texts: Mapping[str, NDArray[np.object_]]
    rows: NDArray[np.int64]

    def missing(self, column: str) -> NDArray[np.bool_]:
        """Return in which rows (n,) a column misses something."""
        if column in self.texts:
            return np.asarray(self.texts[column] == None)  # noqa: E711
        return np.asarray(np.isnan(self.numbers[:, self.spans[column]]).any(axis=1))

    def complete(self) -> NDArray[np.bool_]:
        """Return which rows (n,) miss nothing."""
        return ~np.asarray(np.logical_or.reduce([self.missing(column) for column in self.kinds], axis=0))

    def gaps(self) -> dict[str, int]:
        """Return how many rows each column misses, of those that miss any."""
        counts = {name: int(self.missing(name).sum()) for name in self.kinds}
        return {name: count for name, count in counts.items() if count}

    def only(self, columns: Sequence[str]) -> "Cells":
        """Return some of the columns, in their order; all of them as they are."""
        if list(columns) == list(self.kinds):
            return self
        spans, parts, start = {}, [], 0
        for name in columns:
            if name in self.spans:
                parts.append(self.spans[name])
                spans[name] = slice(start, start := start + parts[-1].stop - parts[-1].start)
        places = np.concatenate([np.arange(part.start, part.stop) for part in parts] or [np.zeros(0, dtype=np.int64)])
        return replace(
            self,
            kinds={name: self.kinds[name] for name in columns},
            numbers=self.numbers[:, places],
            names=[self.names[place] for place in places],
            spans=spans,
            texts={name: self.texts[name] for name in columns if name in self.texts},
        )

    def take(self, rows: NDArray[np.int64]) -> "Cells":
        """Return some rows; all of them as they are."""
        if len(rows) == len(self.rows):
            return self
        texts = {name: values[rows] for name, values in self.texts.items()}
        return replace(self, numbers=self.numbers[rows], texts=texts, rows=self.rows[rows])


def read_cells(file: TableFile, kinds: Mapping[str, str]) -> Cells:
    """Read columns of features; text of whichever kind is read as categories."""
    check_names(file.path, file.columns, kinds)
    kinds = {name: kind if kind in NUMERIC else "category" for name, kind in kinds.items()}
    numeric = [name for name, kind in kinds.items() if kind in NUMERIC]
    numbers, names = file.numbers(numeric) if numeric else (np.empty((0, 0), dtype=np.float32), [])
    spans, start = {}, 0
    for name in numeric:
        end = start + 1
        if kinds[name] == "matrix":
            end = start
            while end < len(names) and names[end] == f"{name}_{end - start}":
                end += 1
        spans[name], start = slice(start, end), end
    texts = {}
    if other := [name for name in kinds if name not in spans]:
        labels = file.labels(other)
        texts = {name: _texts(labels[name]) for name in other}
        numbers = numbers if numeric else np.empty((len(labels), 0), dtype=np.float32)
    return Cells(kinds, numbers, names, spans, texts, np.arange(len(numbers)))


def _texts(values: pd.Series) -> NDArray[np.object_]:
    names, numbers = categories(values)
    texts = np.array(names, dtype=object)[numbers]
    texts[missing(values)] = None
    return texts
