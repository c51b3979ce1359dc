"""Features of a table: filled, scaled and one-hot encoded by a description that needs no training data."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from okapi.config import TokenSettings
from okapi.data.arrays import arrays_from
from okapi.data.cells import Cells, read_cells
from okapi.data.io import (
    BLOCK,
    NpzFile,
    Place,
    TableError,
    TableFile,
    check_names,
    not_utf8,
    open_table,
    reject_cells,
)
from okapi.data.text import Texts

Description: TypeAlias = Mapping[str, Any]
"""What ``Dataset.description`` returns: JSON values."""

_MOST_ONE_HOT = 256  # columns that one column becomes


def inputs_from(source: Path | TableFile, description: Description) -> tuple[Tensor | Texts, NDArray[np.int64]]:
    """Return what a network takes of the samples of a file, (n, ...), and which of its rows they are, (n,).

    A data set of tables, texts or arrays makes its own inputs by the same steps. Where ``missing`` is "drop", rows that
    miss something are left out. A category that training did not have is one-hot encoded as zeros.

    Parameters
    ----------
    source : path, or TableFile
        A table with the columns, or an npz file with the array, that the description names.
    description : mapping
        Of ``Dataset.description()``, or read from JSON.
    """
    file = source if isinstance(source, TableFile) else open_table(source, description.get("separator"))
    if description["kind"] == "arrays":
        if not isinstance(file, NpzFile):
            raise TableError(f"{file.path}: arrays are read from npz, got {file.path.suffix!r}")
        inputs: Tensor | Texts = arrays_from(file, description)
        return inputs, np.arange(len(inputs))
    if description["kind"] == "text":
        name = str(description["column"])
        check_names(file.path, file.columns, [name])
        texts = text_cells(file.labels([name])[name], file.place)
        inputs = Texts(texts, TokenSettings(tokenizer=description["tokenizer"], tokens=description["tokens"]))
        return inputs, np.arange(len(inputs))
    if description["kind"] != "table":
        raise ValueError(f"description must be of a table, text or arrays, got kind {description['kind']!r}")
    cells = read_cells(file, {column["name"]: column["kind"] for column in description["columns"]})
    rows = np.flatnonzero(cells.complete()) if description["missing"] == "drop" else np.arange(len(cells.numbers))
    return make_features(cells.take(rows), description, file.place), rows


def describe_features(
    cells: Cells, train: NDArray[np.bool_], *, called: str, policy: str, scale: str, separator: str | None = None
) -> dict[str, Any]:
    """Return how features are made, fitted to the training split: what fills a gap, means, deviations, categories.

    Parameters
    ----------
    cells : Cells of n rows
    train : array (n,), bool
    called : str
        What errors call the table.
    policy : {"error", "drop", "impute"}
        What is done about missing values.
    scale : {"standard", "none"}
        Of columns of plain numbers; lists, booleans and categories are taken as they are.
    separator : str, optional
        Of a CSV file, where settings name it.
    """
    columns: list[dict[str, Any]] = []
    features = list(cells.names)
    for name, kind in cells.kinds.items():
        column: dict[str, Any] = {"name": name, "kind": kind}
        known = train & ~cells.missing(name)
        if not known.any():
            raise TableError(f"{called}: column {name!r} has no value in the training split; leave it out")
        if kind == "category":
            values, counts = np.unique(cells.texts[name][known].astype(str), return_counts=True)
            if len(values) > _MOST_ONE_HOT:
                raise TableError(
                    f"{called}: column {name!r} holds {len(values):,} different texts, at most {_MOST_ONE_HOT} can be "
                    "categories: leave it out, or name it as text"
                )
            column |= {"categories": values.tolist(), "fill": str(values[counts.argmax()])}
        else:
            span = cells.spans[name]
            column["width"] = span.stop - span.start
            if policy == "impute":
                column["fill"] = np.median(cells.numbers[known, span].astype(np.float64), axis=0).tolist()
            if kind == "number" and scale == "standard":
                numbers = cells.numbers[known, span].astype(np.float64)
                deviation = float(numbers.std())
                column |= {"mean": float(numbers.mean()), "deviation": deviation if deviation > 0 else 1.0}
        column["indicator"] = bool(policy == "impute" and cells.missing(name).any())
        columns.append(column)
    features += [f"{column['name']} is missing" for column in columns if column["indicator"]]
    features += [f"{column['name']}={value}" for column in columns for value in column.get("categories", ())]
    return {
        "kind": "table",
        "shape": [len(features)],
        "features": features,
        "missing": policy,
        "separator": separator,
        "columns": columns,
    }


def make_features(cells: Cells, description: Description, place: Place) -> Tensor:
    """Return features (n, d), float32, as a description says; what is missing or not finite is named by ``place``."""
    numbers, columns = cells.numbers, description["columns"]
    numeric = [column for column in columns if column["kind"] != "category"]
    for column in numeric:
        span = cells.spans[column["name"]]
        if span.stop - span.start != column["width"]:
            got = f"holds {span.stop - span.start} numbers a row, {column['width']} are wanted"
            raise TableError(f"{place(0, column['name'])} {got}")
    fill, mean, deviation = (
        np.concatenate([np.full(column["width"], column.get(key, default)) for column in numeric] or [np.zeros(0)])
        for key, default in (("fill", np.nan), ("mean", 0.0), ("deviation", 1.0))
    )
    features = np.empty((len(numbers), description["shape"][0]), dtype=np.float32)
    width = numbers.shape[1]
    step = max(1, BLOCK // max(1, width))
    for start in range(0, len(numbers), step):
        block = numbers[start : start + step].astype(np.float64)
        filled = np.where(np.isnan(block), fill, block)
        with np.errstate(over="ignore"):  # what is too large for float32 is named below
            made = ((filled - mean) / deviation).astype(np.float32)
        if len(wrong := np.argwhere(~np.isfinite(made))):
            row, number = wrong[0].tolist()
            cell = place(int(cells.rows[start + row]), cells.names[number])
            raise TableError(
                f"{cell} is missing; missing: drop or impute says what to do"
                if np.isnan(block[row, number])
                else f"{cell} is {block[row, number]}, not a finite number in float32"
            )
        features[start : start + step, :width] = made
    for column in columns:
        if column["indicator"]:
            features[:, width] = cells.missing(column["name"])
            width += 1
    for column in columns:
        if column["kind"] == "category":
            texts, gaps = cells.texts[column["name"]], cells.missing(column["name"])
            if gaps.any() and description["missing"] != "impute":
                cell = place(int(cells.rows[gaps.argmax()]), column["name"])
                raise TableError(f"{cell} is missing; missing: drop or impute says what to do")
            texts = np.where(gaps, column["fill"], texts)
            for value in column["categories"]:
                features[:, width] = texts == value
                width += 1
    return torch.from_numpy(features)


def listed_counts(counts: Mapping[str, int], most: int = 12) -> str:
    """Return names with their counts.

    Examples
    --------
    >>> listed_counts({"age": 3, "dose": 1200})
    "'age' (3), 'dose' (1,200)"
    """
    named = [f"{name!r} ({count:,})" for name, count in counts.items()]
    return ", ".join(named[:most]) + (f" and {len(named) - most} more" if len(named) > most else "")


def text_cells(values: pd.Series, place: Place) -> Any:
    """Return a column of text as an Arrow array; what is missing, holds NUL or is not UTF-8 is rejected."""
    reject_cells(values.isna().to_numpy(), values, place, " is missing")
    array = pa.array(values.astype(str), pa.large_string())
    reject_cells(not_utf8(array), values, place, " is not UTF-8")
    nul = values.astype(str).str.contains("\0", regex=False).to_numpy(dtype=bool)
    reject_cells(nul, values, place, " has a NUL in it; text is wanted, in UTF-8")
    return array


def text_recipe(column: str, settings: TokenSettings) -> dict[str, Any]:
    """Return how texts become tokens, as a description."""
    return {
        "kind": "text",
        "shape": [settings.tokens],
        "column": column,
        "tokenizer": settings.tokenizer,
        "tokens": settings.tokens,
    }
