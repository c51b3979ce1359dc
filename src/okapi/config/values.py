"""Types of settings: which values they admit, and the same in words. All settings are checked by these alone."""

from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from reprlib import Repr
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from annotated_types import Interval
from pydantic import ConfigDict, TypeAdapter, ValidationError

from okapi.messages import did_you_mean

Count: TypeAlias = Annotated[int, Interval(ge=1, le=1_000_000_000)]
Few: TypeAlias = Annotated[int, Interval(ge=1, le=10_000)]
Width: TypeAlias = Annotated[int, Interval(ge=1, le=65_536)]
Seed: TypeAlias = Annotated[int, Interval(ge=0, le=2**32 - 1)]
Share: TypeAlias = Annotated[float, Interval(ge=0, le=1)]
ShareBelowOne: TypeAlias = Annotated[float, Interval(ge=0, lt=1)]
PositiveShare: TypeAlias = Annotated[float, Interval(gt=0, le=1)]
NotNegative: TypeAlias = Annotated[float, Interval(ge=0, le=1_000_000)]
Positive: TypeAlias = Annotated[float, Interval(gt=0, le=1_000_000)]

_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text", NoneType: "null"}

_SHORT = Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother = 2, 200, 200


class Settings:
    """Base of dataclasses whose values are checked, against the types of their fields, when one is made.

    Lists become tuples, and whole numbers become floats where a number is wanted.
    """

    def __post_init__(self) -> None:
        kind: Any = type(self)
        for name, hint in hints_of(kind).items():
            try:
                object.__setattr__(self, name, checked(getattr(self, name), hint))
            except ValueError as error:
                raise ValueError(f"{name} {error}") from None


def checked(value: Any, hint: Any) -> Any:
    """Return a value as a type wants it, or raise ``ValueError``: what it must be, what came, and the nearest choice.

    Examples
    --------
    >>> checked([1, 2], tuple[float, ...])
    (1.0, 2.0)
    >>> checked(2, Share)
    Traceback (most recent call last):
    ValueError: must be a number from 0 to 1, got 2
    """
    if isinstance(hint, type) and is_dataclass(hint):
        if isinstance(value, hint):
            return value
        raise ValueError(f"must be {hint.__name__}, got {shown(value)}")
    try:
        return _adapter(hint).validate_python(tuple(value) if isinstance(value, list) else value)
    except ValidationError:
        kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        choices = [choice for kind in kinds for choice in get_args(kind) if isinstance(choice, str)]
        raise ValueError(f"must be {in_words(hint)}, got {shown(value)}{did_you_mean(value, choices)}") from None


def shown(value: Any) -> str:
    """Return a value as a message shows it, however long, deep or often repeated in itself it is."""
    try:
        return "null" if value is None else _SHORT.repr(value)
    except ValueError:  # of a number of very many digits
        return f"{type(value).__name__} too long to show"


def in_words(hint: Any) -> str:
    """Return a type in words.

    Examples
    --------
    >>> in_words(float | None)
    'a number or null'
    >>> in_words(PositiveShare)
    'a number of more than 0 and at most 1'
    """
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return f"{in_words(inner[0])} {_range(inner[1])}"
    if origin in (Union, UnionType):
        words = sorted(dict.fromkeys(map(in_words, inner)), key=lambda word: word.startswith("a list"))
        return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
    if origin is Literal:
        return f"one of {', '.join(map(str, inner))}" if len(inner) > 1 else str(inner[0])
    if origin is tuple:
        return f"a list{'' if inner[-1] is Ellipsis else f' of {len(inner)}'}, each {in_words(inner[0])}"
    return _WORDS.get(hint, "keys and values")


@cache
def hints_of(kind: type) -> dict[str, Any]:
    """Return the types of a dataclass's fields, by key."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in fields(kind)}


def defaults_of(kind: type) -> dict[str, Any]:
    """Return the defaults of a dataclass's fields, by key, but for those that must be given."""
    made = {field.name: field.default_factory() for field in fields(kind) if field.default_factory is not MISSING}
    return {field.name: field.default for field in fields(kind) if field.default is not MISSING} | made


def _range(interval: Interval) -> str:
    if interval.ge is not None and interval.le is not None:
        return f"from {interval.ge:,} to {interval.le:,}"
    low = f"at least {interval.ge:,}" if interval.gt is None else f"more than {interval.gt:,}"
    return f"of {low} and " + (f"at most {interval.le:,}" if interval.lt is None else f"less than {interval.lt:,}")


@cache
def _adapter(hint: Any) -> TypeAdapter[Any]:
    return TypeAdapter(hint, config=ConfigDict(strict=True))
