"""``okapi report``."""

from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from okapi.cli.parsing import Parser, Verb, whole


def _report(chosen: Namespace) -> None:
    if not chosen.runs:
        raise ValueError("DIR is missing: a run directory or a benchmark. See okapi report --help")
    if chosen.samples < 0:
        raise ValueError(f"--samples must be at least 0, got {chosen.samples}")
    from okapi.report.live import follow
    from okapi.report.run_page import write_report

    write = follow if chosen.live else write_report
    write(chosen.runs, chosen.out, run=chosen.run, samples=chosen.samples, overrides=chosen.overrides)
    print(f"Page: {chosen.out} ({chosen.out.stat().st_size / 1e6:.1f} MB)")


def _report_parser() -> ArgumentParser:
    parser = Parser(
        usage="okapi report DIR... [options]",
        description="Write one page about runs and benchmarks: results, curves over training, worst domains and\n"
        "groups, confusion, propensities at several temperatures, balance, a gallery of matches and a map of\n"
        "the encodings. It is one HTML file that needs nothing else. Test splits are not opened: they appear only\n"
        "where okapi evaluate, or okapi benchmark, has opened them before.",
        epilog="example:\n"
        "  okapi report runs/okapi --out okapi.html\n"
        "  okapi report runs/sites --run runs/sites/okapi/all/seed-0\n"
        "  okapi report runs/okapi --live",
    )
    add = parser.add_argument
    add("runs", type=Path, nargs="*", metavar="DIR", help="run directories, benchmarks, or folders of run directories")
    add("--out", type=Path, default=Path("report.html"), metavar="FILE", help="what to write")
    add("--run", type=Path, metavar="DIR", help="whose matches and map are shown (default: the first run of okapi)")
    add("--samples", type=whole, default=2000, metavar="N", help="samples of that run to encode; 0: no matches, no map")
    add("--live", action="store_true", help="rewrite the page every few seconds until the runs have ended")
    add("--SECTION.KEY", dest="key", metavar="VALUE", help="where that run's data is: --data.root FOLDER")
    return parser


VERB = Verb(
    name="report",
    help="write a page about runs and benchmarks",
    parser=_report_parser,
    run=_report,
    takes_keys=True,
)
