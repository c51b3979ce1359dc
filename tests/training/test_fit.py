"""Trouble in the middle of a run, and data that no file describes: sets of domains, regression, several labels."""

import json
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytest
import torch
from tests.training.small_data import register_data

from okapi.config import ConfigError, make_config
from okapi.data.batches import Inputs
from okapi.data.dataset import Dataset
from okapi.data.task import Task
from okapi.runs import Run, Selection
from okapi.runs.checkpoints import read_newest
from okapi.training import NotFiniteError, RunError, Trainer, resume, train
from okapi.training.devices import make_fabric
from okapi.training.setup import build_batches, build_parts

SPLIT = np.repeat(["train", "unlabelled", "id_val", "ood_val"], 12)


@dataclass(frozen=True, kw_only=True)
class OwnSettings:
    name: Literal["own"] = "own"


@pytest.fixture
def own_data(monkeypatch):
    """Return what registers a data set under the name ``own``; changes replace its parts."""

    def register(**changes: Any) -> None:
        rng = torch.Generator().manual_seed(0)
        target = torch.arange(48) % 2
        parts = {
            "inputs": torch.randn(48, 5, generator=rng) + target[:, None],
            "target": target,
            "domain": (SPLIT == "unlabelled").astype(np.int64),
            "split": SPLIT,
            "task": Task("classification", 2),
            "domain_names": ("rome", "oslo"),
            **changes,
        }
        parts["domain"] = torch.as_tensor(parts["domain"])
        register_data(monkeypatch, OwnSettings, Dataset(**parts))

    return register


def config(algorithm: dict[str, Any] | None = None, **training: Any):
    settings = {"steps": 6, "labelled_batch": 4, "unlabelled_batch": 4, "validate_every": 3, "checkpoint_every": 2}
    return make_config(
        {
            "data": {"name": "own"},
            "model": {"name": "mlp", "hidden": [4], "out_features": 3},
            "algorithm": algorithm or {"name": "erm"},
            "training": {**settings, "log_every": 2, "accelerator": "cpu", **training},
        }
    )


