"""The runs of a benchmark as they lie in its folder, and one table of all that they found."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from math import nan
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pandas as pd
import yaml

from okapi.benchmark.grid import Cell, Grid, read_grid
from okapi.benchmark.worker import is_tested
from okapi.config import MAY_CHANGE, Config, differences, read_config
from okapi.files import write_bytes
from okapi.runs import Run

State: TypeAlias = Literal["finished", "failed", "begun", "waiting"]

FAILED = "Failed: "
"""Begins the line by which the log of a run that failed ends."""

_ENVIRONMENT = ("torch", "python", "platform", "processor", "threads")
_KEYS = ["method", "target", "seed", "split"]
_ABOUT = ["selector", "step", "steps", "seconds", "okapi", *_ENVIRONMENT, "config", "date", "path", "reason"]


@dataclass(frozen=True, kw_only=True)
class CellRun:
    """The run of a cell.

    Parameters
    ----------
    cell : Cell
    folder, log : Path
        The run directory, and what the run has printed.
    state : {"finished", "failed", "begun", "waiting"}
        "finished": trained; see ``tested``.
    reason : str
        Why it failed.
    beyond_help : bool
        Whether to try it again cannot help: its directory holds something else.
    tested : bool
        Whether all its test splits were evaluated.
    results : dict
        What results.json holds; empty unless it is finished.
    """

    cell: Cell
    folder: Path
    log: Path
    state: State
    reason: str = ""
    beyond_help: bool = False
    tested: bool = False
    results: dict[str, Any] = field(default_factory=dict)

    @property
    def figures(self) -> dict[str, dict[str, float]]:
        """Metrics of the selected weights by split; one that is undefined is NaN. Of several evaluations the last."""
        chosen = self.results.get("selection", {})
        found = {split: metrics for split, metrics in chosen.get("metrics", {}).items() if split.endswith("_val")}
        found |= {record["split"]: record["metrics"] for record in self._evaluations()}
        return {
            split: {name: nan if value is None else value for name, value in metrics.items()}
            for split, metrics in found.items()
        }

    @property
    def selector(self) -> str:
        """By what the weights were selected."""
        return str(self.results.get("selection", {}).get("selector", ""))

    def rows(self, out: Path) -> Iterator[dict[str, Any]]:
        """Yield a row for each split with metrics; of a run without any one row that says why."""
        cell = {"method": self.cell.method, "target": self.cell.group, "seed": self.cell.seed, "state": self.state}
        cell |= {"path": self.folder.relative_to(out).as_posix(), "reason": self.reason}
        if not self.results:
            yield cell
            return
        run = Run(self.folder)
        environment = _environment(run)
        dates = {record["split"]: record["date"] for record in self._evaluations()}
        written = datetime.fromtimestamp(run.results_file.stat().st_mtime, UTC).isoformat(timespec="seconds")
        about = {
            "selector": self.selector,
            "step": self.results["selection"]["step"],
            "steps": self.results["steps"],
            "seconds": run.timings()["seconds"].sum(),
            "okapi": self.results["okapi"],
            **{name: environment.get(name) for name in _ENVIRONMENT},
            "config": config_hash(self.results["config"]),
        }
        for split, metrics in self.figures.items():
            yield {**cell, "split": split, **metrics, **about, "date": dates.get(split, written)}

    def _evaluations(self) -> list[dict[str, Any]]:
        selected = self.results.get("weights", {}).get("sha256")
        return [
            record
            for record in self.results.get("evaluations", [])
            if record["weights"]["sha256"] == selected and record["weights"]["which"] == "selected"
        ]


@dataclass(frozen=True, eq=False)
class Results:
    """All runs of a benchmark, finished or not.

    Parameters
    ----------
    out : Path
        Folder of the benchmark.
    grid : Grid
    runs : tuple of CellRun
    """

    out: Path
    grid: Grid
    runs: tuple[CellRun, ...]

    @property
    def failed(self) -> list[CellRun]:
        """The runs that failed."""
        return [run for run in self.runs if run.state == "failed"]

    def metrics(self, split: str) -> list[str]:
        """Return the metrics that runs have on a split."""
        return list(dict.fromkeys(name for run in self.runs for name in run.figures.get(split, {})))

    @cached_property
    def frame(self) -> pd.DataFrame:
        """What every run found, with all that it depends on: the table from which all others are made.

        One row for each run and split; a run without results has one row. Columns are ``method``, ``target`` (or fold;
        "all" without either), ``seed``, ``split``, ``state``, one for each metric, ``selector``, ``step`` (of the
        selected weights), ``steps``, ``seconds`` (in training steps), ``okapi``, ``torch``, ``python``, ``platform``,
        ``processor``, ``threads``, ``config`` (its hash), ``date``, ``path`` and ``reason`` (of a failure).
        """
        frame = pd.DataFrame([row for run in self.runs for row in run.rows(self.out)])
        metrics = dict.fromkeys(name for run in self.runs for values in run.figures.values() for name in values)
        return frame.reindex(columns=[*_KEYS, "state", *metrics, *_ABOUT])

    def write(self) -> Path:
        """Write the frame to runs.csv; return its path."""
        path = self.out / "runs.csv"
        write_bytes(path, self.frame.to_csv(index=False, lineterminator="\n").encode())
        return path


def read_results(out: Path) -> Results:
    """Return the results of the benchmark in a folder, whatever of it is finished.

    Parameters
    ----------
    out : Path
    """
    grid = read_grid(out)
    return Results(out, grid, tuple(read_run(grid, cell, out) for cell in grid.cells()))


def read_run(grid: Grid, cell: Cell, out: Path) -> CellRun:
    """Return a run of the benchmark in a folder; what cannot be read, or is of another config, has failed."""
    run, log = Run(cell.below(out)), log_file(out, cell)
    place: dict[str, Any] = {"cell": cell, "folder": run.path, "log": log}
    if run.config_file.exists() and (other := _other_config(run, grid.config(cell, out))):
        return CellRun(**place, state="failed", reason=f"{run.path} {other}", beyond_help=True)
    reason = _failure(log)
    if run.state != "finished":
        begun: State = "begun" if run.state == "begun" else "waiting"
        return CellRun(**place, state="failed" if reason else begun, reason=reason)
    try:
        results, tested = run.results().as_dict(), is_tested(run)
    except (ValueError, OSError) as error:
        return CellRun(**place, state="failed", reason=str(error), beyond_help=True)
    return CellRun(**place, state="failed" if reason else "finished", reason=reason, tested=tested, results=results)


def log_file(out: Path, cell: Cell) -> Path:
    """Return the log of a run."""
    return cell.below(out / "logs").with_suffix(".log")


def last_lines(log: Path, count: int = 5) -> list[str]:
    """Return the last lines of a log, each cut to what one can read."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 20_000))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return []
    return [line if len(line) <= 400 else f"{line[:400]} ..." for line in lines if line.strip()][-count:]


