"""What all plots share: colours, width, and the SVG that goes into a report.

Figures are made without pyplot, so that drawing changes no global state and needs no display. Their background is
transparent and their colours, safe for colour-blind readers, stand out on light and dark reports alike.
"""

import re
from functools import cache
from html import escape
from io import StringIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE = "#1f83c4"
ORANGE = "#d55e00"
INK = "#777777"  # as far from white as from black; to_svg() makes it the colour of the report's text
WIDTH = 4.2  # inches: 400 pixels in a report
MAX_NAME = 24


def new_figure(height: float, label: str) -> "Figure":
    """Return an empty figure of the width that all figures share; ``label`` is its text for those who do not see it."""
    figure = _figure_class()(figsize=(WIDTH, height), layout="constrained")
    figure.patch.set_alpha(0)
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
    axes.patch.set_alpha(0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(INK)
    axes.tick_params(colors=INK, labelsize=8, length=2)


def short_name(name: Any) -> str:
    """Return a name as it is drawn: cut where it is too long, its dollar signs no formula to matplotlib."""
    text = str(name)
    return (text if len(text) <= MAX_NAME else text[: MAX_NAME - 1] + "…").replace("$", r"\$")


def to_svg(figure: "Figure") -> str:
    """Return a figure as an ``<svg>`` element to put into a report.

    The same figure gives the same text. Letters stay letters, in the report's colour, and the figure's label is
    what a screen reader says.
    """
    from matplotlib import rc_context

    buffer = StringIO()
    with rc_context({"svg.hashsalt": "okapi", "svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    # What would reach beyond the figure: rules for all elements of the report, and names of groups that figures share.
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' id="[A-Za-z0-9.]+_\d+"', "", svg)
    label = escape(str(figure.get_label()), quote=True)
    attributes = f'role="img" aria-label="{label}" style="stroke-linejoin: round; stroke-linecap: butt"'
    return svg.replace(INK, "currentColor").replace("<svg", f"<svg {attributes}", 1)
