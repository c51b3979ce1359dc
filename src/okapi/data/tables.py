"""Tables: the file that a matching reads, and the files it writes."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from okapi.data.columns import check_names, read_labels
from okapi.data.formats import BLOCK, Source, TableError, open_source
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
        Unique name of each sample; path of its picture, a relative one taken from the table's directory.
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
        """Refuse NaN and infinity in a memory-mapped ``X``. Reads all of it; smaller tables are checked on opening."""
        if isinstance(self.X, np.ndarray):
            _check_finite(self.path, self.X, self.names)


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
) -> Table:
    """Read samples and their domains from a ``.csv``, ``.csv.gz``, ``.parquet`` or ``.npz`` file.

    Names, rows, domains and the memory needed are checked before the covariates are read.

    Parameters
    ----------
    path : path
        In parquet, list columns hold embeddings and become ``name_0``, ``name_1``, ... In npz, a 2-D array is such a
        column and 1-D arrays are plain ones; an array saved uncompressed is memory-mapped, and numpy may find it
        unaligned. Pickled arrays are refused.
    domain : str
        Column that says where a sample comes from.
    columns : sequence of str, optional
        Covariates. Default: every column of numbers, booleans or categories without another role; in an npz that
        holds a 2-D array, that array alone. A text column of a CSV file counts as categories if it has 2 to 20
        distinct values and fewer than half as many as rows. Text that is named here always does.
    id, image : str, optional
        Columns with unique names of the samples, with paths of their pictures.
    propensity : str or sequence of str, optional
        Column(s) with known propensities.
    exact : sequence of str, optional
        Columns on which the samples of a pair must agree.
    target : str, optional
        Column with the outcome, which is no covariate.

    Raises
    ------
    TableError
        If the file cannot be read, does not fit into memory, or holds something that cannot be matched on.
    """
    path = Path(path)
    source = open_source(path)
    scores = [propensity] if isinstance(propensity, str) else list(propensity or ())
    never = [name for name in (domain, id, image, target) if name is not None]
    check_names(path, source.columns, [*never, *scores, *exact, *(columns or ())])
    if clash := set(never) & set(columns or ()):
        raise TableError(f"{path}: {listed(clash)} cannot be both a covariate and the domain, id, image or target")

    labels = read_labels(source, list(dict.fromkeys([*never, *exact])))
    _check_labels(path, labels, domain, id, exact)
    X, names, left_out = _read_covariates(source, columns, {*never, *scores, *exact})
    known = None
    if scores:
        if unusable := [name for name, kind in source.kinds(scores).items() if kind not in ("number", "matrix")]:
            raise TableError(f"{path}: propensity column {listed(unusable)} does not hold numbers")
        known, score_names = source.numbers(scores)
        _check_finite(path, known, score_names)
    return Table(
        X=X,
        names=tuple(names),
        domain=_raw(labels[domain]),
        ids=_raw(labels[id]) if id else None,
        images=_paths(labels[image], path.parent) if image else None,
        propensity=known[:, 0] if known is not None and known.shape[1] == 1 else known,
        exact=labels[list(exact)] if exact else None,
        target=_outcome(labels[target]) if target else None,
        path=path,
        left_out=tuple(left_out),
    )


def _read_covariates(
    source: Source, columns: Sequence[str] | None, taken: set[str]
) -> tuple[NDArray[np.floating[Any]] | pd.DataFrame, list[str], list[str]]:
    """Return X, the covariates' names, and the columns left out."""
    path = source.path
    free = [name for name in source.columns if name not in taken] if columns is None else list(columns)
    kinds = source.kinds(free)
    if columns is None:
        kinds = source.default(kinds)
    elif unusable := [name for name in columns if kinds[name] == "other"]:
        raise TableError(f"{path}: {listed(unusable)} holds neither numbers nor categories")
    if not kinds:
        raise TableError(f"{path} has no column to match on; left out: {listed(free) or 'none'}")
    left_out = [name for name in free if name not in kinds]
    numbers = [name for name, kind in kinds.items() if kind in ("number", "matrix")]
    texts = [name for name in kinds if name not in numbers]

    X, names = source.numbers(numbers) if numbers else (np.empty((0, 0)), [])
    if not names and not texts:
        raise TableError(f"{path}: {listed(numbers)} holds no values")
    if not isinstance(X, np.memmap) or X.nbytes <= _CHECKED_ON_OPENING:
        _check_finite(path, X, names)
    if not texts:
        return X, names, left_out
    categories = source.labels(texts)
    for name in texts:
        _check_present(path, categories[name])
    parts = [pd.DataFrame(X, columns=names)] if numbers else []
    return pd.concat([*parts, categories.astype("category")], axis=1), [*names, *texts], left_out


