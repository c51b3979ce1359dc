"""The tables of a benchmark: methods against targets, and what they cost; as they are printed, written and shown."""

from collections.abc import Mapping
from math import isnan
from pathlib import Path
from typing import Any

from rich.text import Text

from okapi import __version__
from okapi.benchmark import Comparison, Results, RunRecord, compare
from okapi.benchmark.compare import AVERAGE, CONFIDENCE
from okapi.benchmark.energy import compare_energy
from okapi.console import stdout
from okapi.files import write_bytes
from okapi.numbers import NOTHING, count, decimals, fixed
from okapi.table import Cell, Column, Mark, Table


def benchmark_tables(results: Results, comparison: Comparison | None = None) -> list[Table]:
    """Return the comparison of the methods, and that of their energy if it was measured."""
    energy = energy_table(results)
    return [comparison_table(results, comparison or compare(results)), *([energy] if energy else [])]


def write_tables(results: Results, comparison: Comparison) -> list[Path]:
    """Write runs.csv, table.md, table.csv, table.tex, and the same of energy; return their paths."""
    table, *energy = benchmark_tables(results, comparison)
    texts = {"table.md": table.to_markdown(), "table.tex": table.to_latex()}
    texts["table.csv"] = comparison.frame.to_csv(index=False, lineterminator="\n")
    for cost in energy:
        texts |= {"energy.md": cost.to_markdown(), "energy.csv": cost.to_csv(), "energy.tex": cost.to_latex()}
    for name, text in texts.items():
        write_bytes(results.out / name, text.encode())
    return [results.write(), *(results.out / name for name in texts)]


def print_results(results: Results, split: str | None = None, metric: str | None = None) -> None:
    """Write the tables and print them, and where they are.

    Parameters
    ----------
    results : Results
    split, metric : str, optional
        As of ``compare``.
    """
    console, comparison = stdout(), compare(results, split, metric)
    for table in benchmark_tables(results, comparison):
        table.print(console)
    console.print()
    files = ", ".join(map(str, write_tables(results, comparison)))
    console.print(Text(f"Written: {files}"), soft_wrap=True)


def splits_table(results: Results, headings: Mapping[str, str], metric: str | None = None) -> Table:
    """Return methods against splits, the last with the difference to the reference: mean (standard deviation).

    Parameters
    ----------
    results : Results
        Of a grid without targets and folds.
    headings : mapping
        What the column of each split is called.
    metric : str, optional
        As of ``compare``.
    """
    compared = {split: compare(results, split, metric) for split in headings}
    last = next(reversed(compared.values()))
    digits, gain = decimals(last.frame["mean"]), f"difference_to_{results.grid.reference}"
    called = [*headings.values(), f"gain over {results.grid.reference}"]
    rows = []
    for place, method in enumerate(last.frame["method"]):
        records = [one.frame.iloc[place].to_dict() for one in compared.values()]
        cells = [_cell(record, digits, len(results.grid.seeds)) for record in records]
        rows.append([method, *cells, _signed(records[-1], gain, digits)])
    return Table(
        title=f"{last.metric.capitalize()} at sites of each kind",
        name="splits",
        columns=["method", *(Column(heading, str) for heading in called)],
        rows=rows,
        caption=_caption(results, last).replace(f" on {last.split}", ""),
        details=[f"{heading.capitalize()}: the split {split}." for split, heading in headings.items()],
    )


