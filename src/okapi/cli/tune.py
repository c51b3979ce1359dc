"""``okapi tune``."""

from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace

from okapi.cli.matching import add_matcher, add_outcome, add_roles, base, named_as_options, roles
from okapi.cli.parsing import Parser, Verb, number, number_or_none, whole


@named_as_options()
def _tune(chosen: Namespace) -> None:
    from okapi.matching import CaliperMatcher
    from okapi.report.tuning import tune_file

    settings = "fixed_caliper std_caliper temperature caliper_scale k outcome_caliper"
    grid = {name: chosen[name] for name in settings.split()}
    tune_file(
        chosen.file,
        CaliperMatcher(**base(chosen)),
        grid,
        jobs=chosen.jobs,
        out=chosen.out,
        report=chosen.report,
        outcome=chosen.outcome,
        **roles(chosen),
    )


def _tune_parser() -> ArgumentParser:
    parser = Parser(
        usage="okapi tune FILE --domain COLUMN [options]",
        description="Match FILE with every combination of calipers, scale, temperature and k, and compare balance and\n"
        "retained queries. The best: of the combinations with every |SMD| at most 0.1 the one that retains\n"
        "most queries; where there is none, the one with the lowest mean |SMD|.",
        epilog="example:\n"
        "  okapi tune patients.csv --domain hospital --std-caliper none 0.1 0.2 --k 1 5 \\\n"
        "      --jobs 4 --report tuning.html",
    )
    add_roles(parser, shows_pairs=False)
    add = parser.add_argument
    several: dict[str, Any] = {"nargs": "+"}
    add("--k", **several, type=whole, default=[1, 5], metavar="K", help="keys per query")
    fixed, std = [None, 0.95, 0.9, 0.8], [None, 0.1, 0.2, 0.5, 1.0]
    add("--fixed-caliper", **several, type=number_or_none, default=fixed, metavar="T", help="fixed calipers")
    add("--std-caliper", **several, type=number_or_none, default=std, metavar="C", help="std-calipers")
    scales = ["probability", "logit"]
    add("--caliper-scale", **several, choices=scales, default=scales, help="scales of the std-caliper")
    add_outcome(parser)
    add("--outcome-caliper", **several, type=number_or_none, default=[None], metavar="T", help="outcome calipers")
    add("--temperature", **several, type=number, default=[1.0, 2.0], metavar="TAU", help="temperatures")
    add_matcher(parser)
    add("--jobs", type=whole, default=1, metavar="N", help="worker processes; -1: one per processor")
    add("--out", type=Path, metavar="FILE", help="write all combinations: .csv or .parquet")
    add("--report", type=Path, metavar="FILE", help="write a report: .html, needs nothing else")
    return parser


VERB = Verb(name="tune", help="try many calipers on a file and compare them", parser=_tune_parser, run=_tune)
