"""``okapi evaluate`` as a user meets it: what it prints, what it records, and that nothing opens a test by accident."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from sklearn.metrics import accuracy_score, f1_score
from tests.training.runs import end

from okapi.cli import main

SPLIT = np.repeat(["train", "unlabelled", "id_val", "ood_val", "ood_test"], 40)


def okapi(*words: object) -> int:
    try:
        return main([*map(str, words)])
    except SystemExit as stopped:
        return int(str(stopped.code))


def arrays(folder: Path, **changes: Any) -> Path:
    """Write a data set and a config for it; return the config."""
    rng, rows = np.random.default_rng(0), len(SPLIT)
    target = np.arange(rows) % 3
    where = np.where(np.char.startswith(SPLIT, "ood"), 2 + np.arange(rows) % 2, np.arange(rows) % 2)
    parts = {"x": rng.normal(size=(rows, 4)) + 2 * np.eye(4)[target], "y": target, "split": SPLIT}
    parts |= {
        "domain": np.array(["rome", "oslo", "bern", "wien"])[where],
        "name": np.char.add("patient ", np.arange(rows).astype(str)),
    }
    np.savez(folder / "data.npz", **{**parts, **changes})
    content = {
        "data": {"name": "arrays", "path": str(folder / "data.npz"), "id": "name"},
        "model": {"name": "mlp", "hidden": [8], "out_features": 4},
        "algorithm": {"name": "erm"},
        "training": {"steps": 20, "validate_every": 5, "checkpoint_every": 10, "learning_rate": 0.02},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(content))
    return folder / "config.yaml"


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    assert okapi("train", arrays(folder), "--out", folder / "run") == 0
    return folder / "run"


@pytest.fixture
def run(finished, tmp_path) -> Path:
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def opened(run: Path) -> dict[str, Any]:
    return json.loads((run / "results.json").read_text()).get("opened", {})


def test_a_test_split_is_opened_counted_and_printed(run, capsys):
    assert opened(run) == {}
    assert okapi("evaluate", run, "--split", "ood_test", "--out", run.parent / "figures.json") == 0
    out, errors = capsys.readouterr()
    assert re.search(r"ood_test: 40 samples, weights of step \d+, selected by ood_val", out)
    table = pd.read_parquet(run / "predictions-ood_test.parquet")
    accuracy = accuracy_score(table.target, table.prediction)
    macro = f1_score(table.target, table.prediction, average="macro")
    by = (table.target == table.prediction).groupby(table.domain).mean()
    assert re.search(rf"accuracy +{accuracy:.4f} +{by.mean():.4f} +{by.min():.4f}\n", out)
    assert re.search(rf"macro_f1 +{macro:.4f} ", out)
    shown = re.findall(r"^(bern|wien) +20 +(\d\.\d{4})", out, re.MULTILINE)
    assert shown == [(name, f"{value:.4f}") for name, value in by.sort_values(kind="stable").items()]  # worst first
    assert "rome" not in out  # no samples: absent
    assert str(run / "predictions-ood_test.parquet") in out
    assert "opened" not in errors
    assert opened(run)["ood_test"]["times"] == 1
    (record,) = json.loads((run.parent / "figures.json").read_text())
    assert record == json.loads((run / "results.json").read_text())["evaluations"][0]
    assert table.id[0] == "patient 160"

    assert okapi("evaluate", run, "--split", "ood_test", "--rows", 1) == 0
    out, errors = capsys.readouterr()
    assert "Domains, the worst 1 of 2 by accuracy" in out
    assert "Note: ood_test has been opened 2 times, always with these weights" in errors
    assert opened(run)["ood_test"]["times"] == 2


def test_several_splits_in_one_go(run, capsys):
    assert okapi("evaluate", run, "--split", "id_val", "--split", "ood_val", "--split", "id_val") == 0
    assert re.findall(r"^(\w+): 40 samples", capsys.readouterr().out, re.MULTILINE) == ["id_val", "ood_val"]
    assert opened(run) == {}
    figures = json.loads((run / "results.json").read_text())
    told = figures["selection"]["metrics"]
    for record in figures["evaluations"]:
        assert record["metrics"] == pytest.approx(told[record["split"]])  # what training said


def test_data_that_moved_is_found(run, capsys):
    config = yaml.safe_load((run / "config.yaml").read_text())
    moved = Path(shutil.copy(config["data"]["path"], run.parent / "moved.npz"))
    assert okapi("evaluate", run, "--split", "ood_val", "--data.path", moved) == 0
    assert json.loads((run / "results.json").read_text())["evaluations"][0]["overrides"] == {"data.path": str(moved)}


REFUSED = {
    "RUN": r"--split is missing; there are train \(40 samples\), .*, ood_test \(40 samples, sealed\)\. Opening",
    "RUN --split test": r"--split must be one of train .*, got 'test'",
    "RUN --split unlabelled": "got 'unlabelled'",
    "RUN --split id_test": "got 'id_test'",  # it has no samples
    "RUN --split ood_val --weights best": "--weights",
    "RUN --split ood_val --rows 0": "--rows must be at least 1, got 0",
    "RUN --split ood_val --training.steps 3": r"--training\.steps cannot differ from what the model was trained with",
    "RUN --splits ood_val": r"unknown option --splits; did you mean --split\?",
    "--split ood_val": "DIR is missing",
    "nowhere --split ood_val": "nowhere does not exist",
}


@pytest.mark.parametrize("words", REFUSED)
def test_bad_usage_is_refused_and_opens_nothing(words, run, capsys):
    before = (run / "results.json").read_bytes()
    code = okapi("evaluate", *[str(run) if word == "RUN" else word for word in words.split()])
    out, errors = capsys.readouterr()
    assert (code, out) == (2, "")
    assert len(errors.splitlines()) == 1
    assert re.search(REFUSED[words], errors)
    assert (run / "results.json").read_bytes() == before


def test_training_never_looks_at_a_test_that_would_break_it(tmp_path, capsys):
    """Inputs of two test samples are so large that no network has a finite prediction for them."""
    config = arrays(tmp_path)
    with np.load(tmp_path / "data.npz") as file:
        parts = dict(file)
    parts["x"][[163, 170]] = 3e38
    np.savez(tmp_path / "data.npz", **parts)
    for selector in ("ood_val", "match_quality"):
        run = tmp_path / selector
        assert okapi("train", config, "--out", run, "--training.selector", selector) == 0
        capsys.readouterr()
        assert okapi("evaluate", run, "--split", "ood_test") == 1
        assert "samples patient 163, patient 170 of ood_test are not finite" in capsys.readouterr().err
        assert opened(run) == {}
        assert okapi("evaluate", run, "--split", "ood_val") == 0
    words = ["--training.selector", "oracle", "--training.consent_to_oracle", "true"]
    capsys.readouterr()
    assert okapi("train", config, "--out", tmp_path / "oracle", *words) == 1
    assert "of ood_test are not finite after step 5" in capsys.readouterr().err
    assert okapi("evaluate", tmp_path / "oracle", "--split", "ood_val") == 2
    assert "the run is not finished; resume it by: okapi train --resume" in capsys.readouterr().err


def test_help_has_an_example(capsys):
    assert okapi("evaluate", "--help") == 0
    assert "example:\n  okapi evaluate runs/okapi --split ood_test\n" in capsys.readouterr().out
    assert okapi("--help") == 0
    assert "evaluate" in capsys.readouterr().out


def test_two_processes_select_without_labels_as_one_does(tmp_path, fork_two):
    config, selector = arrays(tmp_path), ["--training.selector", "match_quality"]
    words = [*selector, "--training.selection_samples", 13, "--training.accelerator", "cpu"]
    assert okapi("train", config, "--out", tmp_path / "one", *words) == 0
    for process in fork_two("train", config, "--out", tmp_path / "two", *words):
        end(process)
    logs = [
        pd.read_csv(tmp_path / run / "metrics.csv").set_index(["step", "split", "metric"]) for run in ("one", "two")
    ]
    pd.testing.assert_frame_equal(*logs, check_exact=False, rtol=0, atol=1e-4)
    assert "match_quality" in logs[0].index.get_level_values("metric")
    results = [json.loads((tmp_path / run / "results.json").read_text()) for run in ("one", "two")]
    assert results[0]["selection"]["step"] == results[1]["selection"]["step"]
    assert okapi("evaluate", tmp_path / "two", "--split", "ood_test") == 0
    assert opened(tmp_path / "two")["ood_test"]["times"] == 1
