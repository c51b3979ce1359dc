import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import pearsonr
from sklearn.metrics import accuracy_score, f1_score, mean_squared_error, recall_score

from okapi.data.task import Task
from okapi.evaluation import METRICS, by_domain, evaluate, higher_is_better, main_metric, metrics_for
from okapi.evaluation.metrics import accuracy, balanced_accuracy, decide, macro_f1, mse, pearson_r

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


# By task and domain


def test_predictions_are_decided_by_the_task():
    assert decide(Task("classification", 3), torch.tensor([[0.0, 2.0, 1.0], [3.0, 0.0, 0.0]])).tolist() == [1, 0]
    assert decide(Task("multilabel", 2), torch.tensor([[-1.0, 2.0], [0.5, -3.0]])).tolist() == [[0, 1], [1, 0]]
    numbers = torch.tensor([1.5, -2.0])
    assert decide(Task("regression"), numbers).tolist() == decide(Task("regression"), numbers[:, None]).tolist()


@given(st.integers(1, 60), st.integers(1, 5), st.integers(0, 2**32))
def test_domains_are_evaluated_one_by_one(rows: int, domains: int, seed: int):
    rng = np.random.default_rng(seed)
    task, names = Task("classification", 3), [f"site {number}" for number in range(domains)]
    logits, target, domain = rng.normal(size=(rows, 3)), rng.integers(0, 3, rows), rng.integers(0, domains, rows)
    by = by_domain(task, logits, target, domain, names)
    right = logits.argmax(1) == target
    assert by == {names[d]: pytest.approx(right[domain == d].mean()) for d in np.unique(domain)}
    figures = evaluate(task, torch.tensor(logits), torch.tensor(target), torch.tensor(domain), names)
    assert figures["accuracy"] == pytest.approx(right.mean())
    assert figures["accuracy_domain_worst"] == min(by.values())
    assert figures["accuracy_domain_mean"] == pytest.approx(np.mean(list(by.values())))
    sets = np.eye(domains, dtype=bool)[domain]
    assert by_domain(task, logits, target, sets, names) == by


def test_sets_of_domains_overlap():
    sets = torch.tensor([[True, True, False], [True, False, False], [False, False, False]])
    logits, target = torch.tensor([[0.0, 1.0], [0.0, 1.0], [0.0, 1.0]]), torch.tensor([1, 0, 0])
    by = by_domain(Task("classification", 2), logits, target, sets, ["a", "b", "c"])
    assert by == {"a": 0.5, "b": 1.0}  # c has no samples: absent, not zero


def test_the_worst_error_is_the_largest():
    task, domain = Task("regression"), [0, 0, 1, 1]
    figures = evaluate(task, [0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 3.0, 3.0], domain, ["a", "b"], metric="mse")
    assert figures["mse_domain_worst"] == 9
    assert figures["mse_domain_mean"] == figures["mse"] == 5


def test_undefined_correlations():
    task, domain, names = Task("regression"), [0, 0, 0, 1, 2, 2], ["a", "b", "c"]
    target, prediction = [1.0, 2.0, 3.0, 1.0, 4.0, 4.0], np.array([1.0, 2.0, 3.5, 1.0, 2.0, 3.0])
    by = by_domain(task, prediction, target, domain, names)
    assert set(by) == {"a"}  # b has one sample, the targets of c are all the same: nothing can be said there
    by = by_domain(task, prediction * [0, 0, 0, 1, 1, 1], target, domain, names)
    assert math.isnan(by["a"])  # the fault of the model, and not to be hidden
    assert math.isnan(evaluate(task, prediction * [0, 0, 0, 1, 1, 1], target, domain, names)["pearson_r_domain_worst"])
    assert "pearson_r_domain_worst" not in evaluate(task, prediction[3:], target[3:], domain[3:], names)
    labels = by_domain(Task("multilabel", 2), np.ones((2, 2)), np.array([[0, 0], [1, 0]]), [0, 1], ["a", "b"])
    assert labels == {"b": 1.0}


@pytest.mark.parametrize("kind", ["classification", "regression", "multilabel"])
def test_every_task_has_its_metrics(kind: str):
    task = Task(kind, 2)
    target = (
        torch.tensor([0, 1, 0, 1]) if kind == "classification" else torch.tensor([[0.0, 1], [1, 0], [0, 0], [1, 1]])
    )
    logits = torch.tensor([[2.0, -1.0], [-1.0, 2.0], [2.0, -2.0], [-1.0, 3.0]])
    figures = evaluate(task, logits, target, torch.tensor([0, 0, 1, 1]), ["a", "b"])
    main = main_metric(task)
    assert set(figures) == {*metrics_for(task), f"{main}_domain_mean", f"{main}_domain_worst"}
    assert set(metrics_for(task)) <= set(METRICS)
    assert all(isinstance(value, float) for value in figures.values())
    assert [higher_is_better(name) for name in figures] == [name != "mse" for name in figures]


# What is refused


def test_predictions_that_cannot_be_judged():
    task = Task("classification", 2)
    good, target, domain = torch.zeros(3, 2), torch.zeros(3, dtype=torch.int64), torch.zeros(3, dtype=torch.int64)
    bad = good.clone()
    bad[1, 0] = float("nan")
    for prediction, wanted, where, words in [
        (bad, target, domain, r"finite, got \[nan, 0.0\] in row 1"),
        (torch.zeros(3, 3), target, domain, r"prediction must be of shape \(n, 2\), got \(3, 3\)"),
        (good, target[:2], domain[:2], r"of one shape, got \(3,\) and \(2,\)"),
        (good, target, domain[:2], "domain must have a row for each of the 3 targets, got 2"),
        (good, target, domain + 1, "domain must be from 0 to 0, got 1.0 to 1.0"),
        (good, target, torch.ones(3, 2), r"a column for each of the 1 names, got shape \(3, 2\)"),
        (good[:0], target[:0], domain[:0], "at least one row"),
    ]:
        with pytest.raises(ValueError, match=words):
            evaluate(task, prediction, wanted, where, ["a"])
    with pytest.raises(ValueError, match="must not be NaN"):
        mse([1.0, 2.0], [1.0, float("nan")])
    with pytest.raises(ValueError, match=r"accuracy, .* for classification, got 'mse'"):
        evaluate(task, good, target, domain, ["a"], metric="mse")
    with pytest.raises(ValueError, match="got 'loss'"):
        higher_is_better("loss")
