"""The command line: parses and calls `okapi.commands`, of which nothing is imported before a command runs.

An option has the name of the parameter that it sets: ``okapi match t.csv --k 5`` calls ``match(Path("t.csv"), k=5)``.
"""

import argparse
import errno
import io
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from okapi import __version__
from okapi.command_parser import (
    SEVERAL,
    USAGE,
    Parser,
    integer,
    integer_or_none,
    number,
    number_or_auto,
    number_or_none,
)
from okapi.messages import as_options, did_you_mean

FAILED, INTERRUPTED = 1, 130
_MACHINE = {errno.ENOSPC, errno.EDQUOT, errno.EIO}  # no other words would have helped: the disk is full, or broken
DESCRIPTION = "Match samples across domains, and train models that hold up on sites nobody labelled."
TABLES = ".csv, .tsv, .gz of them, .parquet, .feather, .xlsx or .npz"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Returns
    -------
    int
        0; 1 if a run or a part of the work failed; 2 for wrong usage or input; 130 after Ctrl-C.

    Examples
    --------
    >>> main(["config", "training.steps"])
    training.steps: a whole number from 1 to 1,000,000,000, must be given
        Optimiser steps of the whole run.
    0
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # an arrow is not worth a crash where the encoding has none
    parser, options = parse(sys.argv[1:] if arguments is None else arguments)
    from okapi.console import output

    debug, as_json = options.pop("debug"), options.pop("json", False)
    try:
        with warnings.catch_warnings(), output(as_json):
            warnings.showwarning = _show_warning
            _check_configs(options)
            run: Callable[..., int | None] = getattr(import_module(f"okapi.commands.{parser.name}"), parser.name)
            code = run(**options) or 0
        sys.stdout.flush()
    except KeyboardInterrupt:
        print("okapi: stopped", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # nobody reads what else there is to print
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:
        if debug:
            raise
        return _complain(error, parser, options)
    return code


def _check_configs(options: dict[str, Any]) -> None:
    """Read the configs among the arguments: a typo is answered before anything that takes long is imported."""
    if "overrides" not in options or (options.get("config") and options.get("data")):  # DATA completes CONFIG
        return
    if "configs" in options:
        from okapi.config.methods import find_methods, parse_names, read_method

        for name, path in find_methods(options["configs"], parse_names(options["methods"] or "")).items():
            read_method(name, path, options["overrides"])
    named = [options.get("config"), options.get("source"), options.get("data")]
    if configs := [path for path in named if path is not None and path.suffix.lower() in (".yaml", ".yml")]:
        from okapi.config import read_config

        for path in configs:
            read_config(path, options["overrides"])


def _complain(error: Exception, parser: Parser, options: dict[str, Any]) -> int:
    """Print what went wrong in a sentence, and return the exit code."""
    from okapi.training.errors import RunError

    if isinstance(error, ValueError | OSError):
        failed = isinstance(error, OSError) and error.errno in _MACHINE
        text, code = as_options(str(error), parser.named(options)), FAILED if failed else USAGE
    elif isinstance(error, RunError):
        text, code = str(error), error.code
    elif isinstance(error, MemoryError):
        text, code = f"there is not enough memory. {error}".rstrip(), FAILED
    else:
        text, code = f"unexpected {type(error).__name__}: {error}. --debug shows where it is raised", FAILED
    print(f"okapi: {text}", file=sys.stderr)
    return code


def parse(words: Sequence[str]) -> tuple[Parser, dict[str, Any]]:
    """Return the parser of the command that the words name, and the arguments of its function."""
    parser = Parser(prog="okapi", description=DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"okapi {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", description="okapi COMMAND --help says more")
    for name, (help_, add_options) in COMMANDS.items():
        command: Parser = commands.add_parser(name, prog=f"okapi {name}", help=help_)
        command.name = name
        add_options(command)
        command.add_argument("--debug", action="store_true", help="show where an error is raised")
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        argcomplete.autocomplete(parser)
    words = list(words)
    if not words:
        parser.error(f"a command is missing: {', '.join(COMMANDS)}")
    if words[0] not in COMMANDS:
        if not words[0].startswith("-"):
            parser.error(f"unknown command {words[0]!r}{did_you_mean(words[0], COMMANDS)}")
        parser.without_keys(words)
        parser.parse_args(words)
        parser.error("a command is missing")
    command = commands.choices[words[0]]
    words, overrides = command.without_keys(words[1:])
    options = vars(command.parse_args(words))
    return command, {**options, "overrides": overrides} if command.keys else options


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    """Show a warning of ours as a sentence, any other with its place."""
    ours = category.__module__.startswith("okapi.")
    print(f"Note: {message}" if ours else f"{filename}:{lineno}: {message}", file=sys.stderr)


# Commands: match, tune, diagnose


def _match(parser: Parser) -> None:
    parser.describe(
        "okapi match FILE --treatment COLUMN | --domain COLUMN [options]",
        "Match the treated of FILE to controls, or every sample to its nearest neighbours in other domains, inside\n"
        "calipers on the propensity score; print the effect on an outcome, treated minus control, and how well the\n"
        "groups are balanced before and after.",
        "  okapi match trial.csv --treatment arm --treated drug --std-caliper 0.2 --effect outcome \\\n"
        "      --report match.html\n"
        "  okapi match patients.csv --domain hospital --k 5 --fixed-caliper 0.9 --std-caliper 0.2 \\\n"
        "      --out matches.parquet --report matches.html",
    )
    _add_columns(parser)
    add = parser.add_argument
    add("--k", type=integer, default=1, metavar="K", help="keys per query")
    add("--fixed-caliper", type=number, metavar="T", help="leave out samples with a propensity outside (1 - T, T)")
    add("--std-caliper", type=number, metavar="C", help="largest difference of propensities in a pair, in deviations")
    scales = ["probability", "logit"]
    add("--caliper-scale", choices=scales, default=scales[0], help="scale on which the std-caliper compares")
    _add_prognostic(parser)
    help_ = "largest distance of prognostic scores in a pair; with --prognostic by default auto, a third of their SD"
    add("--prognostic-caliper", type=number_or_auto, metavar="T", help=help_)
    add("--temperature", type=number, default=1.0, metavar="TAU", help="divides the logits of the propensities")
    methods = ["nearest", "optimal", "full", "exact", "cem", "subclass"]
    help_ = "of a treatment also optimal pairs, full matching, or strata of equal, coarsened or like samples"
    add("--method", choices=methods, default="nearest", help=help_)
    add("--n-subclasses", type=integer, default=6, metavar="N", help="strata of --method subclass")
    _add_matcher(parser)
    add("--out", type=Path, metavar="FILE", help="write the matches: .parquet or .csv, one row a pair")
    help_ = "write Table 1, the covariates of treated and controls before and after: .csv or .parquet"
    add("--table-one", type=Path, metavar="FILE", help=help_)
    add("--report", type=Path, metavar="FILE", help="write a report: .html, needs nothing else")
    parser.writes_csv()
    parser.prints_tables()


def _tune(parser: Parser) -> None:
    parser.describe(
        "okapi tune FILE --treatment COLUMN | --domain COLUMN [options]",
        "Match FILE with every combination of calipers, scale, temperature and k, and compare balance and\n"
        "retained queries. The best: of the combinations with every |SMD| at most 0.1 the one that retains\n"
        "most queries; where there is none, the one with the lowest mean |SMD|.",
        "  okapi tune patients.csv --domain hospital --std-caliper none 0.1 0.2 --k 1 5 \\\n"
        "      --jobs 4 --report tuning.html",
    )
    _add_columns(parser, shows_pairs=False)

    def add(name: str, **settings: Any) -> None:
        parser.add_argument(name, nargs="+", **settings)

    add("--k", type=integer, default=(1, 5), metavar="K", help="keys per query")
    fixed, std = (None, 0.95, 0.9, 0.8), (None, 0.1, 0.2, 0.5, 1.0)
    add("--fixed-caliper", type=number_or_none, default=fixed, metavar="T", help="fixed calipers")
    add("--std-caliper", type=number_or_none, default=std, metavar="C", help="std-calipers")
    scales = ("probability", "logit")
    add("--caliper-scale", choices=scales, default=scales, help="scales of the std-caliper")
    _add_prognostic(parser)
    add("--prognostic-caliper", type=number_or_none, default=(None,), metavar="T", help="prognostic calipers")
    add("--temperature", type=number, default=(1.0, 2.0), metavar="TAU", help="temperatures")
    _add_matcher(parser)
    parser.add_argument("--jobs", type=integer, default=1, metavar="N", help="worker processes; -1: one per processor")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write all combinations: .csv or .parquet")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write a report: .html, needs nothing else")
    parser.prints_tables()


