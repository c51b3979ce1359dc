"""Predictions that stand in for labels: what they are, their alignment, their loss, and the gate before it."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from okapi.data.task import Task
from okapi.nn.pseudo_labels import (
    ErrorGate,
    align,
    class_frequencies,
    cluster_sizes,
    known_outcome,
    likeliest_prior,
    predicted_outcome,
    prior_by_confusion,
    pseudo_label_loss,
)


def test_predictions_are_probabilities_or_the_numbers_themselves():
    logits = torch.tensor([[0.0, 1.0], [2.0, -1.0]])
    by_hand = logits.exp() / logits.exp().sum(1, keepdim=True)
    torch.testing.assert_close(predicted_outcome(logits, "classification"), by_hand)
    torch.testing.assert_close(predicted_outcome(logits, "multilabel"), 1 / (1 + (-logits).exp()))
    assert predicted_outcome(logits, "regression") is logits


def test_targets_are_rows_as_wide_as_a_prediction():
    classes = known_outcome(Task("classification", 3), torch.tensor([2, 0]))
    assert classes.tolist() == [[0, 0, 1], [1, 0, 0]]
    assert known_outcome(Task("regression"), torch.tensor([0.5, 3.0])).tolist() == [[0.5], [3.0]]
    labels = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    assert torch.equal(known_outcome(Task("multilabel", 2), labels), labels)


@given(st.integers(2, 30), st.integers(2, 5), st.integers(0, 99))
def test_classes_that_are_predicted_as_often_as_they_should_be_stay_and_others_move_towards_it(n, classes, seed):
    generator = torch.Generator().manual_seed(seed)
    prediction = torch.randn(n, classes, generator=generator, dtype=torch.float64).softmax(1)
    p_model = prediction.mean(0)
    torch.testing.assert_close(align(prediction, p_model, p_model), prediction)
    p_target = torch.rand(classes, generator=generator, dtype=torch.float64).softmax(0)
    aligned = align(prediction, p_target, p_model)
    torch.testing.assert_close(aligned.sum(1), torch.ones(n, dtype=torch.float64))
    # The odds of two classes change by the same factor in every sample.
    torch.testing.assert_close(
        aligned / aligned[:, :1], prediction / prediction[:, :1] * (p_target / p_model) / (p_target / p_model)[0]
    )
    alike = p_model.expand(n, -1)
    torch.testing.assert_close(align(alike, p_target, p_model), p_target.expand(n, -1))


def clustered(counts: list[int], seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return encodings that lie close about as many directions as there are counts, and the direction of each."""
    draw = torch.Generator().manual_seed(seed)
    of = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    return torch.eye(8)[of] + 0.1 * torch.randn(len(of), 8, generator=draw) + 3, of  # and all share an offset


@given(st.lists(st.integers(10, 200), min_size=3, max_size=5), st.integers(0, 99))
def test_clusters_are_as_large_as_they_are_whatever_the_predictions_share(counts, seed):
    """Half of what is predicted is the sample's cluster, half one and the same class."""
    encoding, of = clustered(counts, seed)
    prediction = 0.5 * torch.eye(len(counts))[of] + 0.5 * torch.eye(len(counts))[0]
    share = torch.tensor(counts) / sum(counts)
    torch.testing.assert_close(cluster_sizes(encoding, prediction), share, atol=0.05, rtol=0)
    order = torch.randperm(len(counts))
    torch.testing.assert_close(cluster_sizes(encoding, prediction[:, order]), share[order], atol=0.05, rtol=0)


def test_a_rare_class_stays_rare_as_far_as_clusters_have_a_say():
    """Labels are even, unlabelled samples have a class of 5 %, and predictions are right but for their scale."""
    encoding, of = clustered([95, 5])
    prediction = 0.8 * torch.eye(2)[of] + 0.1
    outcome = torch.cat([torch.eye(2)[torch.arange(20) % 2], prediction])
    known = torch.arange(120) < 20
    everything = torch.cat([torch.randn(20, 8), encoding])

    def frequencies(clusters, cut=50):
        return class_frequencies(outcome, known, (everything[:cut], everything[cut:]), clusters)

    even, p_model = torch.tensor([0.5, 0.5]), prediction.mean(0)
    sizes = cluster_sizes(encoding, align(prediction, even, p_model))
    for clusters, expected in ((0.0, even), (1.0, sizes), (0.5, (even * sizes).sqrt())):
        for cut in (0, 50, 120):  # how samples are split in two makes no difference
            prior, predicted = frequencies(clusters, cut)
            torch.testing.assert_close(prior, expected)
            torch.testing.assert_close(predicted, p_model)

    def rare(clusters):
        return align(prediction, *frequencies(clusters))[:, 1].mean()

    assert rare(1.0) < 0.1 < rare(0.5) < rare(0.0)


