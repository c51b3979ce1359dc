"""Numbers as readers see them, in the terminal, in tables and in reports."""

from collections.abc import Callable, Iterable
from math import floor, inf, isfinite, isnan, log10
from typing import Any

import numpy as np

NOTHING = "–"


def count(number: float) -> str:
    """Return a whole number with its thousands apart: 71,905."""
    return f"{number:,.0f}" if isinstance(number, float) else f"{number:,}"


def plural(number: int, noun: str) -> str:
    """Return how many there are of a thing, with an s where there is not one."""
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def share(part: float) -> str:
    """Return a share in per cent: 12.5%."""
    return NOTHING if isnan(part) else f"{part:.1%}"


def fixed(digits: int, signed: bool = False) -> Callable[[float], str]:
    """Return what writes numbers with so many decimals."""
    sign = "+" if signed else ""

    def write(number: float) -> str:
        if isnan(number):
            return NOTHING
        return ("∞" if number > 0 else "-∞") if abs(number) == inf else f"{number:{sign}.{digits}f}"

    return write


decimal = fixed(3)


def decimals(values: Iterable[float]) -> int:
    """Return how many decimals show three significant digits of the largest of some values.

    Examples
    --------
    >>> decimals([0.8712, 0.05]), decimals([53.21]), decimals([])
    (3, 1, 3)
    """
    largest = max((abs(value) for value in values if isfinite(value)), default=0.0)
    return min(8, max(0, 2 - floor(log10(largest)))) if largest > 0 else 3


def plain(value: Any) -> str:
    """Return one fact or setting as text.

    Examples
    --------
    >>> plain(True), plain(48210), plain(0.123456), plain(None), plain("logit")
    ('yes', '48,210', '0.1235', '–', 'logit')
    """
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, int | np.integer):
        return count(int(value))
    if isinstance(value, float | np.floating):
        return f"{value:.4g}" if isfinite(value) else NOTHING
    return NOTHING if value is None else str(value)
