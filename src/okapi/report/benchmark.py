"""What a benchmark prints: its tables, and where the files are."""

from pathlib import Path

from rich.text import Text

from okapi.benchmark import Results, Table
from okapi.console import stdout
from okapi.report.terminal import print_table


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
    _print(results.table(split, metric))
    if energy := results.energy():
        _print(energy)
    console = stdout()
    console.print()
    console.print(Text(f"Written: {', '.join(map(str, files))}"), soft_wrap=True)


def _print(table: Table) -> None:
    console = stdout()
    print_table(console, table.caption, table.headings, table.to_rows(), words=table.headings[:1])
    for note in (*table.legend("*"), *table.notes, *table.details):
        console.print(Text(note), soft_wrap=True)