def _add_columns(parser: Parser, *, shows_pairs: bool = True) -> None:
    """Add what the columns of a file are.

    A command that shows no pairs takes targets and images too: they are no covariates, and the command line that it
    prints last has them.
    """
    add = parser.add_argument
    passed_on = "no covariate; only passed on to the okapi match that is printed"
    several = {**SEVERAL, "metavar": "COLUMN"}
    add("file", type=Path, metavar="FILE", help=f"{TABLES}; one row a sample")
    add("--separator", metavar="TEXT", help="what stands between the values of a text file, by default what it seems")
    add("--domain", metavar="COLUMN", help="where a sample comes from: every domain is matched to all others")
    help_ = "in place of --domain: which of two groups a sample is of, treated or control"
    add("--treatment", metavar="COLUMN", help=help_)
    add("--treated", metavar="LEVEL", help="the treated group; not needed for 0 and 1, False and True")
    help_ = "outcome, no covariate: its effect, treated minus control, is estimated"
    add("--effect", metavar="COLUMN", help=help_ if shows_pairs else f"outcome; {passed_on}")
    help_ = "covariates; by default every column of numbers or categories without another role that is not suspicious"
    add("--columns", **several, help=help_)
    choices = ["error", "drop", "impute"]
    help_ = "missing covariates: drop their rows, or impute the median or most frequent, with an indicator"
    add("--missing", choices=choices, default="error", help=help_)
    add("--id", metavar="COLUMN", help="unique names of the samples")
    shown = ", which the report shows" if shows_pairs else f"; {passed_on}"
    add("--image", metavar="COLUMN", help=f"files of images, relative to FILE{shown}")
    add("--propensity", **several, help="known propensities: of the last of two domains, or of each in sorted order")
    compared = "no covariate, but pairs are compared on it"
    add("--target", metavar="COLUMN", help=f"class or quantity; {compared if shows_pairs else passed_on}")
    add("--exact", **several, help="columns that must be equal within a pair")


