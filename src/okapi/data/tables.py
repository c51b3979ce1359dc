"""What a matching reads: samples of several domains, from one table file."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from okapi.config.data import Missing
from okapi.data.cells import Cells, read_cells
from okapi.data.io import (
    NUMERIC,
    Kind,
    TableError,
    TableFile,
    check_finite,
    check_names,
    choose_columns,
    missing,
    open_table,
    present,
)
from okapi.matching import suspicious_columns
from okapi.messages import listed

_CHECKED_ON_OPENING = 2**28  # bytes; a memory map beyond this is not read through before it is used


@dataclass(frozen=True, eq=False)
class Table:
    """Samples of several domains, as read from one file.

    Parameters
    ----------
    X : array of shape (n, d), float32 or float64, or DataFrame
        Covariates. A read-only memory map where the file allows it; a DataFrame where some columns are categories,
        which then stand after the numbers.
    names : tuple of d str
        Covariate names.
    domain : array of shape (n,)
        Domain of each sample, as the file has it.
    ids, images : array of shape (n,), optional
        Unique name of each sample; path of its image, a relative one taken from the table's directory.
    propensity : array of shape (n,) or (n, S), optional
    exact : DataFrame of n rows, optional
        Columns on which the samples of a pair must agree.
    target, outcome : array of shape (n,), optional
        What pairs are compared on, and what an effect is estimated on; NaN or None where it is missing.
    path : Path
        The file.
    left_out : tuple of str
        Columns that were neither asked for nor usable as covariates.
    suspicious : mapping of str to str
        Columns that are probably no covariates, and why; they are left out too, unless ``columns`` were given.
    missing : mapping of str to int
        How many rows of the file miss a covariate, where any does.
    dropped : int
        Rows of the file that were left out because they miss one.
    embeddings : bool
        Whether the covariates are one column of lists.
    """

    X: NDArray[np.floating[Any]] | pd.DataFrame
    names: tuple[str, ...]
    domain: NDArray[Any]
    ids: NDArray[Any] | None
    images: NDArray[Any] | None
    propensity: NDArray[np.floating[Any]] | None
    exact: pd.DataFrame | None
    target: NDArray[Any] | None
    path: Path
    left_out: tuple[str, ...] = ()
    suspicious: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, int] = field(default_factory=dict)
    dropped: int = 0
    outcome: NDArray[Any] | None = None
    embeddings: bool = False

    def __len__(self) -> int:
        return len(self.domain)

    def check_finite(self) -> None:
        """Reject NaN and infinity in a memory-mapped ``X``. Reads all of it; smaller tables are checked on opening."""
        if isinstance(self.X, np.ndarray):
            check_finite(self.X, self.names, lambda row, column: f"{self.path}: row {row + 1}, column {column!r}")


def read_table(
    path: str | PathLike[str],
    *,
    domain: str,
    columns: Sequence[str] | None = None,
    id: str | None = None,  # noqa: A002
    image: str | None = None,
    propensity: str | Sequence[str] | None = None,
    exact: Sequence[str] = (),
    target: str | None = None,
    outcome: str | None = None,
    missing: Missing = "error",
    separator: str | None = None,
) -> Table:
    """Read samples and their domains from a table file, as ``okapi.data.io.open_table`` takes it.

    Names, rows, domains and the memory needed are checked before the covariates are read.

    Parameters
    ----------
    path : path
        In parquet and feather, list columns hold embeddings and become ``name_0``, ``name_1``, ... In npz, a 2-D array
        is such a column and 1-D arrays are plain ones; an array saved uncompressed is memory-mapped, and numpy may find
        it unaligned. Pickled arrays are rejected.
    domain : str
        Column that says where a sample comes from.
    columns : sequence of str, optional
        Covariates: names, patterns such as ``price_*`` and ``encoding_{0..63}``, or ``all``. Default: every column of
        numbers, booleans or categories without another role; in an npz that holds a 2-D array, that array alone. A
        text column of a CSV file counts as categories if it has 2 to 20 distinct values and fewer than half as many as
        rows. Text that is named here always does. Of the default what ``suspicious_columns`` finds is left
        out.
    id, image : str, optional
        Columns with unique names of the samples, with paths of their images.
    propensity : str or sequence of str, optional
        Column(s) with known propensities.
    exact : sequence of str, optional
        Columns on which the samples of a pair must agree.
    target, outcome : str, optional
        Columns that are no covariates: what pairs are compared on, and what an effect is estimated on.
    missing : {"error", "drop", "impute"}
        What becomes of rows that miss a covariate: an error names the first; "drop" leaves them out; "impute" fills in
        the median or the most frequent category, and adds a covariate of 0 and 1 that says so.
    separator : str, optional
        Of a CSV file; by default it is found out.

    Raises
    ------
    TableError
        If the file cannot be read, does not fit into memory, or holds something that cannot be matched on.
    """
    file = open_table(path, separator)
    scores = [propensity] if isinstance(propensity, str) else list(propensity or ())
    never = [name for name in (domain, id, image, target, outcome) if name is not None]
    check_names(file.path, file.columns, [*never, *scores, *exact])
    if clash := set(never) & set(columns or ()):
        roles = "the domain, id, image, target or outcome"
        raise TableError(f"{file.path}: {listed(clash)} cannot be both a covariate and {roles}")
    taken = {*never, *scores, *exact}
    labels = file.labels(list(dict.fromkeys([*never, *exact])))
    _check_labels(file, labels, domain, id, exact)
    known = None
    if scores:
        if unusable := [name for name, kind in file.kinds(scores).items() if kind not in NUMERIC]:
            raise TableError(f"{file.path}: propensity column {listed(unusable)} does not hold numbers")
        known, score_names = file.numbers(scores)
        check_finite(known, score_names, file.place)
    kinds, left_out = _covariates(file, columns, taken)
    cells = read_cells(file, kinds)
    suspicious = _suspicious(cells)
    if columns is None:
        cells = cells.only([name for name in cells.kinds if name not in suspicious])
        left_out += list(suspicious)
    if not cells.kinds:
        raise TableError(f"{file.path} has no column to match on; left out: {listed(left_out) or 'none'}")
    if not cells.names and not cells.texts:
        raise TableError(f"{file.path}: {listed(cells.kinds)} holds no values")
    gaps = {} if _is_large_map(cells.numbers) else cells.gaps()
    rows = np.flatnonzero(cells.complete()) if gaps and missing == "drop" else np.arange(len(labels))
    X, names = _filled(cells.take(rows), missing, file)
    labels = labels.iloc[rows]
    return Table(
        X=X,
        names=tuple(names),
        domain=_raw(labels[domain]),
        ids=_raw(labels[id]) if id else None,
        images=_paths(labels[image], file.path.parent) if image else None,
        propensity=None if known is None else (known[:, 0] if known.shape[1] == 1 else known)[rows],
        exact=labels[list(exact)].reset_index(drop=True) if exact else None,
        target=_outcome(labels[target]) if target else None,
        path=file.path,
        left_out=tuple(left_out),
        suspicious=suspicious,
        missing=gaps,
        dropped=len(cells.rows) - len(rows),
        outcome=_outcome(labels[outcome]) if outcome else None,
        embeddings=list(cells.kinds.values()) == ["matrix"],
    )


def _covariates(file: TableFile, columns: Sequence[str] | None, taken: set[str]) -> tuple[dict[str, Kind], list[str]]:
    """Return what the covariates hold, by name, and the columns that are none."""
    if columns is not None:
        kinds = file.kinds(choose_columns(file, columns, taken))
        reject_kinds(file, kinds)
        return kinds, []
    free = [name for name in file.columns if name not in taken]
    kinds = file.default(file.kinds(free))
    return kinds, [name for name in free if name not in kinds]


def _suspicious(cells: Cells) -> dict[str, str]:
    """Return the columns of one value a row that are probably no covariates, and why."""
    single = {name: cells.numbers[:, span.start] for name, span in cells.spans.items() if cells.kinds[name] == "number"}
    return suspicious_columns(pd.DataFrame(single | dict(cells.texts)))


def _is_large_map(X: NDArray[Any]) -> bool:
    return isinstance(X, np.memmap) and X.nbytes > _CHECKED_ON_OPENING


def _filled(
    cells: Cells, missing: Missing, file: TableFile
) -> tuple[NDArray[np.floating[Any]] | pd.DataFrame, list[str]]:
    """Return covariates and their names; where values are missing they are imputed, or the first is rejected."""
    X, texts, names = cells.numbers, dict(cells.texts), list(cells.names)
    gaps = cells.gaps() if missing == "impute" else {}
    if gaps:
        with warnings.catch_warnings():  # a column without any value is found below
            warnings.simplefilter("ignore", RuntimeWarning)
            X = np.where(np.isnan(X), np.nanmedian(X, axis=0), X) if X.size else X
        flags = [cells.missing(name) for name in gaps]
        X = np.column_stack([X, *flags]).astype(X.dtype)
        names += [f"{name} is missing" for name in gaps]
    if not _is_large_map(X):
        check_finite(X, names, file.place)
    for name, values in texts.items():
        known = cells.missing(name)
        if known.all() or (known.any() and missing != "impute"):
            raise TableError(f"{file.place(int(cells.rows[known.argmax()]), name)} is missing")
        texts[name] = np.where(known, pd.Series(values).mode()[0], values)
    if not texts:
        return X, names
    parts = [pd.DataFrame(X, columns=names)] if names else []
    categories = pd.DataFrame({name: pd.Categorical(values) for name, values in texts.items()})
    return pd.concat([*parts, categories], axis=1), [*names, *texts]


def reject_kinds(file: TableFile, kinds: Mapping[str, str]) -> None:
    """Reject columns that are asked for and are neither numbers nor categories."""
    if dates := [name for name, kind in kinds.items() if kind == "date"]:
        raise TableError(
            f"{file.path}: {listed(dates)} holds dates, not numbers: leave it out, or save what matters of it, "
            "such as the year or days since a start, as a number"
        )
    if unusable := [name for name, kind in kinds.items() if kind == "other"]:
        raise TableError(f"{file.path}: {listed(unusable)} holds neither numbers nor categories")


def _check_labels(file: TableFile, labels: pd.DataFrame, domain: str, id_: str | None, exact: Sequence[str]) -> None:
    if labels.empty:
        raise TableError(f"{file.path} has no rows")
    for name in [domain, *exact, *([id_] if id_ else [])]:
        present(labels[name], file.place)
    if labels[domain].nunique() == 1:
        raise TableError(f"{file.path}: every row of {domain!r} is '{labels[domain].iloc[0]}'; two domains are wanted")
    if id_ and labels[id_].duplicated().any():
        row = int(labels[id_].duplicated().argmax())
        raise TableError(f"{file.place(row, id_)}: '{labels[id_].iloc[row]}' was there before")


def _raw(values: pd.Series) -> NDArray[Any]:
    return values.to_numpy() if pd.api.types.is_numeric_dtype(values) else values.to_numpy(dtype=object)


def _outcome(values: pd.Series) -> NDArray[Any]:
    """Return numbers where all that is there are numbers, even if they were read as text."""
    known = values.mask(missing(values))
    numbers = pd.to_numeric(known, errors="coerce")
    return _raw(numbers if bool((numbers.notna() == known.notna()).all()) else known)


def _paths(names: pd.Series, folder: Path) -> NDArray[Any]:
    return np.array(["" if pd.isna(name) or name == "" else str(folder / str(name)) for name in names], dtype=object)
