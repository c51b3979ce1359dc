"""Files that are there as a whole or not at all, whenever the process or the machine dies."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from math import isfinite
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

NEW = ".new"  # ends the name of what is not finished yet


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a name beside ``path`` for a file or a folder, which is synced and takes its place on success.

    A file replaces the one that was there; a folder only an empty one or none.
    """
    temporary = path.with_name(f".{path.name}{NEW}")
    remove(temporary)
    try:
        with errors_name(path):
            yield temporary
            sync(temporary)
            temporary.replace(path)
            _fsync(path.parent)
    except BaseException:
        remove(temporary)
        raise


@contextmanager
def errors_name(path: Path) -> Iterator[None]:
    """Say in errors of the system which file they are about: a failed write does not know."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, error.strerror or str(error), str(path)) from error
        raise


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file; all of it or nothing."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def sync(path: Path) -> None:
    """Wait until a file, or a folder and all that is in it, is on the disk."""
    if path.is_dir():
        for inner in path.iterdir():
            sync(inner)
    _fsync(path)


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove(path: Path) -> None:
    """Remove a file or a folder; one that is not there is fine."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def remove_unfinished(folder: Path) -> None:
    """Remove what a process that was killed has left under temporary names."""
    with suppress(FileNotFoundError):
        for path in folder.iterdir():
            if is_unfinished(path):
                remove(path)


def is_unfinished(path: Path) -> bool:
    """Return whether a name is one that ``replacing`` gives to unfinished things."""
    return path.name.startswith(".") and path.name.endswith(NEW)


@contextmanager
def locked(folder: Path, busy: str = "") -> Iterator[None]:
    """Keep other processes out of a folder, by its file ``.lock``; a process that dies lets go of it.

    Parameters
    ----------
    folder : Path
    busy : str
        What the ValueError says where another process holds the lock; by default it is waited for.
    """
    lock = FileLock(folder / ".lock", timeout=0 if busy else -1)
    try:
        lock.acquire()
    except Timeout:
        raise ValueError(busy) from None
    try:
        yield
    finally:
        lock.release()


def write_json(path: Path, content: Mapping[str, Any] | list[Any]) -> None:
    """Write a JSON file; all of it or nothing; an undefined number becomes null."""
    write_bytes(path, (json.dumps(without_nan(content), indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode())


def without_nan(content: Any) -> Any:
    """Return nested dictionaries and lists with None for each number that is undefined: JSON has no NaN."""
    if isinstance(content, Mapping):
        return {key: without_nan(value) for key, value in content.items()}
    if isinstance(content, list):
        return [without_nan(value) for value in content]
    return None if isinstance(content, float) and not isfinite(content) else content