def _add_prognostic(parser: Parser) -> None:
    help_ = (
        "prognostic score, no covariate: one column, compared in its deviations, or of classes; or several, "
        "such as their probabilities, compared by Euclidean distance"
    )
    parser.add_argument("--prognostic", **SEVERAL, metavar="COLUMN", help=help_)


def _add_matcher(parser: Parser) -> None:
    """Add the settings of the matcher that ``match`` and ``tune`` share."""
    add = parser.add_argument
    help_ = "deviation that the std-caliper counts in (default: all with --treatment, else pooled)"
    add("--caliper-sd", choices=["pooled", "all"], help=help_)
    help_ = "the fixed caliper leaves out queries only, not keys"
    add("--one-way", action="store_false", dest="two_way", help=help_)
    distances = ["euclidean", "cosine", "mahalanobis", "scaled_euclidean", "propensity"]
    help_ = "distance (default: propensity with --treatment, euclidean for embeddings, else mahalanobis)"
    add("--distance", choices=distances, help=help_)
    add("--embeddings", action="store_true", help="the columns are an embedding, as one column of lists is without it")
    help_ = "for embeddings: centre vectors by domain mean before the distance, euclidean or cosine, is taken"
    add("--centre", action="store_true", help=help_)
    switch, help_ = argparse.BooleanOptionalAction, "whether a key may serve several queries"
    add("--replace", action=switch, default=True, help=help_)
    orders = ["largest", "smallest", "closest", "random", "data"]
    add("--order", choices=orders, help="who chooses first with --no-replace")
    add("--max-uses", type=integer, default=1, metavar="N", help="queries that may share a key with --no-replace")
    add("--anti-exact", **SEVERAL, metavar="COLUMN", help="columns that must differ within a pair")
    help_ = "largest difference of a covariate within a pair, in its own unit: age=5"
    add("--covariate-calipers", **SEVERAL, metavar="COLUMN=WIDTH", help=help_)
    help_ = "with --treatment: the effect on the treated (default), on the controls or on all"
    add("--estimand", choices=["att", "atc", "ate"], help=help_)
    add("--allow-fewer", action="store_true", help="keep queries with fewer than k keys")


