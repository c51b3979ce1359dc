"""Table files: CSV, TSV, parquet, feather, npz and xlsx, opened by their headers and read column by column."""

import csv
import gzip
import io
import os
import re
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from os import PathLike
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

from okapi.files import NEW, replacing
from okapi.messages import did_you_mean, listed

Kind = Literal["number", "boolean", "category", "text", "matrix", "date", "other"]
"""What a column holds; "matrix" is a list of numbers in each row, or a 2-D array."""
Place: TypeAlias = Callable[[int, str], str]
"""Row and column in, what an error calls that cell out."""

NUMERIC = ("number", "boolean", "matrix")
TEXT_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
SUFFIXES = (*TEXT_SUFFIXES, ".parquet", ".feather", ".npz", ".xlsx")
MOST_CATEGORIES = 20  # texts with more values are no categories unless they are named
BLOCK = 2**23  # values read or checked at a time
_SEPARATORS = (",", ";", "\t", "|")
_SNIFFED = 50  # rows
_ROWS = 2**16  # of a batch in which text is looked at
_MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", ".")  # among numbers; among names NA is Namibia
_TRUTH = {"1": 1.0, "1.0": 1.0, "true": 1.0, "0": 0.0, "0.0": 0.0, "false": 0.0}
_DATE = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}([ T]\d{1,2}:\d{2}.*)?")
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_RAGGED = re.compile(r"(?:Row #(\d+): )?Expected (\d+) columns, got (\d+)")
_BYTES_A_LABEL = 64
_GZIP_RATIO = 5
_LONGEST_LINE = 2**26  # characters; a file without line breaks is not read to its end
_READ_LESS = (
    "choose fewer columns, store float32, or save it by numpy.savez, whose uncompressed arrays are not read into memory"
)


class TableError(ValueError):
    """A file that cannot be read or written as a table. The message names the file and, where there is one, the row."""


class CellError(TableError):
    """Cells that cannot be used. The message is of the first.

    Parameters
    ----------
    bad : array (n,), bool
        Which rows, of those that were asked for, hold one.
    reason : callable
        Row in, what is said of it out.
    """

    def __init__(self, bad: NDArray[np.bool_], reason: Callable[[int], str]) -> None:
        self.bad, self.reason = bad, reason
        count = int(bad.sum())
        super().__init__(reason(int(bad.argmax())) + (f" ({count:,} such rows)" if count > 1 else ""))


def reject_cells(bad: NDArray[np.bool_], values: pd.Series, place: Place, wrong: str) -> None:
    """Raise a CellError if there are bad cells in a column; ``wrong`` ends the sentence, and {} in it is the cell."""
    if bad.any():
        name = str(values.name)

        def reason(row: int) -> str:
            cell = repr(str(values.iloc[row])) if "{}" in wrong else ""
            return place(row, name) + wrong.replace("{}", cell)

        raise CellError(bad, reason)


def open_table(path: str | PathLike[str], separator: str | None = None) -> "TableFile":
    """Open a table file and read no more than its header.

    Parameters
    ----------
    path : path
        One of ``SUFFIXES``. An xlsx file needs openpyxl, the extra "excel"; its first sheet is read.
    separator : str, optional
        Of a CSV file; by default the one of ``, ; tab |`` that its first rows agree on.
    """
    path = Path(path)
    suffix = next((suffix for suffix in SUFFIXES if path.name.lower().endswith(suffix)), None)
    if path.is_dir():
        raise TableError(f"{path} is a directory; a file is wanted ({listed(SUFFIXES)})")
    if suffix is None:
        raise TableError(f"{path}: cannot read {path.suffix or 'a file without suffix'!r}; want {listed(SUFFIXES)}")
    if not path.exists():
        raise TableError(f"{path} does not exist")
    if path.stat().st_size == 0:
        raise TableError(f"{path} is empty")
    file: TableFile
    with _reading(path):
        if suffix == ".npz":
            file = NpzFile(path)
        elif suffix in (".parquet", ".feather"):
            file = _ArrowFile(path)
        else:
            file = _CsvFile(path, separator)
    if twice := [name for name, count in Counter(file.columns).items() if count > 1]:
        raise TableError(f"{path} has more than one column named {listed(twice)}")
    return file


