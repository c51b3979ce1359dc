"""Domains and groups: one by one, in the worst, on average; overlapping, empty, single."""

import math
from itertools import combinations
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, balanced_accuracy_score, f1_score

from okapi.data.task import Task
from okapi.evaluation import (
    evaluate,
    fairness,
    group_table,
    metrics_for,
    never_predicted,
    worst_first,
)

CLASSES, NUMBERS = Task("classification", 3), Task("regression")
SEEDS = st.integers(0, 2**32)


def by_group(task, prediction, target, group, names) -> dict[str, float]:
    """Return the main metric of each group in which it is defined."""
    table = group_table(task, prediction, target, group, names)
    return table.set_index("name")[metrics_for(task)[0]].dropna().to_dict()


@given(st.integers(1, 60), st.integers(1, 5), SEEDS)
def test_domains_are_evaluated_one_by_one(rows: int, domains: int, seed: int):
    rng = np.random.default_rng(seed)
    names = [f"site {number}" for number in range(domains)]
    logits, target, domain = rng.normal(size=(rows, 3)), rng.integers(0, 3, rows), rng.integers(0, domains, rows)
    by = by_group(CLASSES, logits, target, domain, names)
    right = logits.argmax(1) == target
    assert by == {names[d]: pytest.approx(right[domain == d].mean()) for d in np.unique(domain)}
    metrics = evaluate(CLASSES, torch.tensor(logits), torch.tensor(target), torch.tensor(domain), names)
    assert metrics["accuracy"] == pytest.approx(right.mean())
    assert metrics["accuracy_domain_worst"] == min(by.values())
    assert metrics["accuracy_domain_mean"] == pytest.approx(np.mean(list(by.values())))
    sets = np.eye(domains, dtype=bool)[domain]
    assert by_group(CLASSES, logits, target, sets, names) == by


@given(st.integers(1, 40), st.integers(1, 5), SEEDS)
@pytest.mark.filterwarnings("ignore::UserWarning:sklearn")
def test_overlapping_groups_are_scikit_learn_s_on_each_group_s_rows(rows: int, count: int, seed: int):
    rng = np.random.default_rng(seed)
    logits, target = rng.normal(size=(rows, 3)), rng.integers(0, 3, rows)
    groups = rng.random((rows, count)) < 0.4
    names = [f"group {number}" for number in range(count)]
    table = group_table(CLASSES, logits, target, groups, names).set_index("name")
    assert table.index.tolist() == [name for name, here in zip(names, groups.T, strict=True) if here.any()]
    for name, here in zip(names, groups.T, strict=True):
        if here.any():
            truth, predicted = target[here], logits.argmax(1)[here]
            row = table.loc[name]
            assert row.n == here.sum()
            assert row.accuracy == pytest.approx(accuracy_score(truth, predicted))
            wilds = f1_score(truth, predicted, average="macro", labels=np.unique(truth), zero_division=0)
            assert row.macro_f1 == pytest.approx(wilds)
            assert row.balanced_accuracy == pytest.approx(balanced_accuracy_score(truth, predicted))
    metrics = evaluate(CLASSES, logits, target, np.zeros(rows, int), ["all"], groups=groups, group_names=names)
    if groups.any():
        assert metrics["accuracy_group_worst"] == table.accuracy.min()
        assert metrics["ece_group_worst"] == table.ece.max()
        assert metrics["macro_f1_group_mean"] == pytest.approx(table.macro_f1.mean())
    else:
        assert not [name for name in metrics if "_group_" in name]


@given(st.integers(2, 30), SEEDS)
def test_neither_order_nor_empty_groups_nor_repeats_of_a_group_change_the_worst(rows: int, seed: int):
    rng = np.random.default_rng(seed)
    prediction, target = rng.normal(size=rows), rng.normal(size=rows)
    groups = rng.random((rows, 3)) < 0.6
    names, order = ["a", "b", "c"], rng.permutation(rows)
    metrics = evaluate(NUMBERS, prediction, target, groups, names)
    assert evaluate(NUMBERS, prediction[order], target[order], groups[order], names) == pytest.approx(
        metrics, nan_ok=True
    )
    more = np.hstack([groups, np.zeros((rows, 2), bool)])
    assert evaluate(NUMBERS, prediction, target, more, [*names, "d", "e"]) == pytest.approx(metrics, nan_ok=True)


