"""Tables that a run appends to and that a resumed run continues where its checkpoint says."""

import os
from collections.abc import Iterable, Sequence
from io import StringIO
from pathlib import Path

import pandas as pd

from okapi.files import errors_name

METRICS = ("step", "split", "metric", "value")
TIMINGS = ("step", "seconds", "images_per_second", "seconds_waiting_for_data")


class CsvLog:
    """A CSV file to which rows are appended, each at once.

    Numbers are written so that reading them gives the same bits.

    Parameters
    ----------
    path : Path
    columns : sequence of str
        Of a new file.
    text : str
        What the file holds at first, after a resume; by default it is begun anew, with the columns.
    """

    def __init__(self, path: Path, columns: Sequence[str], text: str = "") -> None:
        self._path = path
        with errors_name(path):
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC, 0o666)
        self._append(text or ",".join(columns) + "\n")

    def write(self, rows: Iterable[Sequence[int | float | str]]) -> None:
        """Append rows."""
        self._append("".join(",".join(map(_cell, row)) + "\n" for row in rows))

    def sync(self) -> str:
        """Wait until all rows are on the disk; return what the file holds."""
        with errors_name(self._path):
            os.fsync(self._handle)
            return os.pread(self._handle, os.fstat(self._handle).st_size, 0).decode()

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)

    def _append(self, text: str) -> None:
        left = memoryview(text.encode())
        with errors_name(self._path):
            while left:
                left = left[os.write(self._handle, left) :]


def rows_until(path: Path, step: int) -> str:
    """Return the columns and the rows up to a step of a log that a run wrote; "" where there are none."""
    frame = read_log(path, TIMINGS, ()) if step else pd.DataFrame()
    number = pd.to_numeric(frame["step"], errors="coerce") if len(frame) else pd.Series(dtype=float)
    return str(frame[number <= step].to_csv(index=False, lineterminator="\n")) if len(frame) else ""


def read_log(path: Path, columns: Sequence[str], numbers: Sequence[str]) -> pd.DataFrame:
    """Return a log, whose last line may be half written and whose lines may have been edited; or an empty one.

    Parameters
    ----------
    path : Path
    columns : sequence of str
    numbers : sequence of str
        Those that hold numbers; a cell that is none is NaN.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
        frame = pd.read_csv(StringIO(text[: text.rfind("\n") + 1]), on_bad_lines="skip", dtype=str)
    except (OSError, ValueError):  # pandas' errors are ValueErrors
        frame = pd.DataFrame()
    if not set(columns) <= set(frame.columns):
        frame = pd.DataFrame({name: [] for name in columns})
    frame = frame[list(columns)]
    for name in numbers:
        frame[name] = pd.to_numeric(frame[name], errors="coerce")
    return frame


def _cell(value: int | float | str) -> str:
    if isinstance(value, float):
        return repr(value)
    text = str(value)
    return f'"{text.replace(chr(34), chr(34) * 2)}"' if set(text) & set(',"\n\r') else text