class TableFile:
    """A table of named columns: an Arrow table in memory, as it is; files are subclasses.

    Parameters
    ----------
    table : pyarrow.Table
    called : str
        What errors call it.
    first : int
        What errors call the first row.
    """

    first = 1
    strict = True  # a cell that is no number is an error; else it is missing

    def __init__(self, table: Any, called: str, first: int = 1) -> None:
        self.path, self.first = Path(called), first
        self.table, self.columns = table, list(table.schema.names)

    def place(self, row: int, column: str) -> str:
        """Return what errors call a cell."""
        return f"{self.path}: row {row + self.first}, column {column!r}"

    def labels(self, names: Sequence[str]) -> pd.DataFrame:
        """Return columns of one value a row, as the file has them; whole numbers in text become numbers."""
        frame: pd.DataFrame = self.table.select(list(names)).to_pandas(ignore_metadata=True)
        return frame

    def kinds(self, names: Iterable[str]) -> dict[str, Kind]:
        """Return what columns hold; text is looked at, and may be numbers, dates or categories."""
        rows, kinds = self._rows(), {}
        for name in names:
            kind = _arrow_kind(self._type(name))
            texts = (batch.column(name).to_pandas() for batch in self._batches([name], _ROWS))
            kinds[name] = text_kind(texts, rows) if kind == "text" else kind
        return kinds

    def numbers(self, names: Sequence[str]) -> tuple[NDArray[np.floating[Any]], list[str]]:
        """Return columns of numbers as one array (n, d), and d names; a missing value is NaN.

        A list column ``e`` becomes ``e_0``, ``e_1``, ... Read in batches into the final array.
        """
        rows, types = self._rows(), {name: self._type(name) for name in names}
        widths = {name: self._width(name) if _arrow_kind(types[name]) == "matrix" else 1 for name in names}
        dtype = np.result_type(np.float32, *(_arrow_dtype(type_) for type_ in types.values()))
        total = sum(widths.values())
        check_memory(self.path, rows * total * dtype.itemsize)
        X, start = np.empty((rows, total), dtype), 0
        with _reading(self.path):
            for batch in self._batches(names, max(1, BLOCK // max(total, 1))):
                place = _shifted(self.place, start) if self.strict else None
                blocks = [_block(batch.column(name), name, widths[name], place) for name in names]
                np.concatenate(blocks, axis=1, out=X[start : start + len(batch)], casting="unsafe")
                start += len(batch)
        lists = [name for name in names if _arrow_kind(types[name]) == "matrix"]
        return X, [part for name in names for part in (_expanded(name, widths[name]) if name in lists else [name])]

    def default(self, kinds: Mapping[str, Kind]) -> dict[str, Kind]:
        """Return the columns that are covariates where nobody says which: numbers, booleans, lists and categories."""
        return {name: kind for name, kind in kinds.items() if kind in (*NUMERIC, "category")}

    def _width(self, name: str) -> int:
        for batch in self._batches([name], _ROWS):
            lengths = pc.list_value_length(batch.column(name)).drop_null()
            if len(lengths):
                return int(lengths[0].as_py())
        return 0

    def _rows(self) -> int:
        return int(self.table.num_rows)

    def _type(self, name: str) -> Any:
        return self.table.schema.field(name).type

    def _batches(self, names: Sequence[str], size: int) -> Iterator[Any]:
        yield from self.table.select(list(names)).combine_chunks().to_batches(size)


class _ArrowFile(TableFile):
    """Parquet or feather: columns with types, mapped into memory where they can be."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.parquet = path.suffix.lower() == ".parquet"
        self.file = (
            pq.ParquetFile(path, memory_map=True) if self.parquet else pa.ipc.open_file(pa.memory_map(str(path)))
        )
        self.schema = self.file.schema_arrow if self.parquet else self.file.schema
        self.columns = [name for name in self.schema.names if not name.startswith("__index_level_")]

    def labels(self, names: Sequence[str]) -> pd.DataFrame:
        names = list(names)
        if nested := [name for name in names if pa.types.is_nested(self._type(name))]:
            raise TableError(f"{self.path}: column {listed(nested)} holds lists, one value a row is wanted")
        check_memory(self.path, _BYTES_A_LABEL * self._rows() * len(names))
        with _reading(self.path):
            schema = pa.schema([self.schema.field(name) for name in names])
            batches = [batch.select(names) for batch in self._batches(names, _ROWS)]
            frame: pd.DataFrame = pa.Table.from_batches(batches, schema).to_pandas(ignore_metadata=True)
        return frame

    def default(self, kinds: Mapping[str, Kind]) -> dict[str, Kind]:
        """Return the columns whose types say that they are covariates: text does not."""
        typed = {name: kind for name, kind in kinds.items() if _arrow_kind(self._type(name)) != "text"}
        return super().default(typed)

    def _rows(self) -> int:
        if self.parquet:
            return int(self.file.metadata.num_rows)
        return sum(self.file.get_batch(number).num_rows for number in range(self.file.num_record_batches))

    def _type(self, name: str) -> Any:
        return self.schema.field(name).type

    def _batches(self, names: Sequence[str], size: int) -> Iterator[Any]:
        if self.parquet:
            yield from self.file.iter_batches(size, columns=list(names))
            return
        included = [self.schema.get_field_index(name) for name in names]
        with pa.memory_map(str(self.path)) as content:
            file = pa.ipc.open_file(content, options=pa.ipc.IpcReadOptions(included_fields=included))
            for number in range(file.num_record_batches):
                yield file.get_batch(number)


class _CsvFile(TableFile):
    """Text: what a column holds is known only once it is read. A sheet of xlsx is read as its CSV."""

    def __init__(self, path: Path, separator: str | None) -> None:
        self.path = path
        self.sheet = _sheet(path) if path.suffix.lower() == ".xlsx" else None
        self.size = len(self.sheet) if self.sheet is not None else path.stat().st_size
        header, self.separator = _csv_header(path, self.sheet, separator)
        # The column without a name is an index that pandas saved.
        self.columns = [name for name in header if name]
        self.table = pa.table({})

    def labels(self, names: Sequence[str]) -> pd.DataFrame:
        names = list(names)
        try:
            frame: pd.DataFrame = self._parse(names, pa.string()).to_pandas()
        except TableError as error:
            if "UTF8" not in str(error):
                raise
            if self.strict:
                raise TableError(self._not_utf8(names)) from error
            frame = self._parse(names, pa.binary()).to_pandas().map(lambda cell: cell.decode(errors="replace"))
        return frame.apply(_integers_if_plain)

    def kinds(self, names: Iterable[str]) -> dict[str, Kind]:
        self._read(list(names))
        return super().kinds(names)

    def numbers(self, names: Sequence[str]) -> tuple[NDArray[np.floating[Any]], list[str]]:
        self._read(list(names))
        return super().numbers(names)

    def _read(self, names: list[str]) -> None:
        """Parse columns that have not been."""
        if not (wanted := [name for name in names if name not in self.table.column_names]):
            return
        text = self.size * (_GZIP_RATIO if self.path.suffix == ".gz" else 1)
        check_memory(self.path, text + 2 * 8 * self.table.num_rows * len(wanted))  # columns and array, 8 bytes a number
        table = self._parse(wanted)
        for name in wanted:
            self.table = self.table.append_column(name, table[name]) if self.table.num_columns else table.select([name])

    def _type(self, name: str) -> Any:
        type_ = super()._type(name)
        return pa.float64() if pa.types.is_null(type_) or pa.types.is_integer(type_) else type_

    def _parse(self, names: list[str], type_: Any = None) -> Any:
        # With threads a ragged row has no number. No label is missing by its word: "NA" is also Namibia.
        convert = arrow_csv.ConvertOptions(
            include_columns=names,
            column_types=dict.fromkeys(names, type_) if type_ is not None else None,
            null_values=[""] if type_ is None else [],
            strings_can_be_null=type_ is None,
        )
        try:
            with _reading(self.path):
                return arrow_csv.read_csv(
                    self.path if self.sheet is None else pa.BufferReader(self.sheet),
                    read_options=arrow_csv.ReadOptions(use_threads=False),
                    parse_options=arrow_csv.ParseOptions(delimiter=self.separator, newlines_in_values=True),
                    convert_options=convert,
                )
        except TableError as error:
            # Arrow's handler of such rows would do, but for those that are not UTF-8.
            if not (ragged := _RAGGED.search(str(error))):
                raise
            row, expected, actual = ragged.groups()
            place = f"{self.path}: row {int(row) - 1}" if row else f"{self.path}: a row"  # the header was row 1
            raise TableError(f"{place} has {actual} cells, the header {expected}") from error

    def _not_utf8(self, names: list[str]) -> str:
        """Say which cell is not UTF-8: Arrow says the column only."""
        table = self._parse(names, pa.binary())
        bad = {name: not_utf8(table[name].combine_chunks()) for name in names}
        cell = next((self.place(int(rows.argmax()), name) for name, rows in bad.items() if rows.any()), str(self.path))
        return f"{cell} is not UTF-8"


def _csv_header(path: Path, sheet: bytes | None, separator: str | None) -> tuple[list[str], str]:
    """Return the names of the columns and the separator, without Arrow: its reading ahead may outlive the process."""
    opened: Any = gzip.open if path.suffix.lower() == ".gz" else open
    with opened(path, "rb") if sheet is None else io.BytesIO(sheet) as binary:
        file = io.TextIOWrapper(binary, encoding="utf-8-sig", errors="surrogateescape", newline="")
        line = file.readline(_LONGEST_LINE)
        while line and not line.strip("\r\n"):
            line = file.readline(_LONGEST_LINE)
        lines = [line, *(file.readline(_LONGEST_LINE // _SNIFFED) for _ in range(_SNIFFED))]
    if not line:
        raise TableError(f"{path} cannot be read: it has no header")
    if separator is None and sheet is None:
        separator = "\t" if ".tsv" in path.suffixes[-2:] else _sniffed(lines)
    separator = separator or ","
    try:
        names = next(csv.reader(iter(lines), delimiter=separator))
    except (csv.Error, TypeError) as error:
        raise TableError(f"{path} cannot be read: its header is no CSV, {error}") from error
    for column, name in enumerate(names):
        try:
            name.encode()
        except UnicodeEncodeError as error:
            byte = ord(name[error.start]) - 0xDC00  # as surrogateescape has it
            place = f"{path} cannot be read: the name of column {column + 1} is not UTF-8"
            raise TableError(f"{place}, it holds the byte 0x{byte:02x}") from error
    return names, separator


def _sniffed(lines: list[str]) -> str:
    """Return the separator by which most rows are as wide as the header; of several the one with most columns."""

    def agreement(separator: str) -> tuple[float, int]:
        try:
            widths = [len(row) for row in csv.reader(iter(lines), delimiter=separator) if row][:-1] or [0]
        except csv.Error:
            widths = [0]
        return (sum(width == widths[0] for width in widths) / len(widths), widths[0]) if widths[0] > 1 else (0.0, 0)

    return max(_SEPARATORS, key=agreement)


def _sheet(path: Path) -> bytes:
    """Return the first sheet of an xlsx file as CSV."""
    try:
        frame = pd.read_excel(path, dtype=object, engine="openpyxl", keep_default_na=False)
    except ImportError as error:
        hint = "pip install 'okapi-ssl[excel]'"
        raise TableError(f"{path}: xlsx needs openpyxl, which is not installed: {hint}") from error
    return frame.to_csv(index=False).encode()


class NpzFile(TableFile):
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

    def labels(self, names: Sequence[str]) -> pd.DataFrame:
        """Return 1-D arrays; those that are read later must have as many rows."""
        frame = pd.DataFrame({name: self.array(name, ndim=1) for name in names})
        self.rows = len(frame)
        return frame

    def kinds(self, names: Iterable[str]) -> dict[str, Kind]:
        """Return what arrays hold."""
        kinds = {name: self.members[name].kind for name in names}
        for name in [name for name, kind in kinds.items() if kind == "text"]:
            kinds[name] = text_kind([pd.Series(self.array(name))], self.members[name].shape[0])
        return kinds

    def default(self, kinds: Mapping[str, Kind]) -> dict[str, Kind]:
        """Return the 2-D array, or else the arrays of numbers and booleans."""
        matrices = [name for name, kind in kinds.items() if kind == "matrix"]
        if len(matrices) > 1:
            raise TableError(f"{self.path} holds several 2-D arrays, {listed(matrices)}: choose by columns")
        wanted = ("matrix",) if matrices else ("number", "boolean")
        return {name: kind for name, kind in kinds.items() if kind in wanted}

    def numbers(self, names: Sequence[str]) -> tuple[NDArray[np.floating[Any]], list[str]]:
        """Return arrays as one; a single 2-D array as it is, mapped where it can be."""
        arrays = [self.array(name) for name in names]
        if odd := [name for name, array in zip(names, arrays, strict=True) if len(array) != len(arrays[0])]:
            raise TableError(f"{self.path}: array {odd[0]!r} has {len(self.array(odd[0]))} rows, not {len(arrays[0])}")
        texts = {name for name in names if self.members[name].kind == "text"}
        arrays = [
            to_numbers(pd.Series(array, name=name), self.place) if name in texts else array
            for name, array in zip(names, arrays, strict=True)
        ]
        dtype = np.result_type(np.float32, *(array.dtype for array in arrays))
        expanded = [
            part
            for name, array in zip(names, arrays, strict=True)
            for part in ([name] if array.ndim == 1 else _expanded(name, array.shape[1]))
        ]
        if len(arrays) == 1 and arrays[0].ndim == 2 and arrays[0].dtype == dtype:
            return arrays[0], expanded
        check_memory(self.path, len(expanded) * len(arrays[0]) * dtype.itemsize)
        return np.column_stack(arrays).astype(dtype, copy=False), expanded

    def array(self, name: str, ndim: int | None = None) -> NDArray[Any]:
        """Return an array of any shape; a read-only memory map where the file allows it."""
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

    def _header(self, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> "_Member":
        with archive.open(info) as file:
            old = np.lib.format.read_magic(file) == (1, 0)
            read = np.lib.format.read_array_header_1_0 if old else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = read(file)
            member = _Member(info, shape, "F" if fortran else "C", dtype, file.tell())
        if not dtype.hasobject and member.start + member.nbytes != info.file_size:
            raise TableError(f"{self.path}: array {info.filename!r} is cut short")
        return member


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
            return "matrix" if len(self.shape) == 2 else "boolean" if self.dtype.kind == "b" else "number"
        one = len(self.shape) == 1
        return "text" if self.dtype.kind == "U" and one else "date" if self.dtype.kind == "M" and one else "other"

    def map(self, path: Path) -> NDArray[Any]:
        with path.open("rb") as file:
            file.seek(self.info.header_offset + 26)
            name, extra = struct.unpack("<HH", file.read(4))  # lengths in the local header, which may differ
        offset = self.info.header_offset + 30 + name + extra + self.start
        return np.memmap(path, self.dtype, "r", offset, self.shape, self.order)


# Columns


def check_names(called: str | Path, columns: Sequence[str], wanted: Iterable[str]) -> None:
    """Reject a column that is not there, and say which is meant."""
    for name in wanted:
        if name not in columns:
            hint = did_you_mean(name, columns) or "."
            raise TableError(f"{called} has no column {name!r}{hint} It has {listed(columns)}")


def choose_columns(file: TableFile, wanted: Iterable[str], taken: Collection[str] = ()) -> list[str]:
    """Return the columns that names and patterns stand for, each once.

    ``price_*`` stands for all that match, but for those ``taken`` by other roles; ``encoding_{0..63}`` for 64 columns,
    all of which must be there; ``all`` for all numbers, booleans, lists and categories that have no other role.

    Examples
    --------
    >>> file = TableFile(pa.table({"x_0": [1], "x_1": [2], "y": [0]}), "t.csv")
    >>> choose_columns(file, ["x_{0..1}"]), choose_columns(file, ["all"], taken=["y"])
    (['x_0', 'x_1'], ['x_0', 'x_1'])
    """
    free = [name for name in file.columns if name not in taken]
    chosen: list[str] = []
    for name in wanted:
        if name in file.columns:
            chosen.append(name)
        elif span := _RANGE.search(name):
            numbers = range(int(span[1]), int(span[2]) + 1)
            named = [f"{name[: span.start()]}{number}{name[span.end() :]}" for number in numbers]
            check_names(file.path, file.columns, named)
            chosen += named
        elif name == "all":
            chosen += [column for column, kind in file.kinds(free).items() if kind in (*NUMERIC, "category")]
        elif any(mark in name for mark in "*?["):
            matching = [column for column in free if fnmatchcase(column, name)]
            if not matching:
                raise TableError(f"{file.path} has no column like {name!r}. It has {listed(file.columns)}")
            chosen += matching
        else:
            check_names(file.path, file.columns, [name])
    return list(dict.fromkeys(chosen))


def text_kind(parts: Iterable[pd.Series], rows: int) -> Kind:
    """Return what a column of text, in parts, holds; if half of the first part is numbers, all of it must be."""
    distinct: set[str] = set()
    for number, values in enumerate(parts):
        known = values[~missing(values)].astype(str)
        plain = known[~known.isin(_MISSING)]
        if number == 0 and len(plain):
            if pd.to_numeric(plain, errors="coerce").notna().mean() >= 0.5:
                return "number"
            if plain.str.fullmatch(_DATE).all():
                return "date"
        distinct.update(known.unique())
        if len(distinct) > MOST_CATEGORIES:
            return "text"
    return "category" if 1 < len(distinct) < rows / 2 else "text"


def to_numbers(values: pd.Series, place: Place) -> NDArray[np.float64]:
    """Return a column as numbers; a missing cell is NaN, and one that holds something else is named by ``place``."""
    numbers, bad = number_cells(values)
    reject_cells(bad, values, place, ": {} is not a finite number")
    return numbers


def number_cells(values: pd.Series) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return a column as numbers, NaN where there is none, and which cells hold something else."""
    empty = values.isna().to_numpy() | values.isin(_MISSING).to_numpy()
    numbers = _as_numbers(values.mask(empty))
    return numbers, ~np.isfinite(numbers) & ~empty


def to_truth(values: pd.Series, place: Place) -> NDArray[np.float64]:
    """Return a column of 0 and 1, or of false and true; an empty cell is NaN."""
    truth = np.asarray(values.astype(str).str.lower().map(_TRUTH), dtype=np.float64)
    reject_cells(np.isnan(truth) & ~missing(values), values, place, " must be 0 or 1, got {}")
    return truth


def missing(values: pd.Series) -> NDArray[np.bool_]:
    """Return which cells are empty."""
    return (values.isna() | values.isin([""])).to_numpy(dtype=bool)


def present(values: pd.Series, place: Place) -> pd.Series:
    """Return a column as it is; empty cells are rejected."""
    reject_cells(missing(values), values, place, " is missing")
    return values


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
    names, places = np.unique(np.where(known, given, given[known.argmax()]), return_inverse=True)
    return tuple(str(value) for value in names.tolist()), places.astype(np.int64)


def not_utf8(array: Any) -> NDArray[np.bool_]:
    """Return which rows of an Arrow array of text or bytes are not UTF-8."""
    bad = np.zeros(len(array), dtype=bool)
    try:
        array.cast(pa.large_string()).validate(full=True)
    except pa.ArrowInvalid:
        for row, value in enumerate(array.cast(pa.large_binary())):
            try:
                (value.as_py() or b"").decode()
            except UnicodeDecodeError:
                bad[row] = True
    return bad


def check_finite(X: NDArray[np.floating[Any]], names: Sequence[str], place: Place) -> None:
    """Reject NaN and infinity, block by block."""
    step = max(1, BLOCK // max(1, X.shape[1]))
    for start in range(0, len(X), step):
        block = X[start : start + step]
        finite = np.isfinite(block)
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            value = block[row, column]
            wrong = "is missing" if np.isnan(value) else f"is {value}, not a finite number"
            raise TableError(f"{place(start + int(row), names[column])} {wrong}")


def check_memory(path: Path, needed: float, task: str = "", advice: str = _READ_LESS) -> None:
    """Reject what needs more memory, in bytes, than there is."""
    available = psutil.virtual_memory().available
    if needed > available:
        has = f"needs about {needed / 1e9:.1f} GB of memory{task}, {available / 1e9:.1f} GB are available"
        raise TableError(f"{path} {has}: {advice}")


def _block(array: Any, name: str, width: int, place: Place | None) -> NDArray[Any]:
    """Return a batch of one column as numbers, (rows, width)."""
    kind = _arrow_kind(array.type)
    if kind == "text":
        values = array.to_pandas().rename(name)
        return (number_cells(values)[0] if place is None else to_numbers(values, place))[:, None]
    if kind == "matrix":
        lengths = pc.list_value_length(array).fill_null(width).to_numpy()
        if len(odd := np.flatnonzero(lengths != width)):
            cell = place(int(odd[0]), name) if place is not None else f"column {name!r}"
            raise TableError(f"{cell} holds {lengths[odd[0]]} values, the first row {width}")
        values = array.flatten().to_numpy(zero_copy_only=False).reshape(len(array) - array.null_count, width)
        if not array.null_count:
            return np.asarray(values)
        block = np.full((len(array), width), np.nan)
        block[array.is_valid().to_numpy(zero_copy_only=False)] = values
        return block
    if array.null_count or pa.types.is_decimal(array.type):
        array = array.cast(pa.float64(), safe=False)
    return np.asarray(array.to_numpy(zero_copy_only=False)).reshape(-1, 1)


def _shifted(place: Place, start: int) -> Place:
    return lambda row, column: place(start + row, column)


def _arrow_kind(type_: Any) -> Kind:
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        return "matrix" if _arrow_kind(type_.value_type) in ("number", "boolean") else "other"
    if pa.types.is_dictionary(type_):
        return "category"
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return "text"
    if pa.types.is_boolean(type_):
        return "boolean"
    number = pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal
    return "number" if any(test(type_) for test in number) else "date" if pa.types.is_temporal(type_) else "other"


def _arrow_dtype(type_: Any) -> np.dtype[Any]:
    type_ = type_.value_type if _arrow_kind(type_) == "matrix" else type_
    exact = _arrow_kind(type_) == "text" or pa.types.is_decimal(type_)
    return np.dtype(np.float64 if exact else type_.to_pandas_dtype())


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Name the file in whatever a library says of one it cannot read."""
    try:
        yield
    except TableError:
        raise
    except (OSError, EOFError, ValueError, RuntimeError, zlib.error, zipfile.BadZipFile, pa.ArrowException) as error:
        raise TableError(f"{path} cannot be read: {str(error).strip().splitlines()[0]}") from error


def _integers_if_plain(values: pd.Series) -> pd.Series:
    """Return text as integers if that loses nothing: 7 does not stand for 007."""
    numbers = pd.to_numeric(values, errors="coerce")
    plain = pd.api.types.is_integer_dtype(numbers) and bool((numbers.astype(str) == values).all())
    return numbers if plain else values


def _as_numbers(values: pd.Series) -> NDArray[np.float64]:
    return pd.to_numeric(values, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)


def _expanded(name: str, width: int) -> list[str]:
    return [f"{name}_{i}" for i in range(width)]


# Writing


def check_output(path: str | PathLike[str], suffixes: Sequence[str] = (".parquet", ".csv")) -> Path:
    """Reject, before any work is done, a path that could not be written in the end."""
    path = Path(path)
    if path.suffix.lower() not in suffixes:
        raise TableError(f"{path}: cannot write {path.suffix or 'a file without suffix'!r}; want {listed(suffixes)}")
    if path.is_dir():
        raise TableError(f"{path} is a directory")
    if not path.parent.is_dir():
        raise TableError(f"{path}: the directory {path.parent} does not exist")
    probe = path.with_name(f".{path.name}{NEW}")
    try:
        probe.touch()
        probe.unlink()
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
        for path, content in files.items():
            try:
                _write(content, path, stack.enter_context(replacing(path)))
            except OSError as error:  # names the file that is wanted, not the temporary one
                reason = os.strerror(error.errno) if error.errno else str(error)
                raise OSError(f"{path} cannot be written: {reason}") from error


def _write(content: pd.DataFrame | str, path: Path, temporary: Path) -> None:
    if isinstance(content, str):
        temporary.write_text(content, encoding="utf-8")
        return
    check_output(path)
    if path.suffix.lower() == ".parquet":
        content.to_parquet(temporary, index=False)
    else:
        content.to_csv(temporary, index=False)
