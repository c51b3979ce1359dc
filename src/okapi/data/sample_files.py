"""Files of samples: whether they are there, read in threads, named where they are broken, cached in one mapped file."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from okapi.console import Counting, say
from okapi.files import locked, remove, replacing, write_json

_Item = TypeVar("_Item")
_AT_A_TIME = 256  # results that wait to be used
_NAMED = 12  # broken files that an error names


class ImageError(ValueError):
    """Images that cannot be used; the message names the files."""


def reject(faults: Mapping[int, str], total: int) -> None:
    """Raise an ImageError that says how many images cannot be used, and why the first; none is fine."""
    if faults:
        sentences = [faults[row] for row in sorted(faults)]
        more = [f"... and {len(sentences) - _NAMED} more"] if len(sentences) > _NAMED else []
        lines = "\n  ".join([*sentences[:_NAMED], *more])
        raise ImageError(
            f"{len(sentences)} of {total} images cannot be used:\n  {lines}\nTo train without them: unreadable: skip"
        )


def leads_out(name: str) -> bool:
    """Return whether a path, taken from a folder, ends outside of it."""
    if os.pardir not in name and name[:1].isalnum() and ":" not in name:  # most are, and there may be a million
        return False
    path = Path(os.path.normpath(name))
    return path.is_absolute() or path.parts[:1] == (os.pardir,)


def missing_files(root: Path, names: Sequence[str]) -> dict[int, str]:
    """Return a sentence for each file that is not there, by its row; every folder is listed once, which is quicker."""
    files_in: dict[str, set[str]] = {}
    missing = {}
    for row, name in enumerate(names):
        folder, file = os.path.split(name)
        if folder not in files_in:
            place = root / folder
            files_in[folder] = {path.name for path in place.iterdir()} if place.is_dir() else set()
        if file not in files_in[folder]:
            missing[row] = f"{root / name} does not exist"
    return missing


def find_faults(read: Callable[[int], object], rows: int, doing: str = "") -> dict[int, str]:
    """Return what ImageError says of each row that cannot be read; ``doing`` as in ``in_threads``."""

    def fault(row: int) -> str:
        try:
            read(row)
        except ImageError as error:
            return str(error)
        return ""

    return {row: reason for row, reason in enumerate(in_threads(fault, rows, doing)) if reason}


def in_threads(read: Callable[[int], _Item], rows: int, doing: str = "", things: str = "images") -> Iterator[_Item]:
    """Yield ``read(row)`` of each row, in order, read by several threads a little ahead.

    ``doing`` says what is being done, before a count of how far it is; where it is empty nothing is shown.
    """
    if not doing:
        yield from _read_ahead(read, rows)
        return
    say(f"{doing}: {rows:,}")
    with Counting(0, rows, things) as counting:
        for result in _read_ahead(read, rows):
            yield result
            counting.add(1)


def _read_ahead(read: Callable[[int], _Item], rows: int) -> Iterator[_Item]:
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for start in range(0, rows, _AT_A_TIME):
            yield from pool.map(read, range(start, min(start + _AT_A_TIME, rows)))


def key_of(root: Path, names: Sequence[str], *parts: object) -> str:
    """Return a key of files as they are now, and of other parts: another one where a file has changed."""
    digest = hashlib.sha256(repr(parts).encode())
    for name in names:
        try:
            state = (root / name).stat()
            digest.update(f"{name}\0{state.st_size}\0{state.st_mtime_ns}\0".encode(errors="surrogateescape"))
        except FileNotFoundError:
            digest.update(f"{name}\0missing\0".encode(errors="surrogateescape"))
    return digest.hexdigest()[:24]


class ArrayCache:
    """Arrays of one shape, as many as there are files, in a ``.npy`` file that is mapped, not read.

    Parameters
    ----------
    folder : path
        Where the file is, or will be; it is made if need be.
    key : str
        By what the file is called: another key for whatever gives other arrays.
    shape : tuple of int
        Of all arrays together, the first number being how many.
    dtypes : sequence of str
        Which types of number the file may hold.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     cache = ArrayCache(folder, "squares", (3, 1), ("int64",))
    ...     cache.build(lambda row: np.array([row**2]), "int64")
    ...     int(cache[2][0])
    4
    """

    def __init__(self, folder: str | os.PathLike[str], key: str, shape: tuple[int, ...], dtypes: Sequence[str]) -> None:
        self.path = Path(folder) / f"{key}.npy"
        self.shape, self.dtypes = shape, tuple(dtypes)
        self._mapped: NDArray[Any] | None = None

    def __getitem__(self, row: int) -> NDArray[Any]:
        if self._mapped is None:
            self._mapped = np.load(self.path, mmap_mode="r", allow_pickle=False)
        return np.array(self._mapped[row])

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_mapped": None}  # a pickled map would be all of its numbers

    def usable(self) -> bool:
        """Return whether the file is there and whole: of the right shape, type and length."""
        try:
            mapped = np.load(self.path, mmap_mode="r", allow_pickle=False)
        except (OSError, EOFError, ValueError):
            return False
        return mapped.shape == self.shape and mapped.dtype.name in self.dtypes

    def faults(self) -> dict[int, str]:
        """Return why rows could not be read, which the file has zeros for; it lies beside the file where there are."""
        path = self._faults_path
        return {int(row): reason for row, reason in json.loads(path.read_text()).items()} if path.exists() else {}

    def build(
        self, read: Callable[[int], NDArray[Any]], dtype: str, doing: str = "", unreadable: str = "error"
    ) -> None:
        """Fill the file, all of it or nothing; of several processes that ask for it one builds and the others wait.

        Parameters
        ----------
        read : callable
            Row in, array out; called in several threads. If it raises anything but an ImageError, nothing is kept.
        dtype : str
            What type of number the file is to hold.
        doing : str
            As in ``in_threads``.
        unreadable : {"error", "skip"}
            Rows of which ``read`` raises an ImageError: they are named by an ImageError when all were read, and nothing
            is kept; or they are kept as zeros and ``faults`` tells them.
        """
        faults: dict[int, str] = {}

        def array(row: int) -> NDArray[Any]:
            try:
                return read(row)
            except ImageError as error:
                faults[row] = str(error)
                return np.zeros(1, dtype=dtype)

        self.path.parent.mkdir(parents=True, exist_ok=True)
        with locked(self.path.parent):
            if self.usable():
                return
            self._check_space(np.dtype(dtype).itemsize)
            with replacing(self.path) as temporary:
                mapped = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.dtype(dtype), shape=self.shape)
                for row, values in enumerate(in_threads(array, self.shape[0], doing)):
                    mapped[row] = values
                mapped.flush()
                del mapped
                remove(self._faults_path)
                if faults and unreadable == "error":
                    reject(faults, self.shape[0])
                if faults:
                    write_json(self._faults_path, {str(row): faults[row] for row in sorted(faults)})

    @property
    def _faults_path(self) -> Path:
        return self.path.with_suffix(".json")

    def _check_space(self, itemsize: int) -> None:
        needed = int(np.prod(self.shape, dtype=object)) * itemsize
        free = shutil.disk_usage(self.path.parent).free
        if needed > free:
            raise OSError(
                f"{self.path.parent} has {free / 1e9:.1f} GB free, a cache of {self.shape} needs {needed / 1e9:.1f} GB"
            )