def _diagnose(parser: Parser) -> None:
    parser.describe(
        "okapi diagnose DATA [--domain COLUMN --target COLUMN] [options]",
        "Find out before training whether matching samples across domains is likely to help, and with which\n"
        "calipers. No label of an unlabelled domain is read: each labelled domain in turn plays the unlabelled\n"
        "one, and its pairs are compared with a plain predictor trained on the others.",
        "  okapi diagnose features.parquet --domain site --target species --columns encoding \\\n"
        "      --unlabelled kenya --out kenya.json --report kenya.html\n"
        "  okapi diagnose configs/pacs/okapi.yaml --data.root ~/pacs     the encoder as the config has it\n"
        "  okapi diagnose runs/erm                                       the encoder that the run has trained",
    )
    add = parser.add_argument
    help_ = (
        f"{TABLES} of encodings, one row a sample; or a config, .yaml, or a run directory, whose splits train and "
        "unlabelled are encoded"
    )
    add("data", type=Path, metavar="DATA", help=help_)
    add("--domain", metavar="COLUMN", help="where a sample comes from")
    add("--separator", metavar="TEXT", help="what stands between the values of a text file, by default what it seems")
    help_ = "encodings; by default every column of numbers or categories without another role"
    add("--columns", **SEVERAL, metavar="COLUMN", help=help_)
    add("--target", metavar="COLUMN", help="classes or numbers; may be missing where nobody labelled")
    help_ = "whose targets are not read (default: those without any)"
    add("--unlabelled", **SEVERAL, metavar="DOMAIN", help=help_)
    add("--task", choices=["classification", "regression"], help="by default what the targets look like")
    add("--k", type=integer, default=5, metavar="K", help="keys per query")
    help_ = "scale encodings to unit length, as training does"
    add("--normalise", action=argparse.BooleanOptionalAction, default=True, help=help_)
    add("--limit", type=integer, default=5000, metavar="N", help="most samples of a domain that are used")
    add("--seed", type=integer, default=0, metavar="SEED", help="of the samples that are drawn where there are more")
    add("--out", type=Path, metavar="FILE", help="write the verdict and all metrics: .json")
    add("--report", type=Path, metavar="FILE", help="write a report: .html, needs nothing else")
    parser.takes_keys("SECTION.KEY", "a key of the config, as YAML: --data.size 128")
    parser.prints_tables()


# Commands: init, train, config, embed, evaluate, benchmark


def _init(parser: Parser) -> None:
    parser.describe(
        "okapi init DATA --unlabelled SITE [options] > my.yaml",
        "Look at a folder or a file and write a config that trains on it as it is, with comments: what is read, how\n"
        "it is split, a model by kind and size of the data. What there is to see is printed in three lines.",
        "  okapi init photos/ --unlabelled sketch --out photos.yaml      folders domain/class/*.jpg\n"
        "  okapi init patients.csv --unlabelled Oslo --target died --out patients.yaml\n"
        "  okapi init features.npz --unlabelled kenya --method fixmatch --out features.yaml",
    )
    add = parser.add_argument
    add("data", type=Path, metavar="DATA", help=f"a folder of images, or {TABLES}")
    help_ = "to be predicted at, no label of it is learnt from (default: domains without any label)"
    add("--unlabelled", **SEVERAL, metavar="DOMAIN", help=help_)
    add("--target", metavar="COLUMN", help="what is predicted (default: by its name, such as target or label)")
    help_ = "where a sample comes from (default: the one that holds the unlabelled domain, or by its name)"
    add("--domain", metavar="COLUMN", help=help_)
    add("--text", metavar="COLUMN", help="texts to learn from (default: by name and content)")
    add("--image", metavar="COLUMN", help="paths of images to learn from (default: by content)")
    help_ = "folder of a tokenizer, for a small text model of random weights (default: a pretrained DistilBERT)"
    add("--tokenizer", metavar="FOLDER", help=help_)
    add("--method", choices=["okapi_plus", "okapi", "fixmatch", "erm"], default="okapi_plus", help="algorithm")
    add("--out", type=Path, metavar="FILE", help="write to this file, which must be new, and not to stdout")