def comparison_table(results: Results, comparison: Comparison) -> Table:
    """Return methods against targets: mean (standard deviation), and the difference to the reference."""
    grid, frame = results.grid, comparison.frame
    digits, replicates = decimals(frame["mean"]), len(grid.groups if grid.axis == "fold" else grid.seeds)
    gain = f"difference_to_{grid.reference}"
    with_gains = frame[gain].notna().any()
    rows = []
    for method, columns in frame.groupby("method", sort=False):
        records = columns.to_dict("records")
        oracle = " (oracle)" if "oracle" in records[0]["selector"].split(", ") else ""
        row = [f"{method}{oracle}", *(_cell(record, digits, replicates) for record in records)]
        rows.append([*row, *([_signed(records[-1], gain, digits)] if with_gains else [])])
    targets = list(dict.fromkeys(frame["target"]))
    headings = targets if len(targets) > 1 else [comparison.metric]
    headings += [f"difference to {grid.reference}"] if with_gains else []
    several = {"fold": "folds and seeds", "target": "targets and seeds"}.get(grid.axis or "", "seeds")
    interval = f", with a {CONFIDENCE:.0%} percentile bootstrap interval over {several}."
    interval = interval if frame["low"].notna().any() else "; one seed leaves no interval."
    states = {"failed": ("failed",), "are not finished": ("begun", "waiting")}
    counts = {words: sum(run.state in names for run in results.runs) for words, names in states.items()}
    return Table(
        title="Results",
        name="benchmark",
        columns=["method", *(Column(heading, str) for heading in headings)],
        rows=rows,
        caption=_caption(results, comparison),
        notes=[
            *([f"Differences are paired by {several}{interval}"] if with_gains else []),
            *(f"{number} of {len(results.runs)} runs {words}." for words, number in counts.items() if number),
        ],
        details=[*map(_failure, results.failed), *comparison.details],
    )


def energy_table(results: Results) -> Table | None:
    """Return wall time, energy and carbon of each method, and ratios to the reference; None if not measured."""
    frame, notes = compare_energy(results)
    if frame.empty:
        return None
    columns: list[Any] = ["method"]
    for heading in ("wall time (s)", "energy (Wh)", "CO2 (g)"):
        columns += [Column("mean", "{:.3g}".format, heading), Column("ratio", fixed(2), heading)]
    return Table(
        title="Energy",
        name="energy",
        columns=[*columns, Column("runs", count)],
        rows=frame.to_numpy().tolist(),
        caption="Wall time, energy and carbon of a training run, by codecarbon: mean over runs, and ratio to "
        f"{results.grid.reference}. okapi {__version__}.",
        notes=notes,
    )


def _cell(record: Mapping[Any, Any], digits: int, replicates: int) -> Cell:
    write = fixed(digits)
    failed = f"{record['failed']} failed" if record["failed"] else ""
    mark: Mark = "best" if record["best"] else "not_worse" if record["not_significantly_worse"] else ""
    if isnan(record["mean"]):
        return Cell(record["mean"], text="failed" if failed else NOTHING)
    text = f"{write(record['mean'])} ({write(record['standard_deviation'])})"
    fewer = f"n = {record['n']}" if record["n"] < replicates else ""
    return Cell(record["mean"], mark, ", ".join(filter(None, [text, fewer, failed])))


def _signed(record: Mapping[Any, Any], gain: str, digits: int) -> Cell:
    write = fixed(digits, signed=True)
    interval = "" if isnan(record["low"]) else f" [{write(record['low'])}, {write(record['high'])}]"
    return Cell(record[gain], text=f"{write(record[gain])}{interval}")


def _caption(results: Results, comparison: Comparison) -> str:
    grid, frame = results.grid, comparison.frame
    better = "higher" if comparison.higher_is_better else "lower"
    seeds = f"{len(grid.seeds)} seed{'s' * (len(grid.seeds) > 1)} ({', '.join(map(str, grid.seeds))})"
    over = f"{len(grid.groups)} folds, each a mean over {seeds}" if grid.axis == "fold" else seeds
    if AVERAGE in frame["target"].unique()[1:]:
        over += "; the average over targets is taken of each seed first"
    starts = "".join(f"Every run starts from the weights of one of {name}. " for name in grid.start)
    versions = " and ".join(sorted({name for name in frame["okapi"] if name})) or __version__
    return (
        f"{comparison.metric} on {comparison.split} ({better} is better): mean (standard deviation) over {over}. "
        f"{starts}Weights selected by {_selectors(comparison)}. okapi {versions}."
    )


def _selectors(comparison: Comparison) -> str:
    oracle = "oracle (which looks at ood_test: not an honest result)"
    of_method = comparison.frame.groupby("method", sort=False)["selector"].first().replace({"oracle": oracle})
    of_method = of_method[of_method != ""]
    if of_method.nunique() == 1:
        return str(of_method.iloc[0])
    return "; ".join(f"{selector} for {method}" for method, selector in of_method.items()) or NOTHING


def _failure(run: RunRecord, most: int = 160) -> str:
    reason = run.reason.rstrip(".") if len(run.reason) <= most else f"{run.reason[:most].rstrip()} ..."
    return f"{run.cell} failed: {reason}. Log: {run.log}."
