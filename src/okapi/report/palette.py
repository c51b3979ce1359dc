"""Colours of categories: Okabe and Ito's, which colour-blind readers tell apart, for light and dark pages.

Their black is the page's ink.
"""

from dataclasses import dataclass

from okapi.report.plots import INK
from okapi.report.rendering import themed

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#c98a00", INK)
OTHER = "#8c8c8c"
MOST = 2 * len(COLOURS)
"""Categories that have a look of their own."""


@dataclass(frozen=True)
class Look:
    """How a category is drawn: its colour, and whether marks are hollow and lines dashed."""

    colour: str
    hollow: bool

    @property
    def css(self) -> str:
        """The colour as the page's theme has it."""
        return "var(--ink)" if self.colour == INK else themed(self.colour)


def look(number: int) -> Look:
    """Return the look of a category; those beyond ``MOST`` share one, which is grey."""
    if number >= MOST:
        return Look(OTHER, False)
    return Look(COLOURS[number % len(COLOURS)], number >= len(COLOURS))


def scale(number: int, count: int) -> Look:
    """Return the look of a bin of numbers, from blue, the least, to orange."""
    share = round(100 * number / max(1, count - 1))
    low, high = (bytes.fromhex(colour[1:]) for colour in (COLOURS[0], COLOURS[4]))
    mixed = [round(a + (b - a) * share / 100) for a, b in zip(low, high, strict=True)]
    return Look("#" + bytes(mixed).hex(), False)
