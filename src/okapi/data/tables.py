"""Tables: the file that a matching reads, and the files it writes."""

import struct
import zipfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import csv

Kind = Literal["number", "matrix", "category", "text", "other"]
_CHECKED_ON_OPENING = 2**28  # bytes; a memory map beyond this is not read through before it is used
_BLOCK = 2**23  # values read or checked at a time
_BYTES_A_LABEL = 64
_GZIP_RATIO = 5
_MOST_CATEGORIES = 20


class TableError(ValueError):
    """A file that cannot be read or written as a table. The message names the file and, where there is one, the row."""


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
        Outcome: no covariate unless named in ``columns``, which is refused.

    Raises
    ------
    TableError
        If the file cannot be read, does not fit into memory, or holds something that cannot be matched on.
    """
    path = Path(path)
    source = _open(path)
    scores = [propensity] if isinstance(propensity, str) else list(propensity or ())
    never = [name for name in (domain, id, image, target) if name is not None]
    _check_names(path, source.columns, [*never, *scores, *exact, *(columns or ())])
    if clash := set(never) & set(columns or ()):
        raise TableError(f"{path}: {_listed(clash)} cannot be both a covariate and the domain, id, image or target")

    labels = source.labels(list(dict.fromkeys([domain, *(name for name in (id, image) if name), *exact])))
    _check_labels(path, labels, domain, id, exact)
    X, names, left_out = _read_covariates(source, columns, {*never, *scores, *exact})
    known = None
    if scores:
        if unusable := [name for name, kind in source.kinds(scores).items() if kind not in ("number", "matrix")]:
            raise TableError(f"{path}: propensity column {_listed(unusable)} does not hold numbers")
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
        path=path,
        left_out=tuple(left_out),
    )


def _open(path: Path) -> "_Csv | _Parquet | _Npz":
    """Open a file and read no more than its header."""
    sources: dict[str, type[_Csv | _Parquet | _Npz]] = {
        ".csv": _Csv, ".csv.gz": _Csv, ".parquet": _Parquet, ".npz": _Npz
    }  # fmt: skip
    kind = next((source for suffix, source in sources.items() if path.name.lower().endswith(suffix)), None)
    if path.is_dir():
        raise TableError(f"{path} is a directory; a file is wanted ({_listed(sources)})")
    if kind is None:
        raise TableError(f"{path}: cannot read {path.suffix or 'a file without suffix'!r}; want {_listed(sources)}")
    if not path.exists():
        raise TableError(f"{path} does not exist")
    if path.stat().st_size == 0:
        raise TableError(f"{path} is empty")
    with _reading(path):
        source = kind(path)
    if twice := [name for name, count in Counter(source.columns).items() if count > 1]:
        raise TableError(f"{path} has more than one column named {_listed(twice)}")
    return source


def _read_covariates(
    source: "_Csv | _Parquet | _Npz", columns: Sequence[str] | None, taken: set[str]
) -> tuple[NDArray[np.floating[Any]] | pd.DataFrame, list[str], list[str]]:
    """Return X, the covariates' names, and the columns left out."""
    path = source.path
    free = [name for name in source.columns if name not in taken] if columns is None else list(columns)
    kinds = source.kinds(free)
    if columns is None:
        kinds = source.default(kinds)
    elif unusable := [name for name in columns if kinds[name] == "other"]:
        raise TableError(f"{path}: {_listed(unusable)} holds neither numbers nor categories")
    if not kinds:
        raise TableError(f"{path} has no column to match on; left out: {_listed(free) or 'none'}")
    left_out = [name for name in free if name not in kinds]
    numbers = [name for name, kind in kinds.items() if kind in ("number", "matrix")]
    texts = [name for name in kinds if name not in numbers]

    X, names = source.numbers(numbers) if numbers else (np.empty((0, 0)), [])
    if not names and not texts:
        raise TableError(f"{path}: {_listed(numbers)} holds no values")
    if not isinstance(X, np.memmap) or X.nbytes <= _CHECKED_ON_OPENING:
        _check_finite(path, X, names)
    if not texts:
        return X, names, left_out
    categories = source.labels(texts)
    for name in texts:
        _check_present(path, categories[name])
    parts = [pd.DataFrame(X, columns=names)] if numbers else []
    return pd.concat([*parts, categories.astype("category")], axis=1), [*names, *texts], left_out


