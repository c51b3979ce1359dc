"""``okapi demo``."""

from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from okapi.cli.parsing import Parser, Verb


def _demo(chosen: Namespace) -> None:
    from okapi.report.demo import run_demo

    run_demo(chosen.out, chosen.overrides)


def _demo_parser() -> ArgumentParser:
    parser = Parser(
        usage="okapi demo [--out FOLDER]",
        description="Match scikit-learn's handwritten digits, as photographed at made-up sites; then train ERM,\n"
        "FixMatch and Okapi to read them at sites that are new, and write tables and pages. Takes a few minutes\n"
        "on two cores and downloads nothing. Called again, it goes on where it was stopped.",
        epilog="example:\n  okapi demo --out demo\n  okapi demo --out short --training.steps 100",
    )
    parser.add_argument("--out", type=Path, default=Path("demo"), metavar="FOLDER", help="where to write")
    return parser


VERB = Verb(
    name="demo", help="match and train on built-in pictures of digits", parser=_demo_parser, run=_demo, takes_keys=True
)
