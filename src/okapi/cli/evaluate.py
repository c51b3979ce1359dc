"""``okapi evaluate``."""

from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from okapi.cli.parsing import Parser, Verb, whole


def _evaluate(chosen: Namespace) -> None:
    if chosen.rows < 1:
        raise ValueError(f"--rows must be at least 1, got {chosen.rows}")
    from okapi.report.evaluation import print_evaluation, write_records
    from okapi.training.evaluating import Evaluator

    evaluator = Evaluator(chosen.run, which=chosen.weights, overrides=chosen.overrides, force=chosen.force)
    splits = list(dict.fromkeys(chosen.split or []))
    evaluator.check_splits(splits)
    evaluations = []
    for split in splits:
        evaluations.append(evaluator.evaluate(split))
        print_evaluation(evaluations[-1], chosen.rows)
    if chosen.out is not None:
        write_records(chosen.out, evaluations)


def _evaluate_parser() -> ArgumentParser:
    parser = Parser(
        usage="okapi evaluate DIR --split SPLIT [options]",
        description="Measure the model of a finished run on a split: all metrics, by domain and by group. Test splits\n"
        "are sealed, and this verb opens them: DIR/results.json gets the figures, how often each test\n"
        "split has been opened, and with which weights. Predictions go to DIR/predictions-SPLIT.parquet.",
        epilog="example:\n"
        "  okapi evaluate runs/okapi --split ood_test\n"
        "  okapi evaluate runs/okapi --split id_val --split ood_val --weights last --data.root /data/pacs",
    )
    add = parser.add_argument
    add("run", type=Path, metavar="DIR", help="the directory of a finished run")
    add("--split", action="append", metavar="SPLIT", help="train, id_val, ood_val, id_test or ood_test; may come again")
    add(
        "--weights",
        choices=["selected", "last"],
        default="selected",
        help="the selected ones or those of the last step",
    )
    add("--rows", type=whole, default=10, metavar="N", help="rows of the tables of domains and groups, worst first")
    add("--out", type=Path, metavar="FILE", help="write the figures to a JSON file, too")
    add("--force", action="store_true", help="evaluate a config or weights that were edited since, with a note")
    add("--SECTION.KEY", dest="key", metavar="VALUE", help="where the data is, or what computes: --data.root FOLDER")
    return parser


VERB = Verb(
    name="evaluate",
    help="measure a finished run on a split; opens test splits, and says so",
    parser=_evaluate_parser,
    run=_evaluate,
    takes_keys=True,
)
