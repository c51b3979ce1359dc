"""Tables for readers: Markdown, LaTeX, CSV, and rows for a terminal."""

import re
from dataclasses import dataclass, field
from math import floor, isfinite, log10

import pandas as pd

NOTHING = "–"
BEST, ALIKE = "*", "†"
_LATEX = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "−": "$-$",
    "†": r"$^{\dagger}$",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}


@dataclass(frozen=True)
class Entry:
    """The text of a cell; whether it is the best of its column, or not significantly worse."""

    text: str
    best: bool = False
    alike: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """A table with all that is needed to read it.

    Parameters
    ----------
    caption : str
        What the numbers are.
    headings : list of str
        The first is that of the row names.
    rows : list of lists of Entry
    frame : DataFrame
        The numbers, one row a cell.
    notes : list of str
        What a reader must not miss.
    details : list of str
        What else there is to say; not in LaTeX.
    label : str
        By which LaTeX refers to it.
    """

    caption: str
    headings: list[str]
    rows: list[list[Entry]]
    frame: pd.DataFrame
    notes: list[str] = field(default_factory=list)
    details: list[str] = field(default_factory=list)
    label: str = "benchmark"

    @property
    def is_marked(self) -> bool:
        """Whether some entry is marked as not significantly worse."""
        return any(entry.alike for row in self.rows for entry in row)

    def legend(self, best: str) -> list[str]:
        """Return what the marks mean, where ``best`` says how the best looks; nothing where there are none."""
        if not any(entry.best for row in self.rows for entry in row):
            return []
        alike = f"; {ALIKE}: not significantly worse" if self.is_marked else ""
        return [f"{best}: the best of its column{alike}."]

    def to_markdown(self) -> str:
        """Return it in Markdown, caption above, notes below."""

        def line(cells: list[str]) -> str:
            return f"| {' | '.join(cells)} |"

        def shown(entry: Entry) -> str:
            text = _markdown(entry.text)
            return f"**{text}**" if entry.best else f"{text} {ALIKE}" if entry.alike else text

        rule = line(["---", *["---:"] * (len(self.headings) - 1)])
        body = [line([shown(entry) for entry in row]) for row in self.rows]
        table = "\n".join([line([_markdown(heading) for heading in self.headings]), rule, *body])
        notes = [_markdown(note) for note in (*self.legend("Bold"), *self.notes, *self.details)]
        return "\n\n".join([_markdown(self.caption), table, *notes]) + "\n"

    def to_latex(self) -> str:
        """Return it as a LaTeX table for the package booktabs."""

        def shown(entry: Entry) -> str:
            text = latex(entry.text)
            return rf"\textbf{{{text}}}" if entry.best else rf"{text}$^{{\dagger}}$" if entry.alike else text

        body = [" & ".join(map(shown, row)) + r" \\" for row in self.rows]
        caption = " ".join([self.caption, *self.legend("Bold"), *self.notes])
        return "\n".join(
            [
                r"% needs \usepackage{booktabs}",
                r"\begin{table}",
                r"\centering",
                rf"\caption{{{latex(caption)}}}",
                rf"\label{{tab:{self.label}}}",
                rf"\begin{{tabular}}{{l{'r' * (len(self.headings) - 1)}}}",
                r"\toprule",
                " & ".join(map(latex, self.headings)) + r" \\",
                r"\midrule",
                *body,
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table}",
                "",
            ]
        )

    def to_csv(self) -> str:
        """Return the numbers, one row a cell, with all their digits."""
        return str(self.frame.to_csv(index=False, lineterminator="\n"))

    def to_rows(self) -> list[list[str]]:
        """Return the cells as plain text, with marks for the best and for those not significantly worse."""
        return [
            [entry.text + (f" {BEST}" if entry.best else f" {ALIKE}" if entry.alike else "") for entry in row]
            for row in self.rows
        ]


def latex(text: str) -> str:
    r"""Return a text in which nothing means anything to LaTeX.

    Examples
    --------
    >>> print(latex("50% of site_a & b"))
    50\% of site\_a \& b
    """
    return "".join(_LATEX.get(character, character) for character in text)


def decimals(values: list[float]) -> int:
    """Return how many decimals show three significant digits of the largest of some values.

    Examples
    --------
    >>> decimals([0.8712, 0.05]), decimals([53.21]), decimals([])
    (3, 1, 3)
    """
    largest = max((abs(value) for value in values if isfinite(value)), default=0.0)
    return min(8, max(0, 2 - floor(log10(largest)))) if largest > 0 else 3


def _markdown(text: str) -> str:
    return re.sub(r"([|*_`\\<])", r"\\\1", text.replace("\n", " "))
