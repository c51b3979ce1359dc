"""File formats of tables: CSV, parquet and npz, opened by their headers and read column by column."""

import csv
import gzip
import re
import struct
import zipfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import csv as arrow_csv

from okapi.messages import listed

Kind = Literal["number", "matrix", "category", "text", "other"]
BLOCK = 2**23  # values read or checked at a time
_BYTES_A_LABEL = 64
_GZIP_RATIO = 5
_MOST_CATEGORIES = 20
_LONGEST_LINE = 2**26  # characters of a header; a file without line breaks is not read to its end
_READ_LESS = (
    "choose fewer columns, store float32, or save it by numpy.savez, whose uncompressed arrays are not read into memory"
)
_RAGGED = re.compile(r"(?:Row #(\d+): )?Expected (\d+) columns, got (\d+)")


class TableError(ValueError):
    """A file that cannot be read or written as a table. The message names the file and, where there is one, the row."""


def open_source(path: Path) -> "Source":
    """Open a file and read no more than its header."""
    sources: dict[str, type[Source]] = {".csv": _Csv, ".csv.gz": _Csv, ".parquet": _Parquet, ".npz": _Npz}
    kind = next((source for suffix, source in sources.items() if path.name.lower().endswith(suffix)), None)
    if path.is_dir():
        raise TableError(f"{path} is a directory; a file is wanted ({listed(sources)})")
    if kind is None:
        raise TableError(f"{path}: cannot read {path.suffix or 'a file without suffix'!r}; want {listed(sources)}")
    if not path.exists():
        raise TableError(f"{path} does not exist")
    if path.stat().st_size == 0:
        raise TableError(f"{path} is empty")
    with _reading(path):
        source = kind(path)
    if twice := [name for name, count in Counter(source.columns).items() if count > 1]:
        raise TableError(f"{path} has more than one column named {listed(twice)}")
    return source


class _Csv:
    """Text: what a column holds is known only once it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = 0
        self.covariates = pd.DataFrame()
        # The column without a name is an index that pandas saved.
        self.columns: list[str] = [name for name in _csv_header(path) if name]

    def labels(self, names: list[str]) -> pd.DataFrame:
        if set(names) <= set(self.covariates):
            return self.covariates[names]
        frame: pd.DataFrame = self._parse(names, dict.fromkeys(names, pa.string())).to_pandas()
        self.rows = len(frame)
        return frame.apply(_integers_if_plain)

    def kinds(self, names: list[str]) -> dict[str, Kind]:
        text = self.path.stat().st_size * (_GZIP_RATIO if self.path.suffix == ".gz" else 1)
        check_memory(self.path, text + 2 * 8 * self.rows * len(names))  # columns and array, 8 bytes a number
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
        try:
            with _reading(self.path):
                return arrow_csv.read_csv(
                    self.path,
                    read_options=arrow_csv.ReadOptions(use_threads=False),  # with threads a ragged row has no number
                    parse_options=arrow_csv.ParseOptions(newlines_in_values=True),
                    # No cell is missing by its word: "NA" is also Namibia.
                    convert_options=arrow_csv.ConvertOptions(include_columns=names, column_types=types, null_values=[]),
                )
        except TableError as error:
            # Arrow's handler of such rows would do, but for those that are not UTF-8.
            if not (ragged := _RAGGED.search(str(error))):
                raise
            row, expected, actual = ragged.groups()
            place = f"{self.path}: row {int(row) - 1}" if row else f"{self.path}: a row"  # the header was row 1
            raise TableError(f"{place} has {actual} cells, the header {expected}") from error


def _csv_header(path: Path) -> list[str]:
    """Return the names of the columns, read without Arrow, whose reading ahead may outlive the process's end."""
    opened = gzip.open if path.suffix.lower() == ".gz" else open
    with opened(path, "rt", encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        lines = iter(lambda: file.readline(_LONGEST_LINE), "")
        try:
            names = next((row for row in csv.reader(lines) if row), None)
        except csv.Error as error:
            raise TableError(f"{path} cannot be read: its header is no CSV, {error}") from error
    if names is None:
        raise TableError(f"{path} cannot be read: it has no header")
    for column, name in enumerate(names):
        try:
            name.encode()
        except UnicodeEncodeError as error:
            byte = ord(name[error.start]) - 0xDC00  # as surrogateescape has it
            place = f"{path} cannot be read: the name of column {column + 1} is not UTF-8"
            raise TableError(f"{place}, it holds the byte 0x{byte:02x}") from error
    return names


class _Parquet:
    """Columns with types; read in batches into the final array, so that nothing is held twice."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = pq.ParquetFile(path, memory_map=True)
        self.schema = self.file.schema_arrow
        self.columns: list[str] = [name for name in self.schema.names if not name.startswith("__index_level_")]

    def labels(self, names: list[str]) -> pd.DataFrame:
        if nested := [name for name in names if pa.types.is_nested(self.schema.field(name).type)]:
            raise TableError(f"{self.path}: column {listed(nested)} holds lists, one value a row is wanted")
        check_memory(self.path, _BYTES_A_LABEL * self.file.metadata.num_rows * len(names))
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
        check_memory(self.path, values * dtype.itemsize)
        X, start, widths = np.empty((0, 0), dtype), 0, dict.fromkeys(names, 1)
        with _reading(self.path):
            for batch in self.file.iter_batches(max(1, BLOCK * rows // max(values, 1)), columns=names):
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
            raise TableError(f"{self.path} holds several 2-D arrays, {listed(matrices)}: choose by columns")
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
        check_memory(self.path, len(expanded) * len(arrays[0]) * dtype.itemsize)
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
            check_memory(self.path, member.nbytes)
            with zipfile.ZipFile(self.path) as archive, archive.open(member.info) as file:
                array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
                return array


Source: TypeAlias = _Csv | _Parquet | _Npz


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


def check_memory(path: Path, needed: float, task: str = "", advice: str = _READ_LESS) -> None:
    """Refuse what needs more memory, in bytes, than there is."""
    available = psutil.virtual_memory().available
    if needed > available:
        has = f"needs about {needed / 1e9:.1f} GB of memory{task}, {available / 1e9:.1f} GB are available"
        raise TableError(f"{path} {has}: {advice}")


def _integers_if_plain(values: pd.Series) -> pd.Series:
    """Return text as integers if that loses nothing: 7 does not stand for 007."""
    numbers = pd.to_numeric(values, errors="coerce")
    plain = pd.api.types.is_integer_dtype(numbers) and bool((numbers.astype(str) == values).all())
    return numbers if plain else values


def _expanded(name: str, width: int) -> list[str]:
    return [f"{name}_{i}" for i in range(width)]