def test_sets_of_domains_overlap_and_every_sample_counts_once_among_all():
    sets = torch.tensor([[True, True, False], [True, False, False], [False, False, False]])
    logits, target = torch.tensor([[0.0, 1.0, -9], [0.0, 1.0, -9], [0.0, 1.0, -9]]), torch.tensor([1, 0, 0])
    assert by_group(CLASSES, logits, target, sets, ["a", "b", "c"]) == {"a": 0.5, "b": 1.0}  # c: absent, not zero
    assert evaluate(CLASSES, logits, target, sets, ["a", "b", "c"])["accuracy"] == pytest.approx(1 / 3)


def test_identity_and_label_are_the_groups_of_civilcomments():
    """By hand: the worst is over the groups that have samples; a comment may be in several."""
    identity = np.array([[1, 0], [1, 1], [0, 1], [0, 0], [1, 0]], dtype=bool)
    target = np.array([0, 1, 1, 0, 0])
    prediction = np.array([0, 0, 1, 1, 1])
    groups = (identity[:, :, None] & (target[:, None, None] == [0, 1])).reshape(5, 4)
    names = ["male, 0", "male, 1", "black, 0", "black, 1"]
    task, logits = Task("classification", 2), np.eye(2)[prediction]
    by = by_group(task, logits, target, groups, names)
    assert by == {"male, 0": 0.5, "male, 1": 0.0, "black, 1": 0.5}  # no black, 0
    metrics = evaluate(task, logits, target, identity, ["male", "black"], groups=groups, group_names=names)
    assert metrics["accuracy"] == pytest.approx(2 / 5)
    assert metrics["accuracy_group_worst"] == 0.0
    assert metrics["accuracy_group_mean"] == pytest.approx(1 / 3)
    assert metrics["accuracy_domain_worst"] == pytest.approx(1 / 3)


def test_the_worst_error_is_the_largest():
    domain, target = [0, 0, 1, 1], [1.0, 1.0, 3.0, 3.0]
    metrics = evaluate(NUMBERS, [0.0, 0.0, 0.0, 0.0], target, domain, ["a", "b"], metric="mse")
    assert metrics["mse_domain_worst"] == 9
    assert metrics["mse_domain_mean"] == metrics["mse"] == 5
    table = worst_first(group_table(NUMBERS, [0.0, 0.0, 0.0, 0.0], target, domain, ["a", "b"]), "mse")
    assert table["name"].tolist() == ["b", "a"]
    table = worst_first(
        group_table(NUMBERS, [0.0, 1.0, 0.0, 1.0], [0.0, 1.0, 3.0, 3.0], domain, ["a", "b"]), "pearson_r"
    )
    assert table["name"].tolist() == ["a", "b"]  # b has none


def test_undefined_correlations():
    domain, names = [0, 0, 0, 1, 2, 2], ["a", "b", "c"]
    target, prediction = [1.0, 2.0, 3.0, 1.0, 4.0, 4.0], np.array([1.0, 2.0, 3.5, 1.0, 2.0, 3.0])
    by = by_group(NUMBERS, prediction, target, domain, names)
    assert set(by) == {"a"}  # b has one sample, the targets of c are all the same: nothing can be said there
    constant = prediction * [0, 0, 0, 1, 1, 1]  # the model's fault in a, not to be hidden
    assert math.isnan(evaluate(NUMBERS, constant, target, domain, names)["pearson_r_domain_worst"])
    assert "pearson_r_domain_worst" not in evaluate(NUMBERS, prediction[3:], target[3:], domain[3:], names)
    labels = by_group(Task("multilabel", 2), np.ones((2, 2)), np.array([[0, 0], [1, 0]]), [0, 1], ["a", "b"])
    assert labels == {"b": 1.0}


