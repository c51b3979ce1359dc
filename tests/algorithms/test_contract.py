"""What every algorithm keeps to, for every task, precision and kind of domain."""

import contextlib

import pytest
import torch
from torch import nn

from okapi.algorithms import ALGORITHMS
from okapi.algorithms.cross_domain import CrossDomainAlgorithm
from okapi.config import MatchingSettings, MomentumSettings, PrognosticMatchingSettings
from okapi.data.batches import Batch, Samples
from okapi.data.task import Task
from okapi.models.network import Network

SIZE, DOMAINS = 12, 3
TASKS = {
    "classification": Task("classification", 3),
    "regression": Task("regression"),
    "multilabel": Task("multilabel", 4),
}
PRECISIONS = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.float32}
DOMAIN_MODES = ("binary", "label", "multi-label")
TOY_SETTINGS = {
    "fixmatch": {"threshold": 0.3},
    "offline_okapi": {"warm_up": 0.0},
    "okapi": {
        "matching": MatchingSettings(k=1, std_caliper=2.0),
        "bank": 30,
        "momentum": MomentumSettings(start=0.5),
        "warm_up": 0.0,
    },
    "okapi_plus": {
        "matching": PrognosticMatchingSettings(k=1, prognostic_caliper=1.0),
        "bank": 30,
        "momentum": MomentumSettings(start=0.5),
        "warm_up": 0.0,
    },
}


def make(name, task, mode="binary", dtype=torch.float32, **settings):
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8))
    encoder.out_features = 8
    network = Network(encoder, nn.Linear(8, task.outputs)).to(dtype)
    kind = ALGORITHMS[name]
    settings = TOY_SETTINGS.get(name, {}) | settings
    if mode != "binary" and "domain" in kind.Settings.__dataclass_fields__:
        settings = {"domain": "label"} | settings
    multi_label = mode == "multi-label"
    return kind(network, task, kind.Settings(**settings), steps=100, domains=DOMAINS, multi_label=multi_label)


def toy(task, mode="binary", dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(2 * SIZE, 6, generator=generator).to(dtype)
    if task.kind == "classification":
        target = x[:SIZE, : task.outputs].argmax(1)
    elif task.kind == "regression":
        target = x[:SIZE, 0] - x[:SIZE, 1]
    else:
        target = (x[:SIZE, : task.outputs] > 0).to(dtype)
    if mode == "multi-label":
        domain = torch.rand(2 * SIZE, DOMAINS, generator=generator) < 0.3
    else:
        domain = torch.arange(2 * SIZE) % DOMAINS
    strong = x + 0.3 * torch.randn(x.shape, generator=generator).to(dtype)
    matched = torch.arange(2 * SIZE) % 3 > 0
    match = x.flip(0)

    def part(rows, target=None):
        return Samples(
            inputs=x[rows],
            domain=domain[rows],
            id=torch.arange(2 * SIZE)[rows],
            target=target,
            strong=strong[rows],
            match=match[rows][matched[rows]],
            matched=matched[rows],
        )

    return Batch(part(slice(SIZE), target), part(slice(SIZE, None)))


@pytest.mark.parametrize("mode", DOMAIN_MODES)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("kind", TASKS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_three_steps_lower_the_loss_and_leave_the_momentum_encoder_alone(name, kind, precision, mode):
    task, dtype = TASKS[kind], PRECISIONS[precision]
    algorithm, batch = make(name, task, mode, dtype), toy(task, mode, dtype)
    optimiser = torch.optim.AdamW(algorithm.parameter_groups(0.01), weight_decay=0.0)
    in_optimiser = {id(parameter) for group in optimiser.param_groups for parameter in group["params"]}
    learnt = [parameter for parameter in algorithm.parameters() if parameter.requires_grad]
    assert in_optimiser == {id(parameter) for parameter in learnt}  # all that learn, and momentum weights do not
    low = torch.autocast("cpu", dtype=torch.bfloat16) if precision == "bfloat16" else contextlib.nullcontext()
    losses = []
    for step in range(4):
        with low:
            loss, metrics = algorithm.training_step(batch, step)
        losses.append(loss.item())
        assert all(metric.ndim == 0 and not metric.requires_grad and metric.isfinite() for metric in metrics.values())
        assert metrics["loss"].item() == loss.item()
        if step == 3:
            break  # three steps have been taken
        optimiser.zero_grad()
        loss.backward()
        assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in learnt)
        optimiser.step()
    assert losses[-1] < losses[0]
    if isinstance(algorithm, CrossDomainAlgorithm):
        momentum = list(algorithm.consistency.momentum.parameters())
        assert momentum
        assert all(parameter.grad is None for parameter in momentum)
        assert metrics["match_rate"] > 0


@pytest.mark.parametrize("kind", TASKS)
def test_okapi_plus_comes_to_match_and_to_pseudo_label(kind):
    task = TASKS[kind]
    algorithm, batch = make("okapi_plus", task, matching=PrognosticMatchingSettings(k=1)), toy(task)
    optimiser = torch.optim.AdamW(algorithm.parameter_groups(0.01), weight_decay=0.0)
    for step in range(60):
        optimiser.zero_grad()
        loss, metrics = algorithm.training_step(batch, step)
        loss.backward()
        optimiser.step()
    assert metrics["match_rate"] > 0.2
    assert metrics["consistency"] > 0
    if kind == "regression":
        assert "pseudo_label_rate" not in metrics
    else:
        assert metrics["pseudo_label_rate"] > 0


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_state_goes_through_a_checkpoint(name):
    task = TASKS["classification"]
    batch, one, two = toy(task), make(name, task), make(name, task)
    for step in range(3):
        one.training_step(batch, step)
    two.load_state_dict(one.state_dict())
    assert one.training_step(batch, 3)[0].item() == two.training_step(batch, 3)[0].item()
    assert all(torch.equal(a, two.state_dict()[key]) for key, a in one.state_dict().items())


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_network_is_called_through_its_wrapper_which_is_no_part_of_the_state(name):
    task, calls = TASKS["classification"], []
    algorithm = make(name, task)
    names = set(algorithm.state_dict())

    class Wrapper(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = algorithm.network

        def forward(self, inputs, *more):
            calls.append(len(inputs))
            return self.inner(inputs, *more)

    algorithm.call_through(Wrapper())
    algorithm.training_step(toy(task), 0)
    assert calls
    assert set(algorithm.state_dict()) == names


@pytest.mark.parametrize("name", ["fixmatch", "coral", "dann", "okapi", "okapi_plus", "offline_okapi"])
def test_a_batch_without_unlabelled_samples_is_rejected(name):
    task = TASKS["classification"]
    with pytest.raises(ValueError, match="unlabelled samples are missing in the batch"):
        make(name, task).training_step(Batch(toy(task).labelled), 0)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_bad_length_of_training(name):
    task = TASKS["classification"]
    with pytest.raises(ValueError, match="steps must be at least 1, got 0"):
        ALGORITHMS[name](make(name, task).network, task, steps=0)
