"""Replicates over methods, seeds, folds and targets: a grid of runs, and what they say together.

Names are loaded on first use: the command line asks for help before it needs torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from okapi.benchmark.engines import SlurmSettings
    from okapi.benchmark.grid import Cell, Grid, make_grid
    from okapi.benchmark.results import Results, read_results
    from okapi.benchmark.running import Running, run_benchmark
    from okapi.benchmark.runs import Run
    from okapi.benchmark.statistics import average, paired_difference, spread
    from okapi.benchmark.tables import Table

__all__ = [
    "Cell",
    "Grid",
    "Results",
    "Run",
    "Running",
    "SlurmSettings",
    "Table",
    "average",
    "make_grid",
    "paired_difference",
    "read_results",
    "run_benchmark",
    "spread",
]

_HOME = {
    "engines": ("SlurmSettings",),
    "grid": ("Cell", "Grid", "make_grid"),
    "results": ("Results", "read_results"),
    "running": ("Running", "run_benchmark"),
    "runs": ("Run",),
    "statistics": ("average", "paired_difference", "spread"),
    "tables": ("Table",),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOME.items():
        if name in names:
            return getattr(import_module(f"okapi.benchmark.{module}"), name)
    raise AttributeError(f"module 'okapi.benchmark' has no attribute {name!r}")
