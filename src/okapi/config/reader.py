"""The config of a run: a YAML file, the one that it may include, and dotted overrides, checked by pydantic.

``include: base.yaml`` names a file by its path from the one that includes it; the included file includes no other.
Files are merged key by key: a file wins over the one that it includes, and overrides win over both. A list is replaced
as a whole. A section that is given another ``name`` begins anew: keys of an ``okapi`` mean nothing to an ``erm``.
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

import yaml
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from okapi.config.algorithms import ALGORITHM_SETTINGS, AlgorithmSettings
from okapi.config.data import DATA_SETTINGS, DataSettings
from okapi.config.models import MODEL_SETTINGS, ModelSettings
from okapi.config.training import TrainingSettings
from okapi.messages import did_you_mean

NAMED: dict[str, dict[str, type]] = {"data": DATA_SETTINGS, "model": MODEL_SETTINGS, "algorithm": ALGORITHM_SETTINGS}
"""Sections with a ``name``, and the settings that each name stands for."""
MAY_CHANGE = ("training.workers", "training.trackers", "training.wandb_project", "training.wandb_mode")
"""Keys that have no part in what is learnt: a resumed run may have others."""

_PLACES = (
    Path(__file__).parents[1] / "configs",  # as installed
    Path(__file__).parents[3] / "configs",  # in a checkout, beside src
)
_EXPONENT = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")  # a number such as 1e-3, which YAML 1.1 reads as text
_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text", NoneType: "null"}


class ConfigError(ValueError):
    """A config that cannot be used; the message names the file or option, the key, what came and what is wanted."""


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

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid", strict=True)

    data: Annotated[DataSettings, Field(discriminator="name")]
    model: Annotated[ModelSettings, Field(discriminator="name")]
    algorithm: Annotated[AlgorithmSettings, Field(discriminator="name")]
    training: TrainingSettings
    seed: int = 0

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ValueError(f"seed must be a whole number of at least 0, got {self.seed}")

    def as_dict(self) -> dict[str, Any]:
        """Return all keys with plain values, as a YAML file has them; reading them back gives the same config."""
        return {field.name: plain(getattr(self, field.name)) for field in fields(self)}

    def as_yaml(self) -> str:
        """Return the text of a YAML file that gives the same config."""
        return str(yaml.safe_dump(self.as_dict(), sort_keys=False, allow_unicode=True, width=120))


def read_config(path: Path, overrides: Sequence[tuple[str, str]] = ()) -> Config:
    """Return the config of a YAML file and of the one that it may include.

    Parameters
    ----------
    path : Path
    overrides : sequence of (key, text)
        Dotted keys, such as ``training.steps``, and their values, written as in YAML; later ones win.
    """
    return _read(find_config(path)).config(overrides)


def read_content(path: Path) -> dict[str, Any]:
    """Return what a YAML file and the one that it may include hold together, not yet checked."""
    return _read(find_config(path)).content


def make_config(content: Any, overrides: Sequence[tuple[str, str]] = (), source: str = "config") -> Config:
    """Return the config of nested dictionaries as a YAML file has them; errors call them by ``source``."""
    if not isinstance(content, dict):
        raise ConfigError(f"{source} must have the keys {', '.join(NAMED)} and training, got {content!r}")
    draft = _Draft(source)
    draft.add(content, source)
    return draft.config(overrides)


def find_config(path: Path) -> Path:
    """Return a path as it is or, where nothing is, the config of the package, or the folder of such, that it names.

    ``configs/sites/okapi.yaml`` is found from any folder, so that examples work without a checkout.
    """
    if path.exists() or path.parts[:1] != ("configs",):
        return path
    inside = [place.joinpath(*path.parts[1:]) for place in _PLACES]
    return next((place for place in inside if place.exists()), path)


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return, for each key whose values differ, but not those of ``MAY_CHANGE``, the key and both values.

    Parameters
    ----------
    before, after : mappings, as ``Config.as_dict`` gives them
    """
    old, new = dict(_flat(before)), dict(_flat(after))
    keys = [key for key in old | new if key not in MAY_CHANGE]
    changed = [key for key in keys if old.get(key, MISSING) != new.get(key, MISSING)]
    shown = [{key: repr(values[key]) if key in values else "absent" for key in changed} for values in (old, new)]
    return [f"{key}: {shown[0][key]} then, {shown[1][key]} now" for key in changed]


