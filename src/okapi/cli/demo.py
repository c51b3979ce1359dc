"""``okapi demo``."""

from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from okapi.cli.parsing import Parser, Verb


def _demo(chosen: Namespace) -> None:
    from okapi.report.demo import run_demo

    run_demo(chosen.out)


def _demo_parser() -> ArgumentParser:
    parser = Parser(
        usage="okapi demo [--out FOLDER]",
        description="Match scikit-learn's handwritten digits, as photographed at four made-up sites, and write the\n"
        "pictures, the matches and a page. Takes less than a minute and downloads nothing.",
        epilog="example:\n  okapi demo --out demo",
    )
    parser.add_argument("--out", type=Path, default=Path("demo"), metavar="FOLDER", help="where to write")
    return parser


VERB = Verb(name="demo", help="match built-in pictures of digits, no download", parser=_demo_parser, run=_demo)
