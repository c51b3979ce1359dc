"""Options that the commands of matching share: what the columns of a file are, and how it is matched."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jsonargparse import ActionYesNo, ArgumentParser, Namespace

DISTANCES = ("euclidean", "cosine", "mahalanobis", "scaled_euclidean", "propensity")


def add_roles(parser: ArgumentParser, *, shows_pairs: bool = True) -> None:
    """Add the options that say what the columns of a file are.

    A command that shows no pairs takes targets and images too: they are no covariates, and the command line that it
    prints last has them.
    """
    passed_on = "no covariate; only passed on to the okapi match that is printed"
    add = parser.add_argument
    several: dict[str, Any] = {"nargs": "+", "default": [], "metavar": "COLUMN"}
    add("file", type=Path, metavar="FILE", help=".csv, .csv.gz, .parquet or .npz; one row a sample")
    add("--domain", required=True, metavar="COLUMN", help="where a sample comes from")
    add(
        "--columns", **several, help="covariates; by default every column of numbers or categories without another role"
    )
    add("--id", metavar="COLUMN", help="unique names of the samples")
    shown = ", which the report shows" if shows_pairs else f"; {passed_on}"
    add("--image", metavar="COLUMN", help=f"files of images, relative to FILE{shown}")
    add("--propensity", **several, help="known propensities: of the last of two domains, or of each in sorted order")
    compared = "no covariate, but pairs are compared on it"
    add("--target", metavar="COLUMN", help=f"outcome; {compared if shows_pairs else passed_on}")
    add("--exact", **several, help="columns that must be equal within a pair")


def add_outcome(parser: ArgumentParser) -> None:
    """Add the option that says what the outcome caliper compares."""
    parser.add_argument(
        "--outcome",
        nargs="+",
        default=[],
        metavar="COLUMN",
        help="known or predicted outcome, no covariate: one column, compared in its deviations, or of classes; or "
        "several, such as their probabilities, compared by Euclidean distance",
    )


def add_matcher(parser: ArgumentParser) -> None:
    """Add the options of the matcher that all commands of matching have."""
    add = parser.add_argument
    add("--caliper-sd", choices=["pooled", "all"], default="pooled", help="deviation that the std-caliper counts in")
    add("--one-way", action="store_true", help="the fixed caliper leaves out queries only, not keys")
    add("--distance", choices=DISTANCES, default="euclidean", help="distance of covariates")
    add(
        "--centre",
        action="store_true",
        help="for embeddings: centre vectors by domain mean before the distance, euclidean or cosine, is taken",
    )
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


def base(chosen: Namespace) -> dict[str, Any]:
    """Return the settings of the matcher that both commands share."""
    return {
        "caliper_sd": chosen.caliper_sd,
        "two_way": not chosen.one_way,
        "distance": chosen.distance,
        "centre": chosen.centre,
        "replace": chosen.replace,
        "order": chosen.order,
        "exact": chosen.exact or None,
        "estimand": chosen.estimand,
        "allow_fewer": chosen.allow_fewer,
    }


def roles(chosen: Namespace) -> dict[str, Any]:
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


@contextmanager
def named_as_options() -> Iterator[None]:
    """Call arguments by the names of their options in errors, but for those that name a file and its columns."""
    from okapi.data import TableError
    from okapi.report.terminal import in_options

    try:
        yield
    except TableError:
        raise
    except ValueError as error:
        raise ValueError(in_options(str(error))) from error
