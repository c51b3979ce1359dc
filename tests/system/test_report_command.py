"""``okapi report`` as a user meets it: pages of real runs, in a real browser."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from tests.report.folders import write_run

from okapi.benchmark import compare, make_grid, read_results
from okapi.benchmark.grid import save_grid
from okapi.cli import main
from okapi.commands.report import write_report
from okapi.report.benchmark import comparison_table, write_tables
from okapi.training import train
from okapi.training.evaluating import evaluate_run

SPLIT = np.repeat(["train", "unlabelled", "id_val", "ood_val", "ood_test"], 48)
IMG, SCRIPT = "<img src=x onerror=alert(1)>", "</script><script>alert(2)</script>"
DOMAINS = [IMG, "oslo", SCRIPT, "wien", "bern", "lima"]
CLASSES = [f"cow {IMG}", SCRIPT, "bee"]


def okapi(*words: object) -> int:
    try:
        return main([*map(str, words)])
    except SystemExit as stopped:
        return int(str(stopped.code))


def write_config(folder: Path, **changes: Any) -> Path:
    """Write a data set with hostile names and a config of Okapi for it; return the config."""
    rng, rows = np.random.default_rng(0), len(SPLIT)
    target = np.arange(rows) % 3
    where = np.select([SPLIT == "unlabelled", np.char.startswith(SPLIT, "ood")], [2, 4], 0) + np.arange(rows) % 2
    np.savez(
        folder / "data.npz",
        x=rng.normal(size=(rows, 4)) + 2 * np.eye(4)[target],
        y=np.array(CLASSES)[target],
        split=SPLIT,
        domain=np.array(DOMAINS)[where],
        name=np.char.add(f"{SCRIPT} ", np.arange(rows).astype(str)),
    )
    content = {
        "data": {"name": "arrays", "path": str(folder / "data.npz"), "id": "name"},
        "model": {"name": "mlp", "hidden": [8], "out_features": 4},
        "algorithm": {
            "name": "okapi_plus",
            "bank": 64,
            "matching": {"k": 2, "fixed_caliper": 0.95, "prognostic_caliper": 0.9},
        },
        "training": {"steps": 20, "validate_every": 5, "checkpoint_every": 20, "log_every": 5, "learning_rate": 0.02},
    }
    for section, its in changes.items():
        content[section] |= its
    (folder / "okapi.yaml").write_text(yaml.safe_dump(content))
    return folder / "okapi.yaml"


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """Two runs with other seeds, of which one was evaluated on its test split."""
    folder = tmp_path_factory.mktemp("runs")
    config = write_config(folder)
    for seed in (0, 1):
        assert okapi("train", config, "--out", folder / f"okapi-{seed}", "--seed", seed) == 0
    assert okapi("evaluate", folder / "okapi-0", "--split", "ood_test", "--split", "id_val") == 0
    return folder


@pytest.fixture(scope="module")
def page(runs) -> str:
    before = {path: path.read_bytes() for path in runs.glob("okapi-*/*") if path.is_file()}
    out = runs / "report.html"
    assert okapi("report", runs / "okapi-0", runs / "okapi-1", "--out", out) == 0
    assert before == {path: path.read_bytes() for path in before}  # no test split is opened, nothing is written down
    return out.read_text(encoding="utf-8")


def test_the_page_has_the_numbers_of_results_json(runs, page):
    results = json.loads((runs / "okapi-0" / "results.json").read_text())
    (record,) = [its for its in results["evaluations"] if its["split"] == "ood_test"]
    assert f"{record['metrics']['accuracy']:.4f}" in page
    assert f"{results['selection']['metrics']['ood_val']['accuracy']:.4f}" in page
    for domain in record["domains"]:
        assert f">{domain['accuracy']:.4f}<" in page
    table = pd.read_parquet(runs / "okapi-0" / "predictions-ood_test.parquet")
    right = (table.target == table.prediction).groupby(table.domain).mean()
    assert sorted(domain["accuracy"] for domain in record["domains"]) == pytest.approx(sorted(right))
    assert "ood_test has been opened once" in page
    for caption in ("Loss", "Supervised loss", "Match rate", "Propensity accuracy", "Accuracy on ood_val"):
        assert f'alt="{caption}"' in page
    assert len(page.encode()) < 5_000_000


def test_text_of_users_reaches_the_page_escaped(page):
    assert "<img src=x" not in page
    assert page.count("</script>") == page.count("<script>") == 1
    assert "&lt;img src=x onerror=alert(1)&gt;" in page


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_loads_at_all_widths_and_themes(open_page, page, width, scheme):
    opened = open_page(page, width, scheme)
    wide = opened.evaluate("[document.documentElement.scrollWidth, document.body.scrollWidth]")
    assert max(wide) <= width
    assert opened.title() == "2 runs"
    assert SCRIPT in opened.locator(".gallery").inner_text()
    dark = opened.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(24, 21, 19)"
    assert dark == (scheme == "dark")
    for place in ("#curves img", "#matching img", "#map img", "#confusion-table", "#worst-domains table"):
        assert opened.locator(place).first.is_visible()
    named = "e.labels?.length || e.alt || e.getAttribute('aria-label')"
    unnamed = f"[...document.querySelectorAll('select, input, img')].filter(e => !({named}))"
    assert opened.evaluate(f"{unnamed}.length") == 0


@pytest.mark.browser
def test_filters_and_order_change_what_is_shown(open_page, page):
    opened = open_page(page)
    controls = opened.locator("#gallery .controls")
    visible = ".gallery > li:visible"
    total = opened.locator(".gallery > li").count()
    assert controls.locator("output").inner_text() == f"{total} queries"
    assert opened.locator(visible).count() == min(24, total)
    opened.get_by_role("button", name="Show all").click()
    assert opened.locator(visible).count() == total

    controls.get_by_label("Domain").select_option(label=IMG)
    shown = opened.locator(visible).count()
    assert 0 < shown < total
    assert controls.locator("output").inner_text() == f"{shown} of {total} queries"
    domains = opened.locator(f"{visible} .query .domain").all_inner_texts()
    assert set(domains) == {IMG}
    controls.get_by_label("Class").select_option(label="bee")
    assert set(opened.locator(f"{visible} .query .label").all_inner_texts()) == {"bee"}
    controls.get_by_label("Domain").select_option(label="all")
    controls.get_by_label("Class").select_option(label="all")

    controls.get_by_label("Matches").select_option(label="right")
    assert opened.locator(f"{visible} .match.wrong").count() == 0
    right = opened.locator(visible).count()
    controls.get_by_label("Matches").select_option(label="some wrong")
    assert opened.locator(f"{visible}:not(:has(.match.wrong))").count() == 0
    assert right + opened.locator(visible).count() == total
    controls.get_by_label("Matches").select_option(label="all")

    order = controls.get_by_label("Order")
    number = "Number(e.querySelector('.match figcaption span').textContent.replace(/[^0-9.]/g, ''))"
    nearest = f"[...document.querySelectorAll('.gallery > li')].map(e => {number})"
    drawn = opened.evaluate(nearest)
    order.focus()
    opened.keyboard.press("ArrowDown")  # by keyboard, too
    assert opened.evaluate(nearest) == sorted(drawn) != drawn
    order.select_option(label="farthest first")
    assert opened.evaluate(nearest) == sorted(drawn, reverse=True)
    order.select_option(label="as drawn")
    assert opened.evaluate(nearest) == drawn


def test_a_benchmark_s_table_is_the_page_s(runs, tmp_path):
    (tmp_path / "configs").mkdir()
    content = yaml.safe_load((runs / "okapi.yaml").read_text())
    for name, algorithm in (("erm", {"name": "erm"}), ("okapi", content["algorithm"])):
        (tmp_path / "configs" / f"{name}.yaml").write_text(yaml.safe_dump({**content, "algorithm": algorithm}))
    grid = save_grid(make_grid([tmp_path / "configs"], methods=["erm", "okapi"]), tmp_path / "bench")
    for cell in grid.cells():  # as okapi benchmark does, each in a process of its own
        train(grid.config(cell, tmp_path / "bench"), cell.below(tmp_path / "bench"))
        evaluate_run(cell.below(tmp_path / "bench"), ["ood_test"])
    results = read_results(tmp_path / "bench")
    comparison = compare(results)
    write_tables(results, comparison)
    write_report([tmp_path / "bench"], tmp_path / "report.html", samples=0)
    page = (tmp_path / "report.html").read_text()
    table = comparison_table(results, comparison)
    for row in table.texts():
        for text in row:
            assert f">{text}<" in page.replace("&#43;", "+")
    numbers = pd.read_csv(tmp_path / "bench" / "table.csv")
    assert [f"{mean:.3f} (–)" for mean in numbers["mean"]] == [row[1] for row in table.texts()]
    assert "Encodings of" not in page


@pytest.mark.browser
def test_pictures_of_the_built_in_data_are_shown(open_page, tmp_path):
    config = Path(__file__).parents[2] / "configs" / "sites" / "okapi.yaml"
    short = ["--training.steps", 2, "--training.labelled_batch", 16, "--training.unlabelled_batch", 16]
    assert okapi("train", config, "--out", tmp_path / "run", *short, "--model.width", 4) == 0
    assert okapi("report", tmp_path / "run", "--out", tmp_path / "report.html", "--samples", 240) == 0
    opened = open_page((tmp_path / "report.html").read_text(), width=360)
    first = opened.locator(".gallery > li").first
    first.scroll_into_view_if_needed()  # pictures are loaded when they are about to be seen
    images = first.locator("img")
    assert images.count() == 6
    for number in range(6):
        images.nth(number).evaluate("image => image.decode()")
        assert images.nth(number).evaluate("image => image.naturalWidth") == 32
    assert "No split of run has been evaluated" in opened.locator(".note").first.inner_text()
    assert opened.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "DIR is missing"),
        (["nowhere"], "nowhere does not exist"),
        (["empty"], "empty holds no run: it has no config.yaml"),
        (["run", "--out", "page.pdf"], "cannot write '.pdf'"),
        (["run", "--samples", "-1"], "--samples must be at least 0, got -1"),
        (["run", "--run", "empty"], "run must be a finished run: empty holds no run"),
        (["run", "--sample", "1"], "unknown option --sample; did you mean --samples"),
    ],
)
def test_bad_usage_is_one_sentence(tmp_path, monkeypatch, capsys, words, said):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run")
    (tmp_path / "empty").mkdir()
    assert okapi("report", *words) == 2
    errors = capsys.readouterr().err.strip().splitlines()
    assert said in errors[-1]
    assert "Traceback" not in "".join(errors)


def test_a_run_without_its_data_or_weights_has_a_page_that_says_so(runs, tmp_path, capsys):
    run = write_run(tmp_path / "run")
    assert okapi("report", run, "--out", tmp_path / "report.html") == 0
    page = (tmp_path / "report.html").read_text()
    assert "Matches and map of run are missing" in page
    assert "0.8000" in page