def test_two_classes_have_a_curve_where_both_occur():
    task, names = Task("classification", 2), ["a", "b", "c"]
    logits = np.array([[0.0, 1.0], [0.0, -1.0], [0.0, 3.0], [0.0, 2.0], [0.0, 1.0], [0.0, 0.5]])
    target, domain = [0, 1, 1, 0, 1, 1], [0, 0, 0, 1, 1, 2]
    table = group_table(task, logits, target, domain, names, ["auroc", "sensitivity", "specificity"])
    assert table.auroc.tolist() == pytest.approx([0.5, 0.0, math.nan], nan_ok=True)
    assert table.sensitivity.tolist() == [0.5, 1.0, 1.0]
    assert table.specificity.tolist() == pytest.approx([0.0, 0.0, math.nan], nan_ok=True)
    metrics = evaluate(task, logits, target, domain, names)
    assert (metrics["auroc_domain_mean"], metrics["auroc_domain_worst"]) == (0.25, 0.0)  # of a and b
    alone = evaluate(task, logits[5:], target[5:], domain[5:], names)
    assert math.isnan(alone["auroc"])
    assert "auroc_domain_worst" not in alone


@pytest.mark.parametrize("kind", ["classification", "regression", "multilabel"])
def test_every_task_has_its_metrics_and_a_single_domain_is_mean_and_worst(kind: str):
    task = Task(kind, 2)
    labels = torch.tensor([[0.0, 1], [1, 0], [0, 0], [1, 1]])
    target = torch.tensor([0, 1, 0, 1]) if kind == "classification" else labels
    logits = torch.tensor([[2.0, -1.0], [-1.0, 2.0], [2.0, -2.0], [-1.0, 3.0]])
    metrics = evaluate(task, logits, target, torch.zeros(4, dtype=torch.int64), ["only"])
    for metric in metrics_for(task):
        assert metrics[metric] == metrics[f"{metric}_domain_mean"] == metrics[f"{metric}_domain_worst"]
    assert len(metrics) == 3 * len(metrics_for(task))
    assert all(isinstance(value, float) for value in metrics.values())


def test_classes_that_are_never_predicted():
    assert never_predicted(CLASSES, np.eye(3)[[0, 0, 1]], [0, 2, 1]) == [2]
    assert never_predicted(CLASSES, np.eye(3)[[0, 2, 1]], [0, 0, 1]) == []
    assert never_predicted(Task("multilabel", 2), [[-1.0, 1.0]], [[1, 0]]) == [0]
    assert never_predicted(NUMBERS, [0.0], [1.0]) == []


def test_what_cannot_be_grouped():
    task = Task("classification", 2)
    good, target, domain = torch.zeros(3, 2), torch.zeros(3, dtype=torch.int64), torch.zeros(3, dtype=torch.int64)
    for prediction, wanted, where, words in [
        (good, target[:2], domain[:2], r"of one shape, got \(3,\) and \(2,\)"),
        (good, target, domain[:2], "domain must have a row for each of the 3 targets, got 2"),
        (good, target, domain + 1, "domain must be from 0 to 0, got 1 to 1"),
        (good, target, torch.ones(3, 2), r"a column for each of the 1 names, got shape \(3, 2\)"),
        (good[:0], target[:0], domain[:0], "at least one row"),
    ]:
        with pytest.raises(ValueError, match=words):
            evaluate(task, prediction, wanted, where, ["a"])
    with pytest.raises(ValueError, match=r"accuracy, .* for classification, got 'mse'"):
        evaluate(task, good, target, domain, ["a"], metric="mse")


# Fairness


def gaps(prediction, target, group, names="ab", positive=None, classes=2) -> tuple[float, float]:
    """Return both gaps of predicted classes, NaN where there is none."""
    task, logits = Task("classification", classes), np.eye(classes)[np.asarray(prediction)]
    both = fairness(task, logits, target, group, list(names), positive=positive)
    return both.get("demographic_parity_gap", math.nan), both.get("equal_opportunity_gap", math.nan)


