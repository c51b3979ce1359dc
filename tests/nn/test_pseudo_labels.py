"""Outcomes for the prognostic caliper: known or predicted, aligned, smoothed over neighbours."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from okapi.nn.outcome_bank import Outcome, OutcomeBank, as_frequent, cluster_sizes, predicted_outcome

NAN = torch.nan


def test_predictions_are_probabilities_or_the_numbers_themselves():
    logits = torch.tensor([[0.0, 1.0], [2.0, -1.0]])
    torch.testing.assert_close(predicted_outcome(logits, "classes"), logits.exp() / logits.exp().sum(1, keepdim=True))
    torch.testing.assert_close(predicted_outcome(logits, "labels"), 1 / (1 + (-logits).exp()))
    assert predicted_outcome(logits, "numbers") is logits


def test_what_is_known_stands_and_the_rest_is_predicted():
    bank = OutcomeBank(5, 2, "classes")
    found = bank.of(torch.zeros(3, 2), torch.tensor([[1.0, 0.0], [NAN, NAN], [0.0, 1.0]]))
    assert found.values.tolist() == [[1, 0], [0.5, 0.5], [0, 1]]
    assert found.known.tolist() == [True, False, True]
    assert not bank.of(torch.zeros(3, 2), None).known.any()


def test_numbers_are_compared_in_deviations_of_those_known():
    bank = OutcomeBank(10, 1, "numbers")
    past = torch.tensor([[2.0], [4.0], [100.0]])
    bank.push(Outcome(past, torch.tensor([True, True, False]), past))
    new = Outcome(torch.tensor([[9.0], [50.0]]), torch.tensor([True, False]), torch.zeros(2, 1))
    deviation = torch.tensor([2.0, 4.0, 9.0]).std()
    compared = bank.compared(new, new)
    torch.testing.assert_close(compared["query_outcome"], new.values / deviation)
    torch.testing.assert_close(compared["key_outcome"], torch.cat([new.values, past]) / deviation)


def test_aligned_classes_are_as_frequent_as_those_known():
    """All predictions alike: after alignment they are the frequencies of the known classes themselves."""
    bank = OutcomeBank(10, 2, "classes", aligned=True)
    said = torch.tensor([[0.9, 0.1]]).repeat(8, 1)
    known = torch.arange(8) < 4
    labels = torch.eye(2)[torch.tensor([0, 1, 1, 1])]
    new = Outcome(torch.cat([labels, said[4:]]), known, said)
    encoding = torch.randn(8, 3)
    refined = bank.refined(new, encoding, bank.values.rows())
    torch.testing.assert_close(refined.values[4:], torch.tensor([[0.25, 0.75]]).repeat(4, 1))
    assert torch.equal(refined.values[:4], labels)
    assert torch.equal(new.values[4:], said[4:])  # what was given is not changed
    bank.push(refined)
    assert torch.equal(bank.said.rows(), said)  # frequencies of predictions are counted before they are aligned
    again = bank.refined(new, encoding, encoding)
    torch.testing.assert_close(again.values, refined.values)


def clustered(counts: list[int], seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return encodings that lie close about as many directions as there are counts, and the direction of each."""
    draw = torch.Generator().manual_seed(seed)
    of = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    return torch.eye(8)[of] + 0.1 * torch.randn(len(of), 8, generator=draw) + 3, of  # and all share an offset


@given(st.lists(st.integers(5, 200), min_size=3, max_size=5), st.integers(0, 99))
def test_clusters_are_as_large_as_they_are_whatever_the_predictions_share(counts, seed):
    """Half of what is predicted is the sample's cluster, half one and the same class."""
    encoding, of = clustered(counts, seed)
    said = 0.5 * torch.eye(len(counts))[of] + 0.5 * torch.eye(len(counts))[0]
    share = torch.tensor(counts) / sum(counts)
    torch.testing.assert_close(cluster_sizes(encoding, said), share, atol=0.05, rtol=0)
    order = torch.randperm(len(counts))
    torch.testing.assert_close(cluster_sizes(encoding, said[:, order]), share[order], atol=0.05, rtol=0)


