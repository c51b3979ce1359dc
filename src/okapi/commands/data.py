"""``okapi data``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from okapi.config import read_config
from okapi.data.recognition import Roles, recognise
from okapi.data.sample_files import ImageError
from okapi.report.data import data_report
from okapi.training.errors import RunError


def data(
    source: Path,
    *,
    near: int | None = 6,
    most: int = 20,
    out: Path | None = None,
    safe_csv: bool = False,
    overrides: Sequence[tuple[str, str]] = (),
    **roles: Any,
) -> int:
    """Print what is in a data set; return 1 if files cannot be read."""
    try:
        broken = data_report(
            source, _settings(source, roles, overrides), near=near, out=out, most=most, safe_csv=safe_csv
        )
    except ImageError as error:
        raise RunError(str(error)) from error
    return 1 if broken else 0


def _settings(source: Path, roles: dict[str, Any], overrides: Sequence[tuple[str, str]]) -> Any:
    """Return the section data of a config, or settings that fit a file or a folder."""
    given: dict[str, Any] = {name: value for name, value in roles.items() if value}
    if source.suffix.lower() in (".yaml", ".yml"):
        if given:
            option = f"--{next(iter(given)).replace('_', '-')}"
            raise ValueError(f"{option} is not for a config; set a key of it by --data.KEY VALUE")
        return read_config(source, list(overrides)).data
    if overrides:
        raise ValueError(f"--{overrides[0][0]} is a key of configs, but {source} is none")
    return recognise(source, Roles(**given))
