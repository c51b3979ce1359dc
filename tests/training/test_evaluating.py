"""A finished run is evaluated: figures, records and refusals."""

import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.training.runs import held
from tests.training.small_data import EACH, SPLIT, TARGETS, Recorded, config, register

from okapi import __version__
from okapi.data.task import Task
from okapi.evaluation import evaluate
from okapi.models import build
from okapi.report.run_records import gather
from okapi.runs.results import Openings
from okapi.training import NotFiniteError, resume, train
from okapi.training.evaluating import Evaluator, evaluate_run


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """Return the folder of a run that hardly learns: of equal figures the first is selected, not the last."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    with pytest.MonkeyPatch.context() as patch:
        register(patch)
        train(config(selector="id_val", metric="accuracy", learning_rate=1e-6), folder)
    assert results(folder)["selection"]["step"] == 1
    return folder


@pytest.fixture
def run(finished, monkeypatch, tmp_path) -> Path:
    """Return a copy of that run, whose data is there."""
    register(monkeypatch)
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def results(run: Path) -> dict[str, Any]:
    return json.loads((run / "results.json").read_text())


def change(run: Path, **changes: Any) -> None:
    """Edit results.json by hand; None removes."""
    content = {**results(run), **changes}
    (run / "results.json").write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


# What comes out


def test_figures_are_those_of_the_selected_weights_on_every_sample_once(run, monkeypatch):
    data = register(monkeypatch)
    inputs = Recorded(data.inputs)
    register(monkeypatch, inputs=inputs)
    (found,) = evaluate_run(run, ["ood_test"])
    assert sorted(row for row in inputs.read if SPLIT[row] == "ood_test") == data.rows("ood_test").tolist()
    network = build(config().model, data.sample(0), data.task).eval()
    network.load_state_dict(load_file(run / "model.safetensors"))
    rows = data.rows("ood_test")
    with torch.no_grad():
        prediction = network(data.inputs[rows]).prediction
    expected = evaluate(data.task, prediction, data.target[rows], data.domain[rows], data.domain_names)
    assert found.metrics == pytest.approx(expected)
    assert found.domains["name"].tolist() == ["bern"]  # the others have no sample: absent
    assert found.groups is None
    assert found.record.metrics == found.metrics
    table = pd.read_parquet(run / "predictions-ood_test.parquet")
    assert table.id.tolist() == [data.ids[row] for row in rows.tolist()]
    assert set(table.domain) == {"bern"}
    assert table.target.tolist() == data.target[rows].tolist()
    assert table.prediction.tolist() == prediction.argmax(1).tolist()
    probability = table[["probability_0", "probability_1", "probability_2"]].to_numpy()
    assert probability == pytest.approx(prediction.softmax(1).numpy(), abs=1e-6)
    about = json.loads(pq.read_schema(run / "predictions-ood_test.parquet").metadata[b"okapi"])
    assert about["sha256"] == results(run)["weights"]["sha256"]
    assert about["split"] == "ood_test"


@pytest.mark.parametrize("kind", TARGETS)
def test_all_tasks_with_sets_of_domains_and_groups(kind, monkeypatch, tmp_path):
    sets = torch.stack([torch.arange(len(SPLIT)) % 2 == 0, torch.arange(len(SPLIT)) % 3 == 0], dim=1)
    changes = {"domain": sets, "domain_names": ("a", "b"), "groups": ~sets, "group_names": ("not a", "not b")}
    data = register(monkeypatch, kind, **changes)
    train(config(), tmp_path / "run")
    (found,) = evaluate_run(tmp_path / "run", ["id_test"])
    assert found.groups is not None
    rows = data.rows("id_test")
    assert found.domains.set_index("name").n.to_dict() == dict(zip("ab", sets[rows].sum(0).tolist(), strict=True))
    assert found.metrics[f"{found.metric}_group_worst"] <= found.metrics[f"{found.metric}_group_mean"]
    record = results(tmp_path / "run")["evaluations"][0]
    assert [row["name"] for row in record["groups"]] == ["not a", "not b"]
    table = pd.read_parquet(tmp_path / "run" / "predictions-id_test.parquet")
    assert list(table.domain[0]) == [name for name, member in zip("ab", sets[rows[0]], strict=True) if member]
    several = kind in ("several numbers", "multilabel")
    assert ("target_1" in table) == ("prediction_1" in table) == several
    assert ("probability_1" in table) == (kind in ("classification", "multilabel"))


def test_gaps_between_domains_of_two_classes(monkeypatch, tmp_path):
    target = torch.arange(len(SPLIT)) % 2
    domain = torch.arange(len(SPLIT)) // 2 % 3
    register(monkeypatch, target=target, task=Task("classification", 2), domain=domain)
    train(config(selector="last"), tmp_path / "run")
    (found,) = evaluate_run(tmp_path / "run", ["ood_test"])
    table = pd.read_parquet(tmp_path / "run" / "predictions-ood_test.parquet")
    rates = table.groupby("domain").prediction.mean()
    assert found.metrics["demographic_parity_gap"] == pytest.approx(rates.max() - rates.min())
    rates = table[table.target == 1].groupby("domain").prediction.mean()
    assert found.metrics["equal_opportunity_gap"] == pytest.approx(rates.max() - rates.min())


def test_a_class_that_is_never_predicted_is_told(monkeypatch, tmp_path):
    register(monkeypatch, class_names=("cat", "dog", "owl"))
    train(config(selector="last", steps=1, learning_rate=1e-9, final_learning_rate=0), tmp_path / "run")
    (found,) = evaluate_run(tmp_path / "run", ["id_val"])
    predicted = set(pd.read_parquet(tmp_path / "run" / "predictions-id_val.parquet").prediction)
    missing = [name for number, name in enumerate(("cat", "dog", "owl")) if number not in predicted]
    assert missing
    assert (
        f"{len(missing)} classes that id_val has are never predicted, their F1 is 0: {missing[0]!r}" in found.notes[0]
    )


# What is recorded


def test_openings_are_counted_and_other_weights_are_told(run):
    before = results(run)
    assert before["evaluations"] == []
    first, second = (evaluate_run(run, ["ood_test"])[0] for _ in range(2))
    assert first.record.opened == Openings(times=1, weights=1)
    assert not [note for note in first.notes if "opened" in note]
    assert "ood_test has been opened 2 times, always with these weights" in second.notes
    (last,) = evaluate_run(run, ["ood_test"], which="last")
    assert "ood_test has been opened 3 times, with 2 different weights: " in " ".join(last.notes)
    evaluate_run(run, ["ood_val", "id_test"])
    after = results(run)
    changed = {key for key in before if after[key] != before[key]}
    assert changed == {"evaluations", "opened"}
    hashes = [before["weights"]["sha256"], last.record.weights.sha256]
    assert hashes[0] != hashes[1]
    assert after["opened"] == {
        "ood_test": {"times": 3, "sha256": hashes},
        "id_test": {"times": 1, "sha256": hashes[:1]},
    }
    assert [entry["split"] for entry in after["evaluations"]] == 3 * ["ood_test"] + ["ood_val", "id_test"]
    entry = after["evaluations"][2]
    assert entry["selector"] == "last"
    assert entry["weights"] == {"which": "last", "step": 6, "sha256": hashes[1]}
    assert after["evaluations"][0]["selector"] == "id_val"
    assert after["evaluations"][0]["weights"]["step"] == before["selection"]["step"]
    assert entry["okapi"] == __version__
    assert entry["n"] == EACH
    assert {"predictions-ood_test.parquet", "predictions-ood_test-last.parquet"} <= {
        path.name for path in run.iterdir()
    }


def test_an_oracle_s_openings_count(monkeypatch, tmp_path):
    register(monkeypatch)
    train(config(selector="oracle", consent_to_oracle=True, steps=3), tmp_path / "run")
    (found,) = evaluate_run(tmp_path / "run", ["ood_test"])
    assert found.record.selector == "oracle"
    assert found.record.opened == Openings(times=4, weights=1)
    assert "an oracle selected these weights" in found.notes[0]
    assert found.metrics == pytest.approx(results(tmp_path / "run")["selection"]["metrics"]["oracle"])


def test_the_last_weights_of_a_run_that_kept_the_last_are_the_selected(monkeypatch, tmp_path):
    register(monkeypatch)
    train(config(selector="last"), tmp_path / "run")
    selected, last = (evaluate_run(tmp_path / "run", ["ood_test"], which=which)[0] for which in ("selected", "last"))
    assert selected.record.weights.sha256 == last.record.weights.sha256
    assert last.record.opened == Openings(times=2, weights=1)


def test_where_the_data_is_may_differ_and_is_recorded(run):
    evaluate_run(run, ["ood_val"], overrides=[("training.evaluation_batch", "5")])
    assert results(run)["evaluations"][0]["overrides"] == {"training.evaluation_batch": "5"}
    with pytest.raises(ValueError, match=r"--seed cannot differ from what .* trained with; data.root, .* can"):
        Evaluator(run, overrides=[("seed", "5")])


# What is refused


def test_predictions_that_are_not_finite_name_samples_and_are_no_opening(run, monkeypatch):
    data = register(monkeypatch)
    data.inputs[data.rows("ood_test")[:7]] = torch.nan
    before = (run / "results.json").read_bytes()
    words = r"samples sample 60, sample 61, .*, sample 64 and 2 more of ood_test are not finite, with the weights of"
    with pytest.raises(NotFiniteError, match=words):
        evaluate_run(run, ["ood_test"])
    assert (run / "results.json").read_bytes() == before
    assert not (run / "predictions-ood_test.parquet").exists()
    evaluate_run(run, ["id_test"])


def test_splits_that_cannot_be_evaluated(run):
    there = r"train \(12 samples\), id_val \(12 samples\), ood_val .*, id_test \(12 samples, sealed\), ood_test"
    for splits, words in (
        ([], rf"--split is missing; there are {there}"),
        (["unlabelled"], rf"--split must be one of {there}.*, got 'unlabelled'"),
        (["test"], "got 'test'"),
    ):
        with pytest.raises(ValueError, match=words):
            evaluate_run(run, splits)


def test_folders_that_hold_no_finished_run(run, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    for name, words in (("none", "none does not exist"), ("file", "is no folder"), ("empty", "holds no run")):
        with pytest.raises(ValueError, match=words):
            Evaluator(tmp_path / name)
    (run / "results.json").unlink()
    with pytest.raises(ValueError, match=r"not finished; resume it by: okapi train --resume .*run\. Until then"):
        Evaluator(run)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"okapi": "0.1"', r"results\.json is no JSON"),
        ("[1]", r"must hold an object, it holds a list"),
        ('{"format": 2}', "steps, stopped_early, selection, weights, seed, splits, config is missing or wrong"),
        ('{"format": 2, "opened": 3}', "opened is missing or wrong"),
        ('{"format": 1, "okapi": "0.1"}', r"is of format 1, written by okapi 0\.1; this is okapi"),
        ('{"format": 3, "okapi": "9.0"}', r"is of format 3, written by okapi 9\.0; this is okapi"),
        ('{"format": "new"}', "is of format new"),
        ("\xff", r"results\.json is no JSON"),
    ],
)
def test_results_that_cannot_be_understood(content, words, run):
    (run / "results.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(ValueError, match=words):
        Evaluator(run)


def test_a_run_of_another_version_is_taken_with_a_note_if_its_config_can_be_read(run):
    del (content := results(run)["config"])["training"]["selection_samples"]  # as before there was such a key
    change(run, okapi="0.0.1", config=content)
    (found,) = evaluate_run(run, ["ood_val"])
    assert "was trained by okapi 0.0.1, this is" in found.notes[0]
    config = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(config.replace("dropout:", "drop_path:"))
    with pytest.raises(ValueError, match=r"drop_path is no key of the config.*; the run is of okapi 0\.0\.1"):
        Evaluator(run)


def test_a_run_of_an_older_format_is_rejected_in_one_sentence(run):
    (run / "classes.json").unlink()
    for read in (Evaluator, resume, lambda path: gather([path])):
        with pytest.raises(ValueError, match=r"no classes\.json: it was written by an older okapi, in format 1; okapi"):
            read(run)


def test_what_was_edited_by_hand_is_refused_unless_forced(run):
    weights = load_file(run / "model.safetensors")
    weights["head.bias"] += 1
    shutil.copy(run / "model.safetensors", run / "kept")
    save_file(weights, run / "model.safetensors")
    with pytest.raises(
        ValueError, match=r"is not what the run selected: its SHA-256 begins with \w{12}, that of results"
    ):
        evaluate_run(run, ["ood_test"])
    (found,) = evaluate_run(run, ["ood_test"], force=True)
    assert found.record.edited
    assert "is not what the run selected" in found.notes[0]
    shutil.copy(run / "kept", run / "model.safetensors")
    config = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(config.replace("metric: accuracy", "metric: macro_f1"))
    with pytest.raises(
        ValueError, match=r"config.yaml was edited after the run: training.metric: 'accuracy' then, 'macro_f1' now"
    ):
        Evaluator(run)
    assert "was edited after" in Evaluator(run, force=True).run.notes[0]
    (run / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="somebody removed it"):
        Evaluator(run, force=True)


def test_weights_that_are_torn_or_of_another_network(run):
    model, content = run / "model.safetensors", (run / "model.safetensors").read_bytes()
    model.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="is not what the run selected"):
        Evaluator(run)
    with pytest.raises(ValueError, match=r"model\.safetensors cannot be read"):
        Evaluator(run, force=True)
    model.write_bytes(content)
    for name in ("config.yaml", "results.json"):
        (run / name).write_text((run / name).read_text().replace("out_features: 4", "out_features: 5"))
    change(run, config={**(said := results(run)["config"]), "model": {**said["model"], "out_features": 5}})
    with pytest.raises(ValueError, match=r"the weights of .* do not fit the network of its config: .*size mismatch"):
        Evaluator(run)
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(ValueError, match="of the last weights nothing is left"):
        Evaluator(run, which="last")


def test_nobody_else_may_write_meanwhile(run):
    with held(run / ".lock"), pytest.raises(ValueError, match="is being trained, or evaluated, by another process"):
        evaluate_run(run, ["ood_val"])
    assert results(run)["evaluations"] == []
    evaluate_run(run, ["ood_val"])
