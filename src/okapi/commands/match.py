"""``okapi match``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from okapi.matching import CaliperMatcher
from okapi.report.matching import match_file


def match(
    file: Path,
    *,
    out: Path | None = None,
    report: Path | None = None,
    outcome: Sequence[str] = (),
    **settings: Any,
) -> None:
    """Match the samples of a table, print what came out, and write matches and report.

    Parameters
    ----------
    file : Path
    out, report : Path, optional
        Files for the matches and the report.
    outcome : sequence of str
        Columns that the outcome caliper compares.
    **settings
        Columns, as `okapi.data.read_table` takes them, and settings of `CaliperMatcher`.
    """
    if outcome and settings["outcome_caliper"] is None:
        settings["outcome_caliper"] = "auto"
    roles = columns_of(settings)
    matcher = CaliperMatcher(**settings, exact=list(roles["exact"]) or None)
    match_file(file, matcher, out=out, report=report, outcome=outcome, **roles)


def columns_of(settings: dict[str, Any]) -> dict[str, Any]:
    """Take the columns out of settings, and return them as `okapi.data.read_table` takes them."""
    roles = {name: settings.pop(name) for name in ("domain", "id", "image", "target", "exact")}
    return roles | {name: settings.pop(name) or None for name in ("columns", "propensity")}
