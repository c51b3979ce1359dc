"""The config of a run: a YAML file, the one that it may include, and dotted overrides, checked by pydantic.

``include: base.yaml`` names a file by its path from the one that includes it; the included file includes no other.
Files are merged key by key: what a file says itself wins over what it includes, and overrides win over both. A list is
replaced as a whole. A section that is given another ``name`` begins anew: keys of an ``okapi`` mean nothing to an
``erm``.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml

from okapi.config.algorithms import ALGORITHM_SETTINGS
from okapi.config.data import DATA_SETTINGS
from okapi.config.models import MODEL_SETTINGS
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

    data: Any
    model: Any
    algorithm: Any
    training: TrainingSettings
    seed: int = 0

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
    return _drafted(find_config(path)).config(overrides)


def read_content(path: Path) -> dict[str, Any]:
    """Return what a YAML file and the one that it may include say together, not yet checked."""
    return _drafted(find_config(path)).content


def make_config(content: Any, overrides: Sequence[tuple[str, str]] = (), source: str = "config") -> Config:
    """Return the config of nested dictionaries as a YAML file has them; ``source`` is by what errors call them."""
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
        words = [in_words(kind) for kind in inner]
        return f"{', '.join(words[:-1])} or {words[-1]}"
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
    """A value as the command line has it: what it is as YAML, unless text is wanted."""


class _Draft:
    """What files and overrides say together, not yet checked; and which file says what."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.content: dict[str, Any] = {}
        self.files: dict[str, str] = {}
        self.overrides: dict[str, str] = {}

    def add(self, content: Mapping[str, Any], file: str) -> None:
        """Merge what one more file says, which wins."""
        self._merge(self.content, content, file, "")

    def config(self, overrides: Sequence[tuple[str, str]]) -> Config:
        self.overrides = dict(overrides)
        given: dict[str, Any] = {}
        for key, text in self.overrides.items():
            *sections, last = key.split(".")
            inner = given
            for depth, section in enumerate(sections, 1):
                inner = inner.setdefault(section, {})
                self._check_keys(inner, ".".join(sections[:depth]))
            inner[last] = _Text(text)
        self.add(given, self.source)
        self._check_known(self.content, [*NAMED, "training", "seed"], "")
        named = {section: self._named(section, kinds) for section, kinds in NAMED.items()}
        training = self._settings("training", TrainingSettings, {"training": TrainingSettings})
        return Config(**named, training=training, seed=self._seed())

    def called(self, key: str) -> str:
        """Return what errors call a key: the option, or the file that has it, and the key."""
        return f"--{key}" if key in self.overrides else f"{self.files.get(key, self.source)}: {key}"

    def _merge(self, before: dict[str, Any], after: Mapping[str, Any], file: str, prefix: str) -> None:
        for key, value in after.items():
            dotted, old = f"{prefix}{key}", before.get(key)
            if not isinstance(value, dict):
                if value is not None or not isinstance(old, dict):  # an empty section says nothing
                    before[key], self.files[dotted] = value, file
                continue
            if old is not None:
                self._check_keys(old, dotted)
            old = old or {}
            renamed = not prefix and "name" in old and value.get("name", old["name"]) != old["name"]
            before[key] = {} if renamed else old
            self.files[dotted] = file
            self._merge(before[key], value, file, f"{dotted}.")

    def _named(self, section: str, kinds: Mapping[str, type]) -> Any:
        values = self.content.get(section)
        self._check_keys(values, section)
        assert isinstance(values, dict)
        name = str(values.get("name", ""))
        if name not in kinds:
            came = "it is missing" if not name else f"got {name!r}{did_you_mean(name, kinds)}"
            raise ConfigError(f"{self.called(f'{section}.name')} must be one of {', '.join(kinds)}; {came}")
        return self._settings(section, kinds[name], kinds)

    def _settings(self, section: str, kind: type, kinds: Mapping[str, type]) -> Any:
        """Return a section's dataclass; pydantic checks and converts its values."""
        from pydantic import ValidationError  # which takes longer to import than the rest of this room

        self._check_keys(self.content.get(section), section)
        values = self._prepared(kind, self.content[section], section)
        try:
            return _adapter(tuple(kinds.values())).validate_json(json.dumps(values, default=str), strict=True)
        except ValidationError as errors:
            error = errors.errors(include_url=False)[0]
        location = error["loc"][1:] if len(kinds) > 1 else error["loc"]  # without the name
        raise ConfigError(self._complaint(section, kind, location, values, error.get("ctx", {}).get("error")))

    def _prepared(self, kind: type, values: Mapping[str, Any], section: str) -> dict[str, Any]:
        """Return values ready for pydantic: of known keys, texts of overrides read, nested sections complete."""
        hints = hints_of(kind)
        self._check_known(values, list(hints), f"{section}.")
        prepared = {key: _value(value, hints[key]) for key, value in values.items()}
        for field in fields(kind):
            if is_dataclass(hints[field.name]):
                value = prepared.get(field.name, {})
                self._check_keys(value, f"{section}.{field.name}")
                assert callable(field.default_factory)
                inner = field.default_factory()
                prepared[field.name] = plain(inner) | self._prepared(type(inner), value, f"{section}.{field.name}")
        return prepared

    def _complaint(
        self, section: str, kind: type, location: Sequence[int | str], values: Any, reason: ValueError | None
    ) -> str:
        """Return what pydantic rejects in words of ours; ``reason`` is what the dataclass itself says."""
        hint: Any = kind
        for part in location:
            if not is_dataclass(hint):
                break
            assert isinstance(hint, type)
            hint, field = hints_of(hint)[str(part)], next(each for each in fields(hint) if each.name == part)
            section, values = f"{section}.{part}", values.get(part)
        if reason is not None:
            key, _, rest = str(reason).partition(" ")
            known = isinstance(hint, type) and key in hints_of(hint)
            return f"{self.called(f'{section}.{key}')} {rest}" if known else f"{self.called(section)}: {reason}"
        if values is None and field.default is MISSING and field.default_factory is MISSING:
            option = f"--{section} {'PATH' if section.endswith(('.path', '.root')) else 'VALUE'}"
            return f"{self.source}: {section} is missing; it must be {in_words(hint)}; give it there or by {option}"
        choices = [choice for choice in get_args(hint) if isinstance(choice, str)]
        return f"{self.called(section)} must be {in_words(hint)}, got {values!r}{did_you_mean(values, choices)}"

    def _seed(self) -> int:
        value = _value(self.content.get("seed", 0), int)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ConfigError(f"{self.called('seed')} must be a whole number of at least 0, got {value!r}")
        return value

    def _check_keys(self, value: Any, key: str) -> None:
        if not isinstance(value, dict):
            came = "it is missing" if value is None else f"got {value!r}"
            raise ConfigError(f"{self.called(key)} must be keys and values, {came}")

    def _check_known(self, values: Mapping[str, Any], known: Sequence[str], prefix: str) -> None:
        for key in values:
            if key not in known:
                dotted = f"{prefix}{key}"
                option = next((name for name in self.overrides if f"{name}.".startswith(f"{dotted}.")), None)
                shown = f"--{option}" if option else self.called(dotted)
                others = [name for name in known if name != "name"]
                near = did_you_mean(key, known, prefix) or f"; known are {', '.join(others) or 'none'}"
                raise ConfigError(f"{shown} is no key of the config{near}")


