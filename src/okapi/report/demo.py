"""The demonstration: matching and learning on the built-in data, with tables and pages."""

from collections.abc import Sequence
from pathlib import Path

from okapi.benchmark import make_grid, run_benchmark
from okapi.console import stdout, working
from okapi.report.benchmark import print_results
from okapi.report.matching_demo import match_sites
from okapi.report.run_page import write_report
from okapi.report.terminal import print_files

METHODS = ("erm", "fixmatch", "okapi", "okapi_plus")
SEEDS = 2
LENGTH = [("training.steps", "400")]  # two thirds of what the configs say, for those who wait


def run_demo(out: Path, overrides: Sequence[tuple[str, str]] = ()) -> None:
    """Match digits across four sites; train four methods on 24 sites, compare them and show what they learnt.

    Called again with the same folder, it goes on where it was stopped.

    Parameters
    ----------
    out : Path
        Made if need be. Gets what ``match_sites`` writes, ``runs/``, as ``okapi benchmark`` writes it, and
        ``report.html``.
    overrides : sequence of (key, text)
        Keys of the configs of all methods, which win over ``LENGTH``.
    """
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; --out names a folder")
    match_sites(out)
    grid = make_grid([Path("configs/sites")], methods=METHODS, seeds=range(SEEDS), overrides=[*LENGTH, *overrides])
    results = run_benchmark(grid, out / "runs")
    print_results(results, results.write())
    with working("Making the page of the runs"):
        write_report([out / "runs"], out / "report.html")
    print_files(stdout(), {"Page": out / "report.html"})