def config_hash(config: dict[str, Any]) -> str:
    """Return the first 12 digits of the SHA-256 of a config, but for keys that have no part in what is learnt."""
    content = {name: dict(section) if isinstance(section, dict) else section for name, section in config.items()}
    for section, key in (name.split(".") for name in MAY_CHANGE):
        if isinstance(content.get(section), dict):
            content[section].pop(key, None)
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:12]


def _failure(log: Path) -> str:
    """Return why a run failed, by the end of its log; nothing where it did not fail."""
    before, last = ["", "", *last_lines(log, 2)][-2:]
    if not last.startswith(FAILED):
        return ""
    return f"{last.removeprefix(FAILED)}: {before}" if before.startswith("okapi: ") else last.removeprefix(FAILED)


def _environment(run: Run) -> dict[str, Any]:
    try:
        return run.environment()
    except (ValueError, OSError):
        return {}


def _other_config(run: Run, expected: Config) -> str:
    """Return in words how a run's config differs from the one that it should have."""
    try:
        found, wanted = yaml.safe_load(run.config_file.read_text(encoding="utf-8")), expected.as_dict()
        if found == wanted:
            return ""
        found = read_config(run.config_file).as_dict()  # with keys that its version did not know
    except (OSError, ValueError, yaml.YAMLError) as error:
        return f"has a config.yaml that cannot be read: {' '.join(str(error).split())}"
    # How many processes a run has is up to what started it, and a moved benchmark has moved what runs start from, too.
    free = ("training.devices", "training.nodes", "training.start_from", "algorithm.erm_run")
    changes = [text for text in differences(found, wanted) if text.partition(":")[0] not in free]
    return f"holds a run with another config: {'; '.join(changes)}" if changes else ""
