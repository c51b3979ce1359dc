"""Tables that a run appends to and that a resumed run continues where its checkpoint says."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from okapi.files import errors_name

METRICS = ("step", "split", "figure", "value")
TIMINGS = ("step", "seconds", "images_per_second", "seconds_waiting_for_data")


class CsvLog:
    """A CSV file to which rows are appended, each at once.

    Numbers are written so that reading them gives the same bits.

    Parameters
    ----------
    path : Path
    columns : sequence of str
        Of a new file.
    length : int, optional
        Continue the file that is there after so many bytes; what comes later was written after the checkpoint. By
        default the file is begun anew.

    Raises
    ------
    ValueError
        Where the file is shorter than ``length``.
    """

    def __init__(self, path: Path, columns: Sequence[str], length: int | None = None) -> None:
        self._path = path
        there = path.stat().st_size if path.exists() else 0
        if length is not None and there < length:
            raise ValueError(f"{path} has {there} bytes, the checkpoint was made when it had {length}")
        with errors_name(path):
            self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            os.ftruncate(self._handle, length or 0)
        if length is None:
            self.write([columns])

    def write(self, rows: Iterable[Sequence[int | float | str]]) -> None:
        """Append rows."""
        text = "".join(",".join(map(_cell, row)) + "\n" for row in rows)
        left = memoryview(text.encode())
        with errors_name(self._path):
            while left:
                left = left[os.write(self._handle, left) :]

    def sync(self) -> int:
        """Wait until all rows are on the disk; return the length of the file."""
        with errors_name(self._path):
            os.fsync(self._handle)
            return os.fstat(self._handle).st_size

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)


def _cell(value: int | float | str) -> str:
    if isinstance(value, float):
        return repr(value)
    text = str(value)
    return f'"{text.replace(chr(34), chr(34) * 2)}"' if set(text) & set(',"\n\r') else text