def plain(value: Any) -> Any:
    """Return settings as a dictionary, their name first, with lists for tuples; other values as they are."""
    if is_dataclass(value):
        keys = sorted((field.name for field in fields(value)), key=lambda key: key != "name")
        return {key: plain(getattr(value, key)) for key in keys}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def in_words(hint: Any) -> str:
    """Return a type in words, such as "a number or null"."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        words = sorted(dict.fromkeys(map(in_words, inner)), key=lambda word: word.startswith("a list"))
        return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
    if origin is Literal:
        return f"one of {', '.join(map(str, inner))}" if len(inner) > 1 else str(inner[0])
    if origin in (list, tuple):
        count = "" if origin is list or inner[-1] is Ellipsis else f" of {len(inner)}"
        return f"a list{count}, each {in_words(inner[0])}"
    return _WORDS.get(hint, "keys and values")


@cache
def hints_of(kind: type) -> dict[str, Any]:
    """Return the types of a dataclass's fields, by key."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


class _Text(str):
    """A value of the command line: what it is as YAML, unless text is wanted."""


class _Draft:
    """What files and overrides hold together, not yet checked; and what errors call each key, by where it stands."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.content: dict[str, Any] = {}
        self._names: dict[str, str] = {}

    def add(self, content: Mapping[str, Any], file: str) -> None:
        """Merge one more file, which wins."""
        self._merge(self.content, content, lambda key: f"{file}: {key}")

    def config(self, overrides: Sequence[tuple[str, str]]) -> Config:
        """Return the config; overrides win over the files."""
        options = [key for key, _ in overrides]
        self._merge(
            self.content,
            _nested(overrides),
            lambda key: f"--{next(option for option in options if f'{option}.'.startswith(f'{key}.'))}",
        )
        content = _completed(Config, self.content)
        try:
            return _schema().validate_json(json.dumps(content, default=str))
        except ValidationError as rejected:
            errors = rejected.errors(include_url=False)
        unknown = [error for error in errors if error["type"] == "unexpected_keyword_argument"]
        raise ConfigError(self._complaint((unknown or errors)[0], content))

    def _merge(
        self, before: dict[str, Any], after: Mapping[Any, Any], name: Callable[[str], str], at: str = ""
    ) -> None:
        for key, value in ((str(key), value) for key, value in after.items()):
            dotted, old = f"{at}{key}", before.get(key)
            if not isinstance(value, dict):
                if value is not None or not isinstance(old, dict):  # an empty section changes nothing
                    before[key], self._names[dotted] = value, name(dotted)
                continue
            if old is not None and not isinstance(old, dict):
                raise ConfigError(f"{self._names[dotted]} must be keys and values, got {old!r}")
            if not old or (not at and value.get("name", old.get("name")) != old.get("name")):
                before[key], self._names[dotted] = {}, name(dotted)
            self._merge(before[key], value, name, f"{dotted}.")

    def _name(self, key: str) -> str:
        return self._names.get(key, f"{self.source}: {key}")

    def _complaint(self, error: Any, content: Any) -> str:
        """Return what pydantic rejects, with the key's name and type in words."""
        kind: type = Config
        hint: Any = Config
        key, value = "", content
        for part in error["loc"]:
            if key in NAMED and part in NAMED[key]:
                hint = NAMED[key][part]
            elif isinstance(hint, type) and is_dataclass(hint):
                kind, hint, key = hint, hints_of(hint).get(part), f"{key}.{part}".strip(".")
                value = value.get(part) if isinstance(value, dict) else None
        above, _, last = key.rpartition(".")
        if reason := error.get("ctx", {}).get("error"):  # what __post_init__ rejects
            last, _, rest = str(reason).partition(" ")
            is_key = isinstance(hint, type) and is_dataclass(hint) and last in hints_of(hint)
            return f"{self._name(f'{key}.{last}'.strip('.'))} {rest}" if is_key else f"{self._name(key)}: {reason}"
        if error["type"] == "unexpected_keyword_argument":
            known = [name for name in hints_of(kind) if name != "name"]
            near = did_you_mean(last, known, f"{above}." if above else "")
            return f"{self._name(key)} is no key of the config{near or '; known are ' + (', '.join(known) or 'none')}"
        if error["type"].startswith("union_tag"):
            name, names = value.get("name"), NAMED[key]
            came = "it is missing" if name is None else f"got {name!r}{did_you_mean(name, names)}"
            return f"{self._name(f'{key}.name')} must be one of {', '.join(names)}; {came}"
        if kind is Config and value is None:
            return f"{self._name(key)} must be {in_words(hint)}, it is missing"
        if value is None and _must_be_given(kind, last):
            option = f"--{key} {'PATH' if last in ('path', 'root') else 'VALUE'}"
            return f"{self.source}: {key} is missing; it must be {in_words(hint)}; give it there or by {option}"
        choices = [choice for choice in get_args(hint) if isinstance(choice, str)]
        return f"{self._name(key)} must be {in_words(hint)}, got {value!r}{did_you_mean(value, choices)}"


