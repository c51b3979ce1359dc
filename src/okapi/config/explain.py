"""Every key of a config with its type, default and meaning, which are those of the dataclasses and their docstrings."""

import inspect
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from typing import NamedTuple

import yaml

from okapi.config.reader import NAMED, Config, hints_of, in_words, plain
from okapi.config.training import TrainingSettings


class Key(NamedTuple):
    """A key of a config: what it is called, of which ``name`` of its section it is, and what it means."""

    key: str
    of: str  # such as "sites"; "" where a section has no name
    type: str
    default: str  # as in YAML; "" where a value must be given
    meaning: str


def explain(prefix: str = "") -> list[Key]:
    """Return the keys of a config.

    Parameters
    ----------
    prefix : str
        Only keys of this section, or this key; after ``data``, ``model`` and ``algorithm`` may come a name, such as
        ``algorithm.okapi``. By default all.

    Examples
    --------
    >>> [key.default for key in explain("model.mlp.dropout")]
    ['0.0']
    >>> explain("seed")[0].type
    'a whole number'
    """
    keys: list[Key] = []
    for section, kinds in NAMED.items():
        keys.append(Key(f"{section}.name", "", f"one of {', '.join(kinds)}", "", "Decides the section's other keys."))
        for name, kind in kinds.items():
            keys += _keys(kind, section, name)
    keys += _keys(TrainingSettings, "training", "")
    keys.append(Key("seed", "", "a whole number", "0", _meanings(Config)["seed"]))
    return [key for key in keys if not prefix or any(f"{name}.".startswith(f"{prefix}.") for name in _names(key))]


def _names(key: Key) -> Iterator[str]:
    yield key.key
    section, _, rest = key.key.partition(".")
    yield f"{section}.{key.of}.{rest}"


def _keys(kind: type, prefix: str, of: str, default: object = MISSING) -> Iterator[Key]:
    meanings, hints = _meanings(kind), hints_of(kind)
    for field in fields(kind):
        value = getattr(default, field.name, field.default)
        if value is MISSING and field.default_factory is not MISSING:
            value = field.default_factory()
        key = f"{prefix}.{field.name}"
        if is_dataclass(value):
            yield from _keys(type(value), key, of, value)
        elif field.name != "name":
            shown = "" if value is MISSING else yaml.safe_dump(plain(value), default_flow_style=True, width=1000)
            yield Key(key, of, in_words(hints[field.name]), shown.removesuffix("...\n").strip(), meanings[field.name])


def _meanings(kind: type) -> dict[str, str]:
    """Return what the docstrings of a dataclass and its bases say of its fields."""
    found: dict[str, str] = {}
    for each in kind.__mro__:
        _, _, text = (inspect.getdoc(each) or "").partition("----------\n")
        for names, meaning in re.findall(r"^([\w, ]+) :[^\n]*\n((?:    .*\n?)*)", text, re.MULTILINE):
            for name in names.split(", "):
                found.setdefault(name, " ".join(meaning.split()))
    return found
