import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import pearsonr
from sklearn.metrics import accuracy_score, balanced_accuracy_score, f1_score, mean_squared_error, recall_score

from okapi.data.task import Task
from okapi.evaluation import METRICS, higher_is_better, main_metric, metrics_for, plain_metric
from okapi.evaluation.metrics import accuracy, balanced_accuracy, macro_f1, mse, pearson_r
from okapi.evaluation.values import decide, probabilities

CLASSES = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=60)
NUMBERS = st.floats(-1e3, 1e3, allow_subnormal=False)


@given(CLASSES)
def test_metrics_of_classes_are_scikit_learn_s(drawn):
    prediction, target = np.array(drawn).T
    present = np.unique(target)
    assert accuracy(prediction, target) == pytest.approx(accuracy_score(target, prediction))
    wilds = f1_score(target, prediction, average="macro", labels=present, zero_division=0)
    assert macro_f1(prediction, target) == pytest.approx(wilds)
    recall = recall_score(target, prediction, average="macro", labels=present, zero_division=0)
    assert balanced_accuracy(torch.tensor(prediction), torch.tensor(target)) == pytest.approx(recall)


@given(st.integers(1, 40), st.integers(1, 5), st.integers(0, 2**32))
def test_metrics_of_labels_are_scikit_learn_s(rows: int, labels: int, seed: int):
    prediction, target = np.random.default_rng(seed).integers(0, 2, (2, rows, labels))
    assert accuracy(prediction, target) == pytest.approx((prediction == target).mean())
    present = np.flatnonzero(target.any(0))
    if not len(present):
        assert math.isnan(macro_f1(prediction, target))
        return
    both = [
        part if labels > 1 else np.hstack([part, part]) for part in (target, prediction)
    ]  # it takes no single column
    wilds = f1_score(*both, average="macro", labels=present, zero_division=0)
    assert macro_f1(prediction, target) == pytest.approx(wilds)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=3, max_size=40))
def test_metrics_of_numbers_are_scipy_s(drawn):
    prediction, target = np.array(drawn).T
    assert mse(prediction, target) == pytest.approx(mean_squared_error(target, prediction))
    assume(min(prediction.std(), target.std()) > 1e-3)
    assert pearson_r(prediction, target) == pytest.approx(pearsonr(prediction, target).statistic, abs=1e-9)
    shifted = pearson_r(torch.tensor(3 * prediction + 7), torch.tensor(target))
    assert shifted == pytest.approx(pearson_r(prediction, target), abs=1e-6)


def test_a_correlation_with_a_constant_does_not_exist():
    assert math.isnan(pearson_r([0.1, 0.1, 0.1], [1.0, 2.0, 3.0]))
    assert math.isnan(pearson_r([1.0, 2.0, 3.0], [0.1, 0.1, 0.1]))
    assert math.isnan(pearson_r([1.0], [2.0]))
    columns = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 5.0]])
    assert pearson_r(columns, columns) == pytest.approx(1)
    assert math.isnan(pearson_r(columns * [1, 0], columns))


@given(CLASSES, st.randoms(use_true_random=False))
def test_the_order_of_samples_does_not_matter(drawn, random):
    shuffled = drawn.copy()
    random.shuffle(shuffled)
    for function in (accuracy, macro_f1, balanced_accuracy):
        assert function(*np.array(drawn).T) == pytest.approx(function(*np.array(shuffled).T), abs=1e-12)


@pytest.mark.filterwarnings("error")
def test_a_class_that_is_never_predicted_has_an_f1_of_zero_and_no_warning():
    prediction, target = [0, 0, 1, 1], [0, 0, 1, 2]
    assert macro_f1(prediction, target) == pytest.approx((1 + 2 / 3 + 0) / 3)
    assert balanced_accuracy(prediction, target) == balanced_accuracy_score(target, prediction)


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


def test_names_of_figures():
    assert [main_metric(Task(kind, 2)) for kind in ("classification", "regression", "multilabel")] == [
        "accuracy",
        "pearson_r",
        "macro_f1",
    ]
    assert metrics_for(Task("regression")) == ("pearson_r", "mse")
    for metric in METRICS:
        for suffix in ("", "_domain_mean", "_domain_worst", "_group_mean", "_group_worst"):
            assert plain_metric(f"{metric}{suffix}") == metric
            assert higher_is_better(f"{metric}{suffix}") == (metric not in ("mse", "ece"))


# What is refused


def test_predictions_that_cannot_be_judged():
    with pytest.raises(ValueError, match=r"of one shape, got \(3,\) and \(2,\)"):
        accuracy([0, 1, 2], [0, 1])
    with pytest.raises(ValueError, match="at least one row"):
        mse([], [])
    with pytest.raises(ValueError, match="must not be NaN"):
        mse([1.0, 2.0], [1.0, float("nan")])
    with pytest.raises(ValueError, match=r"finite, got \[nan, 0.0\] in row 1"):
        decide(Task("classification", 2), [[0.0, 1.0], [math.nan, 0.0]])
    with pytest.raises(ValueError, match=r"prediction must be of shape \(n, 2\), got \(3, 3\)"):
        decide(Task("classification", 2), np.zeros((3, 3)))
    with pytest.raises(ValueError, match="got 'loss'"):
        higher_is_better("loss")
