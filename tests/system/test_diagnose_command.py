"""``okapi diagnose`` as a user meets it: a table or a config in, a verdict, a JSON file and a page out."""

import json
import re
from html import escape
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from okapi.cli import main
from okapi.config import make_config
from okapi.evaluation.diagnosis import Diagnosis, diagnose
from okapi.report.diagnosis_page import diagnosis_page

HOSTILE = "<img src=x onerror=alert(1)>"


def okapi(*words: object) -> int:
    try:
        return main([*map(str, words)])
    except SystemExit as stopped:
        return int(str(stopped.code))


def blobs(n: int = 180, domains: tuple[str, ...] = ("oslo", "rome", "lima")) -> pd.DataFrame:
    """Return samples of three species at some sites, as ``okapi embed`` writes them; of the last nothing is known."""
    rng = np.random.default_rng(0)
    label, site = rng.integers(0, 3, n), np.arange(n) % len(domains)
    x = 2 * np.eye(3, 6)[label] + np.eye(6)[3 + site % 3] + 0.5 * rng.normal(size=(n, 6))
    species = np.array(["elk", "hare", "okapi"], dtype=object)[label]
    species[site == len(domains) - 1] = None
    encoding = list(x.astype(np.float32))
    return pd.DataFrame({"site": np.array(domains)[site], "species": species, "encoding": encoding})


@pytest.fixture(scope="module")
def found() -> Diagnosis:
    frame = blobs(domains=("oslo", HOSTILE, "a $ite whose name is longer than any figure has room for"))
    return diagnose(np.stack(frame.encoding), frame.site, frame.species)


def test_a_table_gives_a_verdict_a_file_and_a_page(tmp_path: Path, capsys):
    frame = blobs()
    frame.to_parquet(tmp_path / "z.parquet")
    files = {"--out": tmp_path / "d.json", "--report": tmp_path / "d.html"}
    written = [word for pair in files.items() for word in pair]
    words = ["--domain", "site", "--target", "species", "--columns", "encoding", "--k", 3, "--limit", 50]
    assert okapi("diagnose", tmp_path / "z.parquet", *words, *written) == 0
    out, errors = capsys.readouterr()
    expected = diagnose(np.stack(frame.encoding), frame.site, frame.species, k=3, limit=50)
    assert f"\n{expected.headline}\n" in out
    assert "labelled oslo, rome; unlabelled lima" in out
    assert "50 samples of each larger domain are drawn (seed 0): 'lima'" in out
    shown = [out.index(line) for line in (expected.headline, expected.advice, "In the config", "Why", "What to expect")]
    assert shown == sorted(shown)
    for reason in (expected.advice, *(f"- {reason}" for reason in expected.reasons)):
        assert f"{reason}\n" in out
    assert "Leaving out rome (2 of 2)" in errors
    algorithm = yaml.safe_load(out[out.index("algorithm:") : out.index("\nWhy")])
    make_config({"data": {"name": "sites"}, "model": {"name": "mlp"}, "training": {"steps": 600}} | algorithm)
    read = json.loads((tmp_path / "d.json").read_text(encoding="utf-8"))
    assert {name: read[name] for name in expected.as_dict()} == json.loads(json.dumps(expected.as_dict()))
    assert (read["data"], read["limit"]) == (str(tmp_path / "z.parquet"), 50)
    page = (tmp_path / "d.html").read_text(encoding="utf-8")
    assert escape(expected.headline, quote=True).replace("&#x27;", "&#39;") in page
    assert {path.name for path in tmp_path.iterdir()} == {"z.parquet", "d.json", "d.html"}


