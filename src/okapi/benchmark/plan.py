"""benchmark.json: what a folder's benchmark consists of, so that it can be continued, enlarged and read back."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from okapi import __version__
from okapi.benchmark.grid import KEYS, Grid
from okapi.config import Config, differences, make_config
from okapi.files import write_json

FORMAT = 1
T = TypeVar("T")


def plan_file(out: Path) -> Path:
    """Return where a benchmark is written down."""
    return out / "benchmark.json"


def settle(grid: Grid, out: Path) -> Grid:
    """Write down what is to be run and return it together with what was before in this folder.

    More methods, seeds or targets may join. A method that was there with another config, or targets where folds were,
    are refused: numbers of one table must be comparable.
    """
    if plan_file(out).exists():
        grid = _together(read_plan(out), grid, out)
    elif out.is_dir() and any(not path.name.startswith(".") for path in out.iterdir()):
        raise ValueError(f"{out} is not empty and holds no benchmark; give another folder by --out")
    out.mkdir(parents=True, exist_ok=True)
    content = {
        "format": FORMAT,
        "okapi": __version__,
        "axis": grid.axis,
        "groups": list(grid.groups),
        "seeds": list(grid.seeds),
        "reference": grid.reference,
        "methods": _written(grid, grid.methods),
        "start": _written(grid, grid.start),
    }
    write_json(plan_file(out), content)
    return grid


def read_plan(out: Path) -> Grid:
    """Return the grid of the benchmark in a folder."""
    file = plan_file(out)
    if not file.is_file():
        raise ValueError(f"{out} holds no benchmark: it has no {file.name}")
    try:
        content: Any = json.loads(file.read_text(encoding="utf-8"))
        if content["format"] > FORMAT:
            raise ValueError(f"it is of format {content['format']}, written by okapi {content.get('okapi')}")
        methods, start = content["methods"], content.get("start", {})
        return Grid(
            methods=_read(methods, file),
            seeds=tuple(content["seeds"]),
            axis=content["axis"],
            groups=tuple(content["groups"]),
            reference=content["reference"],
            sources={name: its["source"] for name, its in (start | methods).items()},
            start=_read(start, file),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{file} cannot be understood: {reason}") from error


def _together(before: Grid, now: Grid, out: Path) -> Grid:
    if before.axis != now.axis:
        kinds = [f"{grid.axis}s" if grid.axis else "neither folds nor targets" for grid in (before, now)]
        raise ValueError(f"{out} holds a benchmark with {kinds[0]}, this one has {kinds[1]}; give another --out")
    if before.start.keys() != now.start.keys():
        then, today = (next(iter(grid.start), "no other run") for grid in (before, now))
        raise ValueError(
            f"{out} holds a benchmark whose runs start from {then}, those of this one from {today}; give another --out"
        )
    own = () if now.axis is None else (f"data.{KEYS[now.axis]}",)
    for old, new in ((before.methods, now.methods), (before.start, now.start)):
        for name in old.keys() & new.keys():
            changes = differences(old[name].as_dict(), new[name].as_dict())
            if changes := [change for change in changes if change.partition(":")[0] not in ("seed", *own)]:
                raise ValueError(
                    f"{out} holds a benchmark whose {name} has another config: {'; '.join(changes)}; give another --out"
                )
    return Grid(
        methods={**before.methods, **now.methods},
        seeds=_union(before.seeds, now.seeds),
        axis=now.axis,
        groups=_union(before.groups, now.groups),
        reference=now.reference,
        sources={**before.sources, **now.sources},
        start=now.start,
    )


def _written(grid: Grid, configs: Mapping[str, Config]) -> dict[str, Any]:
    return {name: {"source": grid.sources.get(name), "config": config.as_dict()} for name, config in configs.items()}


def _read(methods: Mapping[str, Any], file: Path) -> dict[str, Config]:
    return {name: make_config(its["config"], source=f"{file}: {name}") for name, its in methods.items()}


def _union(first: Iterable[T], second: Iterable[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys([*first, *second]))
