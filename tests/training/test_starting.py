"""Runs that start from the weights of another: what they start with, what they record, what is refused."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.training.small_data import ROWS, register

from okapi.config import ConfigError, make_config
from okapi.runs import Run, Started
from okapi.runs.checkpoints import read_checkpoint
from okapi.runs.weights_file import sha256
from okapi.training import estimate, resume, train
from okapi.training.setup import build_parts

OKAPI = {
    "name": "okapi",
    "bank": 20,
    "matching": {"k": 1, "fixed_caliper": None, "std_caliper": None},
    "domain": "label",
}
NAMES = ("ant", "bee", "cat")


def config(start_from=None, algorithm=OKAPI, hidden=(4,), **training):
    settings = {"steps": 3, "labelled_batch": 4, "unlabelled_batch": 4, "validate_every": 1, "checkpoint_every": 2}
    return make_config(
        {
            "data": {"name": "small"},
            "model": {"name": "mlp", "hidden": list(hidden), "out_features": 3},
            "algorithm": algorithm,
            "training": {**settings, "learning_rate": 0.01, "accelerator": "cpu", "start_from": start_from, **training},
        }
    )


@pytest.fixture
def erm(monkeypatch, tmp_path):
    """A finished ERM run."""
    register(monkeypatch, class_names=NAMES)
    train(config(algorithm={"name": "erm"}), tmp_path / "erm")
    return tmp_path / "erm"


def test_network_and_momentum_encoder_start_from_the_weights_and_results_say_so(erm, tmp_path, monkeypatch):
    replaced = []
    monkeypatch.setattr("okapi.training.setup.untrained", lambda settings: replaced.append(settings) or settings)
    chosen, weights = config(str(erm)), load_file(erm / "model.safetensors")
    algorithm = build_parts(chosen).algorithm
    assert len(replaced) == 1  # pretrained weights, which would be replaced, are not asked for
    state = algorithm.state_dict()
    for name, tensor in weights.items():
        assert torch.equal(state[f"network.{name}"], tensor)
    averaged = {key.partition("average.module.")[2]: key for key in state if "average.module." in key}
    assert len(averaged) >= sum(name.startswith("encoder.") for name in weights)
    for name, key in averaged.items():
        known = weights.get(f"encoder.{name}", weights.get(f"head.{name}"))
        assert torch.equal(state[key], known), key
    results = train(chosen, tmp_path / "run")
    before = json.loads((erm / "results.json").read_text())
    assert results.started_from == Started(
        path=str(erm),
        sha256=sha256((erm / "model.safetensors").read_bytes()),
        step=before["selection"]["step"],
        algorithm="erm",
    )
    assert Run(tmp_path / "run").results() == results
    assert before["started_from"] is None


def test_a_resumed_run_needs_the_other_no_longer(erm, tmp_path, monkeypatch):
    chosen, run = config(str(erm)), tmp_path / "run"
    expected = train(chosen, tmp_path / "undisturbed")
    with monkeypatch.context() as patch:
        patch.setattr("okapi.training.trainer.Trainer.train_step", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            train(chosen, run)  # before its first step
    shutil.rmtree(erm)
    assert resume(run) == expected
    first, second = (
        read_checkpoint(path / "checkpoints" / "step-00000003").state for path in (run, tmp_path / "undisturbed")
    )
    for name, tensor in first["learner"]["algorithm"].items():
        assert torch.equal(tensor, second["learner"]["algorithm"][name]), name


def test_the_data_may_differ_but_not_its_classes(erm, tmp_path, monkeypatch):
    register(monkeypatch, class_names=NAMES, inputs=torch.randn(ROWS, 5), domain_names=("here", "there", "elsewhere"))
    train(config(str(erm)), tmp_path / "run")
    register(monkeypatch, class_names=("ant", "cat", "bee"))
    with pytest.raises(ConfigError, match=r"same classes: \S*erm has 'ant', 'bee', 'cat', the data has 'ant', 'cat', "):
        build_parts(config(str(erm)))
    register(monkeypatch, "regression")
    with pytest.raises(ConfigError, match=r"same network: \S*erm has 3 numbers, the data has 1$"):
        build_parts(config(str(erm)))


def test_another_network_is_refused_with_what_differs(erm):
    words = (
        r"same network: \S*erm has encoder\S*weight \(4, 5\) then, \(6, 5\) now; model\.hidden: \[4\] then, \[6\] now$"
    )
    with pytest.raises(ConfigError, match=words):
        build_parts(config(str(erm), hidden=(6,)))


def test_a_run_that_cannot_serve_is_refused_by_name_and_nothing_is_written(erm, tmp_path):
    key = "training.start_from must be the directory of a finished run: "
    unfinished, edited = (shutil.copytree(erm, tmp_path / name) for name in ("unfinished", "edited"))
    (unfinished / "results.json").unlink()
    save_file({"a": torch.zeros(1)}, edited / "model.safetensors")
    (tmp_path / "empty").mkdir()
    for name, words in (
        ("none", "none does not exist"),
        ("empty", "empty holds no run: it has no config.yaml"),
        ("unfinished", "unfinished has no results.json: the run is not finished; resume it by"),
        ("edited", "model.safetensors was edited since"),
    ):
        for begin in (lambda chosen: train(chosen, tmp_path / "run"), estimate):
            with pytest.raises(ConfigError, match=f"{key}.*{words}"):
                begin(config(str(tmp_path / name)))
    assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match=r"^algorithm\.erm_run must be the directory of a finished run: none does"):
        train(config(algorithm={"name": "offline_okapi", "erm_run": "none"}), tmp_path / "run")
