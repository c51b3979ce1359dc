"""Scores without labels: closed forms, and numpy written out."""

from math import log

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from scipy.stats import entropy as scipy_entropy
from scipy.stats import pearsonr

from okapi.data.task import Task
from okapi.evaluation.label_free import (
    corrected_confidence,
    ensemble_agreement,
    entropy,
    infomax,
    match_quality,
    soft,
    thresholded_confidence,
)

TWO, THREE, LABELS, NUMBER = (
    Task("classification", 2),
    Task("classification", 3),
    Task("multilabel", 2),
    Task("regression"),
)
SEEDS = st.integers(0, 2**32)
SURE = 1000.0  # a logit so large that the others have no probability


@given(SEEDS, st.integers(1, 40))
def test_entropy_and_infomax_are_scipy_s(seed: int, rows: int):
    logits = np.random.default_rng(seed).normal(size=(rows, 3)) * 3
    given_ = torch.tensor(logits).softmax(1).numpy()
    assert entropy(THREE, logits) == pytest.approx(scipy_entropy(given_, axis=1).mean())
    assert infomax(THREE, logits) == pytest.approx(scipy_entropy(given_.mean(0)) - scipy_entropy(given_, axis=1).mean())
    assert -1e-12 <= infomax(THREE, logits) <= log(3)


def test_entropy_and_infomax_at_their_ends():
    collapsed, spread, unsure = SURE * np.eye(3)[[0, 0, 0]], SURE * np.eye(3), np.zeros((3, 3))
    assert [entropy(THREE, logits) for logits in (collapsed, spread, unsure)] == pytest.approx([0, 0, log(3)])
    assert [infomax(THREE, logits) for logits in (collapsed, spread, unsure)] == pytest.approx([0, log(3), 0])
    labels = np.array([[SURE, 0.0], [-SURE, 0.0]])  # the first sure and spread, the second unsure
    assert entropy(LABELS, labels) == pytest.approx(log(2) / 2)
    assert infomax(LABELS, labels) == pytest.approx(log(2) / 2)


def test_corrected_confidence_is_the_accuracy_where_overconfidence_is_the_same():
    logit = log(0.8 / 0.2)  # sure by 0.8
    held_out = np.tile([logit, 0.0], (4, 1))
    unlabelled = np.array([[log(0.6 / 0.4), 0.0], [0.0, log(0.9 / 0.1)]])
    assert corrected_confidence(TWO, unlabelled, held_out, [0, 0, 1, 1]) == pytest.approx(0.75 - (0.8 - 0.5))
    assert corrected_confidence(TWO, held_out, held_out, [0, 0, 1, 1]) == pytest.approx(0.5)
    labels = corrected_confidence(LABELS, [[logit, -logit]], [[logit, -logit]], [[1, 1]])
    assert labels == pytest.approx(0.5)  # one of two labels is right


@given(SEEDS, st.integers(1, 30))
def test_thresholded_confidence_gives_the_accuracy_on_id_val_itself(seed: int, rows: int):
    rng = np.random.default_rng(seed)
    logits, target = rng.normal(size=(rows, 3)), rng.integers(0, 3, rows)
    right = (logits.argmax(1) == target).mean()
    assert thresholded_confidence(THREE, logits, logits, target) == pytest.approx(right)
    assert thresholded_confidence(THREE, SURE * np.eye(3), logits, target) == (1.0 if right else 0.0)
    assert thresholded_confidence(THREE, np.zeros((2, 3)), logits, target) == 0.0


