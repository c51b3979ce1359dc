"""The table, in all that it is written to."""

import csv
import io
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from okapi.numbers import count, decimal, fixed, plain, share
from okapi.report.page import table_html
from okapi.table import Cell, Column, Table, latex

HOSTILE = "</td><script>alert(1)</script> 50% of a_b | *c*"
COLUMNS = ["method", Column("before", decimal, "|SMD|"), Column("after", decimal, "|SMD|"), Column("queries", count)]
ROWS = [
    [HOSTILE, 1 / 3, Cell(0.25, "bad"), 71905],
    ["okapi", Cell(0.5, "best"), Cell(0.0625, "not_worse"), Cell(3, text="3, 1 failed")],
    ["erm", float("nan"), None, np.int64(12)],
]


def make_table(**changes) -> Table:
    given = {"title": "Balance & more", "columns": COLUMNS, "rows": ROWS, "notes": ["One of 3 failed."], "name": "b"}
    return Table(**{**given, **changes})


def printed(table: Table, width: int = 200, **options) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False, emoji=False)
    table.print(console, **options)
    return console.file.getvalue()


def test_values_are_written_by_the_format_of_their_column_and_missing_ones_are_a_dash():
    assert make_table().texts() == [
        [HOSTILE, "0.333", "0.250", "71,905"],
        ["okapi", "0.500", "0.062", "3, 1 failed"],
        ["erm", "–", "–", "12"],
    ]


def test_csv_has_all_digits_and_no_marks():
    rows = list(csv.reader(io.StringIO(make_table().to_csv())))
    assert rows[0] == ["method", "|SMD| before", "|SMD| after", "queries"]
    assert rows[1] == [HOSTILE, str(1 / 3), "0.25", "71905"]
    assert rows[2:] == [["okapi", "0.5", "0.0625", "3"], ["erm", "", "", "12"]]


def test_markdown_marks_the_best_says_what_marks_mean_and_escapes():
    text = make_table().to_markdown()
    assert "| okapi | **0.500** | 0.062 † | 3, 1 failed |" in text
    assert r"\</td>\<script>alert(1)\</script> 50% of a\_b \| \*c\*" in text
    assert text.endswith("Bold: the best of its column; †: not significantly worse.\n\nOne of 3 failed.\n")
    assert "Bold" not in make_table(rows=ROWS[2:]).to_markdown()


def test_latex_has_groups_and_escapes():
    text = make_table(details=["A log."]).to_latex()
    assert r" & \multicolumn{2}{c}{\textbar{}SMD\textbar{}} &  \\" in text
    assert r"\cmidrule(lr){2-3}" in text
    assert r"okapi & \textbf{0.500} & 0.062$^{\dagger}$ & 3, 1 failed \\" in text
    assert r"\caption{Balance \& more Bold:" in text
    assert r"\label{tab:b}" in text
    assert "A log." not in text
    assert latex("a_b → 50%") == r"a\_b $\rightarrow$ 50\%"


def test_latex_shows_every_name_as_it_is():
    name = r"50%_of #1 & {$x^2$} ~ a\b <c> | *d*"
    assert unescaped(latex(name)) == name
    text = make_table(notes=[name]).to_latex()
    assert text.count(r"\begin{") == text.count(r"\end{") == 2
    assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")


def unescaped(text: str) -> str:
    """Return what a reader of the LaTeX sees."""
    words = {
        r"\textbackslash{}": "\\", r"\textasciitilde{}": "~", r"\textasciicircum{}": "^", r"\textless{}": "<",
        r"\textgreater{}": ">", r"\textbar{}": "|", **{f"\\{character}": character for character in "&%$#_{}"},
    }  # fmt: skip
    seen = ""
    while text:
        known = next((word for word in words if text.startswith(word)), None)
        assert known or text[0] not in "\\{}$&#^_%~", f"{text[0]} means something to LaTeX"
        seen += words[known] if known else text[0]
        text = text[len(known or " ") :]
    return seen


def test_html_is_escaped_and_marks_are_classes():
    found: list[tuple[str, dict]] = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag, attrs):
            found.append((tag, dict(attrs)))

    html = table_html(make_table(rows=[*ROWS, ["shade", Cell(1, "good", shade=0.5), 1.0, 1]]))
    Tags().feed(html)
    assert not [tag for tag, _ in found if tag == "script"]
    assert ("th", {"scope": "colgroup", "colspan": "2", "class": "group"}) in found
    assert ("td", {"class": "number good", "style": "--shade: 0.500"}) in found
    assert '<td class="number best">0.500</td>' in html
    assert '<td class="number bad"><mark>0.250</mark></td>' in html


def test_a_long_table_is_cut_and_says_so():
    table = make_table(rows=[["a", 1.0, 2.0, 3]] * 500)
    assert "The first 300 of 500 rows are shown." in table_html(table)
    assert "and 480 more, which --out lists" in printed(table, most=20, rest="which --out lists")
    assert len(table.to_csv().splitlines()) == 501


@pytest.mark.parametrize("width", [40, 80, 10_000])
def test_nothing_is_cut_in_a_terminal_however_narrow(width):
    text = printed(make_table(), width)
    letters = "".join(text.split())
    for word in ("71,905", "0.333", "0.250!", "0.500*", "0.062†", "1failed"):
        assert word in letters
    assert "*: the best of its column; †: not significantly worse." in " ".join(text.split())
    if width == 10_000:
        assert HOSTILE in text


def test_a_frame_is_a_table_with_fitting_formats_and_groups():
    frame = pd.DataFrame(
        {"site": ["a", "b"], "n": [71905, 3], "smd_before": [0.5, -1.25], "smd_after": [0.1, np.nan], "rate": [0.5, 1]}
    )
    table = Table.from_frame(
        frame, title="", formats={"rate": share}, mark=lambda name, value: "bad" if value == 0.5 else ""
    )
    assert table.texts() == [["a", "71,905", "0.50", "0.100", "50.0%"], ["b", "3", "-1.25", "–", "100.0%"]]
    assert [column.name for column in table.heads] == ["site", "n", "smd before", "smd after", "rate"]
    assert [group for group, _ in table.groups] == ["", "", "smd", ""]
    assert table.cells[0][2].mark == "bad"
    assert Table.from_frame(frame.head(0), title="").texts() == []


def test_rows_must_fit_the_columns():
    with pytest.raises(ValueError, match="rows must have 4 cells as there are columns, got 2"):
        make_table(rows=[["a", 1.0]]).texts()


def test_numbers_are_text():
    assert (count(71905), share(0.125), share(float("nan")), decimal(float("inf"))) == ("71,905", "12.5%", "–", "∞")
    assert (fixed(2, signed=True)(0.5), fixed(2)(float("-inf"))) == ("+0.50", "-∞")
    assert [plain(value) for value in (np.True_, np.int64(48210), 1e-9, None, "a")] == [
        "yes",
        "48,210",
        "1e-09",
        "–",
        "a",
    ]