class _Csv:
    """Text: what a column holds is known only once it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = 0
        self.covariates = pd.DataFrame()
        skip = csv.ParseOptions(newlines_in_values=True, invalid_row_handler=lambda row: "skip")
        with csv.open_csv(path, parse_options=skip) as file:
            # The column without a name is an index that pandas saved.
            self.columns: list[str] = [name for name in file.schema.names if name]

    def labels(self, names: list[str]) -> pd.DataFrame:
        if set(names) <= set(self.covariates):
            return self.covariates[names]
        frame: pd.DataFrame = self._parse(names, dict.fromkeys(names, pa.string())).to_pandas()
        self.rows = len(frame)
        return frame.apply(_integers_if_plain)

    def kinds(self, names: list[str]) -> dict[str, Kind]:
        text = self.path.stat().st_size * (_GZIP_RATIO if self.path.suffix == ".gz" else 1)
        _check_memory(self.path, text + 2 * 8 * self.rows * len(names))  # columns and array, 8 bytes a number
        table = self._parse(names)
        self.covariates = table.to_pandas()
        found = {name: _arrow_kind(table.schema.field(name).type) for name in names}
        return {name: self._settle(name) if kind == "text" else kind for name, kind in found.items()}

    def _settle(self, name: str) -> Kind:
        """Say what a text column holds: if half of it or more is numbers, all of it must be."""
        values = self.covariates[name]
        numbers = pd.to_numeric(values, errors="coerce")
        if numbers.notna().all():
            self.covariates[name] = numbers
            return "number"
        if numbers.notna().mean() >= 0.5:
            row = int(numbers.isna().argmax())
            raise TableError(f"{self.path}: row {row + 1}, column {name!r}: {values[row]!r} is not a number")
        distinct = values.nunique()
        return "category" if 1 < distinct <= _MOST_CATEGORIES and distinct < self.rows / 2 else "text"

    def default(self, kinds: dict[str, Kind]) -> dict[str, Kind]:
        return {name: kind for name, kind in kinds.items() if kind in ("number", "category")}

    def numbers(self, names: list[str]) -> tuple[NDArray[np.floating[Any]], list[str]]:
        return self.covariates[names].to_numpy(dtype=np.float64), names

    def _parse(self, names: list[str], types: dict[str, Any] | None = None) -> Any:
        ragged: list[Any] = []

        def skip(row: Any) -> str:
            ragged.append(row)
            return "skip"

        with _reading(self.path):
            table = csv.read_csv(
                self.path,
                read_options=csv.ReadOptions(use_threads=False),  # with threads a ragged row has no number
                parse_options=csv.ParseOptions(newlines_in_values=True, invalid_row_handler=skip),
                # No cell is missing by its word: "NA" is also Namibia.
                convert_options=csv.ConvertOptions(include_columns=names, column_types=types, null_values=[]),
            )
        if ragged:
            place = f"{self.path}: row {ragged[0].number - 1}"  # the header was row 1
            raise TableError(f"{place} has {ragged[0].actual_columns} cells, the header {ragged[0].expected_columns}")
        return table


class _Parquet:
    """Columns with types; read in batches into the final array, so that nothing is held twice."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = pq.ParquetFile(path, memory_map=True)
        self.schema = self.file.schema_arrow
        self.columns: list[str] = [name for name in self.schema.names if not name.startswith("__index_level_")]

    def labels(self, names: list[str]) -> pd.DataFrame:
        if nested := [name for name in names if pa.types.is_nested(self.schema.field(name).type)]:
            raise TableError(f"{self.path}: column {_listed(nested)} holds lists, one value a row is wanted")
        _check_memory(self.path, _BYTES_A_LABEL * self.file.metadata.num_rows * len(names))
        with _reading(self.path):
            frame: pd.DataFrame = self.file.read(columns=names).select(names).to_pandas(ignore_metadata=True)
        return frame

    def kinds(self, names: list[str]) -> dict[str, Kind]:
        return {name: _arrow_kind(self.schema.field(name).type) for name in names}

    def default(self, kinds: dict[str, Kind]) -> dict[str, Kind]:
        return {name: kind for name, kind in kinds.items() if kind in ("number", "matrix", "category")}

    def numbers(self, names: list[str]) -> tuple[NDArray[np.floating[Any]], list[str]]:
        rows = self.file.metadata.num_rows
        values = sum(self._values[name] for name in names)
        dtype = np.result_type(np.float32, *(_arrow_dtype(self.schema.field(name).type) for name in names))
        _check_memory(self.path, values * dtype.itemsize)
        X, start, widths = np.empty((0, 0), dtype), 0, dict.fromkeys(names, 1)
        with _reading(self.path):
            for batch in self.file.iter_batches(max(1, _BLOCK * rows // max(values, 1)), columns=names):
                blocks = [self._block(batch.column(name), name, start, widths).astype(dtype) for name in names]
                if start == 0:
                    X = np.empty((rows, sum(widths.values())), dtype)
                np.concatenate(blocks, axis=1, out=X[start : start + len(batch)])
                start += len(batch)
        lists = [name for name in names if _arrow_kind(self.schema.field(name).type) == "matrix"]
        return X, [part for name in names for part in (_expanded(name, widths[name]) if name in lists else [name])]

    def _block(self, array: Any, name: str, start: int, widths: dict[str, int]) -> NDArray[Any]:
        """Return a batch of one column, (rows, width); the first row says how long a list is."""
        rows = len(array)
        if _arrow_kind(array.type) == "matrix":
            lengths = pc.list_value_length(array).fill_null(0).to_numpy()
            if start == 0:
                widths[name] = int(lengths[0])
            if len(odd := np.flatnonzero(lengths != widths[name])):
                place = f"{self.path}: row {start + odd[0] + 1}, column {name!r}"
                raise TableError(f"{place} holds {lengths[odd[0]]} values, the first row {widths[name]}")
            array = array.flatten()
        values: NDArray[Any] = array.to_numpy(zero_copy_only=False)  # a null becomes NaN or None
        return values.reshape(rows, widths[name])

    @cached_property
    def _values(self) -> dict[str, int]:
        """Number of values of each column, those of a list counted one by one, from the footer."""
        values: dict[str, int] = defaultdict(int)
        for group in map(self.file.metadata.row_group, range(self.file.metadata.num_row_groups)):
            for chunk in map(group.column, range(group.num_columns)):
                path = chunk.path_in_schema  # "name", or "name.list.element" for a list
                values[path if path in self.columns else path.rsplit(".", 2)[0]] += chunk.num_values
        return values


class _Npz:
    """Arrays in a zip file. One saved uncompressed is mapped where it lies, not read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = 0
        self.members: dict[str, _Member] = {}
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if info.filename.endswith(".npy"):
                    self.members[info.filename.removesuffix(".npy")] = self._header(archive, info)
        self.columns = list(self.members)

    def _header(self, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> "_Member":
        with archive.open(info) as file:
            old = np.lib.format.read_magic(file) == (1, 0)
            read = np.lib.format.read_array_header_1_0 if old else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = read(file)
            member = _Member(info, shape, "F" if fortran else "C", dtype, file.tell())
        if not dtype.hasobject and member.start + member.nbytes != info.file_size:
            raise TableError(f"{self.path}: array {info.filename!r} is cut short")
        return member

    def labels(self, names: list[str]) -> pd.DataFrame:
        frame = pd.DataFrame({name: self._array(name, ndim=1) for name in names})
        self.rows = len(frame)
        return frame

    def kinds(self, names: list[str]) -> dict[str, Kind]:
        return {name: self.members[name].kind for name in names}

    def default(self, kinds: dict[str, Kind]) -> dict[str, Kind]:
        matrices = [name for name, kind in kinds.items() if kind == "matrix"]
        if len(matrices) > 1:
            raise TableError(f"{self.path} holds several 2-D arrays, {_listed(matrices)}: choose by columns")
        return {name: kind for name, kind in kinds.items() if kind == ("matrix" if matrices else "number")}

    def numbers(self, names: list[str]) -> tuple[NDArray[np.floating[Any]], list[str]]:
        members = [self.members[name] for name in names]
        dtype = np.result_type(np.float32, *(member.dtype for member in members))
        arrays = [self._array(name) for name in names]
        expanded = [
            part
            for name, array in zip(names, arrays, strict=True)
            for part in ([name] if array.ndim == 1 else _expanded(name, array.shape[1]))
        ]
        if len(arrays) == 1 and arrays[0].ndim == 2 and arrays[0].dtype == dtype:
            return arrays[0], expanded
        _check_memory(self.path, len(expanded) * len(arrays[0]) * dtype.itemsize)
        return np.column_stack(arrays).astype(dtype, copy=False), expanded

    def _array(self, name: str, ndim: int | None = None) -> NDArray[Any]:
        member = self.members[name]
        if member.dtype.hasobject:
            raise TableError(f"{self.path}: array {name!r} holds pickled objects; save it as numbers or str")
        if ndim is not None and len(member.shape) != ndim:
            raise TableError(f"{self.path}: array {name!r} has shape {member.shape}, one value a row is wanted")
        if self.rows and member.shape[0] != self.rows:
            raise TableError(f"{self.path}: array {name!r} has {member.shape[0]} rows, the domain has {self.rows}")
        with _reading(self.path):
            if member.info.compress_type == zipfile.ZIP_STORED and member.nbytes:
                return member.map(self.path)
            _check_memory(self.path, member.nbytes)
            with zipfile.ZipFile(self.path) as archive, archive.open(member.info) as file:
                array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
                return array


@dataclass(frozen=True)
class _Member:
    info: zipfile.ZipInfo
    shape: tuple[int, ...]
    order: Literal["C", "F"]
    dtype: np.dtype[Any]
    start: int  # of the values, in bytes of the uncompressed member

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=object)) * self.dtype.itemsize

    @property
    def kind(self) -> Kind:
        if self.dtype.kind in "biuf" and len(self.shape) in (1, 2):
            return "number" if len(self.shape) == 1 else "matrix"
        return "text" if self.dtype.kind == "U" and len(self.shape) == 1 else "other"

    def map(self, path: Path) -> NDArray[Any]:
        with path.open("rb") as file:
            file.seek(self.info.header_offset + 26)
            name, extra = struct.unpack("<HH", file.read(4))  # lengths in the local header, which may differ
        offset = self.info.header_offset + 30 + name + extra + self.start
        return np.memmap(path, self.dtype, "r", offset, self.shape, self.order)


def _arrow_kind(type_: Any) -> Kind:
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        return "matrix" if _arrow_kind(type_.value_type) == "number" else "other"
    if pa.types.is_dictionary(type_):
        return "category"
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return "text"
    number = pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal
    return "number" if any(test(type_) for test in number) else "other"


def _arrow_dtype(type_: Any) -> np.dtype[Any]:
    type_ = type_.value_type if _arrow_kind(type_) == "matrix" else type_
    return np.dtype(np.float64 if pa.types.is_decimal(type_) else type_.to_pandas_dtype())


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Name the file in whatever a library says of one it cannot read."""
    try:
        yield
    except TableError:
        raise
    except (OSError, EOFError, ValueError, RuntimeError, zlib.error, zipfile.BadZipFile, pa.ArrowException) as error:
        raise TableError(f"{path} cannot be read: {str(error).strip().splitlines()[0]}") from error


def _check_names(path: Path, columns: Sequence[str], wanted: Iterable[str]) -> None:
    for name in wanted:
        if name not in columns:
            near = get_close_matches(name, columns, n=1)
            hint = f", did you mean {near[0]!r}?" if near else "."
            raise TableError(f"{path} has no column {name!r}{hint} It has {_listed(columns)}")


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
    step = max(1, _BLOCK // max(1, X.shape[1]))
    for start in range(0, len(X), step):
        block = X[start : start + step]
        finite = np.isfinite(block)
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            raise TableError(
                f"{path}: row {start + row + 1}, column {names[column]!r} is {block[row, column]}, not a finite number"
            )


def _check_memory(path: Path, needed: float) -> None:
    available = psutil.virtual_memory().available
    if needed > available:
        raise TableError(
            f"{path} needs about {needed / 1e9:.1f} GB of memory, {available / 1e9:.1f} GB are available: choose fewer "
            "columns, store float32, or save it by numpy.savez, whose uncompressed arrays are not read into memory"
        )


def _integers_if_plain(values: pd.Series) -> pd.Series:
    """Return text as integers if that loses nothing: 7 does not stand for 007."""
    numbers = pd.to_numeric(values, errors="coerce")
    plain = pd.api.types.is_integer_dtype(numbers) and bool((numbers.astype(str) == values).all())
    return numbers if plain else values


def _raw(values: pd.Series) -> NDArray[Any]:
    return values.to_numpy() if pd.api.types.is_numeric_dtype(values) else values.to_numpy(dtype=object)


def _paths(names: pd.Series, folder: Path) -> NDArray[Any]:
    return np.array(["" if pd.isna(name) or name == "" else str(folder / str(name)) for name in names], dtype=object)


def _expanded(name: str, width: int) -> list[str]:
    return [f"{name}_{i}" for i in range(width)]


def _listed(names: Iterable[str], most: int = 12) -> str:
    names = list(names)
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + rest


def check_output(path: str | PathLike[str], suffixes: Sequence[str] = (".parquet", ".csv")) -> Path:
    """Refuse, before any work is done, a path that could not be written in the end."""
    path = Path(path)
    if path.suffix.lower() not in suffixes:
        raise TableError(f"{path}: cannot write {path.suffix or 'a file without suffix'!r}; want {_listed(suffixes)}")
    if path.is_dir():
        raise TableError(f"{path} is a directory")
    if not path.parent.is_dir():
        raise TableError(f"{path}: the directory {path.parent} does not exist")
    return path


def write_frame(frame: pd.DataFrame, path: str | PathLike[str]) -> None:
    """Write a frame, without its index, as ``.parquet`` or ``.csv``; all of it or nothing."""
    path = check_output(path)
    with _replacing(path) as temporary:
        if path.suffix.lower() == ".parquet":
            frame.to_parquet(temporary, index=False)
        else:
            frame.to_csv(temporary, index=False)


def write_text(path: str | PathLike[str], text: str) -> None:
    """Write a text as UTF-8; all of it or nothing."""
    with _replacing(Path(path)) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """Yield a name beside ``path`` that takes its place on success and is gone otherwise."""
    temporary = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
