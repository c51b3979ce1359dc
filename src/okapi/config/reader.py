"""The config of a run: a YAML file, those that it includes, and dotted overrides; typed, with unknown keys refused.

The sections ``data``, ``model`` and ``algorithm`` have a ``name``, which says what other keys they have.
"""

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml

from okapi.config.algorithms import ALGORITHM_SETTINGS
from okapi.config.built_in import find_config
from okapi.config.composition import Composed, ConfigError, compose
from okapi.config.data import DATA_SETTINGS
from okapi.config.models import MODEL_SETTINGS
from okapi.config.training import TrainingSettings
from okapi.messages import did_you_mean

__all__ = ["MAY_CHANGE", "NAMED", "Config", "ConfigError", "differences", "make_config", "read_config"]

NAMED = ("data", "model", "algorithm")
MAY_CHANGE = ("training.workers", "training.trackers", "training.wandb_project", "training.wandb_mode")
"""Keys that have no part in what is learnt: a resumed run may have others."""

_PLACEHOLDERS = {"root": "PATH", "path": "PATH"}  # what errors write for the value of an option


@dataclass(frozen=True, kw_only=True)
class Config:
    """All that a run depends on.

    Parameters
    ----------
    data, model, algorithm : dataclasses
        Settings of the data set, the network and the algorithm; each has a ``name``.
    training : TrainingSettings
    seed : int
        Of the initial weights, the order of samples, augmentation and dropout.
    """

    data: Any
    model: Any
    algorithm: Any
    training: TrainingSettings
    seed: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return all keys with plain values, as a YAML file has them; reading them back gives the same config."""
        named = {section: _values(getattr(self, section)) for section in NAMED}
        return named | {"training": _values(self.training), "seed": self.seed}

    def as_yaml(self) -> str:
        """Return the text of a YAML file that gives the same config."""
        return str(yaml.safe_dump(self.as_dict(), sort_keys=False, allow_unicode=True, width=120))


def read_config(path: Path, overrides: Sequence[tuple[str, str]] = ()) -> Config:
    """Return the config of a YAML file and of those that it includes.

    Parameters
    ----------
    path : Path
    overrides : sequence of (key, text)
        Dotted keys, such as ``training.steps``, and their values, written as in YAML; later ones win.
    """
    path = find_config(path)
    return _config(compose(path), overrides, str(path))


def make_config(content: Any, overrides: Sequence[tuple[str, str]] = (), source: str = "config") -> Config:
    """Return the config of nested dictionaries as a YAML file has them; ``source`` is by what errors call them."""
    if not isinstance(content, dict):
        raise ConfigError(f"{source} must have the keys {', '.join(NAMED)} and training, got {content!r}")
    composed = Composed()
    composed.add(content, source)
    return _config(composed, overrides, source)


def _config(composed: Composed, overrides: Sequence[tuple[str, str]], source: str) -> Config:
    merged, given = composed.content, dict(overrides)
    origin = _Origin(source, composed.files, given)
    for key, text in given.items():
        *sections, name = key.split(".")
        inner = merged
        for depth, section in enumerate(sections, 1):
            inner = inner.setdefault(section, {})
            if not isinstance(inner, dict):
                raise ConfigError(f"{origin.of('.'.join(sections[:depth]))} must be keys and values, got {inner!r}")
        inner[name] = text
    _refuse_unknown(merged, [*NAMED, "training", "seed"], "", origin)
    kinds = _kinds(merged, origin)
    settings = {section: _settings(section, kind, merged[section], origin) for section, kind in kinds.items()}
    return Config(**settings, seed=_seed(merged.get("seed", 0), origin))


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return, for each key whose values differ, but not those of ``MAY_CHANGE``, the key and both values.

    Parameters
    ----------
    before, after : mappings, as ``Config.as_dict`` gives them
    """
    old, new = dict(_flat(before)), dict(_flat(after))
    keys = [key for key in {**old, **new} if key not in MAY_CHANGE]
    missing = object()
    changed = [key for key in keys if old.get(key, missing) != new.get(key, missing)]
    return [f"{key}: {_shown(old, key)} then, {_shown(new, key)} now" for key in changed]


@dataclass(frozen=True)
class _Origin:
    """Where keys came from, for errors."""

    source: str
    files: Mapping[str, str]
    overrides: Mapping[str, str]

    def of(self, key: str) -> str:
        """Return what errors call a key: the option, or the file that has it, and the key."""
        return f"--{key}" if key in self.overrides else f"{self.files.get(key, self.source)}: {key}"


def _kinds(merged: Mapping[str, Any], origin: _Origin) -> dict[str, type]:
    """Return which dataclass each section is."""
    known: dict[str, dict[str, type]] = {
        "data": DATA_SETTINGS,
        "model": MODEL_SETTINGS,
        "algorithm": ALGORITHM_SETTINGS,
    }
    kinds: dict[str, type] = {}
    for section in (*NAMED, "training"):
        value = merged.get(section)
        if not isinstance(value, dict):
            got = "it is missing" if value is None else f"got {value!r}"
            raise ConfigError(f"{origin.of(section)} must be keys and values, {got}")
        if section in NAMED:
            name = value.get("name")
            if name not in known[section]:
                got = "it is missing" if name is None else f"got {name!r}{did_you_mean(str(name), known[section])}"
                raise ConfigError(f"{origin.of(f'{section}.name')} must be one of {', '.join(known[section])}; {got}")
            kinds[section] = known[section][name]
    return kinds | {"training": TrainingSettings}


