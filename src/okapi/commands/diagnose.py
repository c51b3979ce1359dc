"""``okapi diagnose``."""

from pathlib import Path
from typing import Any

from okapi.report.diagnosis import diagnose_data


def diagnose(data: Path, *, json: Path | None = None, **settings: Any) -> None:
    """Find out whether matching is likely to help."""
    diagnose_data(data, json_file=json, **settings)
