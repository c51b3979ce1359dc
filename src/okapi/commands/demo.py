"""``okapi demo``."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from okapi import table as tables
from okapi.benchmark import Grid, make_grid, run_benchmark
from okapi.commands.match import match_table, print_matching
from okapi.commands.report import write_report
from okapi.console import print_files, stdout, working
from okapi.data import Table, write_frame, write_text
from okapi.data.four_sites import Sites, load_four_sites
from okapi.matching import CaliperMatcher
from okapi.numbers import count, decimal, share
from okapi.report.benchmark import print_results, splits_table
from okapi.report.matching import Matching, matching_report

METHODS = ("erm", "fixmatch", "okapi", "okapi_plus")
SEEDS = 2
LEARNING_RATE = 0.002  # from learnt weights
SITES = {"id_test": "labelled sites", "unlabelled_test": "unlabelled sites", "ood_test": "new sites"}
CALIPERS: dict[str, dict[str, Any]] = {
    "no caliper": {},
    "fixed caliper 0.9": {"fixed_caliper": 0.9},
    "fixed caliper 0.9 and std-caliper 1": {"fixed_caliper": 0.9, "std_caliper": 1.0},
}


def demo(out: Path, *, overrides: Sequence[tuple[str, str]] = ()) -> None:
    """Match digits across four sites; train four methods on 60 sites, compare them at 24 others, show what they learnt.

    All methods start from the weights of one ERM run of the same seed, and are trained equally long.

    Called again with the same folder, it resumes where it was stopped.

    Parameters
    ----------
    out : Path
        Made if need be. Gets ``images/``, ``matches.csv`` and ``matches.html``, which are replaced; ``runs/``, as
        ``okapi benchmark`` writes it; and ``report.html``.
    overrides : sequence of (key, text)
        Keys of the configs of all methods, such as ``training.steps``.
    """
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; --out names a folder")
    match_sites(out)
    results = run_benchmark(demo_grid(overrides), out / "runs")
    print_results(results)
    splits_table(results, SITES).print(stdout())
    with working("Making the report of the runs"):
        write_report([out / "runs"], out / "report.html")
    print_files(stdout(), {"Report": out / "report.html"})


def demo_grid(overrides: Sequence[tuple[str, str]] = ()) -> Grid:
    """Return what is trained: every method from the weights of an ERM run of its seed."""
    grid = make_grid(
        [Path("configs/sites")], methods=METHODS, seeds=range(SEEDS), overrides=list(overrides), start_from="erm"
    )
    if "training.learning_rate" in dict(overrides):
        return grid
    methods = {
        name: replace(config, training=replace(config.training, learning_rate=LEARNING_RATE))
        for name, config in grid.methods.items()
    }
    return replace(grid, methods=methods)


def match_sites(out: Path) -> None:
    """Match digits across four sites with several calipers, print how good the pairs are and write them."""
    sites = load_four_sites()
    with working("Matching digits across four sites") as now:
        compared = {
            name: match_table(_table(sites), CaliperMatcher(**given, embeddings=True))
            for name, given in CALIPERS.items()
        }
        now("Writing images")
        images = sites.write_images(out / "images")
        matching = match_table(_table(sites, images), CaliperMatcher(**list(CALIPERS.values())[-1], embeddings=True))
        now("Making the report")
        page = matching_report(matching, title="Digits matched across four sites")
    write_frame(matching.pairs().drop(columns=["query_image", "key_image"]), out / "matches.csv")
    write_text(out / "matches.html", page)
    console = stdout()
    print_matching(console, matching)
    columns = {"queries matched": count, "effective keys": count, "mean |SMD|": decimal, "same digit": share}
    tables.Table(
        title="What calipers change: better balance, fewer pairs of the same digit",
        columns=["calipers", *(tables.Column(name, kind) for name, kind in columns.items())],
        rows=[[name, *_metrics(matching)] for name, matching in compared.items()],
    ).print(console)
    print_files(console, {"Images": out / "images", "Matches": out / "matches.csv", "Report": out / "matches.html"})


def _metrics(matching: Matching) -> list[float]:
    return [
        len(matching.matches),
        matching.matcher.effective_sample_size(matching.matches),
        matching.balance.summary()["mean_abs_smd_after"],
        matching.precision.value if matching.precision else np.nan,
    ]


def _table(sites: Sites, images: list[Path] | None = None) -> Table:
    return Table(
        X=sites.images.reshape(len(sites), -1),
        names=tuple(f"pixel{row}{column}" for row in range(8) for column in range(8)),
        domain=sites.site.astype(object),
        ids=np.array([f"{digit}-{i:04d}" for i, digit in enumerate(sites.label)], dtype=object),
        images=None if images is None else np.array([str(path) for path in images], dtype=object),
        propensity=None,
        exact=None,
        target=sites.label,
        path=Path("sites"),
    )
