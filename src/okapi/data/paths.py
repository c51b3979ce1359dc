"""Paths of files that somebody else wrote down: whether they lead out of their folder, and whether they are there."""

import os
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path


def leads_out(name: str) -> bool:
    """Return whether a path, taken from a folder, ends outside of it."""
    if os.pardir not in name and name[:1].isalnum() and ":" not in name:  # most are, and there may be a million
        return False
    path = Path(os.path.normpath(name))
    return path.is_absolute() or path.parts[:1] == (os.pardir,)


def missing_files(root: Path, names: Iterable[str]) -> list[str]:
    """Return a sentence for each file that is not there; every folder is listed once, which is quicker than to ask."""
    folders: dict[str, list[str]] = defaultdict(list)
    for name in names:
        folder, file = os.path.split(name)
        folders[folder].append(file)
    missing = []
    for folder, files in folders.items():
        place = root / folder
        there: set[str] = set()
        if place.is_dir():
            with os.scandir(place) as entries:
                there = {entry.name for entry in entries}
        missing += [f"{place / file} does not exist" for file in files if file not in there]
    return missing
