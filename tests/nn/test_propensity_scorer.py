"""The scorer against sums over samples, and against scikit-learn's logistic regression."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from okapi.nn import PropensityScorer


def by_hand(logits, domain, domains):
    """Return the mean over samples of w(s) * -log p(s), one sample at a time."""
    total, present = 0.0, len(set(domain))
    for row, s in zip(logits, domain, strict=True):
        row = np.array([0.0, row]) if domains == 2 else np.asarray(row)
        weight = len(domain) / (present * domain.count(s))
        total += weight * (np.log(np.exp(row).sum()) - row[s])
    return total / len(domain)


@given(domain=st.lists(st.integers(0, 3), min_size=1, max_size=20), seed=st.integers(0, 99))
def test_the_loss_of_many_domains_some_of_them_absent(domain, seed):
    logits = torch.randn(len(domain), 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    loss = PropensityScorer(3, domains=4).loss(logits, torch.tensor(domain))
    assert loss.item() == pytest.approx(by_hand(logits.tolist(), domain, 4))


@given(domain=st.lists(st.integers(0, 1), min_size=1, max_size=20), seed=st.integers(0, 99))
def test_the_loss_of_two_domains(domain, seed):
    logits = torch.randn(len(domain), dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    loss = PropensityScorer(3).loss(logits, torch.tensor(domain))
    assert loss.item() == pytest.approx(by_hand(logits.tolist(), domain, 2))


def test_the_loss_of_multi_label_domains_is_the_mean_of_a_balanced_loss_per_label():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(30, 3, dtype=torch.float64, generator=generator)
    labels = torch.rand(30, 3, generator=generator) < torch.tensor([0.2, 0.5, 1.1])  # everybody has the last one
    loss = PropensityScorer(3, domains=3, multi_label=True).loss(logits, labels)
    expected = [by_hand(logits[:, s].tolist(), labels[:, s].long().tolist(), 2) for s in range(3)]
    assert loss.item() == pytest.approx(np.mean(expected))


def test_trained_to_the_end_it_is_a_balanced_logistic_regression():
    rng = np.random.default_rng(0)
    domain = (rng.random(300) < 0.2).astype(int)
    x = rng.normal(size=(300, 2)) + domain[:, None]
    scorer = PropensityScorer(2).double()
    optimiser = torch.optim.LBFGS(scorer.parameters(), max_iter=200, tolerance_grad=1e-10)

    def closure():
        optimiser.zero_grad()
        loss = scorer.loss(scorer(torch.from_numpy(x)), torch.from_numpy(domain))
        loss.backward()
        return loss

    optimiser.step(closure)
    expected = LogisticRegression(C=1e10, class_weight="balanced", tol=1e-10, max_iter=1000).fit(x, domain)
    score = scorer.scores(scorer(torch.from_numpy(x))).numpy()
    np.testing.assert_allclose(score, expected.predict_proba(x)[:, 1], atol=1e-4)


def test_temperature_divides_the_logits_of_the_scores_only():
    scorer, warm = PropensityScorer(2, domains=3), PropensityScorer(2, domains=3, temperature=2.0)
    logits = torch.tensor([[2.0, 0.0, -2.0]])
    torch.testing.assert_close(warm.scores(logits), scorer.scores(logits / 2))
    torch.testing.assert_close(warm.loss(logits, torch.tensor([1])), scorer.loss(logits, torch.tensor([1])))


def test_encodings_get_no_gradient_and_logits_are_not_changed():
    scorer = PropensityScorer(2)
    x = torch.randn(6, 2, requires_grad=True)
    logits = scorer(x)
    before = logits.detach().clone()
    scorer.scores(logits)
    loss = scorer.loss(logits, torch.tensor([0, 1] * 3))
    loss.backward()
    assert x.grad is None
    assert torch.equal(before, logits)
    assert scorer.linear.weight.grad.abs().sum() > 0


def test_accuracy_is_averaged_over_domains_present():
    scorer = PropensityScorer(1, domains=3)
    logits = torch.eye(3)[torch.tensor([0, 0, 0, 0, 0])]
    assert scorer.accuracy(logits, torch.tensor([0, 0, 0, 0, 2])).item() == 0.5


def test_autocast_does_not_round_the_scores():
    scorer = PropensityScorer(16)
    x = torch.randn(8, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = scorer(x)
    assert torch.equal(inside, scorer(x))


def test_bad_input():
    with pytest.raises(ValueError, match=r"domain must be between 0 and 2, got \[3, 7\]"):
        PropensityScorer(2, domains=3).loss(torch.zeros(4, 3), torch.tensor([0, 3, 7, 1]))
    with pytest.raises(ValueError, match="domain must be booleans of shape"):
        PropensityScorer(2, domains=3, multi_label=True).loss(torch.zeros(4, 3), torch.tensor([0, 1, 1, 1]))
    with pytest.raises(ValueError, match="domains must be at least 2, got 1"):
        PropensityScorer(2, domains=1)
    with pytest.raises(ValueError, match="temperature must be a positive number, got 0"):
        PropensityScorer(2, temperature=0)
    with pytest.raises(ValueError, match="temperature must be a positive number, got 'auto'"):
        PropensityScorer(2, temperature="auto")
