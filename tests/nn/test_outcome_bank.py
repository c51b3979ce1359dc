"""Outcomes for the prognostic caliper: known or predicted, aligned, smoothed over neighbours."""

import pytest
import torch

from okapi.nn.outcome_bank import Outcome, OutcomeBank, predicted_outcome

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


def test_bad_settings():
    for settings, words in (
        ({"kind": "ranks"}, "outcomes must be 'classes', 'numbers' or 'labels', got 'ranks'"),
        ({"kind": "classes", "neighbours": -1}, "outcome_neighbours must be at least 0, got -1"),
        ({"kind": "numbers", "aligned": True}, "outcome_alignment is for classes, outcomes are numbers"),
    ):
        with pytest.raises(ValueError, match=words):
            OutcomeBank(3, 2, **settings)