def _train(parser: Parser) -> None:
    parser.describe(
        "okapi train CONFIG --out DIR [options]\n       okapi train --resume DIR",
        "Train a model as the YAML file CONFIG says. DIR gets the selected weights (model.safetensors),\n"
        "metrics (metrics.csv), checkpoints and the config with all its keys. A run that was stopped, or\n"
        "killed, is resumed by --resume and ends in the same bits. Any key of the config can be an option too.",
        "  okapi train configs/sites/okapi.yaml --out runs/okapi --seed 1 --training.steps 500\n"
        "  okapi train --resume runs/okapi\n"
        "  torchrun --nproc_per_node=2 -m okapi train configs/sites/okapi.yaml --out runs/okapi2",
    )
    parser.explain = _all_keys
    add = parser.add_argument
    add("config", type=Path, nargs="?", metavar="CONFIG", help="a YAML file such as configs/sites/okapi.yaml")
    add("--out", type=Path, metavar="DIR", help="where to write; must be new or empty")
    add("--resume", type=Path, metavar="DIR", help="resume the run in DIR")
    add("--seed", type=integer, metavar="N", help="seed of all that is random (default: the config's)")
    add("--dry-run", action="store_true", help="build everything, do two steps, estimate the run; writes nothing")
    parser.takes_keys("SECTION.KEY", "a key of the config, as YAML: --model.hidden '[64, 64]'")


def _all_keys() -> str:
    from okapi.config import explained

    return f"keys of the config:\n\n{explained()}"


def _config(parser: Parser) -> None:
    parser.describe(
        "okapi config [KEYS]",
        "Print what a config may have: every key with its type, its default and its meaning.",
        "  okapi config\n  okapi config training\n  okapi config algorithm.okapi data.table.features",
    )
    help_ = "sections, names of sections, or keys, such as training or data.table (default: all)"
    parser.add_argument("keys", nargs="*", metavar="KEYS", help=help_)


def _embed(parser: Parser) -> None:
    parser.describe(
        "okapi embed CONFIG [DATA] --out FILE [options]",
        "Write the encodings of a data set, with ids, domains, splits and targets, for matching and for\n"
        "quick experiments on frozen features. Nothing is scored; targets of test splits are written too.\n"
        "Killed, it is resumed by the same command and ends in the same bytes. Any key of the config can be\n"
        "an option too.",
        "  okapi embed runs/okapi --out features.parquet\n"
        "  okapi embed configs/pacs/erm.yaml ~/pacs --out features.parquet --model.backbone efficientnet-lite0 \\\n"
        "      --model.pretrained imagenet --data.size 128\n"
        "  okapi match features.parquet --domain domain --id id --target target --columns encoding\n\n"
        "columns: id, domain, split, target, encoding (a list); an npz has x, y, domain, split and id, a csv\n"
        "encoding_0, encoding_1 and so on.",
    )
    add = parser.add_argument
    add("config", type=Path, metavar="CONFIG", help="a run directory, whose selected weights are used, or a YAML file")
    add("data", type=Path, nargs="?", metavar="DATA", help="file or folder of the data (default: the config's)")
    add("--out", type=Path, required=True, metavar="FILE", help="what to write: .parquet, .npz or .csv")
    add("--weights", type=Path, metavar="FILE", help="weights of the network: a model.safetensors")
    add("--split", **SEVERAL, metavar="SPLIT", help="only samples of these splits")
    add("--normalise", action="store_true", help="scale encodings to unit length")
    add("--batch-size", type=integer, default=64, metavar="N", help="samples at a time")
    add("--workers", type=integer, metavar="N", help="processes that load samples (default: training.workers)")
    add("--device", default="auto", metavar="NAME", help="cpu, cuda, cuda:1, mps")
    add("--restart", action="store_true", help="begin anew and replace what was written before")
    parser.takes_keys("SECTION.KEY", "a key of the config, as YAML: --data.size 128")


