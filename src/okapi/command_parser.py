"""The parser of the command line: help with examples, errors in one sentence, keys of a config as options."""

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from okapi.messages import did_you_mean

USAGE = 2  # the exit code of wrong usage
SEVERAL: dict[str, Any] = {"nargs": "+", "default": ()}
# Parameters that an error message may name, but that no option is called after.
OTHER_NAMES = {"propensity_scores": "--propensity", "n_jobs": "--jobs"}


class Parser(argparse.ArgumentParser):
    """Reports what is wrong in one sentence, with the name that was probably meant.

    Parameters
    ----------
    **settings
        As of `argparse.ArgumentParser`.

    Attributes
    ----------
    name : str
        Of the command, of its module in `okapi.commands` and of the function there.
    keys : bool
        Whether keys of a config can be options, too: ``--training.steps 200``.
    explain : callable, optional
        Returns more help, which takes time to find.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, allow_abbrev=False, formatter_class=_Formatter)
        self.name = ""
        self.keys = False
        self.explain: Callable[[], str] | None = None

    def describe(self, usage: str, description: str, example: str) -> None:
        """Set what ``--help`` begins and ends with."""
        self.usage, self.description, self.epilog = usage, description, f"example:\n{example}"

    def takes_keys(self, key: str, help_: str) -> None:
        """Let keys of a config be options."""
        self.keys = True
        self.add_argument(f"--{key}", dest=argparse.SUPPRESS, metavar="VALUE", default=argparse.SUPPRESS, help=help_)

    def prints_tables(self) -> None:
        """Let the tables be printed as JSON."""
        self.add_argument("--json", action="store_true", help="print the tables and notes as JSON, and nothing else")

    def writes_csv(self) -> None:
        """Let texts in CSV files be made safe."""
        help_ = "in CSV files, an apostrophe before texts that a spreadsheet would take for formulas"
        self.add_argument("--safe-csv", action="store_true", help=help_)

    def format_help(self) -> str:
        """Return the help, with what takes time to find."""
        if self.explain is None:
            return super().format_help()
        return f"{super().format_help()}\n{self.explain()}\n"

    def without_keys(self, words: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
        """Return the words without dotted keys of a config, and these with their values; reject unknown options."""
        rest: list[str] = []
        keys = []
        waiting = iter(words)
        for word in waiting:
            option, equals, value = word.partition("=")
            if not re.match(r"--\w", word) or option in self._option_string_actions:
                rest.append(word)
            elif "." in option and self.keys:
                value = value if equals else next(waiting, "--")
                if not equals and value.startswith("--"):
                    self.error(f"{option} needs a value")
                keys.append((option.removeprefix("--"), value))
            else:
                known = [name for name in self._option_string_actions if "." not in name]
                self.error(f"unknown option {option}{did_you_mean(option, known)}")
        return rest, keys

    def named(self, options: dict[str, Any]) -> dict[str, str]:
        """Return options by the parameters they set; beside a config, whose keys have like names, only given ones."""
        config = self.keys and (
            options["overrides"] or any(str(x).endswith((".yaml", ".yml")) for x in options.values())
        )
        return OTHER_NAMES | {
            action.dest: action.option_strings[0]
            for action in self._actions
            if action.option_strings and not (config and options.get(action.dest, action.default) == action.default)
        }

    def error(self, message: str) -> NoReturn:
        """Print what is wrong with a command line, and exit."""
        if missing := re.match(r"the following arguments are required: ([^,]+)", message):
            message = f"{missing[1]} is missing"
        elif extra := re.match(r"unrecognized arguments: (\S+)", message):
            message = f"unexpected argument {extra[1]!r}"
        elif choice := re.match(r"argument ([^:]+): invalid choice: (.*?) \(choose from (.*)\)", message):
            message = f"{choice[1]} must be one of {choice[3]}, got {choice[2]}"
        message = re.sub(r"expected (at least )?one argument$", "needs a value", message)
        message = re.sub(r"^argument (--?[\w-]+)[^:]*:", r"\1", " ".join(message.split())).rstrip("?.")
        end = "?" if "did you mean" in message else "."
        print(f"{self.prog}: {message}{end} See {self.prog} --help", file=sys.stderr)
        sys.exit(USAGE)


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Help with examples as they are written, and the default of every option that has one."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=100)

    def _get_help_string(self, action: argparse.Action) -> str:
        text = (action.help or "").removesuffix(" (default: %(default)s)")
        default = action.default
        if default in (None, False, (), argparse.SUPPRESS) or not action.option_strings or action.const is False:
            return text
        values = default if isinstance(default, tuple) else (default,)
        shown = " ".join("none" if value is None else str(value) for value in values)
        return f"{text} (default: {'yes' if default is True else shown})"


def _converter(kind: Callable[[str], Any], wanted: str, **words: Any) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        if text.lower() in words:
            return words[text.lower()]
        try:
            return kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be {wanted}, got {text!r}") from None

    return convert


integer = _converter(int, "a whole number")
integer_or_none = _converter(int, "a whole number or none", none=None)
number = _converter(float, "a number")
number_or_none = _converter(float, "a number or none", none=None)
number_or_auto = _converter(float, "a number or auto", auto="auto")
