"""Selectors in real runs: which weights they keep, which samples they look at, and what they leave sealed."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from tests.training.small_data import EACH, SPLIT, TEST_ROWS, Recorded, config, register

from okapi.commands.train import results_text
from okapi.config import ConfigError, TrainingSettings
from okapi.evaluation import LABEL_FREE
from okapi.evaluation.label_free import entropy, match_quality
from okapi.models import build
from okapi.runs import Opened
from okapi.training import NotFiniteError, estimate, resume, train

CASES = [("classification", name) for name in LABEL_FREE] + [("multilabel", name) for name in LABEL_FREE]
CASES += [(kind, name) for kind in ("regression", "several numbers") for name in ("ensemble", "match_quality")]


def score(run: Path, name: str, split: str = "unlabelled") -> pd.Series:
    """Return a figure by step."""
    log = pd.read_csv(run / "metrics.csv")
    return log[(log.split == split) & (log.metric == name)].set_index("step").value


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_the_best_by_its_score_is_kept(kind, name, monkeypatch, tmp_path):
    register(monkeypatch, kind)
    chosen = train(config(selector=name), tmp_path / "run").selection
    own = LABEL_FREE[name]
    assert (chosen.selector, chosen.metric) == (name, own.metric)
    values = score(tmp_path / "run", own.metric)
    assert len(values) == 6
    if name == "ensemble":  # compared with the best under the ensemble of that moment
        anew = score(tmp_path / "run", "ensemble_agreement_of_best")
        assert anew.index.tolist() == [2, 3, 4, 5, 6]
        better = [1, *(step for step in anew.index if values[step] > anew[step])]
        assert chosen.step == better[-1]
    else:
        best = values.max() if own.higher_is_better else values.min()
        assert chosen.step == values[values == best].index[0]  # of equals the first
    assert chosen.metrics["unlabelled"][own.metric] == values[chosen.step]


def test_scores_are_those_of_the_kept_weights(monkeypatch, tmp_path):
    data = register(monkeypatch)

    def output(run: Path, split: str):
        network = build(config().model, data.sample(0), data.task).eval()
        network.load_state_dict(load_file(run / "model.safetensors"))
        with torch.no_grad():
            return network(data.inputs[data.rows(split)])

    chosen = train(config(selector="entropy"), tmp_path / "entropy").selection
    prediction = output(tmp_path / "entropy", "unlabelled").prediction
    assert chosen.metrics["unlabelled"]["entropy"] == pytest.approx(entropy(data.task, prediction))
    chosen = train(config(selector="match_quality"), tmp_path / "matched").selection
    others, known = (output(tmp_path / "matched", split) for split in ("unlabelled", "id_val"))
    target = data.target[data.rows("id_val")]
    expected = match_quality(data.task, others.prediction, others.encoding, target, known.encoding)
    assert chosen.metrics["unlabelled"] == pytest.approx(expected)


@pytest.mark.parametrize("name", ["entropy", "thresholded_confidence", "match_quality"])
def test_at_most_so_many_samples_are_looked_at_always_the_same(name, monkeypatch, tmp_path):
    data = register(monkeypatch)
    inputs = Recorded(data.inputs)
    register(monkeypatch, inputs=inputs)
    train(config(selector=name, selection_samples=5), tmp_path / "run")
    unlabelled = [row for row in inputs.read if SPLIT[row] == "unlabelled"]  # erm reads none of them itself
    assert len(unlabelled) == 6 * 5
    assert len(set(unlabelled)) == 5
    validated = 6 * (EACH + 5 * (name != "entropy")) + 2 * EACH  # the model card and the reference read them once more
    assert len([row for row in inputs.read if SPLIT[row] == "id_val"]) == validated
    first = set(unlabelled)
    inputs.read.clear()
    train(config(selector=name, selection_samples=5), tmp_path / "again")
    assert {row for row in inputs.read if SPLIT[row] == "unlabelled"} == first
    assert (tmp_path / "again" / "metrics.csv").read_bytes() == (tmp_path / "run" / "metrics.csv").read_bytes()


@pytest.mark.parametrize("name", ["infomax", "match_quality", "ensemble"])
def test_selection_does_not_change_what_is_learnt(name, monkeypatch, tmp_path):
    register(monkeypatch)
    train(config(selector="ood_val", selection_samples=7), tmp_path / "plain")
    train(config(selector=name, selection_samples=7), tmp_path / name)
    plain, other = (pd.read_csv(tmp_path / run / "metrics.csv") for run in ("plain", name))
    pd.testing.assert_frame_equal(plain, other[other.split != "unlabelled"].reset_index(drop=True))


@pytest.mark.parametrize("name", ["ensemble", "match_quality", "oracle"])
def test_a_resumed_run_selects_the_same(name, monkeypatch, tmp_path):
    register(monkeypatch)
    train(config(selector=name, steps=8, consent_to_oracle=True), tmp_path / "run")
    shutil.copytree(tmp_path / "run", tmp_path / "resumed")
    (tmp_path / "resumed" / "results.json").unlink()
    shutil.rmtree(tmp_path / "resumed" / "checkpoints" / "step-00000008")
    resume(tmp_path / "resumed")
    for file in ("metrics.csv", "results.json", "model.safetensors"):
        assert (tmp_path / "resumed" / file).read_bytes() == (tmp_path / "run" / file).read_bytes()


# Sealed test splits, and the oracle


@pytest.mark.parametrize("name", ["id_val", "ood_val", "last", *LABEL_FREE])
def test_training_reads_no_row_of_a_test_split(name, monkeypatch, tmp_path):
    inputs = Recorded(register(monkeypatch).inputs.clone())
    inputs.inputs[sorted(TEST_ROWS)] = torch.nan  # and would not survive it
    half = (SPLIT == "id_test") & (np.arange(len(SPLIT)) % 2 == 0)
    register(monkeypatch, inputs=inputs, split=np.where(half, "unlabelled_test", SPLIT))
    okapi = {
        "name": "okapi",
        "bank": 20,
        "matching": {"k": 1, "fixed_caliper": None, "std_caliper": None},
        "domain": "label",
    }
    train(config(okapi, selector=name), tmp_path / "run")
    estimate(config(okapi, selector=name))
    assert inputs.read
    assert not TEST_ROWS & set(inputs.read)
    assert json.loads((tmp_path / "run" / "results.json").read_text())["opened"] == {}


def test_an_oracle_needs_consent_and_bears_its_name_everywhere(monkeypatch, tmp_path, capsys):
    register(monkeypatch)
    with pytest.raises(ConfigError, match=r"by ood_test, so that .*; say that this is meant by training.consent_to_or"):
        train(config(selector="oracle"), tmp_path / "run")
    results = train(config(selector="oracle", consent_to_oracle=True), tmp_path / "run")
    assert results.selection.selector == "oracle"
    assert set(results.selection.metrics) == {"id_val", "ood_val", "oracle"}
    assert results.opened == {"ood_test": Opened(times=6)}
    accuracy = score(tmp_path / "run", "accuracy", split="oracle")
    assert results.selection.step == accuracy.idxmax()
    assert "oracle accuracy" in capsys.readouterr().err
    text = results_text(results, tmp_path / "run")
    assert "Selected by oracle" in text
    assert "An oracle has seen ood_test" in text
    assert "ood_test" not in pd.read_csv(tmp_path / "run" / "metrics.csv").split.tolist()


def test_an_oracle_names_a_test_sample_that_it_cannot_predict(monkeypatch, tmp_path):
    data = register(monkeypatch)
    inputs = data.inputs.clone()
    inputs[data.rows("ood_test")[-2:]] = torch.nan
    register(monkeypatch, inputs=inputs)
    words = r"samples sample 70, sample 71 of ood_test are not finite after step 1"
    with pytest.raises(NotFiniteError, match=words):
        train(config(selector="oracle", consent_to_oracle=True), tmp_path / "run")


# Metrics over groups


def test_the_worst_group_selects(monkeypatch, tmp_path):
    groups = torch.stack([torch.arange(len(SPLIT)) % 4 < 2, torch.arange(len(SPLIT)) % 3 < 2], dim=1)
    register(monkeypatch, groups=groups, group_names=("urban", "rural"))
    results = train(config(metric="accuracy_group_worst", selector="id_val"), tmp_path / "run")
    figures = results.selection.metrics["id_val"]
    assert figures["accuracy_group_worst"] <= figures["accuracy_group_mean"]
    worst = score(tmp_path / "run", "accuracy_group_worst", split="id_val")
    assert results.selection.step == worst.idxmax()
    assert "accuracy_group_worst" in results_text(results, tmp_path)


def without(*names: str) -> np.ndarray:
    return np.where(np.isin(SPLIT, names), "train", SPLIT)


REFUSED = {
    "no unlabelled": (
        {"split": without("unlabelled")},
        "entropy",
        {},
        "entropy, but split 'unlabelled' has no samples",
    ),
    "no id_val": ({"split": without("id_val")}, "corrected_confidence", {}, "but split 'id_val' has no samples"),
    "no ood_test": ({"split": without("ood_test")}, "oracle", {}, "oracle, but split 'ood_test' has no samples"),
    "numbers": ({"kind": "regression"}, "infomax", {}, "training.selector infomax needs probabilities"),
    "no groups": (
        {},
        "id_val",
        {"metric": "accuracy_group_worst"},
        "accuracy_group_worst needs groups, which the data",
    ),
    "no metric": ({}, "id_val", {"metric": "r2"}, "_group_mean or _group_worst, got 'r2'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_selector_that_cannot_work_is_refused_before_anything_is_written(case, monkeypatch, tmp_path):
    changes, name, more, words = REFUSED[case]
    register(monkeypatch, **changes)
    with pytest.raises(ConfigError, match=words):
        train(config(selector=name, consent_to_oracle=True, **more), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_matches_are_sought_in_train_where_nothing_is_held_out(monkeypatch, tmp_path):
    register(monkeypatch, split=without("id_val"))
    results = train(config(selector="match_quality", selection_samples=5), tmp_path / "run")
    assert 0 <= results.selection.metrics["unlabelled"]["match_quality"] <= 1


def test_settings_are_checked():
    with pytest.raises(ValueError, match=r"selection_samples must be a whole number from 1 to .*, got 0"):
        TrainingSettings(steps=1, selection_samples=0)
