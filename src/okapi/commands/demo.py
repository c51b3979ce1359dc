"""``okapi demo``."""

from collections.abc import Sequence
from pathlib import Path

from okapi.report.demo import run_demo


def demo(out: Path, *, overrides: Sequence[tuple[str, str]] = ()) -> None:
    """Match and train on built-in images of digits."""
    run_demo(out, overrides)