def _drafted(path: Path) -> _Draft:
    content, draft = _content(path, str(path)), _Draft(str(path))
    if "include" in content:
        included = _included(content.pop("include"), path)
        below = _content(included, f"{path} includes {included}, which")
        if "include" in below:
            raise ConfigError(f"{path} includes {included}, which includes {below['include']}: only one may include")
        draft.add(below, str(included))
    draft.add(content, str(path))
    return draft


@cache
def _adapter(kinds: tuple[type, ...]) -> Any:
    """Return what turns JSON into one of some dataclasses, by its name."""
    from pydantic import Field, TypeAdapter

    if len(kinds) == 1:
        return TypeAdapter(kinds[0])
    union: Any = Union[kinds]  # noqa: UP007
    return TypeAdapter(Annotated[union, Field(discriminator="name")])


def _value(value: Any, hint: Any) -> Any:
    """Return a value as its type wants it: a text of the command line read as YAML, and 1e-3 as a number."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if isinstance(value, _Text):
        try:
            read = yaml.safe_load(value)
        except yaml.YAMLError:
            read = str(value)
        wants_text = str in kinds and not isinstance(read, list | dict) and not (read is None and NoneType in kinds)
        value = str(value) if wants_text else read
    exponent = float in kinds and isinstance(value, str) and _EXPONENT.fullmatch(value)
    return float(value) if exponent else value


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
