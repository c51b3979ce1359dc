"""The runs of a benchmark as they lie in its folder: which are finished, and what they found."""

import csv
import hashlib
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import nan
from pathlib import Path
from typing import Any, Literal, TypeAlias

import yaml

from okapi import runs
from okapi.benchmark.grid import Cell, Grid
from okapi.config import MAY_CHANGE, Config, differences, read_config
from okapi.files import write_json

State: TypeAlias = Literal["finished", "failed", "begun", "waiting"]


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run of a benchmark.

    Parameters
    ----------
    cell : Cell
    folder, log : Path
        The run directory, and what the run has said.
    state : {"finished", "failed", "begun", "waiting"}
        "finished": trained; see ``tested``.
    reason : str
        Why it failed.
    beyond_help : bool
        Whether to try it again cannot help: its directory holds something else.
    tested : bool
        Whether its test splits were opened.
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
        """Figures of the selected weights by split; one that is undefined is NaN. Of several evaluations the last."""
        chosen = self.results.get("selection", {})
        found = {split: its for split, its in chosen.get("metrics", {}).items() if split.endswith("_val")}
        found |= {record["split"]: record["metrics"] for record in self._evaluations()}
        return {
            split: {name: nan if value is None else value for name, value in found[split].items()} for split in found
        }

    def date(self, split: str) -> str:
        """Return when the figures of a split were found."""
        dates = [str(record["date"]) for record in self._evaluations() if record["split"] == split]
        if dates:
            return dates[-1]
        written = (self.folder / "results.json").stat().st_mtime
        return datetime.fromtimestamp(written, UTC).isoformat(timespec="seconds")

    @property
    def selector(self) -> str:
        """By what the weights were selected."""
        return str(self.results.get("selection", {}).get("selector", ""))

    @property
    def config_hash(self) -> str:
        """The beginning of the SHA-256 of the config, but for keys that have no part in what is learnt."""
        return config_hash(self.results.get("config", {}))

    @property
    def seconds(self) -> float:
        """Time spent in training steps, by timings.csv; NaN where that cannot be read."""
        try:
            with (self.folder / "timings.csv").open(newline="", encoding="utf-8") as file:
                return sum(float(row["seconds"]) for row in csv.DictReader(file))
        except (OSError, ValueError, KeyError, TypeError):
            return nan

    @property
    def environment(self) -> dict[str, Any]:
        """What environment.json holds; empty where that cannot be read."""
        try:
            found = json.loads((self.folder / "environment.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _evaluations(self) -> list[dict[str, Any]]:
        own = self.results.get("weights", {}).get("sha256")
        return [
            record
            for record in self.results.get("evaluations", [])
            if record["weights"]["sha256"] == own and record["weights"]["which"] == "selected"
        ]


def read_run(grid: Grid, cell: Cell, out: Path) -> Run:
    """Return a run of the benchmark in a folder; what cannot be read, or is of another config, has failed."""
    folder, log = runs.Run(cell.below(out)), log_file(out, cell)
    place: dict[str, Any] = {"cell": cell, "folder": folder.path, "log": log}
    if folder.config_file.exists() and (odd := _odd_config(folder, grid.config(cell, out))):
        return Run(**place, state="failed", reason=f"{folder.path} {odd}", beyond_help=True)
    if folder.state == "finished":
        try:
            results = folder.results().as_dict()
            run = Run(**place, state="finished", tested=results["benchmarked"] is not None, results=results)
            _ = run.figures, run.selector, run.config_hash, [run.date(split) for split in run.figures]
        except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
            said = (
                str(error)
                if isinstance(error, ValueError | OSError)
                else f"{folder.results_file} was edited or damaged"
            )
            return Run(**place, state="failed", reason=said, beyond_help=True)
        if failure := _failure(out, cell):  # of its evaluation
            return Run(**place, state="failed", reason=failure, results=results, tested=run.tested)
        return run
    if failure := _failure(out, cell):
        return Run(**place, state="failed", reason=failure)
    return Run(**place, state="begun" if folder.config_file.exists() else "waiting")


def log_file(out: Path, cell: Cell) -> Path:
    """Return the log of a run; beside it are its job and, after a failure, what that was."""
    return cell.below(out / "logs").with_suffix(".log")


def note_failure(out: Path, cell: Cell, reason: str) -> None:
    """Write down why a run failed."""
    path = _failure_file(out, cell)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"reason": reason, "date": datetime.now(UTC).isoformat(timespec="seconds")})


def forget_failure(out: Path, cell: Cell) -> None:
    """Give a run that failed another chance."""
    _failure_file(out, cell).unlink(missing_ok=True)


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
    content = {section: dict(its) if isinstance(its, dict) else its for section, its in config.items()}
    for section, key in (name.split(".") for name in MAY_CHANGE):
        if isinstance(content.get(section), dict):
            content[section].pop(key, None)
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:12]


def _odd_config(folder: runs.Run, expected: Config) -> str:
    """Return in words how a run's config differs from the one that it should have."""
    try:
        found, wanted = yaml.safe_load(folder.config_file.read_text(encoding="utf-8")), expected.as_dict()
        if found == wanted:
            return ""
        found = read_config(folder.config_file).as_dict()  # with keys that its version did not know
    except (OSError, ValueError, yaml.YAMLError) as error:
        return f"has a config.yaml that cannot be read: {' '.join(str(error).split())}"
    # How many processes a run has is up to what started it, and a moved benchmark has moved what runs start from, too.
    own = ("training.devices", "training.nodes", "training.start_from", "algorithm.erm_run")
    changes = [text for text in differences(found, wanted) if text.partition(":")[0] not in own]
    return f"holds a run with another config: {'; '.join(changes)}" if changes else ""


def _failure_file(out: Path, cell: Cell) -> Path:
    return log_file(out, cell).with_suffix(".failed.json")


def _failure(out: Path, cell: Cell) -> str:
    try:
        return str(json.loads(_failure_file(out, cell).read_text(encoding="utf-8"))["reason"])
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, KeyError, TypeError):
        return "it failed, but the note on why cannot be read"
