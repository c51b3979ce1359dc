"""Every key of a config with its type, default and meaning, which are those of the dataclasses and their docstrings."""

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from itertools import groupby
from textwrap import fill
from typing import Any, NamedTuple

import yaml

from okapi.config.reader import NAMED, Config, plain
from okapi.config.training import TrainingSettings
from okapi.config.values import defaults_of, hints_of, in_words
from okapi.messages import did_you_mean


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
    'a whole number from 0 to 4,294,967,295'
    """
    keys: list[Key] = []
    for section, kinds in NAMED.items():
        keys.append(Key(f"{section}.name", "", f"one of {', '.join(kinds)}", "", "Decides the section's other keys."))
        for name, kind in kinds.items():
            keys += _keys(kind, section, name)
    keys += _keys(TrainingSettings, "training", "")
    keys.append(Key("seed", "", in_words(hints_of(Config)["seed"]), "0", _meanings(Config)["seed"]))
    return [key for key in keys if not prefix or any(f"{name}.".startswith(f"{prefix}.") for name in _names(key))]


def explained(prefixes: Sequence[str] = (), width: int = 100) -> str:
    """Return keys with their types, defaults and meanings as text, under a line for each ``name`` of a section.

    Parameters
    ----------
    prefixes : sequence of str
        As ``explain`` takes them; by default all keys. One that is none is a ``ValueError``.
    width : int
        Of a line.

    Examples
    --------
    >>> print(explained(["training.accumulate"]))
    training.accumulate: a whole number from 1 to 10,000, default 1
        Batches whose gradients are added up for one optimiser step.
    """
    blocks = []
    for prefix in prefixes or [""]:
        section, _, name = prefix.partition(".")
        if keys := explain(prefix):
            for (section, name), rows in groupby(keys, key=lambda key: (key.key.partition(".")[0], key.of)):
                blocks.append(_block(section, name, list(rows), width))
        elif name in NAMED.get(section, {}):
            blocks.append(_block(section, name, [], width))
        else:
            known = sorted({name for key in explain() for name in _names(key)})
            raise ValueError(f"{prefix!r} is no key of a config{did_you_mean(prefix, known)}")
    return "\n\n".join(blocks)


def _block(section: str, name: str, keys: Sequence[Key], width: int) -> str:
    lines = [fill(f"If {section}.name is {name}: {_summary(NAMED[section][name])}", width)] if name else []
    for meaning, alike in groupby(keys, key=lambda key: key.meaning):
        for key in alike:
            default = f"default {key.default}" if key.default else "must be given"
            lines.append(fill(f"{key.key}: {key.type}, {default}", width, subsequent_indent=" " * 8))
        lines.append(fill(meaning, width, initial_indent=" " * 4, subsequent_indent=" " * 4))
    return "\n".join(lines)


def _summary(kind: type) -> str:
    """Return the first line of a docstring, without what it says of other classes."""
    return re.sub(r"; other keys are .*|[`.]+$|`", "", (inspect.getdoc(kind) or "").partition("\n")[0]) + "."


def _names(key: Key) -> Iterator[str]:
    yield key.key
    section, _, rest = key.key.partition(".")
    yield f"{section}.{key.of}.{rest}"


def _keys(kind: type, prefix: str, of: str, defaults: Mapping[str, Any] | None = None) -> list[Key]:
    """Return a section's keys: first those that must be given, then in the order of the docstrings."""
    keys: list[Key] = []
    defaults = defaults_of(kind) if defaults is None else defaults
    for name, meaning in _meanings(kind).items():
        if is_dataclass(value := defaults.get(name)):
            keys += _keys(type(value), f"{prefix}.{name}", of, vars(value))
        else:
            text = yaml.safe_dump(plain(value), default_flow_style=True, width=1000).removesuffix("...\n").strip()
            default = text if name in defaults else ""
            keys.append(Key(f"{prefix}.{name}", of, in_words(hints_of(kind)[name]), default, meaning))
    return sorted(keys, key=lambda key: key.default != "")


def _meanings(kind: type) -> dict[str, str]:
    """Return what the docstrings of a dataclass and its bases say of its fields."""
    found: dict[str, str] = {}
    for each in kind.__mro__:
        _, _, text = (inspect.getdoc(each) or "").partition("----------\n")
        for names, meaning in re.findall(r"^([\w, ]+) :[^\n]*\n((?:    .*\n?)*)", text, re.MULTILINE):
            for name in names.split(", "):
                found.setdefault(name, " ".join(meaning.split()))
    return found
