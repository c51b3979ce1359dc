"""Arrays that take long to read, kept side by side in one file that is mapped into memory."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

if sys.platform != "win32":
    import fcntl

_AT_A_TIME = 256  # arrays that wait to be written


class ArrayCache:
    """Arrays of one shape, as many as there are samples, in a ``.npy`` file that is mapped, not read.

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

    def build(
        self,
        read: Callable[[int], NDArray[Any]],
        dtype: str,
        what: str = "samples",
        finish: Callable[[], None] | None = None,
    ) -> None:
        """Fill the file, all of it or nothing; of several processes that ask for it one builds and the others wait.

        Parameters
        ----------
        read : callable
            Row in, array out; called in several threads. If it raises, nothing is kept.
        dtype : str
            What type of number the file is to hold.
        what : str
            What the arrays are, for whoever waits.
        finish : callable, optional
            Called when all rows were read. If it raises, nothing is kept.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(self.path.with_suffix(".lock")):
            if self.usable():
                return
            self._check_space(np.dtype(dtype).itemsize)
            temporary = self.path.with_name(f".{self.path.name}.{uuid4().hex}")
            try:
                mapped = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.dtype(dtype), shape=self.shape)
                for row, array in enumerate(in_threads(read, self.shape[0], f"Caching {what} in {self.path.parent}")):
                    mapped[row] = array
                if finish is not None:
                    finish()
                mapped.flush()
                del mapped
                temporary.replace(self.path)
            finally:
                temporary.unlink(missing_ok=True)

    def _check_space(self, itemsize: int) -> None:
        needed = int(np.prod(self.shape, dtype=object)) * itemsize
        free = shutil.disk_usage(self.path.parent).free
        if needed > free:
            raise OSError(
                f"{self.path.parent} has {free / 1e9:.1f} GB free, a cache of {self.shape} needs {needed / 1e9:.1f} GB"
            )


def in_threads(read: Callable[[int], Any], rows: int, label: str | None) -> Iterator[Any]:
    """Yield ``read(row)`` of each row, in order, read by several threads a little ahead.

    A bar with the label shows how far it is; without one nothing is shown.
    """
    with _progress(label, rows) as advance, ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for start in range(0, rows, _AT_A_TIME):
            for result in pool.map(read, range(start, min(start + _AT_A_TIME, rows))):
                yield result
                advance()


@contextmanager
def _progress(label: str | None, total: int) -> Iterator[Callable[[], None]]:
    """Show a bar on stderr; where nobody watches, one line."""
    if label is None:
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress
    from rich.text import Text

    console = Console(file=sys.stderr, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.print(Text(f"{label}: {total:,}"), soft_wrap=True)
    with Progress(console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(label, total=total)
        yield lambda: bar.advance(task)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock among processes, which ends with the process that holds it, however that ends."""
    with path.open("w") as file:
        if sys.platform != "win32":
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
