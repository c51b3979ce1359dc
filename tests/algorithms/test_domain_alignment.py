"""CORAL's penalty and DANN's gradients against independent computations."""

import itertools

import numpy as np
import pytest
import torch
from tests.algorithms.test_contract import DOMAINS, SIZE, TASKS, make, toy
from torch.nn.functional import cross_entropy

from okapi.algorithms.coral import coral_penalty
from okapi.data.batches import join


def penalty_by_pairs(encoding: np.ndarray, groups: list[np.ndarray]) -> float:
    """Return CORAL's penalty as WILDS defines it: the mean over pairs of domains."""
    parts = [encoding[rows] for rows in groups if len(rows) > 1]
    found = []
    for one, two in itertools.combinations(parts, 2):
        means = (one.mean(0) - two.mean(0)) ** 2
        covariances = (np.cov(one, rowvar=False) - np.cov(two, rowvar=False)) ** 2
        found.append(means.mean() + covariances.mean())
    return float(np.mean(found))


@pytest.mark.parametrize("multi_label", [False, True])
def test_the_penalty_of_coral_is_the_mean_over_pairs_of_domains(multi_label):
    rng = np.random.default_rng(0)
    encoding = rng.normal(size=(40, 6)) * rng.uniform(0.5, 2, size=(40, 1))
    if multi_label:
        domain = rng.random((40, 4)) < 0.4
        groups = [np.flatnonzero(column) for column in domain.T]
    else:
        domain = np.append(rng.integers(4, size=39), 5)  # domain 4 has no sample, 5 has one: both are left out
        groups = [np.flatnonzero(domain == number) for number in range(6)]
    found = coral_penalty(torch.from_numpy(encoding), torch.from_numpy(domain))
    assert found.item() == pytest.approx(penalty_by_pairs(encoding, groups), rel=1e-10)


def test_alike_domains_and_a_single_one_have_no_penalty():
    encoding = torch.randn(10, 3, generator=torch.Generator().manual_seed(0))
    twice = torch.cat([encoding, encoding])
    assert coral_penalty(twice, torch.arange(20) // 10).item() == pytest.approx(0, abs=1e-12)
    assert coral_penalty(encoding, torch.zeros(10, dtype=torch.int64)) == 0
    assert coral_penalty(encoding, torch.arange(10)) == 0


def test_coral_adds_its_penalty_to_the_supervised_loss():
    task = TASKS["classification"]
    batch, algorithm = toy(task), make("coral", task, weight=3.0)
    loss, metrics = algorithm.training_step(batch, 0)
    output = algorithm.network(join([batch.labelled.inputs, batch.unlabelled.inputs]))
    supervised = cross_entropy(output.prediction[:SIZE], batch.labelled.target)
    domain = torch.cat([batch.labelled.domain, batch.unlabelled.domain]).numpy()
    penalty = penalty_by_pairs(
        output.encoding.detach().double().numpy(), [np.flatnonzero(domain == number) for number in range(DOMAINS)]
    )
    assert loss.item() == pytest.approx(supervised.item() + 3 * penalty, rel=1e-4)
    assert metrics["coral_penalty"].item() == pytest.approx(penalty, rel=1e-4)


def test_danns_encoder_climbs_where_its_discriminator_descends():
    task, weight = TASKS["classification"], 0.5
    batch, algorithm = toy(task, dtype=torch.float64), make("dann", task, dtype=torch.float64, weight=weight)
    loss, metrics = algorithm.training_step(batch, 0)
    loss.backward()
    found = {name: parameter.grad.clone() for name, parameter in algorithm.named_parameters()}
    output = algorithm.network(join([batch.labelled.inputs, batch.unlabelled.inputs]))
    domain = torch.cat([batch.labelled.domain, batch.unlabelled.domain])
    supervised = cross_entropy(output.prediction[:SIZE], batch.labelled.target)
    adversarial = cross_entropy(algorithm.discriminator(output.encoding), domain)
    assert loss.item() == pytest.approx((supervised + weight * adversarial).item())
    assert metrics["domain_loss"].item() == pytest.approx(adversarial.item())
    names, parameters = zip(*algorithm.named_parameters(), strict=True)
    of_supervised, of_adversarial = (
        torch.autograd.grad(part, parameters, retain_graph=True, allow_unused=True, materialize_grads=True)
        for part in (supervised, adversarial)
    )
    for name, one, two in zip(names, of_supervised, of_adversarial, strict=True):
        sign = 1 if name.startswith("discriminator") else -1
        torch.testing.assert_close(found[name], one + sign * weight * two)
