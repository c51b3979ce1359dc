"""``okapi diagnose``."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

from jsonargparse import ActionYesNo, ArgumentParser, Namespace

from okapi.cli.matching import named_as_options
from okapi.cli.parsing import Parser, Verb, whole


def _diagnose(chosen: Namespace) -> None:
    # Keys of a config have names of their own.
    with nullcontext() if chosen.overrides else named_as_options():
        _run(chosen)


def _run(chosen: Namespace) -> None:
    from okapi.report.diagnosis import diagnose_data

    diagnose_data(
        chosen.data,
        domain=chosen.domain,
        columns=chosen.columns,
        target=chosen.target,
        unlabelled=chosen.unlabelled,
        task=chosen.task,
        overrides=chosen.overrides,
        json_file=chosen.json,
        report=chosen.report,
        k=chosen.k,
        normalise=chosen.normalise,
        limit=chosen.limit,
        seed=chosen.seed,
    )


def _diagnose_parser() -> ArgumentParser:
    parser = Parser(
        usage="okapi diagnose DATA [--domain COLUMN --target COLUMN] [options]",
        description="Say before training whether matching samples across domains is likely to help, and with which\n"
        "calipers. No label of an unlabelled domain is read: each labelled domain in turn plays the unlabelled\n"
        "one, and its pairs are held against a plain predictor of the others.",
        epilog="example:\n"
        "  okapi diagnose features.parquet --domain site --target species --columns encoding \\\n"
        "      --unlabelled kenya --json kenya.json --report kenya.html\n"
        "  okapi diagnose configs/pacs/okapi.yaml --data.root ~/pacs     the encoder as the config has it\n"
        "  okapi diagnose runs/erm                                       the encoder that the run has trained",
    )
    add = parser.add_argument
    several: dict[str, Any] = {"nargs": "+", "default": []}
    add(
        "data",
        type=Path,
        metavar="DATA",
        help=".csv, .csv.gz, .parquet or .npz of encodings, one row a sample; or a config, .yaml, or a run directory, "
        "whose splits train and unlabelled are encoded",
    )
    add("--domain", metavar="COLUMN", help="where a sample comes from")
    add(
        "--columns",
        **several,
        metavar="COLUMN",
        help="encodings; by default every column of numbers or categories without another role",
    )
    add("--target", metavar="COLUMN", help="classes or numbers; may be missing where nobody labelled")
    add("--unlabelled", **several, metavar="DOMAIN", help="whose targets are not read (default: those without any)")
    add("--task", choices=["classification", "regression"], help="if nothing is said, by what targets look like")
    add("--k", type=whole, default=5, metavar="K", help="keys per query")
    yes_no = ActionYesNo(yes_prefix="", no_prefix="no-")
    add("--normalise", action=yes_no, default=True, help="bring encodings to unit length, as training does")
    add("--limit", type=whole, default=5000, metavar="N", help="most samples of a domain that are looked at")
    add("--seed", type=whole, default=0, metavar="SEED", help="of the samples that are drawn where there are more")
    add("--json", type=Path, metavar="FILE", help="write the verdict and all figures: .json")
    add("--report", type=Path, metavar="FILE", help="write a page: .html, needs nothing else")
    add("--SECTION.KEY", dest="key", metavar="VALUE", help="a key of the config, as YAML: --data.size 128")
    return parser


VERB = Verb(
    name="diagnose",
    help="say whether matching is likely to help, before training",
    parser=_diagnose_parser,
    run=_diagnose,
    takes_keys=True,
)
