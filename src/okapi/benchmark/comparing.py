"""The tables of a benchmark: methods against targets, and what they cost."""

from collections.abc import Mapping
from math import isfinite, isnan, nan
from typing import TYPE_CHECKING, Any

import pandas as pd

from okapi import __version__
from okapi.benchmark.energy import Energy, read_energy
from okapi.benchmark.grid import Cell
from okapi.benchmark.statistics import CONFIDENCE, Difference, Spread, Values, average, paired_difference, spread
from okapi.benchmark.tables import NOTHING, Entry, Table, decimals
from okapi.evaluation import higher_is_better

if TYPE_CHECKING:
    from okapi.benchmark.results import Results

AVERAGE = "average"


class Comparison:
    """One metric on one split, of all methods.

    Parameters
    ----------
    results : Results
    split, metric : str
    """

    def __init__(self, results: "Results", split: str, metric: str) -> None:
        self.results, self.grid, self.split, self.metric = results, results.grid, split, metric
        self._higher = higher_is_better(metric)
        self.notes: list[str] = []
        self._values = {method: self._of(method) for method in self.grid.methods}
        targets = self.grid.axis == "target" and len(self.grid.groups) > 1
        self.columns = [*self.grid.groups, AVERAGE] if targets else [AVERAGE]

    def table(self) -> Table:
        """Return the table."""
        spreads = {(method, column): self._spread(method, column) for method in self._values for column in self.columns}
        digits = decimals([found.mean for found in spreads.values()])
        marks: dict[tuple[str, str], str] = {}
        for column in self.columns:
            marks |= {(method, column): mark for method, mark in self._marks(column, spreads).items()}
        differences = {method: self._difference(method, self.grid.reference, note=True) for method in self._values}
        last = f"difference to {self.grid.reference}"
        with_last = any(found is not None for found in differences.values())
        rows = []
        for method in self._values:
            texts = [self._text(method, column, spreads[method, column], digits) for column in self.columns]
            marked = [marks.get((method, column), "") for column in self.columns]
            row = [
                Entry(self._called(method)),
                *(Entry(text, mark == "best", mark == "alike") for text, mark in zip(texts, marked, strict=True)),
            ]
            rows.append([*row, *([Entry(_signed(differences[method], digits))] if with_last else [])])
        return Table(
            caption=self._caption(),
            headings=["method", *(self._heading(column) for column in self.columns), *([last] if with_last else [])],
            rows=rows,
            frame=self._frame(spreads, marks, differences),
            notes=[*([self._pairing_note(differences)] if with_last else []), *self._state_notes()],
            details=[*self._failures(), *self.notes],
        )

    def _of(self, method: str) -> dict[tuple[str, int], float]:
        """Return a method's values by target, or fold, and seed; undefined ones are left out, and told."""
        found = {}
        for run in self.results.runs:
            if run.cell.method == method and self.split in run.figures:
                value = run.figures[self.split].get(self.metric, nan)
                if isfinite(value):
                    found[run.cell.group, run.cell.seed] = value
                else:
                    self.notes.append(f"{run.cell}: {self.metric} on {self.split} is undefined.")
        return found

    def _in(self, method: str, column: str) -> Values:
        return {key: value for key, value in self._values[method].items() if column in (AVERAGE, key[0])}

    def _spread(self, method: str, column: str) -> Spread:
        values = self._in(method, column)
        if column != AVERAGE:
            return spread(list(values.values()))
        if self.grid.axis != "fold" and {key[0] for key in values} != set(self.grid.groups):
            return Spread(nan, nan, 0)  # an average without a target is one of something else
        return average(values, over="seed" if self.grid.axis == "fold" else "target")

    def _expected(self, column: str) -> list[Cell]:
        return [cell for cell in self.grid.cells() if column in (AVERAGE, cell.group)]

    def _marks(self, column: str, spreads: Mapping[tuple[str, str], Spread]) -> dict[str, str]:
        """Return which method is the best of a column, and which are not significantly worse.

        Only methods that have all runs of the column take part: the mean of those that did not fail flatters.
        """
        every = {(cell.group, cell.seed) for cell in self._expected(column)}
        whole = [method for method in self._values if set(self._in(method, column)) == every]
        if len(whole) < 2:
            return {}
        sign = 1 if self._higher else -1
        best = max(whole, key=lambda method: sign * spreads[method, column].mean)
        marks = {}
        for method in whole:
            found = self._difference(method, best, column)
            edge = nan if found is None else found.high if self._higher else -found.low
            if method == best or spreads[method, column].mean == spreads[best, column].mean:
                marks[method] = "best"
            elif edge >= 0:
                marks[method] = "alike"
        return marks

    def _difference(self, method: str, other: str, column: str = AVERAGE, note: bool = False) -> Difference | None:
        """Return how far a method is above another, None where they cannot be compared in pairs."""
        if method == other or other not in self._values or not self._values[method]:
            return None
        ours, theirs = self._in(method, column), self._in(other, column)
        try:
            found = paired_difference(ours, theirs, names=(method, other))
        except ValueError as error:
            if note:
                self.notes.append(f"No difference: {error}.")
            return None
        replicates = {key[0] if self.grid.axis == "fold" else key[1] for key in ours}
        return found if len(replicates) > 1 else Difference(found.mean, nan, nan)

    def _text(self, method: str, column: str, found: Spread, digits: int) -> str:
        failed = self._failed(method, column)
        if isnan(found.mean):
            return "failed" if failed else NOTHING
        deviation = NOTHING if isnan(found.deviation) else f"{found.deviation:.{digits}f}"
        text = f"{found.mean:.{digits}f} ({deviation})"
        every = len({cell.group if self.grid.axis == "fold" else cell.seed for cell in self._expected(column)})
        text += f", n = {found.n}" if found.n < every else ""
        return f"{text}, {failed} failed" if failed else text

    def _failed(self, method: str, column: str) -> int:
        return sum(
            run.cell.method == method and run.state == "failed" and column in (AVERAGE, run.cell.group)
            for run in self.results.runs
        )

    def _called(self, method: str) -> str:
        """Return a method's name; what an oracle selected says so."""
        return f"{method} (oracle)" if "oracle" in self._selectors(method) else method

    def _selectors(self, method: str) -> set[str]:
        runs = [run for run in self.results.runs if run.cell.method == method and run.results]
        return {run.selector for run in runs}

    def _heading(self, column: str) -> str:
        return column if len(self.columns) > 1 else self.metric

    def _caption(self) -> str:
        better = "higher" if self._higher else "lower"
        seeds, groups = len(self.grid.seeds), len(self.grid.groups)
        of_seeds = f"{seeds} seed{'s' * (seeds > 1)} ({', '.join(map(str, self.grid.seeds))})"
        over = f"{groups} folds, each a mean over {of_seeds}" if self.grid.axis == "fold" else of_seeds
        if AVERAGE in self.columns[1:]:
            over += "; the average over targets is taken of each seed first"
        starts = "".join(f"Every run starts from the weights of one of {name}. " for name in self.grid.start)
        return (
            f"{self.metric} on {self.split} ({better} is better): mean (standard deviation) over {over}. "
            f"{starts}Weights selected by {self._selection()}. okapi {self._version()}."
        )

    def _selection(self) -> str:
        by = {method: ", ".join(sorted(its)) for method in self.grid.methods if (its := self._selectors(method))}
        words = {"oracle": "oracle (which looks at ood_test: no honest figure)"}
        if len(set(by.values())) == 1:
            name = next(iter(by.values()))
            return words.get(name, name)
        return "; ".join(f"{words.get(name, name)} for {method}" for method, name in by.items()) or NOTHING

    def _version(self) -> str:
        found = sorted({str(run.results.get("okapi")) for run in self.results.runs if run.results})
        return " and ".join(found) or __version__

    def _pairing_note(self, differences: Mapping[str, Difference | None]) -> str:
        several = {"fold": "folds and seeds", "target": "targets and seeds"}.get(self.grid.axis or "", "seeds")
        paired = f"Differences are paired by {several}"
        if all(found is None or isnan(found.low) for found in differences.values()):
            return f"{paired}; one seed leaves no interval."
        return f"{paired}, with a {CONFIDENCE:.0%} percentile bootstrap interval over {several}."

    def _state_notes(self) -> list[str]:
        counts = {
            "failed": len(self.results.failed),
            "are not finished": sum(run.state in ("begun", "waiting") for run in self.results.runs),
        }
        return [f"{count} of {len(self.results.runs)} runs {words}." for words, count in counts.items() if count]

    def _failures(self) -> list[str]:
        return [f"{run.cell} failed: {_short(run.reason)}. Log: {run.log}." for run in self.results.failed]

    def _frame(
        self,
        spreads: Mapping[tuple[str, str], Spread],
        marks: Mapping[tuple[str, str], str],
        differences: Mapping[str, Difference | None],
    ) -> pd.DataFrame:
        rows: list[dict[str, Any]] = []
        for (method, column), found in spreads.items():
            compared = (
                differences[method] if column == AVERAGE else self._difference(method, self.grid.reference, column)
            )
            compared = compared or Difference(nan, nan, nan)
            rows.append(
                {
                    "method": method,
                    "target": column,
                    "split": self.split,
                    "metric": self.metric,
                    "mean": found.mean,
                    "standard_deviation": found.deviation,
                    "n": found.n,
                    "failed": self._failed(method, column),
                    "best": marks.get((method, column)) == "best",
                    "not_significantly_worse": (method, column) in marks,
                    f"difference_to_{self.grid.reference}": compared.mean,
                    "low": compared.low,
                    "high": compared.high,
                    "selector": ", ".join(sorted(self._selectors(method))),
                    "okapi": self._version(),
                }
            )
        return pd.DataFrame(rows)


