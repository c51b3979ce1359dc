"""Runs and benchmarks as they lie on the disk, whatever of them can be read."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from okapi import __version__
from okapi.benchmark import Cell, CellRun, Results, read_results
from okapi.benchmark.grid import ALL, grid_file
from okapi.benchmark.results import config_hash
from okapi.evaluation import METRICS, plain_metric
from okapi.runs import Run

_BROKEN = (ValueError, KeyError, TypeError, AttributeError, OSError)


@dataclass(frozen=True, kw_only=True, eq=False)
class RunRecord:
    """A run, finished or not, or what is left of one.

    Parameters
    ----------
    run : CellRun
        Its state, why it failed, and its results.
    name : str
        By what the page calls it.
    method : str
        By what curves and tables call it together with runs that differ in their seed, fold or target only.
    config : dict
        What config.yaml holds; empty where that cannot be read.
    benchmark : Path, optional
        The benchmark that it belongs to.
    """

    run: CellRun
    name: str
    method: str
    config: Mapping[str, Any]
    benchmark: Path | None = None

    @property
    def path(self) -> Path:
        """The run directory."""
        return self.run.folder

    @property
    def is_finished(self) -> bool:
        """Whether it has results."""
        return bool(self.run.results)

    @property
    def algorithm(self) -> str:
        """Name of the algorithm."""
        return str(_inner(self.config, "algorithm").get("name", ""))

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """What metrics.csv holds, ``step``, ``split``, ``metric``, ``value``, but for lines that make no sense."""
        return Run(self.path).metrics()

    @property
    def step(self) -> int:
        """The last step that was written down."""
        return int(self.metrics["step"].max()) if len(self.metrics) else 0

    @property
    def steps(self) -> int | None:
        """How many steps the run is to have."""
        steps = _inner(self.config, "training").get("steps")
        return steps if isinstance(steps, int) else None

    @property
    def metric(self) -> str | None:
        """The figure that runs are compared by: the config's, the one that selected the weights, or the first."""
        figures = {name: None for its in self.run.figures.values() for name in its} | dict.fromkeys(self._validated())
        wanted = _inner(self.config, "training").get("metric"), self.run.results.get("selection", {}).get("metric")
        chosen = [name for name in (*wanted, *figures) if name in figures and plain_metric(name) in METRICS]
        return chosen[0] if chosen else None

    def _validated(self) -> list[str]:
        metrics = self.metrics
        return list(dict.fromkeys(metrics.loc[metrics["split"].isin(["ood_val", "id_val"]), "metric"]))

    def evaluation(self, split: str) -> dict[str, Any] | None:
        """Return the last evaluation of the selected weights on a split, as results.json has it."""
        own = self.run.results.get("weights", {}).get("sha256")
        records = [its for its in self.run.results.get("evaluations", []) if its["split"] == split]
        good = [its for its in records if its["weights"]["sha256"] == own and its["weights"]["which"] == "selected"]
        return good[-1] if good else None


@dataclass(frozen=True, eq=False)
class Gathered:
    """All that a page is made from: runs, benchmarks, and sentences on what is odd."""

    runs: tuple[RunRecord, ...]
    benchmarks: tuple[Results, ...]
    notes: tuple[str, ...]

    @property
    def methods(self) -> list[str]:
        """Methods in the order of their first runs."""
        return list(dict.fromkeys(record.method for record in self.runs if record.method))


def gather(folders: Sequence[Path]) -> Gathered:
    """Return the runs of some run directories, benchmarks, or folders of run directories.

    What cannot be read is a run that failed, with the reason; if nothing can be read, or a folder does not exist, that
    is a ValueError.
    """
    if not folders:
        raise ValueError("at least one run directory or benchmark must be given")
    records: list[RunRecord] = []
    benchmarks: list[Results] = []
    for folder in dict.fromkeys(folders):
        if not folder.is_dir():
            raise ValueError(f"{folder} {'is no directory' if folder.exists() else 'does not exist'}")
        if grid_file(folder).is_file():
            try:
                benchmarks.append(read_results(folder))
            except _BROKEN as error:
                records.append(_failed(folder, f"{error}"))
            else:
                records += [_of_benchmark(run, benchmarks[-1]) for run in benchmarks[-1].runs if run.state != "waiting"]
        else:
            records += [read_record(inner) for inner in _run_directories(folder)]
    if not any(record.run.state != "failed" or record.is_finished for record in records) and not benchmarks:
        raise ValueError("; ".join(record.run.reason for record in records))
    named = _with_methods(_with_names(records))
    return Gathered(tuple(named), tuple(benchmarks), tuple(_notes(named)))


