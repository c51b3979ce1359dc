"""The command line: ``okapi match``, ``okapi tune``, ``okapi train``, ``okapi demo``.

Nothing heavy is imported before a verb runs, so that ``okapi --help`` answers at once.
"""

import argparse
import io
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from inspect import cleandoc
from pathlib import Path
from textwrap import indent
from typing import Any, NoReturn

from jsonargparse import ActionYesNo, ArgumentParser, Namespace

from okapi import __version__

USAGE, INTERRUPTED = 2, 130

DISTANCES = ("euclidean", "cosine", "mahalanobis", "scaled_euclidean", "propensity")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a verb; return 0, 1 for a run that had to stop, 2 for bad usage or input, 130 after Ctrl-C."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # an arrow is not worth a crash where the encoding has none
    words, overrides = _without_overrides(sys.argv[1:] if arguments is None else arguments)
    try:
        chosen = _parser().parse_args(words)
        if chosen.verb == "train":
            return _train(chosen.train, overrides)
        VERBS[chosen.verb](chosen[chosen.verb])
    except KeyboardInterrupt:
        print("okapi: stopped", file=sys.stderr)
        return INTERRUPTED
    except (ValueError, OSError) as error:
        from okapi.data import TableError
        from okapi.report.terminal import in_options

        message = str(error) if isinstance(error, TableError) else in_options(str(error))
        print(f"okapi: {message}", file=sys.stderr)
        return USAGE
    return 0


def _match(chosen: Namespace) -> None:
    from okapi.matching import CaliperMatcher
    from okapi.report.matching import match_file

    settings = "k fixed_caliper std_caliper caliper_scale temperature"
    matcher = CaliperMatcher(**_base(chosen), **{name: chosen[name] for name in settings.split()})
    match_file(chosen.file, matcher, out=chosen.out, report=chosen.report, **_roles(chosen))


def _tune(chosen: Namespace) -> None:
    from okapi.matching import CaliperMatcher
    from okapi.report.tuning import tune_file

    grid = {name: chosen[name] for name in ("fixed_caliper", "std_caliper", "temperature", "caliper_scale", "k")}
    tune_file(
        chosen.file,
        CaliperMatcher(**_base(chosen)),
        grid,
        jobs=chosen.jobs,
        out=chosen.out,
        report=chosen.report,
        **_roles(chosen),
    )


def _train(chosen: Namespace, overrides: list[tuple[str, str]]) -> int:
    """Train; return the exit code. Messages name keys of the config as it has them, not options."""
    from okapi.training.errors import RunError

    try:
        if chosen.seed is not None:
            overrides = [("seed", str(chosen.seed)), *overrides]
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            _begin_or_resume(chosen, overrides)
    except (RunError, ValueError, OSError) as error:
        print(f"okapi: {error}", file=sys.stderr)
        return error.code if isinstance(error, RunError) else USAGE
    return 0


def _begin_or_resume(chosen: Namespace, overrides: list[tuple[str, str]]) -> None:
    if (chosen.config is None) == (chosen.resume is None):
        raise ValueError("give either CONFIG, to begin a run, or --resume DIR. See okapi train --help")
    if chosen.resume is not None and (chosen.out is not None or chosen.dry_run):
        raise ValueError("--resume goes on in its own directory, without --out and --dry-run")
    if chosen.config is not None and chosen.out is None and not chosen.dry_run:
        raise ValueError("--out is missing: the directory for the run. See okapi train --help")
    from okapi import training
    from okapi.training.devices import is_first
    from okapi.training.summary import rehearsal_text, results_text

    if chosen.resume is not None:
        results = training.resume(chosen.resume, overrides)
        text = f"{chosen.resume} is finished already" if results is None else results_text(results, chosen.resume)
    elif chosen.dry_run:
        text = rehearsal_text(training.rehearse(training.read_config(chosen.config, overrides)))
    else:
        text = results_text(training.train(training.read_config(chosen.config, overrides), chosen.out), chosen.out)
    if is_first():
        print(text)


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    """Show a warning of ours as a sentence, any other with its place."""
    ours = category.__module__.startswith("okapi.")
    print(f"Note: {message}" if ours else f"{filename}:{lineno}: {message}", file=sys.stderr)