def test_a_rare_class_stays_rare_as_far_as_clusters_have_a_say():
    """Labels are even, the rest has a class of 5 %, and predictions are right but for their scale."""
    encoding, of = clustered([95, 5])
    right = torch.eye(2)[of]
    said = 0.8 * right + 0.1
    labels = torch.eye(2)[torch.arange(20) % 2]
    known = torch.arange(120) < 20
    new = Outcome(torch.cat([labels, said]), known, torch.cat([labels, said]))
    everything = torch.cat([torch.randn(20, 8), encoding])
    past = torch.zeros(0, 8)

    def rare(clusters: float) -> float:
        bank = OutcomeBank(10, 2, "classes", aligned=True, clusters=clusters)
        return bank.refined(new, everything, past).values[20:, 1].mean().item()

    even, found = torch.tensor([0.5, 0.5]), said.mean(0)
    assert rare(0.0) == pytest.approx(as_frequent(said, even, found)[:, 1].mean().item())
    sizes = cluster_sizes(encoding, as_frequent(said, even, found))
    assert rare(1.0) == pytest.approx(as_frequent(said, sizes, found)[:, 1].mean().item())
    half = (even * sizes).sqrt()
    assert rare(0.5) == pytest.approx(as_frequent(said, half / half.sum(), found)[:, 1].mean().item())
    assert rare(1.0) < 0.1 < rare(0.5) < rare(0.0)


def test_neighbours_have_a_say_in_what_is_not_known():
    bank = OutcomeBank(10, 2, "classes", neighbours=2)
    past = torch.tensor([[0.0], [1.0], [2.0], [10.0]])
    values = torch.tensor([[1.0, 0.0], [0.4, 0.6], [0.2, 0.8], [0.0, 1.0]])
    bank.push(Outcome(values, torch.tensor([True, False, False, False]), values))
    new = Outcome(torch.tensor([[0.6, 0.4], [0.5, 0.5]]), torch.tensor([False, True]), torch.zeros(2, 2))
    refined = bank.refined(new, torch.tensor([[0.1], [0.2]]), past)
    # The nearest is known, and is left out: 1 and 2 are asked.
    torch.testing.assert_close(refined.values[0], torch.tensor([(0.6 + 0.4 + 0.2) / 3, (0.4 + 0.6 + 0.8) / 3]))
    assert refined.values[1].tolist() == [0.5, 0.5]


def test_too_few_neighbours_are_not_asked():
    bank = OutcomeBank(10, 2, "classes", neighbours=2)
    new = Outcome(torch.tensor([[0.6, 0.4]]), torch.tensor([False]), torch.zeros(1, 2))
    assert torch.equal(bank.refined(new, torch.zeros(1, 1), torch.zeros(0, 1)).values, new.values)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=8), st.floats(0.05, 1))
def test_predictions_are_trusted_less_the_more_known_classes_are_predicted_wrong(batches, tolerance):
    """A batch has so many classes that are predicted and so many that are not; where all are open it says nothing."""
    bank = OutcomeBank(10, 2, "classes", tolerance=tolerance)
    errors = []
    for right, wrong in batches:
        labels = torch.eye(2)[[0] * (right + wrong)]
        said = torch.eye(2)[[0] * right + [1] * wrong] * 0.6 + 0.2
        known = torch.arange(right + wrong + 3) < right + wrong
        rest = torch.full((3, 2), 0.5)
        bank.push(Outcome(torch.cat([labels, rest]), known, torch.cat([said, rest])))
        if right + wrong:
            errors.append(wrong / (right + wrong))
    error = np.average(errors, weights=0.9 ** np.arange(len(errors))[::-1]) if errors else 0
    assert bank.trusted().item() == pytest.approx(1 if error <= tolerance else (tolerance / error) ** 2, rel=1e-4)


def test_only_classes_are_judged_and_the_judgement_is_kept():
    wrong = Outcome(torch.eye(2), torch.tensor([True, True]), torch.eye(2).flip(0))
    for settings in ({"kind": "classes"}, {"kind": "numbers", "tolerance": 0.5}, {"kind": "labels", "tolerance": 0.5}):
        bank = OutcomeBank(4, 2, **settings)
        bank.push(wrong)
        assert bank.trusted() == 1
    bank = OutcomeBank(4, 2, "classes", tolerance=0.5)
    bank.push(wrong)
    copy = OutcomeBank(4, 2, "classes", tolerance=0.5)
    copy.load_state_dict(bank.state_dict())
    assert copy.trusted() == 0.25


def test_bad_settings():
    for settings, words in (
        ({"kind": "ranks"}, "outcomes must be 'classes', 'numbers' or 'labels', got 'ranks'"),
        ({"kind": "classes", "neighbours": -1}, "outcome_neighbours must be at least 0, got -1"),
        ({"kind": "numbers", "aligned": True}, "outcome_alignment is for classes, outcomes are numbers"),
        ({"kind": "classes", "clusters": 1.5}, r"outcome_clusters must be in \[0, 1\], got 1.5"),
        ({"kind": "classes", "tolerance": 0.0}, r"outcome_tolerance must be in \(0, 1\], got 0.0"),
    ):
        with pytest.raises(ValueError, match=words):
            OutcomeBank(3, 2, **settings)
