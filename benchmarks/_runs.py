"""What the studies share: how long runs are, and the runs of a grid."""

from pathlib import Path

import pandas as pd

from _common import is_smoke
from okapi.benchmark import Grid, run_benchmark


def schedule(steps: int) -> dict[str, str]:
    """Return overrides for runs of so many steps: six validations, one checkpoint."""
    return {
        "training.steps": str(steps),
        "training.validate_every": str(max(1, steps // 6)),
        "training.checkpoint_every": str(steps),
    }


def run_grid(grid: Grid, out: Path) -> pd.DataFrame:
    """Make the runs of a grid that are not finished yet; return the results of all, or exit if one failed."""
    results = run_benchmark(grid, out, workers=0 if is_smoke() else None)
    if results.failed:
        raise SystemExit(f"{len(results.failed)} runs failed, the first: {results.failed[0].reason}")
    return results.frame
