"""Replicates over methods, seeds, folds and targets: a grid of runs, and what they say together."""

from okapi.benchmark.compare import Comparison, average, compare, paired_difference, spread
from okapi.benchmark.grid import Cell, Grid, make_grid
from okapi.benchmark.launch import SlurmSettings, run_benchmark
from okapi.benchmark.records import Results, RunRecord, read_results

__all__ = [
    "Cell",
    "Comparison",
    "Grid",
    "Results",
    "RunRecord",
    "SlurmSettings",
    "average",
    "compare",
    "make_grid",
    "paired_difference",
    "read_results",
    "run_benchmark",
    "spread",
]
