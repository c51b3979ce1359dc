"""What Okapi does beyond the paper, by default, against a literal transcription, over sixty steps in float64."""

import copy
import math

import numpy as np
import pytest
import torch
from tests.matching.oracle import brute_force
from torch import nn
from torch.nn.functional import cross_entropy, normalize, one_hot

from okapi.algorithms import Okapi
from okapi.algorithms.okapi import OkapiSettings
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


def frequent(values, wanted, found):
    scaled = values * (wanted / found)
    return scaled / scaled.sum(1, keepdim=True)


def sizes(encoding, member):
    """Expectation maximisation, three rounds: a round cluster per class, sharpness 8."""
    for _ in range(3):
        centres = [sum(m[c] * z for m, z in zip(member, encoding, strict=True)) / member[:, c].sum() for c in range(3)]
        apart = torch.stack([torch.stack([((z - c) ** 2).sum() for c in centres]) for z in encoding])
        width = (member * apart).sum() / len(member)
        member = torch.softmax(torch.log(member.mean(0)) - 8 * apart / width, dim=1)
    return member.mean(0)


def from_centres(queries, keys, query_domain, key_domain):
    everything, domain = torch.cat([queries, keys]), torch.cat([query_domain, key_domain])
    centres = []
    for d in (0, 1):
        own = everything[domain == d]
        centres.append((own.sum(0) + 10 * everything.mean(0)) / (len(own) + 10))
    unit = normalize(everything - torch.stack(centres)[domain], dim=1)
    return unit[: len(queries)], unit[len(queries) :]


def test_the_same_losses_and_parameters():
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, WIDTH))
    encoder.out_features = WIDTH
    model = Network(encoder, nn.Linear(WIDTH, CLASSES)).double()
    settings = OkapiSettings(k=2, bank=BANK, momentum=0.5, confidence=0.6, warm_up=0.2)
    algorithm = Okapi(copy.deepcopy(model), Task("classification", CLASSES), settings, steps=STEPS)
    optimiser = torch.optim.AdamW(algorithm.parameter_groups(RATE), weight_decay=0.0)
    network, slow = copy.deepcopy(model), copy.deepcopy(model)
    theirs = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=0.0)
    bank, wrong, taught, matched, trusts = [], [], 0.0, 0.0, []  # the bank: encoding, domain, outcome, said
    for step in range(STEPS):
        labelled, label, weak, strong = draw(step)
        ids = torch.arange(BATCH)
        batch = Batch(
            Samples(inputs=labelled, domain=ids * 0, id=ids, target=label),
            Samples(inputs=weak, domain=ids * 0 + 1, id=ids, strong=strong),
        )
        loss, figures = algorithm.training_step(batch, step)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

        x, domain = torch.cat([labelled, weak]), torch.arange(2 * BATCH) // BATCH
        with torch.no_grad():
            for old, new in zip(slow.parameters(), network.parameters(), strict=True):
                old.copy_(0.5 * old + 0.5 * new)
            encoded = slow.encoder(x)
            said = slow.head(encoded).softmax(1)
            encoded = normalize(encoded, dim=1)
            truth = one_hot(label, CLASSES).double()
            past = [row for row in bank if row[1] == 1]
            asked = torch.stack([*encoded[BATCH:], *(row[0] for row in past)])
            guesses = torch.stack([*said[BATCH:], *(row[3] for row in past)])
            labels = torch.stack([*truth, *(row[2] for row in bank if row[1] == 0)]).mean(0)
            found = guesses.mean(0)
            wanted = torch.sqrt(labels * sizes(asked, frequent(guesses, labels, found)))
            aligned = frequent(said[BATCH:], wanted, found)
        outcome = torch.cat([truth, aligned])
        keys = torch.stack([*encoded, *(row[0] for row in bank)])
        key_domain = torch.cat([domain, torch.tensor([row[1] for row in bank], dtype=torch.long)])
        key_outcome = torch.stack([*outcome, *(row[2] for row in bank)])
        searched = from_centres(encoded, keys, domain, key_domain)
        spread = (outcome.var(0).sum() + key_outcome.var(0).sum()) / 2
        matches = brute_force(
            *(part.numpy() for part in searched),
            query_domain=domain.numpy(),
            key_domain=key_domain.numpy(),
            k=2,
            query_outcome=outcome.numpy(),
            key_outcome=key_outcome.numpy(),
            outcome_caliper=math.sqrt(spread) / 3,
        )
        wrong.append((said[:BATCH].argmax(1) != label).double().mean().item())
        error = np.average(wrong, weights=0.9 ** np.arange(len(wrong))[::-1])
        trusts.append(min(1.0, 0.1 / max(error, 1e-9)) ** 2)
        weight = min(1.0, step / (0.2 * STEPS)) * trusts[-1]
        encoding = network.encoder(x)
        prediction = network.head(encoding)
        pairs = [((normalize(encoding[q], dim=0) - keys[key]) ** 2).sum() for q, near, _ in matches for key in near]
        pulled = torch.stack(pairs).sum() / (2 * len(x)) if pairs else torch.zeros(())
        confidence, pseudo = aligned.max(1)
        lessons = cross_entropy(network.head(network.encoder(strong)), pseudo, reduction="none")
        lesson = (lessons * (confidence >= 0.6)).mean()
        total = cross_entropy(prediction[:BATCH], label) + weight * (2 * pulled + lesson)
        theirs.zero_grad()
        total.backward()
        theirs.step()
        assert (loss - figures["propensity_loss"]).item() == pytest.approx(total.item(), rel=1e-6), step
        rows = list(zip(encoded, domain.tolist(), outcome, said, strict=True))
        bank = (bank + rows)[-BANK:]
        taught += (confidence >= 0.6).double().mean().item()
        matched += len(matches) / len(x)
    for ours, other in zip(algorithm.network.parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(ours, other, rtol=1e-5, atol=1e-7)
    assert 0 < taught < STEPS
    assert 0 < matched < STEPS
    assert min(trusts) < 0.5 < max(trusts)
