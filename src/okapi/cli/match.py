"""``okapi match``."""

from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from okapi.cli.matching import add_matcher, add_outcome, add_roles, base, named_as_options, roles
from okapi.cli.parsing import Parser, Verb, number, number_or_auto, whole


@named_as_options()
def _match(chosen: Namespace) -> None:
    from okapi.matching import CaliperMatcher
    from okapi.report.matching import match_file

    if chosen.outcome and chosen.outcome_caliper is None:
        chosen.outcome_caliper = "auto"
    settings = "k fixed_caliper std_caliper caliper_scale temperature outcome_caliper"
    matcher = CaliperMatcher(**base(chosen), **{name: chosen[name] for name in settings.split()})
    match_file(chosen.file, matcher, out=chosen.out, report=chosen.report, outcome=chosen.outcome, **roles(chosen))


def _match_parser() -> ArgumentParser:
    parser = Parser(
        usage="okapi match FILE --domain COLUMN [options]",
        description="Match every sample of FILE to its nearest neighbours in other domains, inside calipers on the\n"
        "propensity score, and print how well the domains are balanced before and after.",
        epilog="example:\n"
        "  okapi match patients.csv --domain hospital --k 5 --fixed-caliper 0.9 --std-caliper 0.2 \\\n"
        "      --out matches.parquet --report matches.html",
    )
    add_roles(parser)
    add = parser.add_argument
    add("--k", type=whole, default=1, metavar="K", help="keys per query")
    add("--fixed-caliper", type=number, metavar="T", help="leave out samples with a propensity outside (1 - T, T)")
    add("--std-caliper", type=number, metavar="C", help="largest difference of propensities in a pair, in deviations")
    add(
        "--caliper-scale",
        choices=["probability", "logit"],
        default="probability",
        help="scale on which the std-caliper compares",
    )
    add_outcome(parser)
    add(
        "--outcome-caliper",
        type=number_or_auto,
        metavar="T",
        help="largest distance of outcomes in a pair; default with --outcome: auto, a third of their deviation",
    )
    add("--temperature", type=number, default=1.0, metavar="TAU", help="divides the logits of the propensities")
    add_matcher(parser)
    add("--out", type=Path, metavar="FILE", help="write the matches: .parquet or .csv, one row a pair")
    add("--report", type=Path, metavar="FILE", help="write a report: .html, needs nothing else")
    return parser


VERB = Verb(name="match", help="match the samples of a file across its domains", parser=_match_parser, run=_match)
