"""A config of several YAML files: a file may include others and say only what is its own.

``include: okapi.yaml``, or a list of such, names files by their paths from the file that says it. They are merged in
order, key by key within each section, and what a file says itself comes after all it includes: later wins. A file that
is included by several others is taken once, the first time, so that of two ablations of one base neither undoes the
other. A value that is a list is replaced as a whole. A section that is given another ``name`` begins anew: keys of an
``okapi`` mean nothing to an ``erm``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml


class ConfigError(ValueError):
    """A config that cannot be used; the message names the file, the key, what came and what is wanted."""


@dataclass
class Composed:
    """What several files say together.

    Parameters
    ----------
    content : dict
        As one YAML file would have it.
    files : dict of str to str
        The file that has had the last word, for each dotted key, such as ``training.steps``, and section.
    """

    content: dict[str, Any] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)

    def add(self, content: Mapping[str, Any], file: str) -> None:
        """Merge what one more file says, which wins."""
        for key, value in content.items():
            if isinstance(value, dict):
                self._add_section(key, value, file)
            elif value is not None or not isinstance(self.content.get(key), dict):  # an empty section says nothing
                self.content[key], self.files[key] = value, file

    def _add_section(self, section: str, values: Mapping[str, Any], file: str) -> None:
        before = self.content.get(section)
        if before is not None and not isinstance(before, dict):
            raise ConfigError(f"{self.files[section]}: {section} must be keys and values, got {before!r}")
        named = before is not None and "name" in before and "name" in values
        if before is None or (named and before["name"] != values["name"]):
            before = self.content[section] = {}
        self.files[section] = file
        _merge(before, values, section, self.files, file)


def _merge(before: dict[str, Any], values: Mapping[str, Any], prefix: str, files: dict[str, str], file: str) -> None:
    """Merge nested keys into those of before, in place, and note which file they are from."""
    for key, value in values.items():
        files[f"{prefix}.{key}"] = file
        if isinstance(value, dict):
            nested = before.get(key)
            before[key] = dict(nested) if isinstance(nested, dict) else {}
            _merge(before[key], value, f"{prefix}.{key}", files, file)
        else:
            before[key] = value


def compose(path: Path) -> Composed:
    """Return what a YAML file says together with all that it includes."""
    composed, seen = Composed(), set()
    for file, content in _files(path, ()):
        if (real := file.resolve()) not in seen:
            seen.add(real)
            composed.add(content, str(file))
    return composed


def _files(path: Path, above: tuple[Path, ...]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield a file after all that it includes; ``above`` are the files that led to it, the first one first."""
    chain = [*above, path]
    if path.resolve() in [file.resolve() for file in above]:
        raise ConfigError(f"{' includes '.join(map(str, chain))}: no file may include itself")
    content = dict(_content(path, f"{above[-1]} includes {path}, which" if above else str(path)))
    for name in _included(content.pop("include", ()), path):
        yield from _files(_beside(path, name), tuple(chain))
    yield path, content


def _content(path: Path, called: str) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{called} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{called} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{called} must have the keys data, model, algorithm and training, or some, got {content!r}")
    return content


def _included(value: Any, path: Path) -> list[str]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) and name for name in names):
        raise ConfigError(f"{path}: include must be the path of a file, or a list of such, got {value!r}")
    if absolute := [name for name in names if Path(name).is_absolute()]:
        raise ConfigError(f"{path}: include must be a path from the file that says it, got {absolute[0]!r}")
    return list(names)


def _beside(path: Path, name: str) -> Path:
    """Return a path from the folder of a file, without needless ``..``, for errors to be read."""
    folder, rest = path.parent, Path(name)
    while rest.parts[:1] == ("..",) and folder.name not in ("", ".."):
        folder, rest = folder.parent, Path(*rest.parts[1:])
    return folder / rest