def energy_table(results: "Results") -> Table | None:
    """Return wall time, energy and carbon of each method, and their ratios to the reference; None if not measured.

    Ratios are of means over the targets and seeds that both have.
    """
    spent: dict[str, dict[tuple[str, int], Energy]] = {method: {} for method in results.grid.methods}
    left_out = 0
    for run in results.runs:
        if run.results and (found := read_energy(run.folder, int(run.results["steps"]))):
            left_out += not found.complete
            if found.complete:
                spent[run.cell.method][run.cell.group, run.cell.seed] = found
    spent = {method: its for method, its in spent.items() if its}
    if not spent:
        return None
    reference = results.grid.reference
    rows = [_energy_row(method, its, spent.get(reference, {})) for method, its in spent.items()]
    metered = all(found.metered for its in spent.values() for found in its.values())
    notes = [] if metered else ["The CPU's power is not metered here: codecarbon estimates it by model and load."]
    if left_out:
        notes.append(f"{left_out} runs that were killed on the way are left out: part of their energy is not known.")
    kinds = ["wall time (s)", "energy (Wh)", "CO2 (g)"]
    return Table(
        caption="Wall time, energy and carbon of a training run, by codecarbon: mean over runs, and ratio to "
        f"{reference}. okapi {__version__}.",
        headings=["method", *(text for kind in kinds for text in (kind, "ratio")), "runs"],
        rows=[
            [
                Entry(str(row["method"])),
                *(Entry(text) for name in ("seconds", "wh", "g_co2") for text in _with_ratio(row, name)),
                Entry(str(row["n"])),
            ]
            for row in rows
        ],
        frame=pd.DataFrame(rows),
        notes=notes,
        label="energy",
    )


