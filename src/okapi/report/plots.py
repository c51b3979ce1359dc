"""What all plots share: colours, width, and the SVG that goes into a page.

Figures are made without pyplot, so that drawing changes no global state and needs no display. Colours are Okabe and
Ito's, which colour-blind readers tell apart.
"""

from functools import cache
from io import StringIO
from typing import TYPE_CHECKING, Any, NamedTuple

from okapi.messages import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
BLUE, ORANGE = COLOURS[:2]
GREY, INK = "#8c8c8c", "#444444"
MOST_LOOKS = 2 * len(COLOURS)
WIDTH = 4.2  # inches: 400 pixels
MAX_NAME = 24


class Look(NamedTuple):
    """How a category is drawn: its colour, and whether its marks are hollow and its lines dashed."""

    colour: str
    hollow: bool


def look(number: int) -> Look:
    """Return the look of a category; those from ``MOST_LOOKS`` on share one, which is grey."""
    return Look(GREY, False) if number >= MOST_LOOKS else Look(COLOURS[number % 6], number >= len(COLOURS))


def new_figure(height: float, label: str, width: float = WIDTH) -> "Figure":
    """Return an empty figure, sizes in inches; ``label`` is its text for those who do not see it."""
    figure = _figure_class()(figsize=(width, height), layout="constrained")
    figure.set_label(label)
    return figure


@cache
def _figure_class() -> "type[Figure]":
    from matplotlib.figure import Figure

    class NotebookFigure(Figure):
        """A figure that a notebook shows by itself, though pyplot does not know of it."""

        def _repr_svg_(self) -> str:
            return to_svg(self)

    return NotebookFigure


def finish(axes: "Axes") -> None:
    """Give axes the colours and sizes that all figures share."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(INK)
    axes.tick_params(colors=INK, labelsize=8, length=2)


def short_name(name: Any) -> str:
    """Return a name as it is drawn: cut where it is too long, its dollar signs no formula to matplotlib."""
    text = printable(str(name))
    return (text if len(text) <= MAX_NAME else text[: MAX_NAME - 1] + "…").replace("$", r"\$")


def to_svg(figure: "Figure") -> str:
    """Return a figure as SVG; the same figure gives the same text, letters stay letters, and its label is the title."""
    from matplotlib import rc_context

    buffer = StringIO()
    with rc_context({"svg.hashsalt": "okapi", "svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", metadata={"Title": str(figure.get_label()), "Date": None, "Creator": None})
    svg = printable(buffer.getvalue())
    return svg[svg.index("<svg") :]
