"""What is to be run: methods, seeds, and folds or held-out targets; one cell is one run. benchmark.json holds it."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar
from urllib.parse import quote

from okapi import __version__
from okapi.config import Config, ConfigError, differences, make_config
from okapi.config.methods import find_methods, find_start, read_method
from okapi.files import write_json
from okapi.messages import listed

Axis: TypeAlias = Literal["target", "fold"]

ALL = "all"
"""The one group of a grid without folds and targets."""

KEYS: dict[Axis, str] = {"target": "held_out", "fold": "fold"}
"""The key of the section data that each axis sets."""


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
    threads : int
        Of each run, whose last bits depend on it; fixed when the benchmark is first launched, 0 before.
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
    threads: int = 0
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
        Which files; by default, of a folder, erm, fixmatch, okapi and okapi_plus as far as they are there, and of files
        all. Of one file a method may be any algorithm: the section ``algorithm`` is then that algorithm's defaults.
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
    chosen = {name: read_method(name, path, overrides) for name, path in files.items()}
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
        start={name: read_method(name, path, overrides) for name, path in start.items()},
    )


def find_targets(config: Config) -> tuple[str, ...]:
    """Return the domains of a config's data set that can be held out: all but those that are for validation."""
    if not hasattr(config.data, KEYS["target"]):
        raise ConfigError(f"targets need a data set with the key data.held_out, {config.data.name} has none")
    from okapi.data.registry import build_dataset  # imports torch

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


def folder_name(name: str) -> str:
    """Return a name that a folder can have on any machine, different for different names."""
    quoted = quote(name, safe=" ()+,=@")
    return quoted if not re.match(r"\.|.*[. ]$", quoted) else quoted.replace(".", "%2E").replace(" ", "%20")


FORMAT = 2
T = TypeVar("T")


def grid_file(out: Path) -> Path:
    """Return the file of a benchmark's folder that holds its grid."""
    return out / "benchmark.json"


def save_grid(grid: Grid, out: Path) -> Grid:
    """Write down what is to be run and return it together with what was before in this folder.

    More methods, seeds or targets may join. A method that was there with another config, or targets where folds were,
    are rejected: numbers of one table must be comparable. Threads stay as many as they were, for the same reason.
    """
    if grid_file(out).exists():
        grid = _joined(read_grid(out), grid, out)
    elif out.is_dir() and any(not path.name.startswith(".") for path in out.iterdir()):
        raise ValueError(f"{out} is not empty and holds no benchmark; give another folder by --out")
    out.mkdir(parents=True, exist_ok=True)
    names = ("axis", "groups", "seeds", "reference", "threads")
    configs = {"methods": _as_dict(grid, grid.methods), "start": _as_dict(grid, grid.start)}
    content = {"format": FORMAT, "okapi": __version__, **{name: getattr(grid, name) for name in names}, **configs}
    write_json(grid_file(out), content)
    return grid


def read_grid(out: Path) -> Grid:
    """Return the grid of the benchmark in a folder."""
    file = grid_file(out)
    if not file.is_file():
        raise ValueError(f"{out} holds no benchmark: it has no {file.name}")
    try:
        content: Any = json.loads(file.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            version = f"of format {content['format']}, written by okapi {content.get('okapi')}"
            raise ValueError(f"it is {version}; this is okapi {__version__}, which reads format {FORMAT}")
        configs = content["methods"] | content["start"]
        methods, start = (
            {name: make_config(content[key][name]["config"], source=f"{file}: {name}") for name in content[key]}
            for key in ("methods", "start")
        )
        return Grid(
            methods=methods,
            seeds=tuple(content["seeds"]),
            axis=content["axis"],
            groups=tuple(content["groups"]),
            reference=content["reference"],
            threads=content["threads"],
            sources={name: configs[name]["source"] for name in configs},
            start=start,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{file} cannot be understood: {reason}") from error


def _joined(before: Grid, now: Grid, out: Path) -> Grid:
    if before.axis != now.axis:
        kinds = [f"{grid.axis}s" if grid.axis else "neither folds nor targets" for grid in (before, now)]
        raise ValueError(f"{out} holds a benchmark with {kinds[0]}, this one has {kinds[1]}; give another --out")
    if before.start.keys() != now.start.keys():
        then, today = (next(iter(grid.start), "no other run") for grid in (before, now))
        raise ValueError(
            f"{out} holds a benchmark whose runs start from {then}, those of this one from {today}; give another --out"
        )
    by_cell = ("seed", f"data.{KEYS[now.axis]}" if now.axis else "")
    for old, new in ((before.methods, now.methods), (before.start, now.start)):
        for name in old.keys() & new.keys():
            changes = differences(old[name].as_dict(), new[name].as_dict())
            if changes := [change for change in changes if change.partition(":")[0] not in by_cell]:
                raise ValueError(
                    f"{out} holds a benchmark whose {name} has another config: {'; '.join(changes)}; give another --out"
                )
    return replace(
        now,
        methods={**before.methods, **now.methods},
        seeds=_union(before.seeds, now.seeds),
        groups=_union(before.groups, now.groups),
        threads=before.threads,
        sources={**before.sources, **now.sources},
    )


def _as_dict(grid: Grid, configs: Mapping[str, Config]) -> dict[str, Any]:
    return {name: {"source": grid.sources.get(name), "config": config.as_dict()} for name, config in configs.items()}


def _union(first: Iterable[T], second: Iterable[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys([*first, *second]))
