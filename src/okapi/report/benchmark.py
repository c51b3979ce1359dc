"""The tables of a benchmark, as they are printed and shown in pages."""

from pathlib import Path

from rich.text import Text

from okapi.benchmark import Results
from okapi.benchmark import Table as BenchmarkTable
from okapi.console import stdout
from okapi.table import Cell, Column, Mark, Table


def print_results(results: Results, files: list[Path], split: str | None = None, metric: str | None = None) -> None:
    """Print the comparison, what it cost if that was measured, and where the files are; to stdout.

    Parameters
    ----------
    results : Results
    files : list of Path
        What was written.
    split, metric : str, optional
        As of ``Results.table``.
    """
    console = stdout()
    shown_table("benchmark", results.table(split, metric)).print(console)
    if energy := results.energy():
        shown_table("energy", energy).print(console)
    console.print()
    console.print(Text(f"Written: {', '.join(map(str, files))}"), soft_wrap=True)


def shown_table(name: str, table: BenchmarkTable, title: str = "Results") -> Table:
    """Return a table of a benchmark as readers see it."""
    marks: list[Mark] = ["", "not_worse", "best"]
    return Table(
        title=title,
        name=name,
        columns=[table.headings[0], *(Column(heading, str) for heading in table.headings[1:])],
        rows=[[Cell(entry.text, marks[entry.alike + 2 * entry.best]) for entry in row] for row in table.rows],
        caption=table.caption,
        notes=table.notes,
        details=table.details,
    )