def _predict(parser: Parser) -> None:
    parser.describe(
        "okapi predict RUN DATA --out FILE [options]",
        "Predict for new samples by the model of a finished run, whose data is not needed. DATA is a folder of\n"
        "images, an image, a table with the columns of the training data, or an npz file; no classes and no\n"
        "domains are needed. Killed, it is resumed by the same command.",
        "  okapi predict runs/photos new_photos/ --out predictions.csv --explain predictions.html\n"
        "  okapi predict runs/patients patients.parquet --out predictions.parquet\n\n"
        "columns: id, prediction, probability_CLASS, entropy, and domain_shift: the distance from the nearest\n"
        "labelled sample, in units of the median distance of validation samples.",
    )
    add = parser.add_argument
    add("run", type=Path, metavar="RUN", help="directory of a finished run")
    add("data", type=Path, metavar="DATA", help=f"folder of images, an image, or {TABLES}")
    add("--out", type=Path, required=True, metavar="FILE", help="what to write: .csv, .parquet, .jsonl; - prints CSV")
    add("--explain", type=Path, metavar="FILE", help="write a report with the nearest labelled samples: .html")
    add("--batch-size", type=integer, default=64, metavar="N", help="samples at a time")
    add("--device", default="auto", metavar="NAME", help="cpu, cuda, cuda:1, mps")
    add("--restart", action="store_true", help="begin anew and replace what was written before")


def _evaluate(parser: Parser) -> None:
    parser.describe(
        "okapi evaluate DIR --split SPLIT [options]",
        "Measure the model of a finished run on a split: all metrics, by domain and by group. Test splits\n"
        "are sealed, and this command opens them: DIR/results.json gets the metrics, how often each test\n"
        "split has been opened, and with which weights. Predictions go to DIR/predictions-SPLIT.parquet.",
        "  okapi evaluate runs/okapi --split ood_test\n"
        "  okapi evaluate runs/okapi --split id_val --split ood_val --weights last --data.root /data/pacs",
    )
    add = parser.add_argument
    add("run", type=Path, metavar="DIR", help="the directory of a finished run")
    help_ = "train, id_val, ood_val, id_test or ood_test; may be repeated"
    add("--split", action="append", metavar="SPLIT", help=help_)
    choices, help_ = ["selected", "last"], "the selected ones or those of the last step"
    add("--weights", choices=choices, default="selected", help=help_)
    add("--rows", type=integer, default=10, metavar="N", help="rows of the tables of domains and groups, worst first")
    add("--out", type=Path, metavar="FILE", help="write the metrics to a JSON file, too")
    add("--force", action="store_true", help="evaluate a config or weights that were edited since, with a note")
    parser.takes_keys("SECTION.KEY", "where the data is, or what computes: --data.root FOLDER")
    parser.prints_tables()


