"""Fifty steps of Okapi, and of OkapiPlus matching by outcomes alone, against a slow transcription, in float64."""

import copy
from dataclasses import replace

import pytest
import torch
from tests.algorithms.transcription import Transcription
from torch import nn

from okapi.algorithms import Okapi, OkapiPlus, supervised_loss
from okapi.config import (
    PAPER,
    MomentumSettings,
    OkapiPlusSettings,
    PrognosticMatchingSettings,
    PseudoLabelSettings,
    ScorerSettings,
)
from okapi.data.batches import Batch, Samples
from okapi.data.task import Task
from okapi.models.network import Network

STEPS, BATCH, WIDTH = 50, 4, 5
COMMON = {
    "scorer": ScorerSettings(learning_rate=0.1),
    "momentum": MomentumSettings(start=0.9, end=1.0),
    "bank": 19,
    "weight": 2.0,
}


def paper(k=2, fixed_caliper=0.9, std_caliper=0.5, caliper_scale="probability", direction=None, **otherwise):
    calipers = {"fixed_caliper": fixed_caliper, "std_caliper": std_caliper, "caliper_scale": caliper_scale}
    matching = replace(PAPER.matching, k=k, direction=direction, **calipers)
    return replace(PAPER, matching=matching, **COMMON | otherwise)


def with_outcomes(prognostic_caliper, k=2, fixed_caliper=None, std_caliper=None, domain="binary"):
    calipers = {"fixed_caliper": fixed_caliper, "std_caliper": std_caliper, "prognostic_caliper": prognostic_caliper}
    matching = PrognosticMatchingSettings(k=k, centre=False, class_prior=None, **calipers)
    return OkapiPlusSettings(matching=matching, pseudo_labels=PseudoLabelSettings(weight=0.0), domain=domain, **COMMON)


CASES = {  # settings, domains, whether they are multi-label, task
    "two pools": (paper(), 2, False, "classification"),
    "two pools in one batch": (paper(batch_norm="joint"), 2, False, "classification"),
    "regression": (paper(), 2, False, "regression"),
    "multi-label": (paper(), 2, False, "multilabel"),
    "many domains": (paper(domain="label", std_caliper=1.5, k=1), 4, False, "classification"),
    "multi-label domains": (paper(domain="label", std_caliper=2.0, k=1), 3, True, "classification"),
    "online queries": (paper(queries="online"), 2, False, "classification"),
    "online queries in one batch": (paper(queries="online", batch_norm="joint"), 2, False, "classification"),
    "one direction": (paper(direction=(0, 1), k=3), 2, False, "classification"),
    "no calipers": (paper(fixed_caliper=None, std_caliper=None, k=7), 2, False, "regression"),
    "no std": (paper(std_caliper=None), 2, False, "classification"),
    "no fixed, logit scale": (paper(fixed_caliper=None, caliper_scale="logit"), 2, False, "regression"),
    "bank smaller than the batch": (paper(bank=5), 2, False, "classification"),
    "outcomes": (with_outcomes(0.9), 2, False, "classification"),
    "outcomes of regression": (with_outcomes(0.6), 2, False, "regression"),
    "outcomes of several labels": (with_outcomes(0.9, k=1), 2, False, "multilabel"),
    "outcomes beside other calipers": (
        with_outcomes(0.9, fixed_caliper=0.9, std_caliper=1.0, k=1),
        2,
        False,
        "classification",
    ),
    "outcomes and many domains": (
        with_outcomes(0.8, fixed_caliper=0.9, domain="label", k=1),
        4,
        False,
        "classification",
    ),
}


def network(outputs):
    encoder = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, WIDTH))
    encoder.out_features = WIDTH
    return Network(encoder, nn.Linear(WIDTH, outputs)).double()


def draw(step, task, domains, multi_label):
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(2 * BATCH, 4, dtype=torch.float64, generator=generator)
    x[BATCH:] += 0.7
    if task.kind == "classification":
        target = torch.randint(task.outputs, (BATCH,), generator=generator)
    elif task.kind == "regression":
        target = torch.randn(BATCH, dtype=torch.float64, generator=generator)
    else:
        target = torch.randint(2, (BATCH, task.outputs), generator=generator).double()
    shape = (2 * BATCH, domains) if multi_label else (2 * BATCH,)
    domain = (
        torch.rand(shape, generator=generator) < 0.4
        if multi_label
        else torch.randint(domains, shape, generator=generator)
    )
    return x, target, domain


@pytest.mark.parametrize("case", CASES)
def test_the_same_losses_and_parameters_over_fifty_steps(case):
    settings, domains, multi_label, kind = CASES[case]
    torch.manual_seed(0)
    task = Task(kind, 1 if kind == "regression" else 3)
    model = network(task.outputs)
    algorithm = (OkapiPlus if isinstance(settings, OkapiPlusSettings) else Okapi)(
        copy.deepcopy(model), task, settings, steps=STEPS, domains=domains, multi_label=multi_label
    )
    scorer = algorithm.consistency.scorer
    slow = Transcription(
        copy.deepcopy(model),
        None if scorer is None else copy.deepcopy(scorer.linear),
        settings=settings,
        steps=STEPS,
        domains=domains,
        multi_label=multi_label,
        supervised_loss=lambda prediction, target: supervised_loss(task, prediction, target),
        learning_rate=0.01,
        kind=kind,
    )
    optimiser = torch.optim.AdamW(algorithm.parameter_groups(0.01), weight_decay=0.0)
    matched = 0.0
    for step in range(STEPS):
        x, target, label = draw(step, task, domains, multi_label)
        domain = label if settings.domain == "label" else (torch.arange(2 * BATCH) >= BATCH).long()
        batch = Batch(
            Samples(inputs=x[:BATCH], domain=label[:BATCH], id=torch.arange(BATCH), target=target),
            Samples(inputs=x[BATCH:], domain=label[BATCH:], id=torch.arange(BATCH)),
        )
        loss, metrics = algorithm.training_step(batch, step)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        supervised, consistency, scorer_loss, rate = slow.step(step, x[:BATCH], target, x[BATCH:], domain)
        assert metrics["supervised_loss"].item() == pytest.approx(supervised, abs=1e-9), step
        assert ("propensity_loss" in metrics) == settings.matching.needs_propensity
        assert metrics.get("propensity_loss", torch.zeros(())).item() == pytest.approx(scorer_loss, abs=1e-9), step
        assert metrics["match_rate"].item() == pytest.approx(rate), step
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
