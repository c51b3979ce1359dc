"""WILDS 2.0 as its distributors pack it, labelled and unlabelled, read without their package.

What files are called, which columns they have and how splits are drawn is known from github.com/p-lambda/wilds, version
2.0.0; each reader names the file that says it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from okapi.data.image_folder import FolderError
from okapi.data.io import Place, TableError, check_names, open_table, present, reject_cells, to_numbers
from okapi.messages import listed

SOURCE = "WILDS distributes it, by wilds.stanford.edu/downloads and by its package."


def find_folders(root: str, wanted: Mapping[str, Sequence[str]], layout: str) -> dict[str, Path]:
    """Return where the folders of a data set are.

    Parameters
    ----------
    root : str
        The folder that holds them, or one of them.
    wanted : mapping of str to sequence of str
        What must be in each folder.
    layout : str
        How all must look, for the error.
    """
    base = Path(root)
    if base.name in wanted and not (base / base.name).exists():
        base = base.parent
    if not base.is_dir():
        reason = "is not a folder" if base.exists() else "does not exist"
        raise FolderError(f"{base} {reason}. In it must be:\n{layout}\n{SOURCE}")
    missing = [
        str(Path(name) / part)
        for name, parts in wanted.items()
        for part in (parts if (base / name).is_dir() else [""])
        if not (base / name / part).exists()
    ]
    if missing:
        raise FolderError(f"{base} has no {listed(missing)}. In it must be:\n{layout}\n{SOURCE}")
    return {name: base / name for name in wanted}


def read_columns(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    """Return some columns of a CSV file, which must have rows."""
    source = open_table(path)
    check_names(str(path), source.columns, columns)
    frame = source.labels(list(columns))
    if frame.empty:
        raise TableError(f"{path} has no rows")
    return frame


def place_in(path: Path) -> Place:
    """Return what errors call a cell of a file."""
    return lambda row, column: f"{path}: row {row + 1}, column {column!r}"


def whole_numbers(values: pd.Series, place: Place) -> NDArray[np.int64]:
    """Return a column of whole numbers; anything else is rejected."""
    numbers = to_numbers(present(values, place), place)
    reject_cells(numbers != np.rint(numbers), values, place, " must be a whole number, got {}")
    return numbers.astype(np.int64)


def renamed_splits(values: pd.Series, names: Mapping[str, str], place: Place) -> NDArray[np.str_]:
    """Return splits by our names; ``names`` has theirs and ours."""
    ours = values.map(dict(names))
    reject_cells(ours.isna().to_numpy(dtype=bool), values, place, f" must be one of {listed(names)}, got {{}}")
    return ours.to_numpy(dtype=np.str_)