def _without_overrides(words: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the words of a command line, and apart from them the dotted keys of ``okapi train`` with their values."""
    if not words or words[0] != "train":
        return list(words), []
    left, overrides = [], []
    waiting = iter(words)
    for word in waiting:
        if not re.match(r"--\w+\.", word):
            left.append(word)
            continue
        key, equals, value = word.removeprefix("--").partition("=")
        if not equals:
            value = next(waiting, "--")
            if value.startswith("--"):
                print(f"okapi train: --{key} needs a value. See okapi train --help", file=sys.stderr)
                sys.exit(USAGE)
        overrides.append((key, value))
    return left, overrides


def _demo(chosen: Namespace) -> None:
    from okapi.report.demo import run_demo

    run_demo(chosen.out)


VERBS: dict[str, Callable[[Namespace], None]] = {"match": _match, "tune": _tune, "demo": _demo}
NAMES = (*VERBS, "train")


def _base(chosen: Namespace) -> dict[str, Any]:
    """Return the settings of the matcher that both verbs share."""
    return {
        "caliper_sd": chosen.caliper_sd,
        "two_way": not chosen.one_way,
        "distance": chosen.distance,
        "replace": chosen.replace,
        "order": chosen.order,
        "exact": chosen.exact or None,
        "estimand": chosen.estimand,
        "allow_fewer": chosen.allow_fewer,
    }


def _roles(chosen: Namespace) -> dict[str, Any]:
    """Return what the columns of the file are, as read_table takes it."""
    return {
        "domain": chosen.domain,
        "columns": chosen.columns or None,
        "id": chosen.id,
        "image": chosen.image,
        "propensity": chosen.propensity or None,
        "exact": chosen.exact,
        "target": chosen.target,
    }


class _Parser(ArgumentParser):
    """Says in one paragraph what is wrong, and which name was probably meant."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, allow_abbrev=False, formatter_class=_Help, **kwargs)

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        unknown = re.match(r"unrecognized arguments: (\S+)", message)
        if unknown and unknown[1].startswith("-"):
            name = unknown[1].partition("=")[0]
            message = f"unknown option {name}{_nearest(name, list(self._option_string_actions))}"
        elif unknown:
            message = f"unexpected argument {unknown[1]!r}"
        elif verb := re.match(r"argument \w+: invalid choice: '(.*?)'", message):
            message = f"unknown verb {verb[1]!r}{_nearest(verb[1], NAMES)}"
        elif message.startswith('expected "verb"'):
            message = f"a verb is missing: {', '.join(NAMES)}"
        elif missing := re.match(r"the following arguments are required: (?:\w+\.)?(\w+)", message):
            message = f"{'FILE' if missing[1] == 'file' else f'--{missing[1]}'} is missing"
        message = re.sub(r"^argument (--?[\w-]+)\S*:", r"\1", " ".join(message.split())).rstrip("?.")
        prog = self.prog.replace(" [options]", "")
        print(f"{prog}: {message}{'?' if 'did you mean' in message else '.'} See {prog} --help", file=sys.stderr)
        sys.exit(USAGE)


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help with examples as they are written, and the default of every option that has one."""

    def __init__(self, prog: str, **kwargs: Any) -> None:
        super().__init__(prog, max_help_position=28, width=100, **kwargs)

    def _get_help_string(self, action: argparse.Action) -> str:
        text = action.help or ""
        default = action.default
        if default in (None, False, [], argparse.SUPPRESS) or not action.option_strings:
            return text
        values = default if isinstance(default, list) else [default]
        shown = " ".join("none" if value is None else str(value) for value in values)
        return f"{text} (default: {'yes' if default is True else shown})".replace("%", "%%")


def _nearest(name: str, names: Sequence[str]) -> str:
    near = get_close_matches(name, names, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _whole(text: Any) -> int:
    return int(_converted(text, int, "a whole number"))


def _number(text: Any) -> float:
    return float(_converted(text, float, "a number"))


def _number_or_none(text: Any) -> float | None:
    return None if text is None or str(text).lower() == "none" else _converted(text, float, "a number or none")


def _converted(text: Any, kind: Callable[[Any], Any], wanted: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be {wanted}, got {text!r}") from None


def _parser() -> ArgumentParser:
    parser = _Parser(
        prog="okapi",
        version=__version__,
        description="Pair samples across domains, and see whether the pairs are any good.",
    )
    verbs = parser.add_subcommands(
        dest="verb", title="verbs", description="okapi VERB --help says more", metavar="VERB"
    )
    verbs.add_subcommand("match", _match_parser(), help="match the samples of a file across its domains")
    verbs.add_subcommand("tune", _tune_parser(), help="try many calipers on a file and compare them")
    verbs.add_subcommand("train", _train_parser(), help="train a model, or go on with a run")
    verbs.add_subcommand("demo", _demo_parser(), help="match built-in pictures of digits, no download")
    return parser


def _match_parser() -> ArgumentParser:
    parser = _Parser(
        usage="okapi match FILE --domain COLUMN [options]",
        description="Match every sample of FILE to its nearest neighbours in other domains, inside calipers on the\n"
        "propensity score, and print how well the domains are balanced before and after.",
        epilog="example:\n"
        "  okapi match patients.csv --domain hospital --k 5 --fixed-caliper 0.9 --std-caliper 0.2 \\\n"
        "      --out matches.parquet --report matches.html",
    )
    _add_roles(parser)
    add = parser.add_argument
    add("--k", type=_whole, default=1, metavar="K", help="keys per query")
    add("--fixed-caliper", type=_number, metavar="T", help="leave out samples with a propensity outside (1 - T, T)")
    add("--std-caliper", type=_number, metavar="C", help="largest difference of propensities in a pair, in deviations")
    add(
        "--caliper-scale",
        choices=["probability", "logit"],
        default="probability",
        help="scale on which the std-caliper compares",
    )
    add("--temperature", type=_number, default=1.0, metavar="TAU", help="divides the logits of the propensities")
    _add_matcher(parser)
    add("--out", type=Path, metavar="FILE", help="write the matches: .parquet or .csv, one row a pair")
    add("--report", type=Path, metavar="FILE", help="write a page: .html, needs nothing else")
    return parser


def _tune_parser() -> ArgumentParser:
    parser = _Parser(
        usage="okapi tune FILE --domain COLUMN [options]",
        description="Match FILE with every combination of calipers, scale, temperature and k, and compare balance and\n"
        "retained queries. The best: of the combinations with every |SMD| at most 0.1 the one that retains\n"
        "most queries; where there is none, the one with the lowest mean |SMD|.",
        epilog="example:\n"
        "  okapi tune patients.csv --domain hospital --std-caliper none 0.1 0.2 --k 1 5 \\\n"
        "      --jobs 4 --report tuning.html",
    )
    _add_roles(parser)
    add = parser.add_argument
    several: dict[str, Any] = {"nargs": "+"}
    add("--k", **several, type=_whole, default=[1, 5], metavar="K", help="keys per query")
    fixed, std = [None, 0.95, 0.9, 0.8], [None, 0.1, 0.2, 0.5, 1.0]
    add("--fixed-caliper", **several, type=_number_or_none, default=fixed, metavar="T", help="fixed calipers")
    add("--std-caliper", **several, type=_number_or_none, default=std, metavar="C", help="std-calipers")
    scales = ["probability", "logit"]
    add("--caliper-scale", **several, choices=scales, default=scales, help="scales of the std-caliper")
    add("--temperature", **several, type=_number, default=[1.0, 2.0], metavar="TAU", help="temperatures")
    _add_matcher(parser)
    add("--jobs", type=_whole, default=1, metavar="N", help="worker processes; -1: one per processor")
    add("--out", type=Path, metavar="FILE", help="write all combinations: .csv or .parquet")
    add("--report", type=Path, metavar="FILE", help="write a page: .html, needs nothing else")
    return parser


def _train_parser() -> ArgumentParser:
    parser = _Parser(
        usage="okapi train CONFIG --out DIR [options]\n       okapi train --resume DIR",
        description="Train a model as the YAML file CONFIG says. DIR gets the selected weights (model.safetensors),\n"
        "figures (metrics.csv), checkpoints and the config with all its keys. A run that was stopped, or\n"
        "killed, goes on by --resume and ends in the same bits. Any key of the config can be an option too.",
        epilog="example:\n"
        "  okapi train configs/sites/okapi.yaml --out runs/okapi --seed 1 --training.steps 500\n"
        "  okapi train --resume runs/okapi\n"
        "  torchrun --nproc_per_node=2 -m okapi train configs/sites/okapi.yaml --out runs/okapi2\n\n"
        f"keys of the section training:\n{_training_keys()}",
    )
    add = parser.add_argument
    add("config", type=Path, nargs="?", metavar="CONFIG", help="a YAML file such as configs/sites/okapi.yaml")
    add("--out", type=Path, metavar="DIR", help="where to write; must be new or empty")
    add("--resume", type=Path, metavar="DIR", help="go on with the run in DIR")
    add(
        "--seed",
        type=_whole,
        metavar="N",
        help="seed of all that is random (default: the config's)",
    )
    add("--dry-run", action="store_true", help="build everything, do two steps, estimate the run; writes nothing")
    add("--SECTION.KEY", dest="key", metavar="VALUE", help="a key of the config, as YAML: --model.hidden '[64, 64]'")
    return parser


def _training_keys() -> str:
    from okapi.training.settings import TrainingSettings

    explained = cleandoc(TrainingSettings.__doc__ or "").partition("----------\n")[2]
    return indent(explained, "  ")


def _demo_parser() -> ArgumentParser:
    parser = _Parser(
        usage="okapi demo [--out FOLDER]",
        description="Match scikit-learn's handwritten digits, as photographed at four made-up sites, and write the\n"
        "pictures, the matches and a page. Takes less than a minute and downloads nothing.",
        epilog="example:\n  okapi demo --out demo",
    )
    parser.add_argument("--out", type=Path, default=Path("demo"), metavar="FOLDER", help="where to write")
    return parser


def _add_roles(parser: ArgumentParser) -> None:
    add = parser.add_argument
    several: dict[str, Any] = {"nargs": "+", "default": [], "metavar": "COLUMN"}
    add("file", type=Path, metavar="FILE", help=".csv, .csv.gz, .parquet or .npz; one row a sample")
    add("--domain", required=True, metavar="COLUMN", help="where a sample comes from")
    add(
        "--columns", **several, help="covariates; by default every column of numbers or categories without another role"
    )
    add("--id", metavar="COLUMN", help="unique names of the samples")
    add("--image", metavar="COLUMN", help="files of pictures, relative to FILE, which the page shows")
    add("--propensity", **several, help="known propensities: of the last of two domains, or of each in sorted order")
    add("--target", metavar="COLUMN", help="outcome; no covariate, but pairs are compared on it")
    add("--exact", **several, help="columns that must be equal within a pair")


def _add_matcher(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--caliper-sd", choices=["pooled", "all"], default="pooled", help="deviation that the std-caliper counts in")
    add("--one-way", action="store_true", help="the fixed caliper leaves out queries only, not keys")
    add("--distance", choices=DISTANCES, default="euclidean", help="distance of covariates")
    yes_no = ActionYesNo(yes_prefix="", no_prefix="no-")
    add("--replace", action=yes_no, default=True, help="whether a key may serve several queries")
    add("--order", choices=["largest", "closest", "data"], help="who chooses first with --no-replace")
    add(
        "--estimand",
        choices=["both", "att", "atc"],
        default="both",
        help="att: queries are the last of two domains in sorted order; atc: the first",
    )
    add("--allow-fewer", action="store_true", help="keep queries with fewer than k keys")
