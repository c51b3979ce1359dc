"""The command line, a file for each verb.

Nothing heavy is imported before a verb runs, so that ``okapi --help`` answers at once.
"""

import io
import sys
import warnings
from collections.abc import Sequence

from jsonargparse import ArgumentParser

from okapi import __version__
from okapi.cli import benchmark, data, demo, diagnose, embed, evaluate, match, report, train, tune
from okapi.cli.parsing import INTERRUPTED, USAGE, Parser, show_warning, without_keys
from okapi.training.errors import RunError

_ALL = (match, tune, diagnose, train, embed, evaluate, benchmark, report, data, demo)
VERBS = {module.VERB.name: module.VERB for module in _ALL}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a verb; return 0, 1 for a run that had to stop, 2 for bad usage or input, 130 after Ctrl-C."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # an arrow is not worth a crash where the encoding has none
    words = list(sys.argv[1:] if arguments is None else arguments)
    verb = VERBS.get(words[0]) if words else None
    words, overrides = without_keys(words) if verb and verb.takes_keys else (words, [])
    try:
        chosen = _parser().parse_args(words)
        options = chosen[chosen.verb]
        options.overrides = overrides
        with warnings.catch_warnings():
            warnings.showwarning = show_warning
            return VERBS[chosen.verb].run(options) or 0
    except KeyboardInterrupt:
        print("okapi: stopped", file=sys.stderr)
        return INTERRUPTED
    except MemoryError as error:
        print(f"okapi: there is not enough memory. {error}".rstrip(), file=sys.stderr)
        return USAGE
    except (RunError, ValueError, OSError) as error:
        print(f"okapi: {error}", file=sys.stderr)
        return error.code if isinstance(error, RunError) else USAGE


def _parser() -> ArgumentParser:
    parser = Parser(
        prog="okapi",
        version=__version__,
        description="Pair samples across domains, and train models that hold up on sites nobody labelled.",
    )
    verbs = parser.add_subcommands(
        dest="verb", title="verbs", description="okapi VERB --help says more", metavar="VERB"
    )
    for verb in VERBS.values():
        verbs.add_subcommand(verb.name, verb.parser(), help=verb.help)
    return parser
