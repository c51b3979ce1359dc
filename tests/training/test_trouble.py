"""What goes wrong in a run, or with its files, and is reported, repaired or stopped; and what defaults do."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from tests.training.small_data import SPLIT, config, register

from okapi.runs import Run
from okapi.training import NotFiniteError, resume, train
from okapi.training.errors import DivergedError

STEPS = 8
OKAPI = {
    "name": "okapi",
    "bank": 20,
    "matching": {"k": 1, "fixed_caliper": None, "std_caliper": 1e-9},
    "domain": "label",
}


@pytest.fixture
def stopped(monkeypatch, tmp_path) -> tuple[Path, Path]:
    """Return the folder of a whole run and that of a copy that was stopped at step 6 of 8."""
    register(monkeypatch)
    train(config(steps=STEPS, selector="id_val"), tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "stopped")
    (tmp_path / "stopped" / "results.json").unlink()
    shutil.rmtree(tmp_path / "stopped" / "checkpoints" / "step-00000008")
    return tmp_path / "whole", tmp_path / "stopped"


def same(whole: Path, run: Path) -> bool:
    """Return whether two runs ended in the same weights, metrics and results."""
    names = ("model.safetensors", "metrics.csv", "results.json")
    return all((whole / name).read_bytes() == (run / name).read_bytes() for name in names)


@pytest.mark.parametrize("content", [None, b"", b"half", "other weights"])
def test_damaged_weights_are_restored_and_never_certified(content, stopped, capsys):
    whole, run = stopped
    file = run / "model.safetensors"
    if content is None:
        file.unlink()
    elif content == "other weights":
        file.write_bytes(file.read_bytes()[:-1] + b"\x01")
    else:
        file.write_bytes(content)
    resume(run)
    assert f"{file} is not as it was at step 6; it is restored from the checkpoint" in capsys.readouterr().err
    assert same(whole, run)
    assert load_file(file)


@pytest.mark.parametrize("content", [None, "", "{", "[1]", '{"run": "a"}', '{"run": "a", "threads": 0}'])
def test_an_environment_that_is_damaged_is_written_anew(content, stopped, capsys):
    whole, run = stopped
    file = run / "environment.json"
    threads = Run(run).environment()["threads"]
    file.unlink() if content is None else file.write_text(content)
    resume(run)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if str(file) in line]
    assert line.endswith("it is written anew")
    assert Run(run).environment()["threads"] == threads
    assert same(whole, run)


def test_a_run_computes_with_the_threads_that_it_began_with(stopped):
    _, run = stopped
    before = torch.get_num_threads()
    environment = json.loads((run / "environment.json").read_text())
    (run / "environment.json").write_text(json.dumps({**environment, "threads": before + 1}))
    try:
        resume(run)
        assert torch.get_num_threads() == before + 1
    finally:
        torch.set_num_threads(before)


def test_an_edited_log_is_reported(stopped, capsys):
    whole, run = stopped
    (run / "metrics.csv").write_text("step,split,metric,value\n2,train,loss,0\n")
    resume(run)
    assert f"{run / 'metrics.csv'} was removed or edited; it is begun anew" in capsys.readouterr().err
    assert same(whole, run)


def test_a_damaged_manifest_is_named_and_the_checkpoint_before_it_used(stopped, capsys):
    _, run = stopped
    manifest = run / "checkpoints" / "step-00000006" / "manifest.json"
    shutil.copytree(manifest.parent, run / "checkpoints" / "step-00000007")
    for number, size in ((7, -3), (6, "long")):
        if number == 6:
            shutil.copytree(run / "checkpoints" / "step-00000006", run / "checkpoints" / "step-00000005")
        file = run / "checkpoints" / f"step-0000000{number}" / "manifest.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "step": number, "size": size}))
    older = run / "checkpoints" / "step-00000005" / "manifest.json"
    older.write_text(json.dumps({**json.loads(older.read_text()), "step": 5}))
    resume(run)
    errors = capsys.readouterr().err
    assert "Rejected step-00000007: state.pt is torn" in errors
    assert "Rejected step-00000006: manifest.json lacks size" in errors
    assert "Resuming after step 5" in errors


# Losses and match rates


def test_a_loss_that_diverges_stops_the_run_and_says_so_again(monkeypatch, tmp_path):
    register(monkeypatch, "regression")
    run, words = tmp_path / "run", r"the loss diverges: it is \S+ by step (\d+) .* training\.learning_rate \(10\)"
    chosen = config(steps=40, learning_rate=10.0, validate_every=100, checkpoint_every=2)
    with pytest.raises(DivergedError, match=words) as first:
        train(chosen, run)
    assert not (run / "results.json").exists()
    with pytest.raises(DivergedError, match=words) as second:
        resume(run)
    assert str(second.value) == str(first.value)


def test_a_loss_that_is_not_finite_says_what_to_lower(monkeypatch, tmp_path):
    data = register(monkeypatch)
    register(monkeypatch, inputs=torch.full_like(data.inputs, torch.nan))
    words = r"step 1: loss is nan; lower training\.learning_rate \(0\.05\) in a new run; there is no checkpoint"
    with pytest.raises(NotFiniteError, match=words):
        train(config(), tmp_path / "run")
    with pytest.raises(NotFiniteError, match=words):
        resume(tmp_path / "run")


@pytest.mark.parametrize("resumed", [False, True])
def test_a_match_rate_near_zero_is_a_warning_and_a_note(resumed, monkeypatch, tmp_path, capsys):
    register(monkeypatch)
    run, chosen = tmp_path / "run", config(OKAPI, steps=20, checkpoint_every=1)
    results = train(chosen, run)
    if resumed:
        (run / "results.json").unlink()
        results = resume(run)
    (note,) = results.notes
    assert "match rate 0.00% over the first 2 steps" in note
    assert "Widen algorithm.matching.std_caliper (1e-09), or set it to null; okapi diagnose says whether" in note
    assert capsys.readouterr().err.count(f"Warning: {note}") == 1
    assert Run(run).results().notes == [note]


def test_matches_that_are_found_are_no_warning(monkeypatch, tmp_path):
    register(monkeypatch)
    wide = OKAPI | {"matching": {"k": 1, "fixed_caliper": None, "std_caliper": None}}
    assert train(config(wide, steps=20), tmp_path / "run").notes == []


# Defaults


BY_DEFAULT = [((), "ood_val"), (("ood_val",), "id_val"), (("ood_val", "id_val"), "last")]


@pytest.mark.parametrize(("without", "name"), BY_DEFAULT)
def test_weights_are_selected_by_what_validation_there_is(without, name, monkeypatch, tmp_path, capsys):
    register(monkeypatch, split=np.where(np.isin(SPLIT, without), "train", SPLIT))
    results = train(config(), tmp_path / "run")
    assert results.selection.selector == name
    assert f"Weights are selected by {name}: training.selector is not set" in capsys.readouterr().err
    resume_of = tmp_path / "again"
    train(Run(tmp_path / "run").config(), resume_of)
    assert (resume_of / "results.json").read_bytes() == (tmp_path / "run" / "results.json").read_bytes()


def test_a_batch_larger_than_its_pool_is_drawn_with_replacement(monkeypatch, tmp_path, capsys):
    register(monkeypatch)
    wide = OKAPI | {"matching": {"k": 1, "fixed_caliper": None, "std_caliper": None}}
    results = train(config(wide, labelled_batch=16, unlabelled_batch=30), tmp_path / "run")
    assert results.steps == 6
    lines = capsys.readouterr().err.splitlines()
    for key, size, split in (("labelled_batch", 16, "train"), ("unlabelled_batch", 30, "unlabelled")):
        words = f"training.{key} is {size} and split {split!r} has 12 samples: they are drawn with replacement"
        assert lines.count(words) == 1
    losses = pd.read_csv(tmp_path / "run" / "metrics.csv").query("metric == 'loss'")
    assert losses.value.notna().all()