def test_a_config_is_encoded_and_the_targets_of_its_unlabelled_split_are_not_read(tmp_path: Path, capsys):
    frame = blobs()
    split = np.where(frame.site == "lima", np.where(np.arange(180) % 2, "unlabelled", "ood_test"), "train")
    x, species = np.stack(frame.encoding), frame.species.fillna("elk").to_numpy(str)
    np.savez(tmp_path / "z.npz", x=x, y=species, domain=frame.site.to_numpy(str), split=split)
    config = {"data": {"name": "arrays", "path": str(tmp_path / "z.npz")}, "model": {"name": "mlp"}}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({"algorithm": {"name": "erm"}, "training": {"steps": 1}, **config}))
    words = ["--model.out_features", 8, "--out", tmp_path / "d.json"]
    assert okapi("diagnose", tmp_path / "c.yaml", *words) == 0
    assert "the encoder has random weights" in capsys.readouterr().err
    read = json.loads((tmp_path / "d.json").read_text())
    assert (read["labelled"], read["unlabelled"], read["basis"]) == (["oslo", "rome"], ["lima"], "leave_one_domain_out")
    assert read["domains"][-1]["samples"] == 30
    assert okapi("diagnose", tmp_path / "c.yaml", "--domain", "site") == 2
    assert "--domain says what a table holds" in capsys.readouterr().err


REFUSED = {
    "none.csv --domain site": r"none\.csv does not exist",
    "z.csv": "--domain is missing",
    "z.csv --domain sites": "has no column 'sites'; did you mean site?",
    "z.csv --domain site --target specie": "has no column 'specie'; did you mean species?",
    "z.csv --domain site --target species --unlabelled paris": "--unlabelled must name domains of .*, got 'paris'",
    "z.csv --domain site --target species --unlabelled lima oslo rome": "target has no labels",
    "z.csv --domain site --columns x --unlabelled lima": "--unlabelled needs target",
    "z.csv --domain site --columns x --target known": "--unlabelled must name the domains whose targets",
    "z.csv --domain site --columns x --target same --unlabelled lima": "target must differ between samples",
    "z.csv --domain site --target species --limit 3": "--limit must be at least 10, got 3",
    "z.csv --domain site --target species --k 0": "--k must be a whole number of at least 1",
    "z.csv --domain site --target species --task ranking": "--task must be one of .*, got 'ranking'",
    "z.csv --domain site --data.root here": r"--data\.root is a key of configs",
    "one.csv --domain site": "every row of 'site' is 'oslo'",
    "nan.parquet --domain site": r"nan\.parquet: row 7, column 'x' is missing",
    "z.csv --domain site --out d.txt": "cannot write '.txt'",
    "z.csv --domain site --report d.pdf": "cannot write '.pdf'",
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    frame = blobs(60)
    frame = frame.assign(x=np.sin(np.arange(60.0)), known=1 + np.arange(60) % 2, same=1).drop(columns="encoding")
    frame.to_csv(folder / "z.csv", index=False)
    frame.assign(site="oslo").to_csv(folder / "one.csv", index=False)
    frame.assign(x=frame.x.where(frame.index != 6))[["site", "x"]].to_parquet(folder / "nan.parquet")
    return folder


@pytest.mark.parametrize("words", REFUSED)
def test_what_is_refused(words: str, inputs: Path, tmp_path: Path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name, *options = words.split()
    assert okapi("diagnose", inputs / name, *options) == 2
    out, errors = capsys.readouterr()
    assert out == ""
    assert re.search(REFUSED[words], errors.splitlines()[-1])
    assert not list(tmp_path.iterdir())


@pytest.mark.browser
def test_the_page_is_whole_and_fits_a_phone_in_both_themes(found: Diagnosis, open_page):
    html = diagnosis_page(found, HOSTILE, {"data": HOSTILE})
    for width, scheme in ((1280, "light"), (360, "dark")):
        page = open_page(html, width=width, scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator("h1").inner_text().startswith("Matching ")
        assert page.locator(".reasons li").count() == len(found.reasons)
        assert page.locator("#figures img").count() == 1
        assert "algorithm:" in page.locator("pre").inner_text()
        assert page.locator("#left-out tbody tr").count() == 2
        assert page.locator("main img:not(#figures img)").count() == 0
        ink, paper = page.evaluate("[getComputedStyle(document.querySelector('pre')).color, "
                                   "getComputedStyle(document.body).backgroundColor]")  # fmt: skip
        assert ink != paper
