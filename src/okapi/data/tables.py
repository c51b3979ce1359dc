"""What a matching reads: samples of several domains, from one table file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from okapi.data.io import (
    NUMERIC,
    TableError,
    TableFile,
    check_finite,
    check_names,
    check_present,
    choose_columns,
    missing,
    open_table,
)
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
    target : array of shape (n,), optional
        Outcome of each sample; NaN or None where it is missing.
    path : Path
        The file.
    left_out : tuple of str
        Columns that were neither asked for nor usable as covariates.
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
        rows. Text that is named here always does.
    id, image : str, optional
        Columns with unique names of the samples, with paths of their images.
    propensity : str or sequence of str, optional
        Column(s) with known propensities.
    exact : sequence of str, optional
        Columns on which the samples of a pair must agree.
    target : str, optional
        Column with the outcome, which is no covariate.
    separator : str, optional
        Of a CSV file; by default it is found out.

    Raises
    ------
    TableError
        If the file cannot be read, does not fit into memory, or holds something that cannot be matched on.
    """
    file = open_table(path, separator)
    scores = [propensity] if isinstance(propensity, str) else list(propensity or ())
    never = [name for name in (domain, id, image, target) if name is not None]
    check_names(file.path, file.columns, [*never, *scores, *exact])
    if clash := set(never) & set(columns or ()):
        raise TableError(f"{file.path}: {listed(clash)} cannot be both a covariate and the domain, id, image or target")
    chosen = [] if columns is None else choose_columns(file, columns, {*never, *scores, *exact})

    labels = file.labels(list(dict.fromkeys([*never, *exact])))
    _check_labels(file, labels, domain, id, exact)
    X, names, left_out = _read_covariates(file, chosen, {*never, *scores, *exact})
    known = None
    if scores:
        if unusable := [name for name, kind in file.kinds(scores).items() if kind not in NUMERIC]:
            raise TableError(f"{file.path}: propensity column {listed(unusable)} does not hold numbers")
        known, score_names = file.numbers(scores)
        check_finite(known, score_names, file.place)
    return Table(
        X=X,
        names=tuple(names),
        domain=_raw(labels[domain]),
        ids=_raw(labels[id]) if id else None,
        images=_paths(labels[image], file.path.parent) if image else None,
        propensity=known[:, 0] if known is not None and known.shape[1] == 1 else known,
        exact=labels[list(exact)] if exact else None,
        target=_outcome(labels[target]) if target else None,
        path=file.path,
        left_out=tuple(left_out),
    )


def _read_covariates(
    file: TableFile, chosen: list[str], taken: set[str]
) -> tuple[NDArray[np.floating[Any]] | pd.DataFrame, list[str], list[str]]:
    """Return X, the covariates' names, and the columns left out."""
    free = chosen or [name for name in file.columns if name not in taken]
    kinds = file.kinds(free)
    if not chosen:
        kinds = file.default(kinds)
    reject_kinds(file, kinds)
    if not kinds:
        raise TableError(f"{file.path} has no column to match on; left out: {listed(free) or 'none'}")
    numbers = [name for name, kind in kinds.items() if kind in NUMERIC]
    texts = [name for name in kinds if name not in numbers]

    X, names = file.numbers(numbers) if numbers else (np.empty((0, 0)), [])
    if not names and not texts:
        raise TableError(f"{file.path}: {listed(numbers)} holds no values")
    if not isinstance(X, np.memmap) or X.nbytes <= _CHECKED_ON_OPENING:
        check_finite(X, names, file.place)
    left_out = [name for name in free if name not in kinds]
    if not texts:
        return X, names, left_out
    categories = file.labels(texts)
    for name in texts:
        check_present(categories[name], file.place)
    parts = [pd.DataFrame(X, columns=names)] if numbers else []
    return pd.concat([*parts, categories.astype("category")], axis=1), [*names, *texts], left_out


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
        check_present(labels[name], file.place)
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