def _benchmark(parser: Parser) -> None:
    parser.describe(
        "okapi benchmark CONFIGS [options]",
        "Train every method with every seed, and every fold or held-out target, each run in a process of\n"
        "its own; open the test splits of each once; and write one table: mean (standard deviation), paired\n"
        "differences to ERM with a bootstrap interval, the best and those not significantly worse marked.\n"
        "Killed, it is resumed by the same command: finished runs stay, begun ones are resumed, failed ones\n"
        "are tried again. Keys of the config can be options too, for all runs.",
        "  okapi benchmark configs/sites --methods erm,okapi,okapi_plus --seeds 5\n"
        "  okapi benchmark configs/sites --seeds 5 --start-from erm --out runs/sites-from-erm\n"
        "  okapi benchmark photos.yaml --methods erm,fixmatch,okapi,okapi_plus --seeds 5\n"
        "  okapi benchmark configs/pacs --targets all --seeds 3 --data.root ~/pacs --out runs/pacs\n"
        "  okapi benchmark configs/poverty --folds A-E --engine slurm --slurm-partition gpu --slurm-gpus 1\n\n"
        "The folder gets table.md, table.csv, table.tex, runs.csv (every run with its config's hash, seed,\n"
        "version, environment and time), logs/, and the run directories METHOD/TARGET/seed-N; start/\n"
        "has those of --start-from, which are in no table.",
    )
    add = parser.add_argument
    add("configs", type=Path, nargs="+", metavar="CONFIGS", help="a folder of YAML files, or YAML files")
    help_ = "files of the folder (default: erm, fixmatch, okapi, okapi_plus), or algorithms put into the one file"
    add("--methods", metavar="NAMES", help=help_)
    add("--seeds", default="1", metavar="N", help="how many seeds, from 0, or which: 0,3,7")
    add("--folds", metavar="NAMES", help="folds of the data set, such as A-E")
    add("--targets", metavar="NAMES", help="domains to hold out one after the other, or all")
    add("--out", type=Path, metavar="DIR", help="where to write (default: runs/ and the name of the file or folder)")
    add("--reference", default="erm", metavar="NAME", help="the method that others are compared with")
    help_ = "train this method first, with every target and seed, and let all runs start from its weights"
    add("--start-from", metavar="NAME", help=help_)
    add("--split", metavar="SPLIT", help="split of the table (default: ood_test where there is one)")
    add("--metric", metavar="NAME", help="metric of the table (default: the config's, or the task's main one)")
    add("--no-test", dest="test", action="store_false", help="leave test splits sealed: validation metrics only")
    add("--workers", type=integer, metavar="N", help="runs at a time, which share the cores (default: GPUs, or cores)")
    add("--engine", choices=["local", "slurm"], default="local", help="this machine, or one Slurm job for each run")
    add("--slurm-partition", metavar="NAME", help="partition of the jobs")
    help_ = "time limit, after which a run is resumed in a new job"
    add("--slurm-time", type=integer, default=24 * 60, metavar="MINUTES", help=help_)
    add("--slurm-cpus", type=integer, default=4, metavar="N", help="cores of each run")
    add("--slurm-gpus", type=integer, default=0, metavar="N", help="GPUs of each run")
    add("--slurm-memory", type=number, metavar="GB", help="memory of each run")
    add("--energy", action="store_true", help="measure energy and carbon by codecarbon; one run at a time by default")
    add("--country", metavar="CODE", help="where the machine stands, for --energy: GBR")
    parser.takes_keys("SECTION.KEY", "a key of all configs, as YAML: --training.steps 200")
    parser.prints_tables()


# Commands: report, data, demo


def _report(parser: Parser) -> None:
    parser.describe(
        "okapi report DIR... [options]",
        "Write one report about runs and benchmarks: results, curves over training, worst domains and\n"
        "groups, confusion, propensities at several temperatures, balance, a gallery of matches and a map of\n"
        "the encodings. It is one HTML file that needs nothing else. Test splits are not opened: they appear only\n"
        "where okapi evaluate, or okapi benchmark, has opened them before.",
        "  okapi report runs/okapi --out okapi.html\n  okapi report runs/sites --run runs/sites/okapi/all/seed-0",
    )
    add = parser.add_argument
    add("runs", type=Path, nargs="+", metavar="DIR", help="run directories, benchmarks, or folders of run directories")
    add("--out", type=Path, default=Path("report.html"), metavar="FILE", help="what to write")
    add("--run", type=Path, metavar="DIR", help="whose matches and map are shown (default: the first run of okapi)")
    help_ = "samples of that run to encode; 0: no matches, no map"
    add("--samples", type=integer, default=2000, metavar="N", help=help_)
    parser.takes_keys("SECTION.KEY", "where that run's data is: --data.root FOLDER")


