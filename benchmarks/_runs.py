"""What the studies share: how long runs are, and the runs of a grid."""

import json
from pathlib import Path

import pandas as pd

from _common import is_smoke
from okapi.benchmark import Grid, Running, run_benchmark


def schedule(steps: int) -> dict[str, str]:
    """Return overrides for runs of so many steps: six validations, one checkpoint."""
    return {
        "training.steps": str(steps),
        "training.validate_every": str(max(1, steps // 6)),
        "training.checkpoint_every": str(steps),
    }


def run_grid(grid: Grid, out: Path) -> pd.DataFrame:
    """Make the runs of a grid that are not finished yet; return the results of all, or exit if one failed."""
    results = run_benchmark(grid, out, Running(engine=_ThisProcess()) if is_smoke() else None)
    if results.failed:
        raise SystemExit(f"{len(results.failed)} runs failed, the first: {results.failed[0].reason}")
    return results.frame


class _ThisProcess:
    """Makes each run of a benchmark in this process; starting another takes longer than a tiny run."""

    slots = 1

    def start(self, job: Path, log: Path, slot: int) -> "_Ended":
        """Make the run of a file."""
        from okapi.benchmark.worker import Job, perform  # imports torch

        perform(Job(**json.loads(job.read_text(encoding="utf-8"))))
        return _Ended()


class _Ended:
    """A run that has ended well."""

    def poll(self) -> int:
        """Return its exit code."""
        return 0

    def stop(self) -> None:
        """Do nothing."""

    def kill(self) -> None:
        """Do nothing."""
