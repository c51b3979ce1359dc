"""The config of each method of a benchmark: a folder of YAML files, or some YAML files."""

import re
from collections.abc import Sequence
from pathlib import Path

from okapi.config.algorithms import ALGORITHM_SETTINGS
from okapi.config.reader import Config, find_config, read_config
from okapi.messages import listed

USUAL = ("erm", "fixmatch", "okapi", "okapi_plus")


def read_method(method: str, path: Path, overrides: Sequence[tuple[str, str]]) -> Config:
    """Return the config of a method; where the file is that of another, with the method's algorithm."""
    return read_config(path, overrides if path.stem == method else [*overrides, ("algorithm.name", method)])


BASE = "base"
"""The config that the others of a folder include; it is no method of its own."""


def find_methods(configs: Sequence[Path], methods: Sequence[str] = ()) -> dict[str, Path]:
    """Return the YAML file of each method; a method is called as its file.

    Parameters
    ----------
    configs : sequence of Path
        One folder, or YAML files.
    methods : sequence of str
        Which files; by default, of a folder, erm, fixmatch, okapi and okapi_plus as far as they are there, and of files
        all. Of one file a method may be any algorithm.
    """
    configs = [find_config(path) for path in configs]
    if len(configs) == 1 and configs[0].is_dir():
        there = {path.stem: path for path in sorted(configs[0].glob("*.yaml")) if path.stem != BASE}
        methods = methods or [name for name in USUAL if name in there] or list(there)
        where = f"{configs[0]} has {listed(list(there)) if there else 'no YAML file'}"
    else:
        if missing := [path for path in configs if not path.is_file()]:
            raise ValueError(f"{missing[0]} does not exist; give a folder of YAML files, or YAML files")
        there = {path.stem: path for path in configs}
        if len(there) < len(configs):
            raise ValueError(
                f"files must differ in their names, by which methods are called, got {listed(map(str, configs))}"
            )
        methods = methods or list(there)
        where = f"the files given are {listed(list(there))}"
        if len(configs) == 1:
            there |= {name: configs[0] for name in ALGORITHM_SETTINGS if name not in there}
            where = f"it must be one of the algorithms {listed(list(ALGORITHM_SETTINGS))}, or of the file {configs[0]}"
    if not methods or (unknown := [name for name in methods if name not in there]):
        raise ValueError(f"method {unknown[0]!r} has no config: {where}" if methods else where)
    return {name: there[name] for name in methods}


def find_start(configs: Sequence[Path], name: str) -> dict[str, Path]:
    """Return the YAML file of the method that runs start from."""
    try:
        return find_methods(configs, [name])
    except ValueError as error:
        raise ValueError(f"start_from must be a method: {error}") from None


def parse_names(text: str) -> tuple[str, ...]:
    """Return the names that a text says, apart by commas; A-E is A, B, C, D, E.

    Examples
    --------
    >>> parse_names("A-C"), parse_names("art,sketch")
    (('A', 'B', 'C'), ('art', 'sketch'))
    """
    if letters := re.fullmatch(r"([A-Za-z])-([A-Za-z])", text.strip()):
        first, last = map(ord, letters.groups())
        if first <= last:
            return tuple(map(chr, range(first, last + 1)))
    return tuple(part.strip() for part in text.split(",") if part.strip())
