"""How command lines are read: parsers that say what is wrong in one paragraph, and what a verb is."""

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from jsonargparse import ArgumentParser, Namespace

from okapi.messages import did_you_mean

USAGE, INTERRUPTED = 2, 130
POSITIONAL = ("file", "config", "data", "run")
Overrides = list[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class Verb:
    """A verb of the command line.

    Parameters
    ----------
    name, help : str
    parser : callable
        Returns the parser of the verb's own options; imports nothing heavy.
    run : callable
        Takes the options and does the work; a number that it returns is the exit code.
    takes_keys : bool
        Whether keys of a config may be options too, such as ``--training.steps 100``. The options that
        it is given then have them as ``overrides``.
    """

    name: str
    help: str
    parser: Callable[[], ArgumentParser]
    run: Callable[[Namespace], int | None]
    takes_keys: bool = False


class Parser(ArgumentParser):
    """Says in one paragraph what is wrong, and which name was probably meant."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, allow_abbrev=False, formatter_class=_Help, **kwargs)

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Say what is wrong with a command line, and leave."""
        verb_of = None
        unknown = re.match(r"unrecognized arguments: (\S+)", message)
        if unknown and unknown[1].startswith("-"):
            name = unknown[1].partition("=")[0]
            message = f"unknown option {name}{did_you_mean(name, list(self._option_string_actions))}"
        elif unknown:
            message = f"unexpected argument {unknown[1]!r}"
        elif verb := re.match(r"argument \w+: invalid choice: '(.*?)'", message):
            message = f"unknown verb {verb[1]!r}{did_you_mean(verb[1], self._verbs())}"
        elif message.startswith('expected "verb"'):
            message = f"a verb is missing: {', '.join(self._verbs())}"
        elif missing := re.match(r"the following arguments are required: (?:(\w+)\.)?(\w+)", message):
            verb_of, name = missing.groups()
            message = f"{name.upper() if name in POSITIONAL else f'--{name}'} is missing"
        message = re.sub(r"^argument (--?[\w-]+)\S*:", r"\1", " ".join(message.split())).rstrip("?.")
        # What a verb lacks is found out by the parser of all verbs.
        prog = " ".join([self.prog.replace(" [options]", ""), *([verb_of] if verb_of else [])])
        print(f"{prog}: {message}{'?' if 'did you mean' in message else '.'} See {prog} --help", file=sys.stderr)
        sys.exit(USAGE)

    def _verbs(self) -> list[str]:
        return list(getattr(self._subcommands_action, "choices", None) or [])


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help with examples as they are written, and the default of every option that has one."""

    def __init__(self, prog: str, **kwargs: Any) -> None:
        super().__init__(prog, max_help_position=28, width=100, **kwargs)

    def _get_help_string(self, action: argparse.Action) -> str:
        text = action.help or ""
        default = action.default
        if default in (None, False, [], argparse.SUPPRESS) or not action.option_strings:
            return text
        values = default if isinstance(default, list) else [default]
        shown = " ".join("none" if value is None else str(value) for value in values)
        return f"{text} (default: {'yes' if default is True else shown})".replace("%", "%%")


def without_keys(words: Sequence[str]) -> tuple[list[str], Overrides]:
    """Return the words of a command line, and apart from them the dotted keys of a config with their values."""
    left, keys = [], []
    waiting = iter(words)
    for word in waiting:
        if not re.match(r"--\w+\.", word):
            left.append(word)
            continue
        key, equals, value = word.removeprefix("--").partition("=")
        if not equals:
            value = next(waiting, "--")
            if value.startswith("--"):
                prog = f"okapi {words[0]}"
                print(f"{prog}: --{key} needs a value. See {prog} --help", file=sys.stderr)
                sys.exit(USAGE)
        keys.append((key, value))
    return left, keys


def whole(text: Any) -> int:
    """Return the whole number that a text says."""
    return int(_converted(text, int, "a whole number"))


def number(text: Any) -> float:
    """Return the number that a text says."""
    return float(_converted(text, float, "a number"))


def number_or_none(text: Any) -> float | None:
    """Return the number that a text says, or None."""
    return None if text is None or str(text).lower() == "none" else _converted(text, float, "a number or none")


def number_or_auto(text: Any) -> float | str:
    """Return the number that a text says, or "auto"."""
    return "auto" if text == "auto" else _converted(text, float, "a number or auto")


def _converted(text: Any, kind: Callable[[Any], Any], wanted: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be {wanted}, got {text!r}") from None


def show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    """Show a warning of ours as a sentence, any other with its place."""
    ours = category.__module__.startswith("okapi.")
    print(f"Note: {message}" if ours else f"{filename}:{lineno}: {message}", file=sys.stderr)