def _settings(section: str, kind: type, values: Mapping[str, Any], origin: _Origin) -> Any:
    """Return a section's dataclass, its values checked and converted by jsonargparse."""
    values = {key: value for key, value in values.items() if not (section in NAMED and key == "name")}
    hints = {field.name: get_type_hints(kind)[field.name] for field in fields(kind) if field.name != "name"}
    _refuse_unknown(values, list(hints), f"{section}.", origin)
    nested = {field.name: field for field in fields(kind) if is_dataclass(hints.get(field.name))}
    inner = {
        key: _nested(f"{section}.{key}", nested[key], value, origin) for key, value in values.items() if key in nested
    }
    values = {key: value for key, value in values.items() if key not in nested}
    for key, value in values.items():
        if f"{section}.{key}" in origin.overrides:
            values[key] = _from_text(value, hints[key])
    from jsonargparse import ArgumentParser  # which takes longer to import than the rest of this room

    parser = ArgumentParser(exit_on_error=False)
    group = section.rpartition(".")[2]
    parser.add_class_arguments(kind, group, skip={*nested, "name"})
    try:
        parsed = parser.parse_object({group: values})
    except argparse.ArgumentError as error:
        raise ConfigError(_complaint(str(error), section, hints, values, origin)) from error
    try:
        return kind(**{key: parsed[f"{group}.{key}"] for key in hints if key not in nested}, **inner)
    except (ValueError, TypeError) as error:
        key, _, rest = str(error).partition(" ")
        message = f"{origin.of(f'{section}.{key}')} {rest}" if key in hints else f"{origin.of(section)}: {error}"
        raise ConfigError(message) from error


def _nested(section: str, field: Field[Any], values: Any, origin: _Origin) -> Any:
    """Return the dataclass of a section within a section: its default, with the values that were given."""
    if not isinstance(values, dict):
        raise ConfigError(f"{origin.of(section)} must be keys and values, got {values!r}")
    assert callable(field.default_factory)
    default = field.default_factory()
    return _settings(section, type(default), _values(default) | values, origin)


def _complaint(message: str, section: str, hints: Mapping[str, Any], values: Mapping[str, Any], origin: _Origin) -> str:
    """Return what jsonargparse refuses in the words of this house."""
    if missing := re.search(rf"required: ({section}\.\w+)", message):
        key = missing[1].partition(".")[2]
        option = f"--{missing[1]} {_PLACEHOLDERS.get(key, 'VALUE')}"
        return (
            f"{origin.source}: {missing[1]} is missing; it must be {_wanted(hints[key])}; give it there or by {option}"
        )
    if found := re.search(r'key "\w+\.(\w+)', message):
        key = found[1]
        return f"{origin.of(f'{section}.{key}')} must be {_wanted(hints[key])}, got {values.get(key)!r}"
    return f"{origin.source}: {' '.join(message.split())}"


def _refuse_unknown(values: Mapping[str, Any], known: Sequence[str], prefix: str, origin: _Origin) -> None:
    for key in values:
        if key not in known and not (prefix and key == "name"):
            dotted = f"{prefix}{key}"
            given = next((name for name in origin.overrides if f"{name}.".startswith(f"{dotted}.")), None)
            shown = f"--{given}" if given else origin.of(dotted)
            near = did_you_mean(str(key), known, prefix) or f"; known are {', '.join(known) or 'none'}"
            raise ConfigError(f"{shown} is no key of the config{near}")


def _seed(value: Any, origin: _Origin) -> int:
    if "seed" in origin.overrides:
        value = _from_text(value, int)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigError(f"{origin.of('seed')} must be a whole number of at least 0, got {value!r}")
    return value


def _from_text(text: Any, hint: Any) -> Any:
    """Return what a text of the command line says: itself where text is wanted, else what it is as YAML."""
    if not isinstance(text, str):
        return text
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    wants_text = any(kind in (str, Path) for kind in kinds) and not isinstance(value, list | dict)
    return text if wants_text and not (value is None and NoneType in kinds) else value


def _wanted(hint: Any) -> str:
    """Return a type in words."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(_wanted(kind) for kind in inner)
    if origin is Literal:
        return f"one of {', '.join(map(str, inner))}"
    if origin in (list, tuple):
        return f"a list, each {_wanted(inner[0])}"
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text", Path: "a path"}
    return "null" if hint is NoneType else words.get(hint, str(hint))


def _values(settings: Any) -> dict[str, Any]:
    """Return the values of a dataclass by key, its name first."""
    keys = sorted((field.name for field in fields(settings)), key=lambda key: key != "name")
    return {key: _plain(getattr(settings, key)) for key in keys}


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return _values(value)
    if isinstance(value, Path):
        return str(value)
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _flat(nested: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in nested.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _shown(values: Mapping[str, Any], key: str) -> str:
    return repr(values[key]) if key in values else "absent"
