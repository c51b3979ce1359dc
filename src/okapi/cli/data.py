"""``okapi data``."""

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace

from okapi.cli.matching import named_as_options
from okapi.cli.parsing import Parser, Verb, whole

_ROLES = ("image", "text", "columns", "root", "target", "domain", "split", "id", "held_out", "validation", "task")


def _data(chosen: Namespace) -> int:
    # Keys of a config have names of their own.
    with nullcontext() if _is_config(chosen.file) else named_as_options():
        return _inspect(chosen)


def _inspect(chosen: Namespace) -> int:
    from okapi.data.images import ImageError
    from okapi.report.data import data_report

    try:
        broken = data_report(chosen.file, _settings(chosen), near=chosen.near, out=chosen.out, most=chosen.most)
    except ImageError as error:
        print(f"okapi: {error}", file=sys.stderr)
        return 1
    return 1 if broken else 0


def _is_config(path: Path) -> bool:
    return path.suffix.lower() in (".yaml", ".yml")


def _settings(chosen: Namespace) -> Any:
    """Return the settings that a config's section data has, or that fit a file or a folder."""
    given = {name: chosen[name] for name in _ROLES if chosen[name]}
    if _is_config(chosen.file):
        from okapi.config import read_config

        if given:
            option = f"--{next(iter(given)).replace('_', '-')}"
            raise ValueError(
                f"{option} is not for a config, which says it itself; its keys are options: --data.KEY VALUE"
            )
        return read_config(chosen.file, chosen.overrides).data
    if chosen.overrides:
        raise ValueError(f"--{chosen.overrides[0][0]} is a key of configs, but {chosen.file} is none")
    from okapi.data.recognition import Roles, recognise

    return recognise(chosen.file, Roles(**given))


def _data_parser() -> ArgumentParser:
    parser = Parser(
        usage="okapi data FILE_OR_FOLDER [options]",
        description="Print what is in a data set: samples by split, domain and class, missing targets, files that\n"
        "cannot be read, and copies across splits, exact ones and, of pictures, near ones. Every file is read\n"
        "once. Facts are no faults: copies do not change the exit code.\n"
        "Exit code: 0; 1 if there are files that cannot be read; 2 if the data set cannot be.",
        epilog="example:\n"
        "  okapi data photos/                                  folders domain/class/*.jpg\n"
        "  okapi data photos/ --held-out sketch --validation photo --out report\n"
        "  okapi data reviews.csv.gz --text text --target label --domain shop\n"
        "  okapi data slides.csv --image file --target grade --domain hospital --split part\n"
        "  okapi data features.npz --columns x --target y --domain site\n"
        "  okapi data ~/wilds/iwildcam_v2.0                    WILDS is known by its folders\n"
        "  okapi data configs/pacs/okapi.yaml --data.root ~/pacs   what training would see",
    )
    add = parser.add_argument
    several: dict[str, Any] = {"nargs": "+", "default": []}
    add(
        "file",
        type=Path,
        metavar="FILE_OR_FOLDER",
        help="a folder of pictures or of WILDS; .csv, .csv.gz, .parquet or .npz; or a config, .yaml",
    )
    add("--image", metavar="COLUMN", help="paths of pictures, from the file's folder or from --root")
    add("--text", metavar="COLUMN", help="texts")
    add("--columns", **several, metavar="COLUMN", help="features; if nothing is said, all numbers (npz: x)")
    add("--root", metavar="FOLDER", help="where paths of pictures begin")
    add("--target", **several, metavar="COLUMN", help="what is predicted; if nothing is said, target (npz: y)")
    add("--domain", **several, metavar="COLUMN", help="where a sample comes from; if nothing is said, domain")
    add("--split", metavar="COLUMN", help="train, unlabelled, id_val, ood_val, id_test or ood_test")
    add("--id", metavar="COLUMN", help="unique names of the samples")
    kinds = ["classification", "regression", "multilabel"]
    add("--task", choices=kinds, help="if nothing is said, by what targets look like")
    add("--held-out", **several, metavar="DOMAIN", help="domains to predict at: half unlabelled, half ood_test")
    add("--validation", **several, metavar="DOMAIN", help="domains that are ood_val")
    add("--near", type=_bits, default=6, metavar="BITS", help="bits in which hashes of near copies may differ, or none")
    add("--most", type=whole, default=20, metavar="N", help="domains and classes that are printed")
    add("--out", type=Path, metavar="FOLDER", help="write a contact sheet and tables of samples and copies")
    add("--data.KEY", dest="key", metavar="VALUE", help="a key of the config")
    return parser


def _bits(text: Any) -> int | None:
    return None if str(text).lower() == "none" else whole(text)


VERB = Verb(
    name="data", help="say what is in a data set, and what is wrong", parser=_data_parser, run=_data, takes_keys=True
)
