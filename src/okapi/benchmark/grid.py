"""What is to be run: methods, seeds, and folds or held-out targets; one cell is one run."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import quote

from okapi.config import Config, ConfigError, find_config, read_config
from okapi.data.registry import build_dataset
from okapi.messages import listed

Axis: TypeAlias = Literal["target", "fold"]

ALL = "all"
"""The one group of a grid without folds and targets."""

KEYS: dict[Axis, str] = {"target": "held_out", "fold": "fold"}
"""The key of the section data that each axis sets."""

USUAL = ("erm", "fixmatch", "okapi", "okapi_plus")


@dataclass(frozen=True)
class Cell:
    """One run: a method, a target or fold, a seed; or the run that others of its target and seed start from."""

    method: str
    group: str
    seed: int
    is_start: bool = False

    @property
    def called(self) -> str:
        """The method; of a run that others start from it says so."""
        return f"{self.method} (start)" if self.is_start else self.method

    def __str__(self) -> str:
        return ", ".join([self.called, *([] if self.group == ALL else [self.group]), f"seed {self.seed}"])

    def below(self, folder: Path) -> Path:
        """Return the place of this cell below a folder."""
        folder = folder / "start" if self.is_start else folder
        return folder / folder_name(self.method) / folder_name(self.group) / f"seed-{self.seed}"


@dataclass(frozen=True, kw_only=True)
class Grid:
    """All cells of a benchmark: every method with every target, or fold, and every seed.

    Parameters
    ----------
    methods : dict of str to Config
        The config of each method; its seed, and held-out target or fold, are set by the cell.
    seeds : tuple of int
    axis : {"target", "fold"}, optional
        What ``groups`` are.
    groups : tuple of str
        Targets, domains to be held out one after the other, or folds.
    reference : str
        The method that others are compared with; one that is not there is compared with nobody.
    sources : dict of str to str
        From which file each config came.
    start : dict of str to Config
        The one method whose runs all others start from, each from that of its own target and seed; empty: none.
    """

    methods: dict[str, Config]
    seeds: tuple[int, ...] = (0,)
    axis: Axis | None = None
    groups: tuple[str, ...] = (ALL,)
    reference: str = "erm"
    sources: dict[str, str] = field(default_factory=dict)
    start: dict[str, Config] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, values in (("methods", list(self.methods)), ("seeds", self.seeds), ("groups", self.groups)):
            if not values or len(set(values)) < len(values):
                raise ValueError(f"{name} must be at least one, and each only once, got {', '.join(map(str, values))}")
        if bad := [seed for seed in self.seeds if seed < 0]:
            raise ValueError(f"seeds must be at least 0, got {bad[0]}")
        if self.axis:
            for method, config in [*self.methods.items(), *self.start.items()]:
                if not hasattr(config.data, KEYS[self.axis]):
                    raise ConfigError(
                        f"{self.axis}s need a data set with the key data.{KEYS[self.axis]}, {method} is on "
                        f"{config.data.name}, which has none"
                    )

    def cells(self) -> list[Cell]:
        """Return all cells, seed by seed: what is compared is finished together."""
        return [Cell(method, group, seed) for seed, group, method in product(self.seeds, self.groups, self.methods)]

    def config(self, cell: Cell, out: Path) -> Config:
        """Return the config of a cell, with the run of its own target and seed that it ``needs``.

        Parameters
        ----------
        cell : Cell
        out : Path
            Folder of the benchmark.
        """
        config = replace((self.start if cell.is_start else self.methods)[cell.method], seed=cell.seed)
        if self.axis:
            try:
                change: dict[str, Any] = {KEYS[self.axis]: cell.group}
                config = replace(config, data=replace(config.data, **change))
            except (ValueError, TypeError) as error:
                raise ConfigError(f"{cell.method}, {self.axis} {cell.group}: data.{error}") from error
        if needed := self.needs(cell):
            path = str(needed.below(out))
            if needed.is_start:
                config = replace(config, training=replace(config.training, start_from=path))
            if config.algorithm.name == "offline_okapi":
                config = replace(config, algorithm=replace(config.algorithm, erm_run=path))
        return config

    def needs(self, cell: Cell) -> Cell | None:
        """Return the cell whose model a cell starts from: that of ``start``, or an ERM run for offline Okapi."""
        if cell.is_start:
            return None
        if self.start:
            return replace(cell, method=next(iter(self.start)), is_start=True)
        if self.methods[cell.method].algorithm.name != "offline_okapi":
            return None
        plain = [name for name, config in self.methods.items() if config.algorithm.name == "erm"]
        best = self.reference if self.reference in plain else next(iter(plain), None)
        return replace(cell, method=best) if best else None


def make_grid(
    configs: Sequence[Path],
    *,
    methods: Sequence[str] = (),
    seeds: Sequence[int] = (0,),
    targets: Sequence[str] = (),
    folds: Sequence[str] = (),
    overrides: Sequence[tuple[str, str]] = (),
    reference: str = "erm",
    start_from: str | None = None,
) -> Grid:
    """Return the grid of a folder of YAML files, or of some YAML files.

    Parameters
    ----------
    configs : sequence of Path
        One folder, or YAML files; a method is called as its file.
    methods : sequence of str
        Which files; by default, of a folder, erm, fixmatch and okapi as far as they are there, and of files all.
    seeds : sequence of int
    targets : sequence of str
        Domains to hold out one after the other; ``("all",)``: every domain of the data set but those that validate.
    folds : sequence of str
    overrides : sequence of (key, text)
        Of all configs.
    reference : str
    start_from : str, optional
        The method whose runs all others start from: any of the files.
    """
    if targets and folds:
        raise ValueError("targets and folds cannot both be given: a data set has one or the other")
    files = find_methods(configs, methods)
    start = find_start(configs, start_from) if start_from else {}
    chosen = {name: read_config(path, overrides) for name, path in files.items()}
    axis: Axis | None = "target" if targets else "fold" if folds else None
    groups = tuple(targets or folds or (ALL,))
    if targets:
        there = find_targets(next(iter(chosen.values())))
        groups = there if groups == (ALL,) else groups
        if unknown := [name for name in groups if name not in there]:
            raise ValueError(f"targets must be domains that can be held out, {listed(there)}; got {unknown[0]!r}")
    return Grid(
        methods=chosen,
        seeds=tuple(seeds),
        axis=axis,
        groups=groups,
        reference=reference,
        sources={name: str(path) for name, path in [*files.items(), *start.items()]},
        start={name: read_config(path, overrides) for name, path in start.items()},
    )


BASE = "base"
"""The config that the others of a folder include; it is no method of its own."""


def find_methods(configs: Sequence[Path], methods: Sequence[str] = ()) -> dict[str, Path]:
    """Return the YAML file of each method; parameters as of ``make_grid``."""
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
    if not methods or (unknown := [name for name in methods if name not in there]):
        raise ValueError(f"method {unknown[0]!r} has no config: {where}" if methods else where)
    return {name: there[name] for name in methods}


def find_start(configs: Sequence[Path], name: str) -> dict[str, Path]:
    """Return the YAML file of the method that runs start from."""
    try:
        return find_methods(configs, [name])
    except ValueError as error:
        raise ValueError(f"start_from must be a method: {error}") from None


def find_targets(config: Config) -> tuple[str, ...]:
    """Return the domains of a config's data set that can be held out: all but those that are for validation."""
    if not hasattr(config.data, KEYS["target"]):
        raise ConfigError(f"targets need a data set with the key data.held_out, {config.data.name} has none")
    dataset = build_dataset(config.data)
    apart = getattr(config.data, "validation", ())
    apart = (apart,) if isinstance(apart, str) else tuple(apart)
    return tuple(name for name in dataset.domain_names if name not in apart)


def parse_seeds(text: str) -> tuple[int, ...]:
    """Return the seeds that a text says: how many, from 0, or which.

    Examples
    --------
    >>> parse_seeds("3"), parse_seeds("0,3,7"), parse_seeds("4,")
    ((0, 1, 2), (0, 3, 7), (4,))
    """
    try:
        numbers = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 0 or ("," not in text and numbers[0] < 1):
        raise ValueError(f"must be how many seeds, such as 5, or which, such as 0,3,7; got {text!r}")
    return tuple(numbers) if "," in text else tuple(range(numbers[0]))


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


def folder_name(name: str) -> str:
    """Return a name that a folder can have on any machine, different for different names."""
    quoted = quote(name, safe=" ()+,=@")
    return quoted if not re.match(r"\.|.*[. ]$", quoted) else quoted.replace(".", "%2E").replace(" ", "%20")