OKAPI = {
    "name": "okapi",
    "bank": 20,
    "matching": {"k": 1, "fixed_caliper": None, "std_caliper": 5.0},
    "domain": "label",
}
KINDS = {
    "regression": (Task("regression", 1), torch.linspace(-1, 1, 48), "pearson_r"),
    "several numbers": (Task("regression", 2), torch.linspace(-1, 1, 96).reshape(48, 2), "pearson_r"),
    "labels": (Task("multilabel", 3), (torch.arange(144).reshape(48, 3) % 5 < 2).float(), "macro_f1"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sets", [False, True], ids=["domains", "sets of domains"])
def test_all_tasks_train(kind, sets, own_data, tmp_path):
    task, target, metric = KINDS[kind]
    domain = torch.from_numpy(np.stack([SPLIT == "train", SPLIT == "unlabelled"], 1)) if sets else None
    own_data(task=task, target=target, **({"domain": domain} if sets else {}))
    results = train(config(OKAPI), tmp_path / "run")
    assert results.selection.metric == metric
    assert (tmp_path / "run" / "model.safetensors").exists()


@pytest.mark.parametrize("sampling", ["class_balanced", "domain_balanced", "class_balanced_in_expectation", "uniform"])
def test_batches_are_balanced_if_wanted(sampling, own_data):
    target = torch.tensor([0] * 9 + [1] * 3 + [0] * 36)
    own_data(target=target, domain=np.tile([0, 0, 1], 16))
    chosen = config(OKAPI, sampling=sampling, unlabelled_sampling="domain_balanced")
    batches = build_batches(chosen, build_parts(chosen), None)
    classes = torch.cat([batches[step].labelled.target for step in range(60)]).reshape(60, 4).sum(1)
    domains = torch.cat([batches[step].labelled.domain for step in range(60)]).reshape(60, 4).sum(1)
    assert all(batches[step].unlabelled.domain.sum() == 2 for step in range(5))
    assert (classes == 2).all() == (sampling == "class_balanced")
    assert (domains == 2).all() == (sampling == "domain_balanced")
    assert (classes.float().mean() > 1.5) == sampling.startswith("class")  # of four; uniform: one


def test_balancing_needs_classes_and_single_domains(own_data, tmp_path):
    task, target, _ = KINDS["regression"]
    own_data(task=task, target=target)
    with pytest.raises(ConfigError, match=r"training.sampling class_balanced needs classes, the task is regression"):
        train(config(sampling="class_balanced"), tmp_path / "run")
    own_data(domain=torch.ones(48, 2, dtype=torch.bool))
    with pytest.raises(ConfigError, match=r"training.sampling domain_balanced needs one domain a sample"):
        train(config(sampling="domain_balanced"), tmp_path / "run")


class Pictures:
    """Pictures in files, one of which has another size, found out when it is read."""

    def __len__(self) -> int:
        return 48

    def __getitem__(self, row: int) -> Inputs:
        return torch.zeros(1, 4, 5 if row == 7 else 4)


@pytest.mark.parametrize("workers", [0, 1])
def test_pictures_of_mixed_sizes_stop_the_run_by_name(own_data, tmp_path, workers):
    own_data(inputs=Pictures())
    with pytest.raises(RunError, match=r"the batch of step \d cannot be made: .*sample '7' is \(1, 4, 5\)") as caught:
        train(config(workers=workers), tmp_path / "run")
    assert "\n" not in str(caught.value)


def test_a_network_that_cannot_take_the_data_is_refused(own_data, tmp_path):
    own_data(inputs={"input_ids": torch.zeros(48, 5)})
    with pytest.raises(ValueError, match="model 'mlp' takes tensors"):
        train(config(), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_domain_that_the_scorer_never_saw_is_refused(own_data, tmp_path):
    own_data(domain=np.arange(48) % 3)
    with pytest.raises(ValueError, match="domain of row 2 must be from 0 to 1, got 2"):
        train(config(OKAPI), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_infinite_numbers_stop_a_run_at_the_step_they_come(own_data, tmp_path):
    inputs = torch.randn(48, 5)
    inputs[:12] = torch.where(torch.arange(12)[:, None] == 5, torch.inf, inputs[:12])
    own_data(inputs=inputs)
    with pytest.raises(NotFiniteError, match=r"step \d: loss is nan; .*; the samples of the batch are .*\b5\b"):
        train(config(), tmp_path / "train")
    inputs[:12] = 0
    inputs[30] = torch.nan
    own_data(inputs=inputs)
    with pytest.raises(NotFiniteError, match="sample 30 of id_val is not finite after step 3; the last good"):
        train(config(), tmp_path / "validation")
    assert read_newest(tmp_path / "validation" / "checkpoints")[0].step == 2


def test_weights_that_are_not_finite_are_never_a_checkpoint(own_data, tmp_path):
    own_data()
    settings = config(selector="last", validate_every=100, log_every=100, checkpoint_every=1)
    parts, fabric, folder = build_parts(settings), make_fabric(settings), Run(tmp_path / "run")
    parts.algorithm.register_parameter("unused", torch.nn.Parameter(torch.tensor(torch.inf)))  # no loss shows it
    fabric.launch()
    folder.create(settings, parts.dataset)
    with pytest.raises(NotFiniteError, match="weights are not finite after step 1; there is no checkpoint before it"):
        Trainer(settings, parts, fabric, folder).fit()
    assert list(tmp_path.rglob("state.pt")) == []


def test_a_checkpoint_holds_tensors_and_not_the_memory_around_them(own_data, tmp_path):
    own_data()
    train(config(OKAPI), tmp_path / "run")
    state = read_newest(tmp_path / "run" / "checkpoints")[0].state["learner"]["algorithm"]
    assert "consistency.encodings.slots" in state
    assert all(tensor.untyped_storage().nbytes() == tensor.nbytes for tensor in state.values())


def test_a_figure_that_is_undefined_is_null_in_results_json(own_data, tmp_path):
    """As is the correlation with targets that are all the same; the first weights are kept then."""
    target = torch.where(torch.from_numpy(SPLIT == "ood_val"), 1.0, torch.linspace(-1, 1, 48))
    own_data(task=Task("regression", 1), target=target)
    train(config(), tmp_path / "run")

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    results = json.loads((tmp_path / "run" / "results.json").read_text(), parse_constant=refuse)
    assert results["selection"]["metrics"]["ood_val"]["pearson_r"] is None
    assert results["selection"]["step"] == 3


def test_a_run_without_validation_splits_keeps_the_last_weights(own_data, tmp_path):
    own_data(split=np.where(SPLIT == "unlabelled", "unlabelled", "train"))
    results = train(config(selector="last"), tmp_path / "run")
    assert results.selection == Selection(selector="last", metric="accuracy", higher_is_better=True, step=6, metrics={})


def test_a_metric_over_domains_selects(own_data, tmp_path):
    own_data(domain=np.arange(48) % 2)
    results = train(config(metric="macro_f1_domain_worst", selector="id_val"), tmp_path / "run")
    metrics = results.selection.metrics["id_val"]
    assert metrics["macro_f1_domain_worst"] <= metrics["macro_f1_domain_mean"]


@pytest.mark.parametrize("content", [None, "step,split\n", "step,split,metric,value\n2,train,loss,0\n" * 500])
def test_a_log_that_was_removed_or_edited_is_written_anew_from_the_checkpoint(content, own_data, tmp_path):
    own_data()
    run = tmp_path / "run"
    train(config(), run)
    whole = (run / "metrics.csv").read_text()
    (run / "results.json").unlink()
    (run / "metrics.csv").unlink() if content is None else (run / "metrics.csv").write_text(content)
    (run / "timings.csv").unlink()
    resume(run)
    assert (run / "metrics.csv").read_text() == whole
    assert (run / "timings.csv").read_text() == "step,seconds,images_per_second,seconds_waiting_for_data\n"


def test_another_environment_is_told(own_data, tmp_path, capsys):
    own_data()
    run = tmp_path / "run"
    train(config(), run)
    (run / "results.json").unlink()
    environment = json.loads((run / "environment.json").read_text())
    (run / "environment.json").write_text(json.dumps({**environment, "torch": "1.0"}))
    resume(run)
    assert "the environment has changed" in capsys.readouterr().err


def test_learning_rates_warm_up_and_fall(own_data, tmp_path):
    own_data()
    run = tmp_path / "run"
    settings = config(OKAPI | {"scorer": {"learning_rate": 0.5}}, steps=10, warm_up=0.2, log_every=1, learning_rate=0.1)
    train(settings, run)
    log = [line.split(",") for line in (run / "metrics.csv").read_text().splitlines()]
    rates = [float(row[3]) for row in log if row[2] == "learning_rate"]
    assert rates[:3] == pytest.approx([0.05, 0.1, 0.1])
    assert rates == sorted(rates[:2]) + sorted(rates[2:], reverse=True)
    state = read_newest(run / "checkpoints")[0].state["learner"]["optimiser"]["param_groups"]
    assert [group["lr"] for group in state] == pytest.approx([rates[-1], 5 * rates[-1]])