def test_classes_that_are_confident_are_pseudo_labels():
    outcome = torch.tensor([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8]])
    prediction = torch.randn(3, 2, generator=torch.Generator().manual_seed(0))
    loss, rate = pseudo_label_loss(Task("classification", 2), outcome, prediction, 0.8)
    expected = cross_entropy(prediction[[0, 2]], torch.tensor([0, 1]), reduction="sum") / 3
    assert loss.item() == pytest.approx(expected.item())
    assert rate.item() == pytest.approx(2 / 3)
    assert pseudo_label_loss(Task("classification", 2), outcome, prediction, 0.95)[0] == 0


def test_each_label_is_a_pseudo_label_of_its_own_and_in_a_regression_all_samples_count():
    outcome = torch.tensor([[0.9, 0.4], [0.5, 0.05]])
    prediction = torch.randn(2, 2, generator=torch.Generator().manual_seed(0))
    loss, rate = pseudo_label_loss(Task("multilabel", 2), outcome, prediction, 0.8)
    both = prediction[0, 0], prediction[1, 1]
    expected = sum(binary_cross_entropy_with_logits(*pair) for pair in zip(both, torch.tensor([1.0, 0.0]), strict=True))
    assert loss.item() == pytest.approx(expected.item() / 4)
    assert rate.item() == 0.5
    loss, rate = pseudo_label_loss(Task("regression"), outcome[:, :1], prediction[:, :1], 0.8)
    assert loss.item() == pytest.approx((outcome - prediction)[:, 0].square().mean().item())
    assert rate.item() == 1


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=8), st.floats(0.05, 1))
def test_the_error_gate_closes_with_the_error_of_the_newest_batches(batches, gate):
    """A batch has so many labels that are predicted right and wrong; one without labels changes nothing."""
    error_gate, errors = ErrorGate(gate), []
    assert error_gate().item() == pytest.approx(1)
    for right, wrong in batches:
        prediction = torch.eye(2)[[0] * right + [1] * wrong].reshape(-1, 2) * 0.6 + 0.2
        error_gate.update(prediction, torch.zeros(right + wrong, dtype=torch.int64))
        if right + wrong:
            errors.append(wrong / (right + wrong))
    error = np.average(errors, weights=0.9 ** np.arange(len(errors))[::-1]) if errors else 0
    assert error_gate().item() == pytest.approx(1 if error <= gate else (gate / error) ** 2, rel=1e-4)


def test_the_error_goes_through_a_checkpoint():
    gate, copy = ErrorGate(0.5), ErrorGate(0.5)
    gate.update(torch.eye(2), torch.tensor([1, 0]))
    copy.load_state_dict(gate.state_dict())
    assert copy() == gate() == 0.25


# Label shift


def drawn(prior, count, seed=0):
    """Return exact probabilities under even frequencies, and classes, of samples of overlapping normal classes."""
    generator = torch.Generator().manual_seed(seed)
    prior = torch.tensor(prior, dtype=torch.float64)
    target = torch.multinomial(prior, count, replacement=True, generator=generator)
    x = 2 * torch.eye(len(prior), dtype=torch.float64)[target]
    x += torch.randn(x.shape, generator=generator, dtype=torch.float64)
    return (2 * x).softmax(1), target


@pytest.mark.parametrize("prior", [(0.34, 0.33, 0.33), (0.7, 0.2, 0.1), (0.05, 0.05, 0.9), (0.5, 0.5, 0.0)])
def test_priors_of_shifted_labels_are_found(prior):
    even = torch.full((3,), 1 / 3, dtype=torch.float64)
    prediction, target = drawn(prior, 8000)
    held_out = drawn(even.tolist(), 8000, seed=1)
    frequency = torch.bincount(target, minlength=3) / 8000
    by_likelihood, by_confusion = likeliest_prior(prediction, even), prior_by_confusion(prediction, *held_out)
    for found in (by_likelihood, by_confusion):
        assert (found - frequency).abs().max() < 0.03
        assert found.sum().item() == pytest.approx(1)
        assert found.min() >= 0
    assert (prediction.mean(0) - frequency).abs().max() > 0.03 or max(prior) < 0.4  # which counting is not


def test_a_prior_by_confusion_needs_no_calibration():
    prediction, target = drawn((0.7, 0.2, 0.1), 8000)
    held_out, classes = drawn((0.3, 0.3, 0.4), 8000, seed=1)
    found = prior_by_confusion((prediction**3).softmax(1), (held_out**3).softmax(1), classes)
    assert (found - torch.bincount(target, minlength=3) / 8000).abs().max() < 0.04


def test_priors_where_a_class_is_missing_or_there_is_one():
    sure = torch.eye(3)[torch.tensor([0, 0, 1, 1])]
    for found in (likeliest_prior(sure, torch.ones(3) / 3), prior_by_confusion(sure, sure, torch.tensor([0, 0, 1, 1]))):
        torch.testing.assert_close(found, torch.tensor([0.5, 0.5, 0.0]))
    assert likeliest_prior(torch.ones(4, 1), torch.ones(1)).tolist() == [1]
