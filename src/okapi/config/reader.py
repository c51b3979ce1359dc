"""The config of a run: a YAML file, the one that it may include, and dotted overrides.

``include: base.yaml`` names a file by its path from the one that includes it; the included file includes no other.
Files are merged key by key: a file wins over the one that it includes, and overrides win over both. A list is replaced
as a whole. A section that is given another ``name`` begins anew: keys of an ``okapi`` mean nothing to an ``erm``.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, NamedTuple, get_args, get_origin

import yaml

from okapi.config.algorithms import ALGORITHM_SETTINGS, AlgorithmSettings
from okapi.config.data import DATA_SETTINGS, DataSettings
from okapi.config.models import MODEL_SETTINGS, ModelSettings
from okapi.config.training import TrainingSettings
from okapi.config.values import Seed, checked, defaults_of, hints_of, in_words, shown
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
_NO_YAML = (yaml.YAMLError, ValueError, ArithmeticError, RecursionError)  # of a date of no day, say


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

    data: DataSettings
    model: ModelSettings
    algorithm: AlgorithmSettings
    training: TrainingSettings
    seed: Seed = 0

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
    path = find_config(path)
    config: Config = _made(Config, [*_files(path), *_options(overrides)], str(path))
    return config


def make_config(content: Any, overrides: Sequence[tuple[str, str]] = (), source: str = "config") -> Config:
    """Return the config of nested dictionaries as a YAML file has them; errors call them by ``source``."""
    config: Config = _made(Config, [_Layer(_mapping(content, source), source), *_options(overrides)], source)
    return config


def named(path: Path, section: str, overrides: Sequence[tuple[str, str]] = ()) -> str | None:
    """Return the ``name`` of a section of a config that need not be complete."""
    layers = _inner(section, [*_files(find_config(path)), *_options(overrides)])
    return next((str(layer.content["name"]) for layer in reversed(layers) if "name" in layer.content), None)


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


class _Text(str):
    """A value of the command line: what it is as YAML, unless text is wanted."""


class _Layer(NamedTuple):
    """The keys and values of one file or one option."""

    content: Mapping[Any, Any]
    source: str
    is_option: bool = False

    def name(self, key: str) -> str:
        """Return what errors call a key."""
        return f"--{max(self.source, key, key=len)}" if self.is_option else f"{self.source}: {key}"


def _made(kind: type, layers: Sequence[_Layer], source: str, at: str = "", defaults: Any = None) -> Any:
    """Return settings from the layers that hold keys of them; of several that hold a key the last counts."""
    hints, values = hints_of(kind), dict(defaults or defaults_of(kind))
    known = [key for key in hints if key != "name"]
    for layer in layers:
        for key in map(str, layer.content):
            if key not in hints:
                near = did_you_mean(key, known, at) or f"; known are {', '.join(known) or 'none'}"
                raise ConfigError(f"{layer.name(f'{at}{key}')} is no key of the config{near}")
    for key in known:
        dotted, hint, holders = f"{at}{key}", hints[key], [layer for layer in layers if key in layer.content]
        if (kind is Config and key in NAMED) or is_dataclass(hint):
            inner = _inner(key, holders, at)
            chosen = _settings_of(key, inner, source) if key in NAMED else hint
            values[key] = _made(chosen, inner, source, f"{dotted}.", vars(values[key]) if key in values else None)
        elif holders and (key in values or holders[-1].content[key] not in (None, "")):
            values[key] = _value(holders[-1], key, dotted, hint)
        elif key not in values:
            option = f"--{dotted} {'PATH' if key in ('path', 'root') else 'VALUE'}"
            raise ConfigError(
                f"{source}: {dotted} is missing; it must be {in_words(hint)}; give it there or by {option}"
            )
    try:
        return kind(**values)
    except ValueError as error:  # of several keys together
        key, _, rest = str(error).partition(" ")
        if key not in hints:
            raise ConfigError(f"{source}: {at.rstrip('.')}: {error}") from None
        holder = next((layer for layer in reversed(layers) if key in layer.content), _Layer({}, source))
        raise ConfigError(f"{holder.name(f'{at}{key}')} {rest}") from None


def _inner(key: str, layers: Sequence[_Layer], at: str = "") -> list[_Layer]:
    """Return the layers of a section, without files that give it another name than counts."""
    inner: list[_Layer] = []
    for layer in layers:
        content = layer.content.get(key)
        if content is None:  # an empty section changes nothing
            continue
        if not isinstance(content, Mapping):
            raise ConfigError(f"{layer.name(f'{at}{key}')} must be keys and values, got {shown(content)}")
        inner.append(layer._replace(content=content))
    last = next((layer.content["name"] for layer in reversed(inner) if "name" in layer.content), None)
    kept: list[_Layer] = []
    for layer in inner:
        name = last if layer.is_option else layer.content.get("name")  # options have no order among themselves
        before = next((one.content["name"] for one in reversed(kept) if "name" in one.content), name)
        kept = [one for one in kept if one.is_option or name in (None, before)] + [layer]
    return kept


def _settings_of(section: str, layers: Sequence[_Layer], source: str) -> type:
    """Return the settings that the ``name`` of a section stands for."""
    holder = next((layer for layer in reversed(layers) if "name" in layer.content), _Layer({}, source))
    name, names = holder.content.get("name"), NAMED[section]
    if isinstance(name, str) and name in names:
        return names[name]
    came = "it is missing" if name is None else f"got {shown(name)}{did_you_mean(name, names)}"
    raise ConfigError(f"{holder.name(f'{section}.name')} must be one of {', '.join(names)}; {came}")


def _value(layer: _Layer, key: str, dotted: str, hint: Any) -> Any:
    """Return a value as its type wants it: a text of the command line read as YAML, and 1e-3 as a number."""
    value = layer.content[key]
    kinds = {get_args(kind)[0] if get_origin(kind) is Annotated else kind for kind in get_args(hint) or (hint,)}
    if isinstance(value, _Text):
        read = _parsed(value)
        wants_text = str in kinds and not isinstance(read, list) and not (read is None and NoneType in kinds)
        value = str(value) if wants_text else read
    if isinstance(value, str) and float in kinds and _EXPONENT.fullmatch(value):
        value = float(value)
    try:
        return checked(value, hint)
    except ValueError as error:
        raise ConfigError(f"{layer.name(dotted)} {error}") from None


def _options(overrides: Sequence[tuple[str, str]]) -> Iterator[_Layer]:
    """Yield each dotted key and its text as nested sections."""
    for key, text in overrides:
        read = _parsed(text)
        content: Any = read if isinstance(read, dict) else _Text(text)
        for part in reversed(key.split(".")):
            content = {part: content}
        yield _Layer(content, key, is_option=True)


def _parsed(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except _NO_YAML:
        return text


def _files(path: Path) -> Iterator[_Layer]:
    """Yield what the file that a file includes holds, and what the file itself does."""
    content = dict(_content(path, str(path)))
    if "include" in content:
        included = _included(content.pop("include"), path)
        below = _content(included, f"{path} includes {included}, which")
        if "include" in below:
            more = shown(below["include"]).strip("'")
            raise ConfigError(f"{path} includes {included}, which includes {more}: only one may include")
        yield _Layer(below, str(included))
    yield _Layer(content, str(path))


def _content(path: Path, called: str) -> Mapping[Any, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{called} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    except RecursionError:
        raise ConfigError(f"{called} is not a config: its values are nested too deeply") from None
    except _NO_YAML as error:
        raise ConfigError(f"{called} is not YAML: {' '.join(str(error).split())}") from error
    return _mapping(content, called)


def _mapping(content: Any, called: str) -> Mapping[Any, Any]:
    if isinstance(content, Mapping):
        return content
    raise ConfigError(f"{called} must have the keys {', '.join(NAMED)} and training, or some, got {shown(content)}")


def _included(value: Any, path: Path) -> Path:
    """Return the path of an included file."""
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{path}: include must be the path of a file, got {shown(value)}")
    if Path(value).is_absolute():
        raise ConfigError(f"{path}: include must be a path from the file that includes it, got {value!r}")
    return Path(os.path.normpath(path.parent / value))


def _flat(nested: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in nested.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
