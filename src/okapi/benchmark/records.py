"""The runs of a benchmark as they lie in its folder, and one table of all that they found."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pandas as pd
import yaml

from okapi.benchmark.grid import Cell, Grid, read_grid
from okapi.benchmark.worker import is_tested
from okapi.config import MAY_CHANGE, Config, differences, read_config
from okapi.evaluation import METRICS, plain_metric
from okapi.files import write_bytes
from okapi.runs import Run
from okapi.runs.results import Evaluation
from okapi.runs.results import Results as RunResults

State: TypeAlias = Literal["finished", "failed", "begun", "waiting"]

FAILED = "Failed: "
"""Begins the line by which the log of a run that failed ends."""

_ENVIRONMENT = ("torch", "python", "platform", "processor", "threads")
_KEYS = ["method", "target", "seed", "split"]
_ABOUT = ["selector", "step", "steps", "seconds", "okapi", *_ENVIRONMENT, "config", "date", "path", "reason"]


@dataclass(frozen=True, kw_only=True, eq=False)
class RunRecord:
    """A run, finished or not, or what is left of one: as a benchmark keeps it and a report shows it.

    Parameters
    ----------
    cell : Cell
        Its place in the benchmark; of a run outside one, its algorithm and seed.
    run : Run
        Its directory.
    state : {"finished", "failed", "begun", "waiting"}
        "finished": trained; see ``tested``.
    reason : str
        Why it failed.
    beyond_help : bool
        Whether to try it again cannot help: its directory holds something else.
    tested : bool
        Whether all its test splits were evaluated.
    results : okapi.runs.Results, optional
        What results.json holds; None unless it is finished.
    log : Path, optional
        What the run has printed.
    name, method : str
        What the run, and it with those that differ in their seed, fold or target only, are called.
    config : dict
        Its config; empty where that is not known.
    benchmark : Path, optional
        The benchmark that it belongs to.
    """

    cell: Cell
    run: Run
    state: State
    reason: str = ""
    beyond_help: bool = False
    tested: bool = False
    results: RunResults | None = None
    log: Path | None = None
    name: str = ""
    method: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    benchmark: Path | None = None

    @property
    def path(self) -> Path:
        """The run directory."""
        return self.run.path

    @property
    def metrics(self) -> dict[str, dict[str, float]]:
        """Metrics of the selected weights by split; one that is undefined is NaN. Of several evaluations the last."""
        return self.results.metrics() if self.results else {}

    @property
    def selector(self) -> str:
        """By what the weights were selected."""
        return self.results.selection.selector if self.results else ""

    @property
    def algorithm(self) -> str:
        """Name of the algorithm."""
        return str(self._setting("algorithm", "name") or "")

    @cached_property
    def history(self) -> pd.DataFrame:
        """What metrics.csv holds, ``step``, ``split``, ``metric``, ``value``, but for lines that make no sense."""
        return self.run.metrics()

    @property
    def step(self) -> int:
        """The last step that was written down."""
        return int(self.history["step"].max()) if len(self.history) else 0

    @property
    def steps(self) -> int | None:
        """How many steps the run is to have."""
        steps = self._setting("training", "steps")
        return steps if isinstance(steps, int) else None

    @property
    def metric(self) -> str | None:
        """The metric that runs are compared by: the config's, the one that selected the weights, or the first."""
        history = self.history
        validated = history.loc[history["split"].isin(["ood_val", "id_val"]), "metric"]
        known = dict.fromkeys([*(name for values in self.metrics.values() for name in values), *validated])
        wanted = self._setting("training", "metric"), self.results.selection.metric if self.results else None
        chosen = (name for name in (*wanted, *known) if name in known and plain_metric(name) in METRICS)
        return next(chosen, None)

    def evaluation(self, split: str) -> Evaluation | None:
        """Return the last evaluation of the selected weights on a split."""
        evaluations = self.results.evaluations_of_selected() if self.results else []
        return next((one for one in reversed(evaluations) if one.split == split), None)

    def rows(self, out: Path) -> Iterator[dict[str, Any]]:
        """Yield a row for each split with metrics; of a run without any one row that says why."""
        cell = {"method": self.cell.method, "target": self.cell.group, "seed": self.cell.seed, "state": self.state}
        cell |= {"path": self.path.relative_to(out).as_posix(), "reason": self.reason}
        if self.results is None:
            yield cell
            return
        environment = _environment(self.run)
        dates = {one.split: one.date for one in self.results.evaluations_of_selected()}
        written = datetime.fromtimestamp(self.run.results_file.stat().st_mtime, UTC).isoformat(timespec="seconds")
        about = {
            "selector": self.selector,
            "step": self.results.selection.step,
            "steps": self.results.steps,
            "seconds": self.run.timings()["seconds"].sum(),
            "okapi": self.results.okapi,
            **{name: environment.get(name) for name in _ENVIRONMENT},
            "config": config_hash(self.results.config),
        }
        for split, metrics in self.metrics.items():
            yield {**cell, "split": split, **metrics, **about, "date": dates.get(split, written)}

    def _setting(self, section: str, key: str) -> Any:
        found = self.config.get(section)
        return found.get(key) if isinstance(found, Mapping) else None


@dataclass(frozen=True, eq=False)
class Results:
    """All runs of a benchmark, finished or not.

    Parameters
    ----------
    out : Path
        Folder of the benchmark.
    grid : Grid
    runs : tuple of RunRecord
    """

    out: Path
    grid: Grid
    runs: tuple[RunRecord, ...]

    @property
    def failed(self) -> list[RunRecord]:
        """The runs that failed."""
        return [run for run in self.runs if run.state == "failed"]

    def metrics(self, split: str) -> list[str]:
        """Return the metrics that runs have on a split."""
        return list(dict.fromkeys(name for run in self.runs for name in run.metrics.get(split, {})))

    @cached_property
    def frame(self) -> pd.DataFrame:
        """What every run found, with all that it depends on: the table from which all others are made.

        One row for each run and split; a run without results has one row. Columns are ``method``, ``target`` (or fold;
        "all" without either), ``seed``, ``split``, ``state``, one for each metric, ``selector``, ``step`` (of the
        selected weights), ``steps``, ``seconds`` (in training steps), ``okapi``, ``torch``, ``python``, ``platform``,
        ``processor``, ``threads``, ``config`` (its hash), ``date``, ``path`` and ``reason`` (of a failure).
        """
        frame = pd.DataFrame([row for run in self.runs for row in run.rows(self.out)])
        metrics = dict.fromkeys(name for run in self.runs for values in run.metrics.values() for name in values)
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


def read_run(grid: Grid, cell: Cell, out: Path) -> RunRecord:
    """Return a run of the benchmark in a folder; what cannot be read, or is of another config, has failed."""
    run, log = Run(cell.below(out)), log_file(out, cell)
    place: dict[str, Any] = {"cell": cell, "run": run, "log": log, "name": str(cell), "method": cell.method}
    if run.config_file.exists() and (other := _other_config(run, grid.config(cell, out))):
        return RunRecord(**place, state="failed", reason=f"{run.path} {other}", beyond_help=True)
    reason = _failure(log)
    if run.state != "finished":
        begun: State = "begun" if run.state == "begun" else "waiting"
        return RunRecord(**place, state="failed" if reason else begun, reason=reason)
    try:
        results, tested = run.results(), is_tested(run)
    except (ValueError, OSError) as error:
        return RunRecord(**place, state="failed", reason=str(error), beyond_help=True)
    state: State = "failed" if reason else "finished"
    return RunRecord(**place, state=state, reason=reason, tested=tested, results=results, config=results.config)


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
