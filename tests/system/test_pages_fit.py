"""Every kind of page, in a real browser, on a phone and on a desk: nothing is cut and nothing goes wrong."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from okapi.cli import main

pytestmark = pytest.mark.browser

ROWS = 240
LONG = "hôpital-de-la-très-longue-dénomination-universitaire\x1b[31m\x07"  # no right edge, and control characters
SITES = [LONG, "oslo", "rome", "wien", "bern", "lima"]
# What is wider than the screen, but for what stands in a box that scrolls.
CUT = """[...document.querySelectorAll('body *')].filter(e =>
  !e.parentElement.closest('.scroll, pre') && e.getBoundingClientRect().right > innerWidth + 1
).map(e => `${e.tagName} ${e.className} ${e.id}`)"""
IMAGES = "Promise.all([...document.images].map(i => { i.loading = 'eager'; return i.decode(); }))"


def okapi(*words: object) -> None:
    assert main([*map(str, words)]) == 0


def write_inputs(folder: Path) -> None:
    """Write a table, a data set of arrays and configs for it."""
    rng = np.random.default_rng(0)
    site, target = np.arange(ROWS) % 6, np.arange(ROWS) // 6 % 3
    x = rng.normal(size=(ROWS, 4)) + 2 * np.eye(4)[target] + 0.2 * site[:, None]
    names = [f"a rather long name of a covariate {number}" for number in range(4)]
    frame = pd.DataFrame(x, columns=names).assign(
        site=np.array(SITES)[site], kind=np.array(["ant", "bee", "cow"])[target]
    )
    frame.loc[site == 5, "kind"] = None
    frame.to_csv(folder / "t.csv", index=False)
    split = np.select([site < 2, site == 2, site == 3], ["train", "unlabelled", "ood_val"], "ood_test")
    split[(site < 2) & (rng.random(ROWS) < 0.3)] = "id_val"
    np.savez(folder / "d.npz", x=x, y=target, domain=np.array(SITES)[site], split=split)
    base = {
        "data": {"name": "arrays", "path": str(folder / "d.npz")},
        "model": {"name": "mlp", "hidden": [8], "out_features": 4},
        "training": {"steps": 10, "validate_every": 5, "checkpoint_every": 10, "log_every": 5, "learning_rate": 0.02},
    }
    (folder / "configs").mkdir()
    for name, settings in {"erm": {}, "okapi_plus": {"bank": 64, "matching": {"k": 2}}}.items():
        text = yaml.safe_dump({**base, "algorithm": {"name": name, **settings}})
        (folder / "configs" / f"{name}.yaml").write_text(text)


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("pages")
    write_inputs(folder)
    table, runs = folder / "t.csv", folder / "runs"
    okapi("match", table, "--domain", "site", "--target", "kind", "--std-caliper", 1, "--report", folder / "match.html")
    grid = ["--k", 1, "--std-caliper", "none", 1, "--fixed-caliper", "none", 0.9]
    okapi("tune", table, "--domain", "site", "--target", "kind", *grid, "--report", folder / "tune.html")
    okapi("diagnose", table, "--domain", "site", "--target", "kind", "--report", folder / "diagnose.html")
    okapi("benchmark", folder / "configs", "--methods", "erm,okapi_plus", "--seeds", 1, "--out", runs, "--workers", 1)
    okapi("report", runs, "--out", folder / "benchmark.html", "--samples", 0)
    okapi("report", runs / "okapi_plus" / "all" / "seed-0", "--out", folder / "run.html")
    return {path.stem: path.read_text(encoding="utf-8") for path in folder.glob("*.html")}


@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("name", ["match", "tune", "diagnose", "run", "benchmark"])
def test_nothing_is_cut(open_page, pages, name, width):
    page = open_page(pages[name], width=width)
    page.evaluate(IMAGES)
    assert page.evaluate(CUT) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    figures = page.locator(".figures img")
    assert figures.count() > 0 or name == "benchmark"
    boxes = [figures.nth(number).bounding_box() for number in range(figures.count())]
    assert all(box["width"] > 200 and box["height"] > 80 for box in boxes)
    assert "\x1b" not in pages[name]