def _check_labels(path: Path, labels: pd.DataFrame, domain: str, id_: str | None, exact: Sequence[str]) -> None:
    if labels.empty:
        raise TableError(f"{path} has no rows")
    for name in [domain, *exact, *([id_] if id_ else [])]:
        _check_present(path, labels[name])
    if labels[domain].nunique() == 1:
        raise TableError(f"{path}: every row of {domain!r} is '{labels[domain].iloc[0]}'; two domains are wanted")
    if id_ and labels[id_].duplicated().any():
        row = int(labels[id_].duplicated().argmax())
        raise TableError(f"{path}: row {row + 1}, column {id_!r}: '{labels[id_].iloc[row]}' was there before")


def _check_present(path: Path, values: pd.Series) -> None:
    missing = values.isna() | values.isin([""])
    if missing.any():
        raise TableError(f"{path}: row {int(missing.argmax()) + 1}, column {values.name!r} is missing")


def _check_finite(path: Path, X: NDArray[np.floating[Any]], names: Sequence[str]) -> None:
    step = max(1, BLOCK // max(1, X.shape[1]))
    for start in range(0, len(X), step):
        block = X[start : start + step]
        finite = np.isfinite(block)
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            raise TableError(
                f"{path}: row {start + row + 1}, column {names[column]!r} is {block[row, column]}, not a finite number"
            )


def _raw(values: pd.Series) -> NDArray[Any]:
    return values.to_numpy() if pd.api.types.is_numeric_dtype(values) else values.to_numpy(dtype=object)


def _outcome(values: pd.Series) -> NDArray[Any]:
    """Return numbers where all that is there are numbers, even if they were read as text."""
    known = values.mask(values.isin([""]))
    numbers = pd.to_numeric(known, errors="coerce")
    return _raw(numbers if bool((numbers.notna() == known.notna()).all()) else known)


def _paths(names: pd.Series, folder: Path) -> NDArray[Any]:
    return np.array(["" if pd.isna(name) or name == "" else str(folder / str(name)) for name in names], dtype=object)


def check_output(path: str | PathLike[str], suffixes: Sequence[str] = (".parquet", ".csv")) -> Path:
    """Refuse, before any work is done, a path that could not be written in the end."""
    path = Path(path)
    if path.suffix.lower() not in suffixes:
        raise TableError(f"{path}: cannot write {path.suffix or 'a file without suffix'!r}; want {listed(suffixes)}")
    if path.is_dir():
        raise TableError(f"{path} is a directory")
    if not path.parent.is_dir():
        raise TableError(f"{path}: the directory {path.parent} does not exist")
    try:
        with _temporary(path) as temporary:
            temporary.touch(exist_ok=False)
    except OSError as error:
        raise TableError(f"{path} cannot be written: {error.strerror or error}") from error
    return path


def write_frame(frame: pd.DataFrame, path: str | PathLike[str]) -> None:
    """Write a frame, without its index, as ``.parquet`` or ``.csv``; all of it or nothing."""
    write_files({Path(path): frame})


def write_text(path: str | PathLike[str], text: str) -> None:
    """Write a text as UTF-8; all of it or nothing."""
    write_files({Path(path): text})


def write_files(files: Mapping[Path, pd.DataFrame | str]) -> None:
    """Write frames, as `write_frame` does, and texts, in UTF-8; none takes its name before all are complete."""
    with ExitStack() as stack:
        written = {}
        for path, content in files.items():
            with _naming(path):
                written[path] = stack.enter_context(_temporary(path))
                _write(content, path, written[path])
        for path, temporary in written.items():
            with _naming(path):
                temporary.replace(path)


def _write(content: pd.DataFrame | str, path: Path, temporary: Path) -> None:
    if isinstance(content, str):
        temporary.write_text(content, encoding="utf-8")
        return
    check_output(path)
    if path.suffix.lower() == ".parquet":
        content.to_parquet(temporary, index=False)
    else:
        content.to_csv(temporary, index=False)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Name the file that is wanted in an error, not the temporary one."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise OSError(f"{path} cannot be written: {reason}") from error


@contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """Yield a name beside ``path``, of a file that is gone in the end."""
    temporary = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)
