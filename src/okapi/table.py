"""The one table: values with marks, printed, written as Markdown, CSV or LaTeX, and shown in pages."""

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from math import inf
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from okapi.console import is_collected
from okapi.messages import printable
from okapi.numbers import NOTHING, count, decimals, fixed

Format: TypeAlias = Callable[[Any], str]
Mark: TypeAlias = Literal["", "best", "not_worse", "good", "bad"]
SIGNS: dict[str, str] = {"": "", "best": "*", "not_worse": "†", "good": "", "bad": "!"}
MEANINGS = {"best": "the best of its column", "not_worse": "not significantly worse"}
_STYLES = {"": "", "best": "bold", "not_worse": "", "good": "", "bad": "red"}
_LATEX = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "−": "$-$",
    "†": r"$^{\dagger}$",
    "→": r"$\rightarrow$",
    "∞": r"$\infty$",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
}


@dataclass(frozen=True)
class Column:
    """A column: its heading, and how its values are written.

    Parameters
    ----------
    heading : str
    format : callable, optional
        Makes text of a value; such columns stand at the right. Without it values are words, at the left.
    group : str
        Neighbours of one group have it as a heading above theirs.
    """

    heading: str
    format: Format | None = None
    group: str = ""

    @property
    def name(self) -> str:
        """Group and heading in one line."""
        return " ".join(f"{self.group} {self.heading}".split())

    def text(self, value: Any) -> str:
        """Return a value as it is shown; a missing one is a dash."""
        if value is None or value is pd.NA or (isinstance(value, float | np.floating) and np.isnan(value)):
            return NOTHING
        return printable(str(value) if self.format is None or isinstance(value, str) else self.format(value))