@cache
def _schema() -> TypeAdapter[Config]:
    return TypeAdapter(Config)


def _must_be_given(kind: type, name: str) -> bool:
    field = next(field for field in fields(kind) if field.name == name)
    return field.default is MISSING and field.default_factory is MISSING


def _nested(overrides: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return dotted keys and their texts as nested sections."""
    nested: dict[str, Any] = {}
    for key, text in overrides:
        *sections, last = key.split(".")
        inner = nested
        for depth, section in enumerate(sections, 1):
            inner = inner.setdefault(section, {})
            if not isinstance(inner, dict):
                raise ConfigError(f"--{'.'.join(sections[:depth])} must be keys and values, got {inner!r}")
        read = _parsed(text)
        inner[last] = read if isinstance(read, dict) else _Text(text)
    return nested


def _parsed(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text


def _completed(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a section with texts read, and with the defaults that it gives to keys of sections inside it."""
    defaults = {field.name: field.default_factory for field in fields(kind)}
    completed = {}
    for key, value in values.items():
        hint = hints_of(kind).get(key)
        value = _value(value, hint)
        if kind is Config and key in NAMED:
            hint = NAMED[key].get(str(value.get("name"))) if isinstance(value, dict) else None
        if isinstance(hint, type) and is_dataclass(hint) and (value is None or isinstance(value, dict)):
            make = defaults[key]
            value = (plain(make()) if callable(make) else {}) | _completed(hint, value or {})
        completed[key] = value
    return completed


def _value(value: Any, hint: Any) -> Any:
    """Return a value as its type wants it: a text of the command line read as YAML, and 1e-3 as a number."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if isinstance(value, _Text):
        read = _parsed(str(value))
        wants_text = str in kinds and not isinstance(read, list) and not (read is None and NoneType in kinds)
        value = str(value) if wants_text else read
    exponent = float in kinds and isinstance(value, str) and _EXPONENT.fullmatch(value)
    return float(value) if exponent else value


def _read(path: Path) -> _Draft:
    """Return what a file and the one that it includes hold."""
    content, draft = _content(path, str(path)), _Draft(str(path))
    if "include" in content:
        included = _included(content.pop("include"), path)
        below = _content(included, f"{path} includes {included}, which")
        if "include" in below:
            raise ConfigError(f"{path} includes {included}, which includes {below['include']}: only one may include")
        draft.add(below, str(included))
    draft.add(content, str(path))
    return draft


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


def _included(value: Any, path: Path) -> Path:
    """Return the path of an included file."""
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{path}: include must be the path of a file, got {value!r}")
    if Path(value).is_absolute():
        raise ConfigError(f"{path}: include must be a path from the file that includes it, got {value!r}")
    return Path(os.path.normpath(path.parent / value))


def _flat(nested: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in nested.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
