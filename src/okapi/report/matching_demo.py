"""The first part of the demonstration: matching across four sites of the built-in data."""

from pathlib import Path
from typing import Any

import numpy as np

from okapi.console import stdout, working
from okapi.data import Table, write_frame, write_text
from okapi.data.four_sites import Sites, load_four_sites
from okapi.matching import CaliperMatcher
from okapi.report.matching import match_table, matching_report, print_matching
from okapi.report.terminal import count, decimal, print_files, print_table, share

CALIPERS: dict[str, dict[str, Any]] = {
    "no caliper": {},
    "fixed caliper 0.9": {"fixed_caliper": 0.9},
    "fixed caliper 0.9 and std-caliper 1": {"fixed_caliper": 0.9, "std_caliper": 1.0},
}


def match_sites(out: Path) -> None:
    """Match digits across sites, print how good the pairs are and write images, matches and a report to a folder.

    Parameters
    ----------
    out : Path
        Made if need be; ``images/``, ``matches.csv`` and ``matches.html`` in it are replaced.
    """
    sites = load_four_sites()
    with working("Matching digits across four sites") as now:
        compared = [_compare(name, CaliperMatcher(**calipers), sites) for name, calipers in CALIPERS.items()]
        now("Writing images")
        images = sites.write_images(out / "images")
        table = _table(sites, out, images)
        matching = match_table(table, CaliperMatcher(**list(CALIPERS.values())[-1]))
        now("Making the report")
        page = matching_report(matching, title="Digits matched across four sites")
    write_frame(matching.pairs().drop(columns=["query_image", "key_image"]), out / "matches.csv")
    write_text(out / "matches.html", page)
    console = stdout()
    print_matching(console, matching)
    print_table(
        console,
        "What calipers change: better balance, fewer pairs of the same digit",
        ["calipers", "queries matched", "effective keys", "mean |SMD|", "same digit"],
        compared,
        words=["calipers"],
    )
    print_files(console, {"Images": out / "images", "Matches": out / "matches.csv", "Report": out / "matches.html"})


def _table(sites: Sites, out: Path, images: list[Path] | None) -> Table:
    n = len(sites)
    return Table(
        X=sites.images.reshape(n, -1),
        names=tuple(f"pixel{row}{column}" for row in range(8) for column in range(8)),
        domain=sites.site.astype(object),
        ids=np.array([f"{digit}-{i:04d}" for i, digit in enumerate(sites.label)], dtype=object),
        images=None if images is None else np.array([str(path) for path in images], dtype=object),
        propensity=None,
        exact=None,
        target=sites.label,
        path=Path("sites"),
    )


def _compare(name: str, matcher: CaliperMatcher, sites: Sites) -> list[str]:
    matching = match_table(_table(sites, Path(), None), matcher)
    precision = matcher.precision(sites.label, matching.matches)
    return [
        name,
        count(len(matching.matches)),
        count(matcher.effective_sample_size(matching.matches)),
        decimal(matching.balance.summary()["mean_abs_smd_after"]),
        share(precision.value),
    ]
