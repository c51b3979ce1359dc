"""Chunks of a long piece of work that are kept on the disk until all are there: one that was killed goes on."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from okapi.files import locked, remove_unfinished, replacing, write_bytes


class Chunks:
    """Encodings on the disk, a file for each chunk, until all are there.

    Parameters
    ----------
    out : Path
        The file that they will make; they are kept in a folder beside it.
    lengths : sequence of int
        Samples of each chunk.
    width : int
        Of an encoding.
    """

    def __init__(self, out: Path, lengths: Sequence[int], width: int) -> None:
        self.out, self.folder = out, parts_folder(out)
        self.shapes = [(length, width) for length in lengths]
        self.found: set[int] = set()

    @contextmanager
    def opened(self, origin: Mapping[str, Any], restart: bool) -> Iterator["Chunks"]:
        """Take the folder for this process, and see what is in it."""
        self.folder.mkdir(exist_ok=True)
        with locked(self.folder, f"{self.out} is being written by another process"):
            self._look(origin, restart)
            yield self

    def write(self, number: int, encodings: NDArray[np.float32]) -> None:
        """Keep a chunk."""
        with replacing(self._path(number)) as temporary, temporary.open("wb") as file:
            np.save(file, encodings)

    def blocks(self) -> Iterator[NDArray[np.float32]]:
        """Yield the chunks in order."""
        for number in range(len(self.shapes)):
            yield np.load(self._path(number))

    def _look(self, origin: Mapping[str, Any], restart: bool) -> None:
        remove_unfinished(self.folder)
        path, now = self.folder / "origin.json", json.loads(json.dumps(origin))
        before = None if restart or not path.exists() else json.loads(path.read_text(encoding="utf-8"))
        if before is not None and before != now:
            changed = [key for key in now if before.get(key) != now[key]]
            raise ValueError(
                f"{self.folder} holds encodings of other {' and '.join(changed)}: give --restart to begin anew, or "
                "the command that they were begun with"
            )
        if before is None:
            for chunk in self.folder.glob("*.npy"):
                chunk.unlink()
            write_bytes(path, json.dumps(now, indent=2).encode())
        self.found = {number for number in range(len(self.shapes)) if self._is_whole(number)}

    def _is_whole(self, number: int) -> bool:
        try:
            chunk = np.load(self._path(number), mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError):
            return False
        return bool(chunk.shape == self.shapes[number] and chunk.dtype == np.float32)

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:06d}.npy"


def parts_folder(out: Path) -> Path:
    """Return the folder in which chunks of a file are kept."""
    return out.with_name(f"{out.name}.parts")
