"""Fifty steps of Okapi against a literal, slow transcription of the method, in float64."""

import copy
from dataclasses import replace

import pytest
import torch
from tests.algorithms.transcription import Transcription
from torch import nn

from okapi.algorithms import Okapi, supervised_loss
from okapi.algorithms.okapi import OkapiSettings
from okapi.data.batches import Batch, Samples
from okapi.data.task import Task
from okapi.models.network import Network

STEPS, BATCH, WIDTH = 50, 4, 5
SETTINGS = OkapiSettings.paper(
    k=2, fixed_caliper=0.9, std_caliper=0.5, bank=19, momentum=0.9, scorer_learning_rate=0.1, weight=2.0
)
NO_CALIPERS = {"fixed_caliper": None, "std_caliper": None}
CASES = {  # what is set otherwise, domains, whether they are sets, task
    "two pools": ({}, 2, False, "classification"),
    "regression": ({}, 2, False, "regression"),
    "multi-label": ({}, 2, False, "multilabel"),
    "many domains": ({"domain": "label", "std_caliper": 1.5, "k": 1}, 4, False, "classification"),
    "sets of labels": ({"domain": "label", "std_caliper": 2.0, "k": 1}, 3, True, "classification"),
    "online queries": ({"queries": "online"}, 2, False, "classification"),
    "one direction": ({"direction": (0, 1), "k": 3}, 2, False, "classification"),
    "no calipers": ({"fixed_caliper": None, "std_caliper": None, "k": 7}, 2, False, "regression"),
    "no std": ({"std_caliper": None}, 2, False, "classification"),
    "no fixed, logit scale": ({"fixed_caliper": None, "caliper_scale": "logit"}, 2, False, "regression"),
    "bank smaller than the batch": ({"bank": 5}, 2, False, "classification"),
    "outcomes": ({**NO_CALIPERS, "outcome_caliper": 0.9}, 2, False, "classification"),
    "outcomes that are numbers": ({**NO_CALIPERS, "outcome_caliper": 0.6}, 2, False, "regression"),
    "outcomes that are labels": ({**NO_CALIPERS, "outcome_caliper": 0.9, "k": 1}, 2, False, "multilabel"),
    "outcomes beside other calipers": (
        {"outcome_caliper": 0.9, "std_caliper": 1.0, "k": 1},
        2,
        False,
        "classification",
    ),
    "outcomes and many domains": (
        {"domain": "label", "std_caliper": None, "outcome_caliper": 0.8, "k": 1},
        4,
        False,
        "classification",
    ),
}


def network(outputs):
    encoder = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, WIDTH))
    encoder.out_features = WIDTH
    return Network(encoder, nn.Linear(WIDTH, outputs)).double()


def draw(step, task, domains, sets):
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(2 * BATCH, 4, dtype=torch.float64, generator=generator)
    x[BATCH:] += 0.7
    if task.kind == "classification":
        target = torch.randint(task.outputs, (BATCH,), generator=generator)
    elif task.kind == "regression":
        target = torch.randn(BATCH, dtype=torch.float64, generator=generator)
    else:
        target = torch.randint(2, (BATCH, task.outputs), generator=generator).double()
    shape = (2 * BATCH, domains) if sets else (2 * BATCH,)
    domain = (
        torch.rand(shape, generator=generator) < 0.4 if sets else torch.randint(domains, shape, generator=generator)
    )
    return x, target, domain


@pytest.mark.parametrize("case", CASES)
def test_the_same_losses_and_parameters_over_fifty_steps(case):
    otherwise, domains, sets, kind = CASES[case]
    settings = replace(SETTINGS, **otherwise)
    torch.manual_seed(0)
    task = Task(kind, 1 if kind == "regression" else 3)
    model = network(task.outputs)
    algorithm = Okapi(copy.deepcopy(model), task, settings, steps=STEPS, domains=domains, sets=sets)
    slow = Transcription(
        copy.deepcopy(model),
        copy.deepcopy(algorithm.consistency.scorer.linear),
        settings=settings,
        steps=STEPS,
        domains=domains,
        sets=sets,
        supervised_loss=lambda prediction, target: supervised_loss(task, prediction, target),
        learning_rate=0.01,
        kind=kind,
    )
    optimiser = torch.optim.AdamW(algorithm.parameter_groups(0.01), weight_decay=0.0)
    matched = 0.0
    for step in range(STEPS):
        x, target, label = draw(step, task, domains, sets)
        domain = label if settings.domain == "label" else (torch.arange(2 * BATCH) >= BATCH).long()
        batch = Batch(
            Samples(inputs=x[:BATCH], domain=label[:BATCH], id=torch.arange(BATCH), target=target),
            Samples(inputs=x[BATCH:], domain=label[BATCH:], id=torch.arange(BATCH)),
        )
        loss, figures = algorithm.training_step(batch, step)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        supervised, consistency, scorer_loss, rate = slow.step(step, x[:BATCH], target, x[BATCH:], domain)
        assert figures["supervised_loss"].item() == pytest.approx(supervised, abs=1e-9), step
        assert figures["propensity_loss"].item() == pytest.approx(scorer_loss, abs=1e-9), step
        assert figures["match_rate"].item() == pytest.approx(rate), step
        assert loss.item() == pytest.approx(supervised + consistency + scorer_loss, abs=1e-9), step
        matched += rate
    for ours, theirs in (
        (algorithm.network, slow.network),
        (algorithm.consistency.momentum.average.module, slow.momentum),
    ):
        for name, value in theirs.state_dict().items():
            torch.testing.assert_close(ours.state_dict()[name], value, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(algorithm.consistency.encodings.rows(), torch.stack([row[0] for row in slow.bank]))
    assert 0 < matched <= STEPS
