"""``okapi train``."""

from inspect import cleandoc
from pathlib import Path
from textwrap import indent

from jsonargparse import ArgumentParser, Namespace

from okapi.cli.parsing import Overrides, Parser, Verb, whole


def _train(chosen: Namespace) -> None:
    if (chosen.config is None) == (chosen.resume is None):
        raise ValueError("give either CONFIG, to begin a run, or --resume DIR. See okapi train --help")
    if chosen.resume is not None and (chosen.out is not None or chosen.dry_run):
        raise ValueError("--resume goes on in its own directory, without --out and --dry-run")
    if chosen.config is not None and chosen.out is None and not chosen.dry_run:
        raise ValueError("--out is missing: the directory for the run. See okapi train --help")
    from okapi import training
    from okapi.config import read_config
    from okapi.training.devices import is_first
    from okapi.training.summary import rehearsal_text, results_text

    overrides: Overrides = chosen.overrides
    if chosen.seed is not None:
        overrides = [("seed", str(chosen.seed)), *overrides]
    if chosen.resume is not None:
        results = training.resume(chosen.resume, overrides)
        text = f"{chosen.resume} is finished already" if results is None else results_text(results, chosen.resume)
    elif chosen.dry_run:
        text = rehearsal_text(training.rehearse(read_config(chosen.config, overrides)))
    else:
        text = results_text(training.train(read_config(chosen.config, overrides), chosen.out), chosen.out)
    if is_first():
        print(text)


def _train_parser() -> ArgumentParser:
    parser = Parser(
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
        type=whole,
        metavar="N",
        help="seed of all that is random (default: the config's)",
    )
    add("--dry-run", action="store_true", help="build everything, do two steps, estimate the run; writes nothing")
    add("--SECTION.KEY", dest="key", metavar="VALUE", help="a key of the config, as YAML: --model.hidden '[64, 64]'")
    return parser


def _training_keys() -> str:
    from okapi.config import TrainingSettings

    explained = cleandoc(TrainingSettings.__doc__ or "").partition("----------\n")[2]
    return indent(explained, "  ")


VERB = Verb(name="train", help="train a model, or go on with a run", parser=_train_parser, run=_train, takes_keys=True)
