"""Runs and benchmarks as they lie on the disk, whatever of them can be read."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from okapi import __version__
from okapi.benchmark import Cell, Results, RunRecord, read_results
from okapi.benchmark.grid import ALL, grid_file
from okapi.benchmark.records import config_hash
from okapi.runs import Run


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
            except (ValueError, OSError) as error:
                records.append(_failed(folder, str(error)))
            else:
                records += [_of_benchmark(run, benchmarks[-1]) for run in benchmarks[-1].runs if run.state != "waiting"]
        else:
            records += [read_record(inner) for inner in _run_directories(folder)]
    if not any(record.state != "failed" or record.results for record in records) and not benchmarks:
        raise ValueError("; ".join(record.reason for record in records))
    named = _with_methods(_with_names(records))
    return Gathered(tuple(named), tuple(benchmarks), tuple(_notes(named)))


def read_record(path: Path) -> RunRecord:
    """Return a run; what cannot be read has failed."""
    run = Run(path)
    try:
        run.check_begun()
        config = _read_config(run)
        results = run.results() if run.results_file.is_file() else None
    except (ValueError, OSError) as error:
        return _failed(path, str(error))
    method, seed = str(config["algorithm"].get("name", "")), config.get("seed")
    return RunRecord(
        cell=Cell(method, ALL, seed if isinstance(seed, int) else 0),
        run=run,
        state="finished" if results else "begun",
        results=results,
        name=path.name or str(path),
        method=method,
        config=config,
    )


def _run_directories(folder: Path) -> list[Path]:
    """Return the folder if it may hold a run, or else those in it that do; itself if there are none."""
    if (folder / "config.yaml").is_file():
        return [folder]
    return sorted(path.parent for path in folder.glob("*/config.yaml")) or [folder]


def _read_config(run: Run) -> dict[str, Any]:
    if not run.config_file.is_file():
        raise ValueError(f"{run.path} holds no run: it has no config.yaml")
    try:
        config = yaml.safe_load(run.config_file.read_text(encoding="utf-8"))
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{run.config_file} is no YAML, it was edited or damaged: {error}") from error
    if not isinstance(config, dict) or not isinstance(config.get("algorithm"), dict):
        raise ValueError(f"{run.config_file} holds no config of a run")
    return config


def _failed(path: Path, reason: str) -> RunRecord:
    reason = " ".join(reason.split())[:400]
    return RunRecord(cell=Cell("", ALL, 0), run=Run(path), state="failed", reason=reason, name=path.name or str(path))


def _of_benchmark(run: RunRecord, results: Results) -> RunRecord:
    config = run.config or results.grid.config(run.cell, results.out).as_dict()
    return replace(run, config=config, benchmark=results.out)


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
    if failed := [record.name for record in records if record.state == "failed"]:
        some = ", ".join(failed[:5]) + (" and others" if len(failed) > 5 else "")
        notes.append(
            f"{len(failed)} of {len(records)} runs failed or cannot be read: {some}. The table of runs says why."
        )
    versions = {record.results.okapi for record in records if record.results} - {__version__}
    if versions:
        notes.append(f"Some runs are of okapi {', '.join(sorted(versions))}; this page was made by {__version__}.")
    oracles = [record.name for record in records if record.selector == "oracle"]
    if oracles:
        some = ", ".join(oracles[:5]) + (" and others" if len(oracles) > 5 else "")
        notes.append(f"An oracle, which looks at ood_test, selected the weights of {some}: not an honest result.")
    return notes