def read_record(path: Path) -> RunRecord:
    """Return a run; what cannot be read has failed."""
    folder = Run(path)
    try:
        folder.check_begun()
        config = _read_config(folder)
        results = folder.results().as_dict() if folder.results_file.is_file() else {}
        seed = config.get("seed", 0)
        cell = Cell(str(_inner(config, "algorithm").get("name", "")), ALL, seed if isinstance(seed, int) else 0)
        state: Any = "finished" if results else "begun"
        run = CellRun(cell=cell, folder=path, log=path / "log", state=state, results=results)
        _check(run)
    except _BROKEN as error:
        said = str(error) if isinstance(error, ValueError | OSError) else f"{folder.results_file} was edited or damaged"
        return _failed(path, said)
    return RunRecord(run=run, name=path.name or str(path), method=cell.method, config=config)


def _run_directories(folder: Path) -> list[Path]:
    """Return the folder if it may hold a run, or else those in it that do; itself if there are none."""
    if (folder / "config.yaml").is_file():
        return [folder]
    return sorted(path.parent for path in folder.glob("*/config.yaml")) or [folder]


def _read_config(folder: Run) -> dict[str, Any]:
    if not folder.config_file.is_file():
        raise ValueError(f"{folder.path} holds no run: it has no config.yaml")
    try:
        config = yaml.safe_load(folder.config_file.read_text(encoding="utf-8"))
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{folder.config_file} is no YAML, it was edited or damaged: {_line(error)}") from error
    if not isinstance(config, dict) or not isinstance(config.get("algorithm"), dict):
        raise ValueError(f"{folder.config_file} holds no config of a run")
    return config


def _check(run: CellRun) -> None:
    """Look at all that a page will look at, so that what was damaged is found out now."""
    figures, records = run.figures, run.results.get("evaluations", [])
    for name, value in [item for its in figures.values() for item in its.items()]:
        if not isinstance(name, str) or not isinstance(value, int | float):
            raise TypeError("a figure is no number")
    for record in records:
        _ = record["split"], record["weights"]["sha256"], record["weights"]["which"], record["weights"]["step"]
        pd.DataFrame(record["domains"])[["name", "n"]], pd.DataFrame(record.get("groups") or [])
    chosen = run.results.get("selection", {})
    if run.results and not isinstance(chosen.get("step"), int):
        raise TypeError("the selected step is no number")
    for opened in run.results.get("opened", {}).values():
        _ = opened["times"] + 0, len(opened["sha256"])


def _failed(path: Path, reason: str) -> RunRecord:
    run = CellRun(cell=Cell("", ALL, 0), folder=path, log=path, state="failed", reason=_line(reason), beyond_help=True)
    return RunRecord(run=run, name=path.name or str(path), method="", config={})


def _of_benchmark(run: CellRun, results: Results) -> RunRecord:
    config: Mapping[str, Any] = run.results.get("config") or results.grid.config(run.cell, results.out).as_dict()
    try:
        _check(run)
    except _BROKEN:
        run = replace(run, state="failed", reason=f"{run.folder / 'results.json'} was edited or damaged", results={})
    return RunRecord(
        run=run,
        name=str(run.cell),
        method=run.cell.method,
        config=json.loads(json.dumps(config)),
        benchmark=results.out,
    )


def _with_names(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Call runs of the same name by their folders."""
    names = [record.name for record in records]
    return [
        replace(record, name=str(record.path)) if names.count(record.name) > 1 else record for record in records
    ]  # fmt: skip


def _with_methods(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Give runs that differ in more than their seed, or belong to different benchmarks, different methods."""
    kinds = [
        (str(record.benchmark), record.method)
        if record.benchmark
        else config_hash({key: value for key, value in record.config.items() if key != "seed"})
        for record in records
    ]
    first = {kind: record for kind, record in zip(reversed(kinds), reversed(records), strict=True) if record.method}
    plain = [record.method for record in first.values()]
    called = {
        kind: record.method
        if plain.count(record.method) == 1
        else f"{record.method}, {record.benchmark}"
        if record.benchmark
        else f"{record.method}, {record.name}"
        for kind, record in first.items()
    }
    return [
        replace(record, method=called[kind]) if record.method else record
        for kind, record in zip(kinds, records, strict=True)
    ]


def _notes(records: Sequence[RunRecord]) -> list[str]:
    notes = []
    if failed := [record.name for record in records if record.run.state == "failed"]:
        some = ", ".join(failed[:5]) + (" and others" if len(failed) > 5 else "")
        notes.append(
            f"{len(failed)} of {len(records)} runs failed or cannot be read: {some}. The table of runs says why."
        )
    versions = {str(record.run.results.get("okapi")) for record in records if record.is_finished} - {__version__}
    if versions:
        notes.append(f"Some runs are of okapi {', '.join(sorted(versions))}; this page was made by {__version__}.")
    oracles = [record.name for record in records if record.run.selector == "oracle"]
    if oracles:
        some = ", ".join(oracles[:5]) + (" and others" if len(oracles) > 5 else "")
        notes.append(f"An oracle, which looks at ood_test, selected the weights of {some}: no honest figures.")
    return notes


def _inner(config: Mapping[str, Any], section: str) -> Mapping[str, Any]:
    found = config.get(section)
    return found if isinstance(found, Mapping) else {}


def _line(error: object) -> str:
    return " ".join(str(error).split())[:400]
