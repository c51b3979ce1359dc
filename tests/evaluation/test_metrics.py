"""Each metric against scikit-learn, scipy or its definition written out."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import pearsonr
from sklearn import metrics as sk

from okapi.data.task import Task
from okapi.evaluation import METRICS, ece, higher_is_better, main_metric, metrics_for, plain_metric, reliability
from okapi.evaluation.metrics import (
    accuracy,
    auroc,
    balanced_accuracy,
    decide,
    log_loss,
    macro_f1,
    mse,
    pearson_r,
    probabilities,
    r2,
    sensitivity,
    specificity,
)

SEEDS = st.integers(0, 2**32)
CLASSES = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=60)
NUMBERS = st.floats(-1e3, 1e3, allow_subnormal=False)


def drawn(seed: int, rows: int, classes: int):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(classes), rows), rng.integers(0, classes, rows)


# Classes and labels


@given(CLASSES)
def test_metrics_of_classes_are_scikit_learn_s(pairs):
    prediction, target = np.array(pairs).T
    present = np.unique(target)
    assert accuracy(prediction, target) == pytest.approx(sk.accuracy_score(target, prediction))
    wilds = sk.f1_score(target, prediction, average="macro", labels=present, zero_division=0)
    assert macro_f1(prediction, target) == pytest.approx(wilds)
    recall = np.mean([(prediction[target == label] == label).mean() for label in present])
    assert balanced_accuracy(torch.tensor(prediction), torch.tensor(target)) == pytest.approx(recall)


@given(st.integers(1, 40), st.integers(1, 5), SEEDS)
def test_metrics_of_labels_are_means_over_those_that_occur(rows: int, labels: int, seed: int):
    prediction, target = np.random.default_rng(seed).integers(0, 2, (2, rows, labels))
    assert accuracy(prediction, target) == pytest.approx((prediction == target).mean())
    hits, both = (prediction & target).sum(0), prediction.sum(0) + target.sum(0)
    f1 = (2 * hits / np.maximum(both, 1))[target.any(0)]
    assert macro_f1(prediction, target) == pytest.approx(f1.mean() if len(f1) else math.nan, nan_ok=True)


@given(SEEDS, st.integers(1, 40))
def test_metrics_of_two_classes_are_their_definitions(seed: int, rows: int):
    probability, target = drawn(seed, rows, 2)
    probability = probability.round(1)  # so that some are equal
    score, decided = probability[:, 1], probability.argmax(1)
    yes, no = score[target == 1], score[target == 0]
    wins = (yes[:, None] > no).mean() + (yes[:, None] == no).mean() / 2 if len(yes) and len(no) else math.nan
    assert auroc(torch.tensor(probability), torch.tensor(target)) == pytest.approx(wins, nan_ok=True)
    hits = decided == target
    for metric, label in ((sensitivity, 1), (specificity, 0)):
        rate = hits[target == label].mean() if (target == label).any() else math.nan
        assert metric(torch.tensor(decided), torch.tensor(target)) == pytest.approx(rate, nan_ok=True)


@given(SEEDS, st.integers(1, 40), st.integers(2, 6))
def test_log_loss_is_the_mean_logarithm(seed: int, rows: int, classes: int):
    probability, target = drawn(seed, rows, classes)
    wanted = -np.log(probability[np.arange(rows), target]).mean()
    assert log_loss(torch.tensor(probability), torch.tensor(target)) == pytest.approx(wanted)
    assert np.isfinite(log_loss([[1.0, 0.0]], [1]))


@given(CLASSES, st.randoms(use_true_random=False))
def test_the_order_of_samples_does_not_matter(pairs, random):
    shuffled = pairs.copy()
    random.shuffle(shuffled)
    for function in (accuracy, macro_f1, balanced_accuracy):
        assert function(*np.array(pairs).T) == pytest.approx(function(*np.array(shuffled).T), abs=1e-12)


def test_a_class_that_is_never_predicted_has_an_f1_of_zero_and_no_warning():
    prediction, target = [0, 0, 1, 1], [0, 0, 1, 2]
    assert macro_f1(prediction, target) == pytest.approx((1 + 2 / 3 + 0) / 3)
    assert balanced_accuracy(prediction, target) == sk.balanced_accuracy_score(target, prediction)


# Calibration


@given(SEEDS, st.integers(1, 80), st.integers(2, 6), st.integers(1, 20))
def test_ece_is_its_definition_written_out(seed: int, rows: int, classes: int, bins: int):
    probability, target = drawn(seed, rows, classes)
    sure, right = probability.max(1), probability.argmax(1) == target
    error = 0.0
    for number in range(bins):
        here = (sure > number / bins) & (sure <= (number + 1) / bins)
        if here.any():
            error += here.sum() / rows * abs(right[here].mean() - sure[here].mean())
    assert ece(torch.tensor(probability), torch.tensor(target), bins=bins) == pytest.approx(error, abs=1e-12)
    assert reliability(probability, target, bins=bins).n.sum() == rows  # every sample once


def test_closed_forms_of_ece():
    sure = np.array([[0.8, 0.2]] * 10)
    assert ece(sure, [0] * 8 + [1] * 2) == pytest.approx(0)  # right as often as it says
    assert ece(sure, [1] * 10) == pytest.approx(0.8)
    assert ece(np.eye(2)[[0, 1, 1]], [0, 1, 1]) == 0
    assert ece([[0.5, 0.5]], [1]) == pytest.approx(0.5)  # of equally likely classes the first


def test_a_confidence_at_an_edge_belongs_to_the_bin_below():
    assert reliability([[0.5, 0.5], [0.51, 0.49]], [0, 0], bins=2).bin.tolist() == [0, 1]


# Numbers


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=3, max_size=40))
def test_metrics_of_numbers_are_scipy_s_and_scikit_learn_s(pairs):
    prediction, target = np.array(pairs).T
    assert mse(prediction, target) == pytest.approx(np.mean((prediction - target) ** 2))
    assume(min(prediction.std(), target.std()) > 1e-3)
    explained = 1 - ((prediction - target) ** 2).sum() / ((target - target.mean()) ** 2).sum()
    assert r2(prediction, target) == pytest.approx(explained)
    assert pearson_r(prediction, target) == pytest.approx(pearsonr(prediction, target).statistic, abs=1e-9)
    shifted = pearson_r(torch.tensor(3 * prediction + 7), torch.tensor(target))
    assert shifted == pytest.approx(pearson_r(prediction, target), abs=1e-6)


def test_what_constants_leave_undefined():
    assert math.isnan(pearson_r([0.1, 0.1, 0.1], [1.0, 2.0, 3.0]))
    for metric in (pearson_r, r2):
        assert math.isnan(metric([1.0, 2.0, 3.0], [0.1, 0.1, 0.1]))
        assert math.isnan(metric([1.0], [2.0]))
    columns = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 5.0]])
    assert pearson_r(columns, columns) == pytest.approx(1) == r2(columns, columns)
    assert math.isnan(pearson_r(columns * [1, 0], columns))


def test_very_small_and_very_large_numbers_correlate():
    assert pearson_r([1e-200, 2e-200, 4e-200], [1.0, 2.0, 4.0]) == pytest.approx(1)
    assert pearson_r([1e200, -1e200, 0.0], [1.0, -1.0, 0.0]) == pytest.approx(1)


# By task


def test_predictions_are_decided_by_the_task():
    assert decide(Task("classification", 3), torch.tensor([[0.0, 2.0, 1.0], [3.0, 0.0, 0.0]])).tolist() == [1, 0]
    assert decide(Task("multilabel", 2), torch.tensor([[-1.0, 2.0], [0.5, -3.0]])).tolist() == [[0, 1], [1, 0]]
    numbers = torch.tensor([1.5, -2.0])
    assert decide(Task("regression"), numbers).tolist() == decide(Task("regression"), numbers[:, None]).tolist()


def test_probabilities_are_torch_s():
    logits = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 100
    assert probabilities(Task("classification", 3), logits) == pytest.approx(logits.softmax(1).numpy())
    assert probabilities(Task("multilabel", 3), logits) == pytest.approx(logits.sigmoid().numpy())
    with pytest.raises(ValueError, match="numbers, which have no probabilities"):
        probabilities(Task("regression", 3), logits)


def test_names_of_metrics():
    kinds = {"classification": "accuracy", "regression": "pearson_r", "multilabel": "macro_f1"}
    assert {kind: main_metric(Task(kind, 2)) for kind in kinds} == kinds
    two, three = metrics_for(Task("classification", 2)), metrics_for(Task("classification", 3))
    assert two == (*three, "auroc", "sensitivity", "specificity")
    assert metrics_for(Task("regression")) == ("pearson_r", "mse", "r2")
    assert {name for kind in kinds for name in metrics_for(Task(kind, 2))} == set(METRICS)
    for metric in METRICS:
        for suffix in ("", "_domain_mean", "_domain_worst", "_group_mean", "_group_worst"):
            assert plain_metric(f"{metric}{suffix}") == metric
            assert higher_is_better(f"{metric}{suffix}") == (metric not in ("mse", "ece", "log_loss"))


REJECTED = {
    r"of one shape, got \(3,\) and \(2,\)": lambda: accuracy([0, 1, 2], [0, 1]),
    "at least one row": lambda: mse([], []),
    "must not be NaN": lambda: mse([1.0, 2.0], [1.0, math.nan]),
    r"finite, got \[nan, 0.0\] in row 1": lambda: decide(Task("classification", 2), [[0.0, 1.0], [math.nan, 0.0]]),
    r"be of shape \(n, 2\), got \(3, 3\)": lambda: decide(Task("classification", 2), np.zeros((3, 3))),
    "got 'loss'": lambda: higher_is_better("loss"),
    r"sum to 1, got \[0.5, 0.6\] in row 1": lambda: ece([[0.5, 0.5], [0.5, 0.6]], [0, 1]),
    "in row 0": lambda: auroc([[math.nan, 0.5]], [0]),
    r"probability must be \(n, C\)": lambda: ece([0.5, 0.6], [0, 1]),
    "bins must be at least 1, got 0": lambda: ece([[1.0, 0.0]], [0], bins=0),
}


@pytest.mark.parametrize("message", REJECTED)
def test_what_is_rejected(message: str):
    with pytest.raises(ValueError, match=message):
        REJECTED[message]()
