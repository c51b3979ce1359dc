"""The configs that come with Okapi, by name."""

from pathlib import Path
from typing import Any

from okapi.config import Config, read_config

PROJECT = Path(__file__).parents[2]
CONFIGS = PROJECT / "configs"
ALL = sorted(
    path.relative_to(CONFIGS).with_suffix("").as_posix() for path in CONFIGS.rglob("*.yaml") if path.stem != "base"
)
FOLDERS = sorted({name.partition("/")[0] for name in ALL})
Overrides = dict[str, Any]


def config(name: str, overrides: Overrides | None = None) -> Config:
    """Return a config that is told where its data lies, be it nowhere."""
    place = "data.root" if name.split("/")[0] in ("iwildcam", "poverty", "civilcomments", "pacs") else "data.path"
    given = {} if name.startswith("sites/") else {place: "somewhere"}
    return read_config(CONFIGS / f"{name}.yaml", [(k, _written(v)) for k, v in (given | (overrides or {})).items()])


def _written(value: Any) -> str:
    return "null" if value is None else str(value)