def _data(parser: Parser) -> None:
    parser.describe(
        "okapi data FILE_OR_FOLDER [options]",
        "Print what is in a data set: samples by split, domain and class, missing targets, files that\n"
        "cannot be read, and duplicates across splits, exact ones and, of images, near ones. Every file is\n"
        "read once. Duplicates do not change the exit code.\n"
        "Exit code: 0; 1 if there are files that cannot be read; 2 if the data set cannot be.",
        "  okapi data photos/                                  folders domain/class/*.jpg\n"
        "  okapi data photos/ --held-out sketch --validation photo --out report\n"
        "  okapi data reviews.csv.gz --text text --target label --domain shop\n"
        "  okapi data slides.csv --image file --target grade --domain hospital --split part\n"
        "  okapi data features.npz --columns x --target y --domain site\n"
        "  okapi data ~/wilds/iwildcam_v2.0                    WILDS is known by its folders\n"
        "  okapi data configs/pacs/okapi.yaml --data.root ~/pacs   what training would see",
    )
    add = parser.add_argument
    several = SEVERAL
    help_ = f"a folder of images or of WILDS; {TABLES}; or a config, .yaml"
    add("source", type=Path, metavar="FILE_OR_FOLDER", help=help_)
    add("--image", metavar="COLUMN", help="paths of images, from the file's folder or from --root")
    add("--text", metavar="COLUMN", help="texts")
    add("--columns", **several, metavar="COLUMN", help="features; by default all numbers (npz: x)")
    add("--root", metavar="FOLDER", help="where paths of images begin")
    add("--target", **several, metavar="COLUMN", help="what is predicted; by default target (npz: y)")
    add("--domain", **several, metavar="COLUMN", help="where a sample comes from; by default domain")
    add("--split", metavar="COLUMN", help="train, unlabelled, id_val, ood_val, id_test or ood_test")
    add("--id", metavar="COLUMN", help="unique names of the samples")
    kinds = ["classification", "regression", "multilabel"]
    add("--task", choices=kinds, help="by default what the targets look like")
    add("--held-out", **several, metavar="DOMAIN", help="domains to predict at: half unlabelled, half ood_test")
    add("--validation", **several, metavar="DOMAIN", help="domains that are ood_val")
    help_ = "bits in which hashes of near duplicates may differ, or none"
    add("--near", type=integer_or_none, default=6, metavar="BITS", help=help_)
    add("--most", type=integer, default=20, metavar="N", help="domains and classes that are printed")
    add("--out", type=Path, metavar="FOLDER", help="write a contact sheet and tables of samples and duplicates")
    parser.takes_keys("data.KEY", "a key of the config")
    parser.writes_csv()
    parser.prints_tables()


def _demo(parser: Parser) -> None:
    parser.describe(
        "okapi demo [--out FOLDER]",
        "Match scikit-learn's handwritten digits, as photographed at made-up sites; then train ERM,\n"
        "FixMatch and Okapi to read them at sites that are new, and write tables and reports. Takes a few\n"
        "minutes on two cores and downloads nothing. Stopped, it is resumed by the same command.",
        "  okapi demo --out demo\n  okapi demo --out short --training.steps 100",
    )
    parser.add_argument("--out", type=Path, default=Path("demo"), metavar="FOLDER", help="where to write")
    parser.takes_keys("SECTION.KEY", "a key of all configs, as YAML: --training.steps 100")
    parser.prints_tables()


COMMANDS: dict[str, tuple[str, Callable[[Parser], None]]] = {
    "match": ("match the samples of a file across its domains", _match),
    "tune": ("try many calipers on a file and compare them", _tune),
    "diagnose": ("find out whether matching is likely to help, before training", _diagnose),
    "init": ("look at data and write a config that trains on it", _init),
    "train": ("train a model, or resume a run", _train),
    "config": ("list the keys of a config, with defaults and meanings", _config),
    "embed": ("write the encodings of a data set to a file", _embed),
    "predict": ("predict for new samples by a finished run", _predict),
    "evaluate": ("measure a finished run on a split; opens test splits, and says so", _evaluate),
    "benchmark": ("train methods with several seeds, folds or targets, and compare them", _benchmark),
    "report": ("write a report about runs and benchmarks", _report),
    "data": ("show what is in a data set, and what is wrong", _data),
    "demo": ("match and train on built-in images of digits", _demo),
}
