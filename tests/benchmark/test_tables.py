"""What a table looks like in Markdown and LaTeX, whatever the names are."""

import pandas as pd
import pytest

from okapi.benchmark.tables import Entry, Table, decimals, latex

NAME = r"50%_of #1 & {$x^2$} ~ a\b <c> | *d*"


def table(**changes):
    rows = [[Entry(NAME), Entry("0.9 (0.1)", best=True)], [Entry("erm"), Entry("0.8 (–)", alike=True)]]
    return Table(
        caption=f"About {NAME}.", headings=["method", NAME], rows=rows, frame=pd.DataFrame({"a": [1]}), **changes
    )


def unescaped(text: str) -> str:
    """Return what a reader of the LaTeX sees."""
    words = {
        r"\textbackslash{}": "\\", r"\textasciitilde{}": "~", r"\textasciicircum{}": "^", r"\textless{}": "<",
        r"\textgreater{}": ">", **{f"\\{character}": character for character in "&%$#_{}"},
    }  # fmt: skip
    seen = ""
    while text:
        known = next((word for word in words if text.startswith(word)), None)
        if known is None:
            assert text[0] not in "\\{}$&#^_%~", f"{text[0]} means something to LaTeX"
        seen += words[known] if known else text[0]
        text = text[len(known or " ") :]
    return seen


def test_latex_shows_every_name_as_it_is():
    assert unescaped(latex(NAME)) == NAME
    text = table(notes=["note"], details=["detail"]).to_latex()
    assert text.count(r"\begin{") == text.count(r"\end{") == 2
    assert rf"{latex(NAME)} & \textbf{{0.9 (0.1)}} \\" in text
    assert r"erm & 0.8 (--)$^{\dagger}$ \\" in text
    assert r"\toprule" in text
    assert "note" in text
    assert "detail" not in text
    assert text.count("{") == text.count("}")


def test_markdown_has_as_many_cells_in_every_line():
    text = table(notes=["note"]).to_markdown()
    lines = [line.replace(r"\|", "") for line in text.splitlines() if line.startswith("|")]
    assert [line.count("|") for line in lines] == [3, 3, 3, 3]
    assert "**0.9 (0.1)**" in text
    assert "0.8 (–) †" in text
    assert "Bold: the best of its column; †: not significantly worse." in text


def test_rows_for_a_terminal_have_marks():
    assert table().to_rows()[0][1] == "0.9 (0.1) *"
    assert table().to_rows()[1][1] == "0.8 (–) †"


@pytest.mark.parametrize(("values", "expected"), [([0.87], 3), ([0.0123], 4), ([5.3], 2), ([1234.0], 0), ([0.0], 3)])
def test_three_digits_of_the_largest_are_shown(values, expected):
    assert decimals(values) == expected
