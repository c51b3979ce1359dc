"""Phrases that error messages share."""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches


def listed(names: Iterable[str], most: int = 12) -> str:
    """Return names in quotes, the first of them where there are many.

    Examples
    --------
    >>> listed(["rome", "oslo", "cairo"], most=2)
    "'rome', 'oslo' and 1 more"
    """
    names = list(names)
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + rest


def did_you_mean(name: object, known: Iterable[str], prefix: str = "") -> str:
    """Return the known name that is nearest to one that is not, as the end of a sentence; "" where none is near.

    Examples
    --------
    >>> did_you_mean("stepz", ["steps", "seed"], prefix="training.")
    '; did you mean training.steps?'
    """
    near = get_close_matches(name, list(known), n=1) if isinstance(name, str) else []
    return f"; did you mean {prefix}{near[0]}?" if near else ""


def as_options(message: str, options: Mapping[str, str]) -> str:
    """Call parameters in a message by their command-line options; words in quotes and in paths are left alone.

    Parameters
    ----------
    message : str
    options : mapping of str to str
        Options by parameter. A parameter of one word is replaced only at the start of the message.

    Examples
    --------
    >>> as_options("std_caliper must be positive", {"std_caliper": "--std-caliper"})
    '--std-caliper must be positive'
    """
    for name, option in options.items():
        start = r"(?<![\w'./-])" if "_" in name else "^"
        message = re.sub(rf"{start}{name}(?![\w'/-]|\.\w| ')", option, message)
    return message


def printable(text: str) -> str:
    r"""Return a text with a replacement character for each control character: XML has none, a terminal obeys them.

    Examples
    --------
    >>> printable("oslo\x1b[31m")
    'oslo�[31m'
    """
    return re.sub(r"[^\t\n\r -~\u00a0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "�", text)