@given(SEEDS, st.integers(2, 30), st.integers(2, 30))
def test_match_quality_is_its_definition_written_out(seed: int, rows: int, labelled: int):
    rng = np.random.default_rng(seed)
    a, b, target = rng.normal(size=(rows, 4)), rng.normal(size=(labelled, 4)) + 1, rng.integers(0, 3, labelled)
    logits = rng.normal(size=(rows, 3))
    u, v = (part / np.linalg.norm(part, axis=1, keepdims=True) for part in (a, b))
    nearest = cdist(u, v).argmin(1)
    agreement = (logits.argmax(1) == target[nearest]).mean()
    deviation = np.sqrt((u.var(0, ddof=1) + v.var(0, ddof=1)) / 2)
    imbalance = (np.abs(u.mean(0) - v[nearest].mean(0)) / deviation).mean()
    found = match_quality(THREE, torch.tensor(logits), torch.tensor(a), torch.tensor(target), torch.tensor(b))
    assert found["match_agreement"] == pytest.approx(agreement)
    assert found["match_imbalance"] == pytest.approx(imbalance)
    assert found["match_quality"] == pytest.approx(agreement / (1 + imbalance))
    numbers = rng.normal(size=labelled)
    if len(set(nearest.tolist())) > 1:
        found = match_quality(NUMBER, logits[:, 0], a, numbers, b)
        agreement, imbalance = found["match_agreement"], found["match_imbalance"]
        assert found["match_quality"] == min(agreement / (1 + imbalance), agreement * (1 + imbalance))
        assert found["match_agreement"] == pytest.approx(pearsonr(logits[:, 0], numbers[nearest]).statistic, abs=1e-9)


def test_match_quality_at_its_ends():
    encoding, target = np.eye(3) * 5, np.array([0, 1, 2])
    perfect = match_quality(THREE, np.eye(3), encoding, target, encoding)
    assert perfect == pytest.approx({"match_quality": 1.0, "match_agreement": 1.0, "match_imbalance": 0.0})
    point = np.ones((3, 2))  # an encoder that maps all to one point matches anything to the first
    assert match_quality(THREE, np.eye(3), point, target, point)["match_quality"] == pytest.approx(1 / 3)
    assert match_quality(LABELS, [[1.0, -1.0]], [[0.0, 0.0]], [[1, 1]], [[1.0, 0.0]])["match_agreement"] == 0.5


def test_agreement_with_an_ensemble():
    models = [
        np.array([[2.0, 0.0], [0.0, 2.0]]),
        np.array([[2.0, 0.0], [1.0, 0.0]]),
        np.array([[3.0, 0.0], [0.0, 3.0]]),
    ]
    mean = np.mean([soft(TWO, model) for model in models], axis=0)
    assert [ensemble_agreement(TWO, soft(TWO, model), mean) for model in models] == [1.0, 0.5, 1.0]
    assert ensemble_agreement(NUMBER, soft(NUMBER, [1.0, 2.0]), [[2.0], [4.0]]) == -2.5
    assert ensemble_agreement(LABELS, [[0.9, 0.1]], [[0.8, 0.7]]) == 0.5
    with pytest.raises(ValueError, match="must be of one shape"):
        ensemble_agreement(TWO, [[0.5, 0.5]], [[0.5]])


@given(SEEDS, st.integers(2, 20))
def test_the_order_of_unlabelled_samples_does_not_matter(seed: int, rows: int):
    rng = np.random.default_rng(seed)
    logits, encoding, order = rng.normal(size=(rows, 3)), rng.normal(size=(rows, 4)), rng.permutation(rows)
    known, target, keys = rng.normal(size=(7, 3)), rng.integers(0, 3, 7), rng.normal(size=(7, 4))
    for score in (entropy, infomax):
        assert score(THREE, logits[order]) == pytest.approx(score(THREE, logits))
    for score in (corrected_confidence, thresholded_confidence):
        assert score(THREE, logits[order], known, target) == pytest.approx(score(THREE, logits, known, target))
    again = match_quality(THREE, logits[order], encoding[order], target, keys)
    assert again == pytest.approx(match_quality(THREE, logits, encoding, target, keys))


def test_numbers_have_no_entropy():
    with pytest.raises(ValueError, match="a regression predicts numbers"):
        entropy(NUMBER, [1.0])
    with pytest.raises(ValueError, match="prediction must be finite"):
        infomax(TWO, [[np.nan, 0.0]])
