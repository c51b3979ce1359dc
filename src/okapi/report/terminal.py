"""What a matching prints: tables of plain text that also read well in a file, and a line that says what goes on."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from okapi.report.numbers import count, decimal, plural, share

__all__ = ["count", "decimal", "plural", "print_files", "print_notes", "print_table", "share"]


def print_table(
    console: Console,
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    words: Sequence[str] = (),
    style: Callable[[Sequence[str]], str] = lambda row: "",
    about: str = "",
    close: bool = False,
) -> None:
    """Print a table below its title.

    Parameters
    ----------
    console : Console
    title : str
    columns : sequence of str
        Headings.
    rows : iterable of sequences of str
        Cells. Too long ones are continued on the next line, never cut.
    words : sequence of str
        Columns that hold words; the others hold numbers and stand at the right.
    style : callable
        Gives the style of a row.
    about : str
        Stands between title and table.
    close : bool
        Whether columns are two characters apart rather than three.
    """
    table = Table(box=box.SIMPLE_HEAD, collapse_padding=close, pad_edge=False, show_edge=False, header_style="bold")
    for column in columns:
        table.add_column(Text(column), justify="left" if column in words else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row), style=style(row))
    console.print()
    console.print(Text(title, style="bold"))
    if about:
        console.print(Text(about))
    console.print(table)


def print_notes(console: Console, notes: Sequence[str]) -> None:
    """Print remarks that a reader must not miss."""
    for note in notes:
        console.print()
        console.print(Text.assemble(("Note: ", "bold yellow"), note))


def print_files(console: Console, files: Mapping[str, Path | None]) -> None:
    """Print where results were written."""
    written = {label: path for label, path in files.items() if path is not None}
    if written:
        console.print()
    for label, path in written.items():
        console.print(Text(f"{label}: {path}"), soft_wrap=True)
