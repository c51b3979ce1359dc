"""The examples run, learn and match."""

import importlib.util
import warnings
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name):
    specification = importlib.util.spec_from_file_location(f"examples_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def other_peoples_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Lightning and transformers, about themselves
        yield


def test_a_plain_loop(capsys):
    history = load("plain_loop").main(steps=120)
    assert sum(history["loss"][-10:]) < sum(history["loss"][:10]) / 2
    assert max(history["match_rate"]) > 0.5
    assert history["accuracy"][0] > 0.4  # guessing: 0.1
    assert "accuracy at the unlabelled site" in capsys.readouterr().out


def test_okapi_plus_in_a_loop(capsys):
    history = load("okapi_plus_loop").main(steps=120)
    assert sum(history["supervised_loss"][-10:]) < sum(history["supervised_loss"][:10]) / 2
    assert max(history["match_rate"]) > 0.5
    assert max(history["pseudo_label_rate"]) > 0.2
    assert history["accuracy"][0] > 0.4  # guessing: 0.1
    assert "accuracy at the unlabelled site" in capsys.readouterr().out


def test_lightnings_trainer_keeps_the_state_in_its_checkpoint(tmp_path):
    lightning = pytest.importorskip("lightning")
    assert lightning
    module = load("lightning_trainer")
    model, accuracy = module.main(steps=120, folder=str(tmp_path))
    assert accuracy > 0.4
    assert int(model.consistency.step) == 120
    assert len(model.consistency.encodings) == 1024
    (checkpoint,) = tmp_path.rglob("*.ckpt")
    again = module.Classifier.load_from_checkpoint(checkpoint, steps=120)
    assert int(again.consistency.step) == 120
    assert again.consistency.encodings.rows().equal(model.consistency.encodings.rows())


def test_transformers_trainer(tmp_path):
    pytest.importorskip("accelerate")
    trainer, accuracy = load("transformers_trainer").main(steps=60, folder=str(tmp_path))
    model = trainer.model
    assert accuracy > 0.2
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert float(losses[-1]) < float(losses[0])
    assert int(model.consistency.step) == 60
    momentum = {id(parameter) for parameter in model.consistency.momentum.parameters()}
    optimised = {id(parameter) for group in trainer.optimizer.param_groups for parameter in group["params"]}
    assert not momentum & optimised
    assert {id(parameter) for parameter in model.consistency.scorer.parameters()} <= optimised