def _energy_row(
    method: str, spent: Mapping[tuple[str, int], Energy], reference: Mapping[tuple[str, int], Energy]
) -> dict[str, Any]:
    row: dict[str, Any] = {"method": method, "n": len(spent)}
    both = spent.keys() & reference.keys()
    for name, (field, unit) in {"seconds": ("seconds", 1), "wh": ("kwh", 1000), "g_co2": ("kg", 1000)}.items():
        row[name] = sum(getattr(its, field) for its in spent.values()) * unit / len(spent)
        ours, theirs = (sum(getattr(runs[key], field) for key in both) for runs in (spent, reference))
        row[f"{name}_ratio"] = ours / theirs if theirs else nan
    return row


def _with_ratio(row: Mapping[str, Any], name: str) -> tuple[str, str]:
    ratio = row[f"{name}_ratio"]
    return f"{row[name]:.3g}", NOTHING if isnan(ratio) else f"{ratio:.2f}"


def _signed(found: Difference | None, digits: int) -> str:
    if found is None:
        return NOTHING
    interval = "" if isnan(found.low) else f" [{found.low:+.{digits}f}, {found.high:+.{digits}f}]"
    return f"{found.mean:+.{digits}f}{interval}"


def _short(reason: str, most: int = 160) -> str:
    return reason.rstrip(".") if len(reason) <= most else f"{reason[:most].rstrip()} ..."
