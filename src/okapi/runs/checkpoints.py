"""Checkpoints: folders that are complete or not there, and are checked before they are believed.

``step-00001000/`` holds ``state.pt``, tensors, numbers and text only, and ``manifest.json``, which says what wrote it,
for which config, and how long ``state.pt`` is and what its SHA-256 is. Reading one never runs code from it.
"""

import hashlib
import json
import pickle
import re
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import torch

from okapi import __version__
from okapi.files import errors_name, remove, remove_unfinished, replacing

FORMAT, VERSION = "okapi checkpoint", 3
KEEP = 2
_NAME = re.compile(r"step-(\d{8,})")


class CheckpointError(ValueError):
    """A checkpoint that must not be used; the message says why."""


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A checkpoint that was read and found good.

    Parameters
    ----------
    path : Path
    step : int
        Steps done.
    config : dict
        The config of the run that wrote it.
    state : dict
        What was saved.
    """

    path: Path
    step: int
    config: dict[str, Any]
    state: dict[str, Any]


def save_checkpoint(
    folder: Path,
    step: int,
    state: Mapping[str, Any],
    *,
    config: Mapping[str, Any],
    keep: int = KEEP,
) -> Path:
    """Write a checkpoint below ``folder`` and remove all but the newest ``keep``.

    Parameters
    ----------
    folder : Path
        Made if need be.
    step : int
        Steps done.
    state : mapping
        Tensors, numbers, text, and lists and dictionaries of these.
    config : mapping
        Of the run; plain values.
    keep : int
        How many to keep.
    """
    folder.mkdir(exist_ok=True)
    path = folder / f"step-{step:08d}"
    with replacing(path) as temporary:
        temporary.mkdir()
        with errors_name(path / "state.pt"), (temporary / "state.pt").open("wb") as file:
            written = _HashingFile(file)
            try:
                torch.save(dict(state), written)  # type: ignore[arg-type]
            except RuntimeError as error:  # of the archive that torch could not close, after the disk's own
                raise (written.error or error) from None
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "okapi": __version__,
            "step": step,
            "size": written.size,
            "sha256": written.hash.hexdigest(),
            "config": dict(config),
        }
        (temporary / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
        _discard(path)  # one of the same step, from before a resume
    for old in _paths(folder)[keep:]:
        _discard(old)
    return path


def read_newest(folder: Path) -> tuple[Checkpoint | None, list[tuple[Path, str]]]:
    """Return the newest good checkpoint below ``folder``, and which newer ones were rejected and why.

    Rejected ones are renamed to ``step-....rejected`` so that nobody takes them for good; nothing else is changed, but
    unfinished ones are removed. Where none is good, there being some: CheckpointError.
    """
    remove_unfinished(folder)
    rejected: list[tuple[Path, str]] = []
    for path in _paths(folder):
        try:
            return read_checkpoint(path), rejected
        except CheckpointError as error:
            aside = path.with_name(f"{path.name}.rejected")
            remove(aside)
            path.replace(aside)
            rejected.append((aside, str(error)))
    if rejected:
        reasons = "; ".join(f"{path.name}: {reason}" for path, reason in rejected)
        raise CheckpointError(f"{folder} has no checkpoint that can be used: {reasons}")
    return None, rejected


def has_checkpoint(folder: Path) -> bool:
    """Return whether there is a checkpoint below a folder, good or not."""
    return bool(_paths(folder))


def read_checkpoint(path: Path) -> Checkpoint:
    """Return a checkpoint, or say by CheckpointError why it is rejected."""
    manifest = _read_manifest(path)
    content = _read_state(path / "state.pt", manifest)
    try:
        state = torch.load(BytesIO(content), map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, KeyError, AttributeError, TypeError) as error:
        reason = str(error).strip().splitlines()
        raise CheckpointError(f"state.pt holds more than tensors and numbers, or is damaged: {reason[:1]}") from error
    if not isinstance(state, dict):
        raise CheckpointError(f"state.pt must hold a dictionary, it holds a {type(state).__name__}")
    return Checkpoint(path, manifest["step"], manifest["config"], state)


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError("it has no manifest.json, so this program did not write it") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"manifest.json cannot be read: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise CheckpointError(f"manifest.json does not say that it is an {FORMAT}")
    if manifest.get("version") != VERSION:
        raise CheckpointError(f"it is of version {manifest.get('version')!r}, this program reads version {VERSION}")
    kinds = {"step": int, "size": int, "sha256": str, "config": dict}
    if bad := [name for name, kind in kinds.items() if not isinstance(manifest.get(name), kind)]:
        raise CheckpointError(f"manifest.json lacks {', '.join(bad)}")
    if path.name != f"step-{manifest['step']:08d}":
        raise CheckpointError(f"it says that it is of step {manifest['step']}")
    return manifest


def _read_state(path: Path, manifest: Mapping[str, Any]) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"state.pt cannot be read: {error.strerror}") from error
    if len(content) != manifest["size"]:
        raise CheckpointError(f"state.pt is torn: {len(content)} bytes of {manifest['size']}")
    if hashlib.sha256(content).hexdigest() != manifest["sha256"]:
        raise CheckpointError("state.pt is damaged: its SHA-256 is not that of manifest.json")
    return content


def _paths(folder: Path) -> list[Path]:
    """Return the checkpoints below a folder, newest first."""
    if not folder.is_dir():
        return []
    steps = {path: int(name[1]) for path in folder.iterdir() if (name := _NAME.fullmatch(path.name))}
    return sorted(steps, key=lambda path: -steps[path])


def _discard(path: Path) -> None:
    """Remove a checkpoint so that no half of it is ever seen under its name."""
    if path.exists():
        with_other_name = path.with_name(f".{path.name}.old.new")
        remove(with_other_name)
        path.replace(with_other_name)
        remove(with_other_name)


class _HashingFile:
    """A file to write to that counts and hashes what it is given."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.hash = hashlib.sha256()
        self.size = 0
        self.error: OSError | None = None

    def write(self, content: bytes) -> int:
        try:
            self._file.write(content)
        except OSError as error:
            self.error = error
            raise
        self.hash.update(content)
        self.size += len(content)
        return len(content)

    def flush(self) -> None:
        self._file.flush()