@dataclass(frozen=True)
class Cell:
    """A value with a mark.

    Parameters
    ----------
    value : object
        What CSV has, with all digits.
    mark : {"", "best", "not_worse", "good", "bad"}
    text : str, optional
        What is shown, where it is not what the column's format makes of the value.
    shade : float in [0, 1], optional
        How strong the colour behind it is, in HTML.
    """

    value: Any
    mark: Mark = ""
    text: str | None = None
    shade: float | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    r"""A table with all that is needed to read it.

    Parameters
    ----------
    title : str
    columns : sequence of Column or str
        A string is the heading of a column of words.
    rows : sequence of sequences
        Values, or ``Cell`` where there is more to say than the value.
    caption : str
        Sentences that stand above the table.
    notes : sequence of str
        What a reader must not miss; below the table.
    details : sequence of str
        What else there is to say; not in LaTeX.
    meanings : mapping
        What the marks "best", "not_worse", "good" and "bad" mean, in words, for those that are used.
    name : str
        By which HTML and LaTeX refer to it.

    Examples
    --------
    >>> columns = ["method", Column("accuracy", fixed(3))]
    >>> table = Table(title="Results", columns=columns, rows=[["erm", 0.71], ["okapi", Cell(0.81234, "best")]])
    >>> print(table.to_markdown())
    Results
    <BLANKLINE>
    | method | accuracy |
    | --- | ---: |
    | erm | 0.710 |
    | okapi | **0.812** |
    <BLANKLINE>
    Bold: the best of its column.
    <BLANKLINE>
    >>> print(table.to_csv())
    method,accuracy
    erm,0.71
    okapi,0.81234
    <BLANKLINE>
    """

    title: str
    columns: Sequence[Any]
    rows: Sequence[Sequence[Any]]
    caption: str = ""
    notes: Sequence[str] = ()
    details: Sequence[str] = ()
    meanings: Mapping[str, str] = field(default_factory=lambda: MEANINGS)
    name: str = "table"

    @cached_property
    def heads(self) -> list[Column]:
        """The columns."""
        return [column if isinstance(column, Column) else Column(str(column)) for column in self.columns]

    @cached_property
    def cells(self) -> list[list[Cell]]:
        """The rows, every value a cell."""
        rows = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in self.rows]
        if wrong := [len(row) for row in rows if len(row) != len(self.columns)]:
            raise ValueError(f"rows must have {len(self.columns)} cells as there are columns, got {wrong[0]}")
        return rows

    @classmethod
    def from_frame(
        cls,
        frame: pd.DataFrame,
        *,
        formats: Mapping[str, Format] | None = None,
        mark: Callable[[str, Any], Mark] = lambda name, value: "",
        label: Callable[[str], str] = lambda name: name.replace("_", " "),
        **rest: Any,
    ) -> "Table":
        """Return a data frame as a table.

        Parameters
        ----------
        frame : DataFrame
        formats : mapping, optional
            How columns are written, by name. By default whole numbers have their thousands apart, others as many
            decimals as show three digits of the largest, and all else is words.
        mark : callable
            Gives the mark of a value, from the column's name and the value.
        label : callable
            Makes a heading of a column's name. Neighbours that end in ``_before`` and ``_after`` share one.
        **rest
            As of ``Table``.
        """
        names, columns = list(map(str, frame)), []
        for place, name in enumerate(names):
            kind = (formats or {}).get(name) or _format_of(frame.iloc[:, place])
            stem, _, when = name.rpartition("_")
            paired = {f"{stem}_before", f"{stem}_after"} <= set(names[max(0, place - 1) : place + 2])
            columns.append(Column(when, kind, label(stem)) if paired and stem else Column(label(name), kind))
        values = zip(*(frame.iloc[:, place].tolist() for place in range(len(names))), strict=True)
        rows = [[Cell(value, mark(name, value)) for name, value in zip(names, row, strict=True)] for row in values]
        return cls(columns=columns, rows=rows, **rest)

    def texts(self) -> list[list[str]]:
        """Return the cells as text, without marks."""
        return [list(map(_text, self.heads, row)) for row in self.cells]

    def legend(self, **signs: str) -> list[str]:
        """Return a sentence that says what the marks mean that are used, each called by its sign."""
        used = {cell.mark for row in self.cells for cell in row}
        named = [(signs.get(mark, SIGNS[mark]), text) for mark, text in self.meanings.items() if mark in used]
        return ["; ".join(f"{sign}: {text}" for sign, text in named) + "."] if named else []

    def print(self, console: Console, most: int | None = None, rest: str = "") -> None:
        """Print it; it reads well in a file, too.

        Parameters
        ----------
        console : Console
        most : int, optional
            Rows that are printed; below stands how many more there are, and ``rest``, which says where.
        """
        if is_collected("tables", self.as_dict()):
            return
        table = RichTable(box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False, show_edge=False)
        table.header_style = "bold"
        for column in self.heads:
            heading = Text(f"{column.group}\n{column.heading}" if column.group else column.heading)
            table.add_column(heading, justify="right" if column.format else "left", overflow="fold")
        for row, texts in zip(self.cells[:most], self.texts()[:most], strict=True):
            signed = [f"{text} {SIGNS[cell.mark]}".rstrip() for text, cell in zip(texts, row, strict=True)]
            table.add_row(*(Text(text, _STYLES[cell.mark]) for text, cell in zip(signed, row, strict=True)))
        console.print()
        console.print(Text(self.title, style="bold"), soft_wrap=not console.is_terminal)
        if self.caption:
            console.print(Text(self.caption), soft_wrap=not console.is_terminal)
        console.print(table)
        more = len(self.cells) - len(self.cells[:most])
        lines = [f"and {count(more)} more{', ' if rest else ''}{rest}"] if more else []
        for line in (*lines, *self.legend(), *self.notes, *self.details):
            console.print(Text(line), soft_wrap=not console.is_terminal)

    def to_markdown(self) -> str:
        """Return it in Markdown: title and caption above, notes below."""

        def line(cells: Sequence[str]) -> str:
            return f"| {' | '.join(cells)} |"

        def shown(column: Column, cell: Cell) -> str:
            text = _escape_markdown(_text(column, cell))
            return f"**{text}**" if cell.mark == "best" else f"{text} {SIGNS[cell.mark]}".rstrip()

        head = line([_escape_markdown(column.name) for column in self.heads])
        rule = line(["---:" if column.format else "---" for column in self.heads])
        body = [line(list(map(shown, self.heads, row))) for row in self.cells]
        above = [text for text in (self.title, self.caption) if text]
        below = [*self.legend(best="Bold"), *self.notes, *self.details]
        parts = [*map(_escape_markdown, above), "\n".join([head, rule, *body]), *map(_escape_markdown, below)]
        return "\n\n".join(parts) + "\n"

    def to_latex(self) -> str:
        """Return it as a LaTeX table for the package booktabs."""

        def shown(column: Column, cell: Cell) -> str:
            text = latex(_text(column, cell))
            sign = {"not_worse": r"$^{\dagger}$", "bad": r"$^{!}$"}.get(cell.mark, "")
            return rf"\textbf{{{text}}}" if cell.mark == "best" else text + sign

        caption = " ".join(filter(None, [self.title, self.caption, *self.legend(best="Bold"), *self.notes]))
        return "\n".join(
            [
                r"% needs \usepackage{booktabs}",
                r"\begin{table}",
                r"\centering",
                rf"\caption{{{latex(caption)}}}",
                rf"\label{{tab:{self.name}}}",
                rf"\begin{{tabular}}{{{''.join('r' if column.format else 'l' for column in self.heads)}}}",
                r"\toprule",
                *self._latex_groups(),
                " & ".join(latex(column.heading.replace("\n", " ")) for column in self.heads) + r" \\",
                r"\midrule",
                *(" & ".join(map(shown, self.heads, row)) + r" \\" for row in self.cells),
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table}",
                "",
            ]
        )

    def values(self) -> list[list[Any]]:
        """Return the values of all rows as Python has them, with all their digits; None where one is missing."""

        def plain(column: Column, cell: Cell) -> Any:
            if column.text(cell.value) == NOTHING:
                return None
            return cell.value.item() if isinstance(cell.value, np.generic) else cell.value

        return [list(map(plain, self.heads, row)) for row in self.cells]

    def as_dict(self) -> dict[str, Any]:
        """Return title, caption, columns, rows and notes, as JSON takes them: an infinite number is a text."""
        rows = [[str(value) if value in (inf, -inf) else value for value in row] for row in self.values()]
        about = {"title": self.title, "caption": self.caption, "columns": [column.name for column in self.heads]}
        return {**about, "rows": rows, "notes": [*self.notes, *self.details]}

    def to_csv(self) -> str:
        """Return the values with all their digits, and without marks."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([column.name for column in self.heads])
        writer.writerows(self.values())
        return file.getvalue()

    @property
    def groups(self) -> list[tuple[str, list[Column]]]:
        """Columns by group: neighbours of one group together, others alone under an empty one."""
        numbered = [(column.group or str(place), column) for place, column in enumerate(self.heads)]
        runs = [[column for _, column in run] for _, run in groupby(numbered, key=lambda pair: pair[0])]
        return [(run[0].group, run) for run in runs]

    def _latex_groups(self) -> list[str]:
        if not any(group for group, _ in self.groups):
            return []
        cells, rules, first = [], [], 1
        for group, columns in self.groups:
            cells.append(rf"\multicolumn{{{len(columns)}}}{{c}}{{{latex(group)}}}" if group else "")
            rules += [rf"\cmidrule(lr){{{first}-{first + len(columns) - 1}}}"] if group else []
            first += len(columns)
        return [" & ".join(cells) + r" \\", " ".join(rules)]


def latex(text: str) -> str:
    r"""Return a text in which nothing means anything to LaTeX.

    Examples
    --------
    >>> print(latex("50% of site_a & b"))
    50\% of site\_a \& b
    """
    return "".join(_LATEX.get(character, character) for character in text)


def spreadsheet_safe(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame whose texts no spreadsheet takes for formulas: those that may be some begin with an apostrophe.

    Examples
    --------
    >>> spreadsheet_safe(pd.DataFrame({"id": ["=1+1", "a-b"], "x": [-1.5, 2.0]})).to_csv(index=False).split()
    ['id,x', "'=1+1,-1.5", 'a-b,2.0']
    """

    def safe(value: Any) -> Any:
        return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value

    texts = [name for name in frame if not pd.api.types.is_numeric_dtype(frame[name])]
    return frame.assign(**{str(name): frame[name].astype(object).map(safe) for name in texts}).rename(columns=safe)


def _text(column: Column, cell: Cell) -> str:
    return column.text(cell.value) if cell.text is None else cell.text


def _escape_markdown(text: str) -> str:
    return re.sub(r"([|*_`\\<])", r"\\\1", text.replace("\n", " "))


def _format_of(values: pd.Series) -> Format | None:
    if pd.api.types.is_bool_dtype(values) or not pd.api.types.is_numeric_dtype(values):
        return None
    return fixed(decimals(values)) if pd.api.types.is_float_dtype(values) else count
