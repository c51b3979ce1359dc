"""Okapi+ by its defaults against a literal transcription, over sixty steps in float64."""

import copy
import math

import numpy as np
import pytest
import torch
from tests.algorithms.transcription import aligned, class_prior_and_frequencies, from_centres
from tests.matching.oracle import brute_force
from torch import nn
from torch.nn.functional import cross_entropy, normalize, one_hot

from okapi.algorithms import OkapiPlus
from okapi.config import MomentumSettings, OkapiPlusSettings, PrognosticMatchingSettings, PseudoLabelSettings
from okapi.data.batches import Batch, Samples
from okapi.data.task import Task
from okapi.models.network import Network

STEPS, BATCH, CLASSES, BANK = 60, 12, 3, 60
WIDTH, RATE = 6, 0.02


def draw(step):
    """Return inputs and classes of labelled samples, and weak and strong views of others, whose classes are skewed."""
    rng = np.random.default_rng(step)
    label = rng.integers(CLASSES, size=BATCH)
    hidden = rng.choice(CLASSES, BATCH, p=(0.6, 0.3, 0.1))
    centres = 2 * np.eye(CLASSES, 4)
    labelled = centres[label] + 0.5 * rng.standard_normal((BATCH, 4))
    weak = centres[hidden] + 0.5 * rng.standard_normal((BATCH, 4)) + 0.4
    strong = weak + 0.3 * rng.standard_normal((BATCH, 4))
    return tuple(torch.from_numpy(part) for part in (labelled, label, weak, strong))


def test_the_same_losses_and_parameters():
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, WIDTH))
    encoder.out_features = WIDTH
    model = Network(encoder, nn.Linear(WIDTH, CLASSES)).double()
    settings = OkapiPlusSettings(
        matching=PrognosticMatchingSettings(k=2),
        pseudo_labels=PseudoLabelSettings(confidence=0.6),
        momentum=MomentumSettings(start=0.5),
        bank=BANK,
        warm_up=0.2,
    )
    algorithm = OkapiPlus(copy.deepcopy(model), Task("classification", CLASSES), settings, steps=STEPS)
    optimiser = torch.optim.AdamW(algorithm.parameter_groups(RATE), weight_decay=0.0)
    network, slow = copy.deepcopy(model), copy.deepcopy(model)
    theirs = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=0.0)
    bank = []  # encoding, domain, label or prediction as it was made, whether it is a label
    wrong, gates, pseudo_labelled, matched = [], [], 0.0, 0.0
    for step in range(STEPS):
        labelled, label, weak, strong = draw(step)
        ids = torch.arange(BATCH)
        batch = Batch(
            Samples(inputs=labelled, domain=ids * 0, id=ids, target=label),
            Samples(inputs=weak, domain=ids * 0 + 1, id=ids, strong=strong),
        )
        loss, _ = algorithm.training_step(batch, step)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

        x, domain = torch.cat([labelled, weak]), torch.arange(2 * BATCH) // BATCH
        with torch.no_grad():
            for old, new in zip(slow.parameters(), network.parameters(), strict=True):
                old.copy_(0.5 * old + 0.5 * new)
            encoded = slow.encoder(x)
            predicted = slow.head(encoded).softmax(1)
            encoded = normalize(encoded, dim=1)
        new = list(
            zip(
                encoded,
                domain.tolist(),
                [*one_hot(label, CLASSES).double(), *predicted[BATCH:]],
                [True] * BATCH + [False] * BATCH,
                strict=True,
            )
        )
        rows = new + bank  # the keys, of which the first are the queries: all are aligned anew
        encodings, domains, outcomes, known = (
            [row[0] for row in rows],
            torch.tensor([row[1] for row in rows]),
            torch.stack([row[2] for row in rows]),
            torch.tensor([row[3] for row in rows]),
        )
        prior, frequencies = class_prior_and_frequencies(outcomes, known, encodings, 0.5)
        outcomes[~known] = aligned(outcomes[~known], prior, frequencies)
        outcome, key_prognosis, key_domain = outcomes[: len(new)], outcomes, domains
        keys = torch.stack(encodings)
        _, directions = from_centres(keys[:0], keys, key_domain[:0], key_domain)
        searched = directions[: len(new)], directions
        spread = (outcome.var(0).sum() + key_prognosis.var(0).sum()) / 2
        matches = brute_force(
            *(part.numpy() for part in searched),
            query_domain=domain.numpy(),
            key_domain=key_domain.numpy(),
            k=2,
            query_prognosis=outcome.numpy(),
            key_prognosis=key_prognosis.numpy(),
            prognostic_caliper=math.sqrt(spread) / 3,
        )
        wrong.append((predicted[:BATCH].argmax(1) != label).double().mean().item())
        error = np.average(wrong, weights=0.9 ** np.arange(len(wrong))[::-1])
        gates.append(min(1.0, 0.1 / max(error, 1e-9)) ** 2)
        weight = min(1.0, step / (0.2 * STEPS)) * gates[-1]
        encoding = network.encoder(x)
        prediction = network.head(encoding)
        pairs = [((normalize(encoding[q], dim=0) - keys[key]) ** 2).sum() for q, near, _ in matches for key in near]
        pulled = torch.stack(pairs).sum() / (2 * len(x)) if pairs else torch.zeros(())
        confidence, pseudo = outcome[BATCH:].max(1)
        losses = cross_entropy(network.head(network.encoder(strong)), pseudo, reduction="none")
        pseudo_label_loss = (losses * (confidence >= 0.6)).mean()
        total = cross_entropy(prediction[:BATCH], label) + weight * (2 * pulled + pseudo_label_loss)
        theirs.zero_grad()
        total.backward()
        theirs.step()
        assert loss.item() == pytest.approx(total.item(), rel=1e-6), step
        bank = (bank + new)[-BANK:]
        pseudo_labelled += (confidence >= 0.6).double().mean().item()
        matched += len(matches) / len(x)
    for ours, other in zip(algorithm.network.parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(ours, other, rtol=1e-5, atol=1e-7)
    assert 0 < pseudo_labelled < STEPS
    assert 0 < matched < STEPS
    assert min(gates) < 0.5 < max(gates)
