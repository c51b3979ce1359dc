"""The results of a benchmark, read back from its folder alone."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from okapi.benchmark.comparing import Comparison, energy_table
from okapi.benchmark.grid import Grid
from okapi.benchmark.plan import read_plan
from okapi.benchmark.runs import Run, read_run
from okapi.benchmark.tables import Table
from okapi.files import write_bytes

SPLITS = ("ood_test", "unlabelled_test", "id_test", "ood_val", "id_val")
"""In the order in which a table prefers them."""

_ENVIRONMENT = ("torch", "python", "platform", "processor", "threads")
_COLUMNS = ["method", "target", "seed", "split", "metric", "value", "selector", "step", "steps", "seconds", "okapi"]
_COLUMNS += [*_ENVIRONMENT, "config", "date", "path"]


@dataclass(frozen=True, eq=False)
class Results:
    """All runs of a benchmark, finished or not.

    Parameters
    ----------
    out : Path
        Folder of the benchmark.
    grid : Grid
    runs : tuple of Run
    """

    out: Path
    grid: Grid
    runs: tuple[Run, ...]

    @property
    def failed(self) -> list[Run]:
        """The runs that failed."""
        return [run for run in self.runs if run.state == "failed"]

    @cached_property
    def frame(self) -> pd.DataFrame:
        """Every figure of every run with all that it depends on, one row each.

        Columns are ``method``, ``target`` (or fold; "all" without either), ``seed``, ``split``, ``metric``, ``value``,
        ``selector``, ``step`` (of the selected weights), ``steps``, ``seconds`` (in training steps), ``okapi``,
        ``torch``, ``python``, ``platform``, ``processor``, ``threads``, ``config`` (its hash), ``date`` and ``path``.
        """
        rows = []
        for run in self.runs:
            if not run.results:
                continue
            environment = run.environment
            about = {
                "selector": run.selector,
                "step": run.results["selection"].get("step"),
                "steps": run.results.get("steps"),
                "seconds": run.seconds,
                "okapi": run.results.get("okapi"),
                **{name: environment.get(name) for name in _ENVIRONMENT},
                "config": run.config_hash,
            }
            named = {"method": run.cell.method, "target": run.cell.group, "seed": run.cell.seed}
            path = run.folder.relative_to(self.out).as_posix()
            for split, figures in run.figures.items():
                late = {**about, "date": run.date(split), "path": path}
                rows += [{**named, "split": split, "metric": name, "value": figures[name], **late} for name in figures]
        return pd.DataFrame(rows, columns=_COLUMNS)

    def runs_frame(self) -> pd.DataFrame:
        """Return one row for each run and split, a column for each metric; of a run without figures one row."""
        frame = self.frame
        metrics = list(dict.fromkeys(frame["metric"]))
        about = [name for name in frame.columns if name not in ("metric", "value")]
        found = frame.drop_duplicates(["method", "target", "seed", "split"])[about].set_index(
            ["method", "target", "seed", "split"], drop=False
        )
        values = frame.set_index(["method", "target", "seed", "split"])
        for metric in metrics:
            found[metric] = values.loc[values["metric"] == metric, "value"]
        found["state"] = "finished"
        rest = [
            {
                "method": run.cell.method,
                "target": run.cell.group,
                "seed": run.cell.seed,
                "state": run.state,
                "path": run.folder.relative_to(self.out).as_posix(),
                "reason": run.reason,
            }
            for run in self.runs
            if not run.results or run.state == "failed"
        ]
        order = ["method", "target", "seed", "state", "split", *metrics, *about[4:], "reason"]
        return pd.concat([found.reset_index(drop=True), pd.DataFrame(rest)], ignore_index=True).reindex(columns=order)

    def table(self, split: str | None = None, metric: str | None = None) -> Table:
        """Return methods against targets: mean, deviation, paired differences to the reference.

        Parameters
        ----------
        split : str, optional
            By default the first of ``SPLITS`` that runs have figures of.
        metric : str, optional
            By default the one that the config names, or the task's main one.
        """
        frame = self.frame
        there = [name for name in SPLITS if name in set(frame["split"])]
        if split is None:
            split = there[0] if there else SPLITS[0]
        elif split not in there:
            raise ValueError(f"split must be one of {', '.join(there) or 'none: no run is finished'}, got {split!r}")
        known = list(dict.fromkeys(frame.loc[frame["split"] == split, "metric"]))
        if metric is None:
            wanted = next(iter(self.grid.methods.values())).training.metric
            metric = wanted if wanted in known or not known else known[0]
        elif metric not in known:
            raise ValueError(f"metric must be one of {', '.join(known)}, got {metric!r}")
        return Comparison(self, split, metric or "accuracy").table()

    def energy(self) -> Table | None:
        """Return wall time, energy and carbon with their ratios to the reference; None where it was not measured."""
        return energy_table(self)

    def write(self, split: str | None = None, metric: str | None = None) -> list[Path]:
        """Write table.md, table.csv, table.tex and runs.csv, and the same of energy; return their paths."""
        runs = str(self.runs_frame().to_csv(index=False, lineterminator="\n"))
        texts = {"runs.csv": runs, **_texts("table", self.table(split, metric))}
        if energy := self.energy():
            texts |= _texts("energy", energy)
        for name, text in texts.items():
            write_bytes(self.out / name, text.encode())
        return [self.out / name for name in texts]


def read_results(out: Path) -> Results:
    """Return the results of the benchmark in a folder, whatever of it is finished.

    Parameters
    ----------
    out : Path
    """
    grid = read_plan(out)
    return Results(out, grid, tuple(read_run(grid, cell, out) for cell in grid.cells()))


def _texts(name: str, table: Table) -> dict[str, str]:
    return {f"{name}.md": table.to_markdown(), f"{name}.csv": table.to_csv(), f"{name}.tex": table.to_latex()}