@given(st.integers(1, 40), st.integers(1, 4), SEEDS)
def test_gaps_are_the_largest_over_pairs_of_groups(rows: int, count: int, seed: int):
    rng = np.random.default_rng(seed)
    prediction, target = rng.integers(0, 2, (2, rows))
    groups = rng.random((rows, count)) < 0.5
    rates = [prediction[here].mean() for here in groups.T if here.any()]
    true = [prediction[here & (target == 1)].mean() for here in groups.T if (here & (target == 1)).any()]
    wanted = [max((abs(a - b) for a, b in combinations(by, 2)), default=math.nan) for by in (rates, true)]
    assert gaps(prediction, target, groups, "abcd"[:count]) == pytest.approx(wanted, nan_ok=True)


def test_closed_forms_of_gaps():
    prediction, target, group = [1, 1, 0, 0, 1, 0], [1, 0, 1, 0, 1, 1], [0, 0, 0, 1, 1, 1]
    assert gaps(prediction, target, group) == pytest.approx((2 / 3 - 1 / 3, 0))  # one of two positive in each
    assert gaps(prediction, target, group, positive=0)[0] == pytest.approx(1 / 3)  # of two classes the same
    assert gaps(target, target, group)[1] == 0  # a perfect model gives equal opportunity
    assert gaps([2, 0, 1, 1], [0, 1, 1, 2], [0, 0, 1, 1], positive=2, classes=3)[0] == 0.5
    assert all(map(math.isnan, gaps([1, 0], [0, 0], [0, 0])))  # a single group
    assert math.isnan(gaps([1, 0], [1, 0], [0, 1])[1])  # the second has no positive sample


def test_fairness_needs_a_positive_class():
    target, group = [1, 1, 0, 0], [0, 0, 1, 1]
    assert fairness(Task("classification", 3), np.eye(3)[[0, 1, 2, 0]], target, group, ["a", "b"]) == {}
    assert fairness(Task("multilabel", 2), np.eye(2)[[0, 1]], np.eye(2), [0, 1], ["a", "b"]) == {}
    assert fairness(NUMBERS, [1.0, 2.0], [1.0, 2.0], [0, 1], ["a", "b"]) == {}
    with pytest.raises(ValueError, match="group must have a row for each of the 2 targets, got 1"):
        gaps([1, 0], [1, 0], [0])


# WILDS' own metrics, where the package can be imported


@pytest.fixture
def wilds() -> ModuleType:
    return pytest.importorskip("wilds.common.metrics.all_metrics", exc_type=ImportError)


@pytest.mark.filterwarnings("ignore")
def test_the_package_measures_the_same(wilds):
    rng = np.random.default_rng(0)
    target, prediction, group = rng.integers(0, 5, 200), rng.integers(0, 6, 200), rng.integers(0, 3, 200)
    ours = evaluate(Task("classification", 6), np.eye(6)[prediction], target, group, ["a", "b", "c"])
    y, p, g = (torch.from_numpy(values) for values in (target, prediction, group))
    for metric, name in (
        (wilds.F1(prediction_fn=None, average="macro"), "macro_f1"),
        (wilds.Recall(prediction_fn=None, average="macro"), "balanced_accuracy"),
    ):
        assert ours[name] == pytest.approx(float(metric.compute(p, y, return_dict=False)), abs=1e-6)
        _, _, worst = metric.compute_group_wise(p, y, g, 3, return_dict=False)
        assert ours[f"{name}_domain_worst"] == pytest.approx(float(worst), abs=1e-6)
    numbers = SimpleNamespace(y=torch.randn(200, 1), p=torch.randn(200, 1))
    ours = evaluate(NUMBERS, numbers.p, numbers.y, group, ["a", "b", "c"])
    _, _, worst = wilds.PearsonCorrelation().compute_group_wise(numbers.p, numbers.y, g, 3, return_dict=False)
    assert ours["pearson_r_domain_worst"] == pytest.approx(float(worst), abs=1e-6)
