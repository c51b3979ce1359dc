"""Diagnoses of made-up domains whose truth is known, and the rules on numbers made by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestNeighbors

from okapi.config import PAPER, MatchingSettings, OkapiPlusSettings, PrognosticMatchingSettings, make_config
from okapi.data.task import Task
from okapi.evaluation.diagnosis import CALLED, STRATEGIES, diagnose
from okapi.evaluation.diagnosis.inputs import gather
from okapi.evaluation.diagnosis.plain_predictor import Predictor
from okapi.evaluation.diagnosis.strategy_pairs import vote
from okapi.evaluation.diagnosis.verdict import LEAST_MATCHED, MARGIN, expectations, rule
from okapi.matching.centring import PRIOR
from okapi.nn.pseudo_labels import align, class_frequencies

ERM = {"name": "erm"}
APART = pd.DataFrame({"domain": ["c"], "auc": [0.9]})


def sites(n: int = 120, shift: float = 0.3, seed: int = 0, domains: int = 3) -> tuple[Any, Any, Any]:
    """Return encodings, domains a, b, c and classes, three of them, of n samples of each domain."""
    rng = np.random.default_rng(seed)
    domain = np.repeat(np.arange(domains), n)
    label = rng.integers(0, 3, len(domain))
    x = np.eye(10)[label] + shift * np.eye(10)[4 + domain] + 0.3 * rng.normal(size=(len(domain), 10))
    return x.astype(np.float32), np.array(list("abcdefgh"))[domain], label


def one(frame: pd.DataFrame, **where: Any) -> dict[str, Any]:
    """Return the only row of a table that has these values."""
    (row,) = frame[np.all([frame[name] == value for name, value in where.items()], axis=0)].to_dict("records")
    return row


def gathered(x: Any, domain: Any, target: Any, unlabelled: Any = ("c",)) -> Any:
    kind = "classification"
    return gather(x, domain, target, unlabelled=unlabelled, task=kind, normalise=True, limit=5000, seed=0)


# Numbers


def test_domains_that_are_the_same_cannot_be_told_apart():
    x, domain, label = sites(n=300, shift=0.0)
    found = diagnose(x, domain, label, unlabelled=["c"])
    assert found.domains.auc.between(0.4, 0.6).all()
    assert found.reasons[0].startswith("c and the labelled domains can hardly be told apart")
    assert one(found.expected, strategy="none")["match_rate"] == 1


def test_precision_and_predictor_are_those_of_scikit_learn():
    x, domain, label = sites()
    found = diagnose(x, domain, label, unlabelled=["c"], k=3, normalise=False)
    row = one(found.left_out, domain="a", strategy="none")
    others, mine = domain == "b", domain == "a"
    near = NearestNeighbors(n_neighbors=3).fit(x[others]).kneighbors(x[mine], return_distance=False)
    keys = label[others][near]
    assert row["precision"] == pytest.approx((keys == label[mine][:, None]).mean())
    chance = (label[mine][:, None] == label[others]).mean()
    assert row["chance"] == pytest.approx(chance)
    scale = np.sqrt(x[others].var(axis=0).sum())
    model = LogisticRegression(C=10, max_iter=1000).fit(x[others] / scale, label[others])
    assert row["predictor"] == pytest.approx(model.score(x[mine] / scale, label[mine]))
    more = np.concatenate([x[others], x[mine]]) / scale
    voted = np.array([np.bincount(keys_, minlength=3).argmax() if len(set(keys_)) < 3 else keys_[0] for keys_ in keys])
    learnt = LogisticRegression(C=10, max_iter=1000).fit(more, np.concatenate([label[others], voted]))
    assert row["pseudo_labelled"] == pytest.approx(learnt.score(x[mine] / scale, label[mine]), abs=0.01)


def offset() -> tuple[Any, Any, Any]:
    """Return samples of three domains in which classes lie alike but for a shift, along what tells them apart."""
    rng = np.random.default_rng(0)
    domain = np.repeat([0, 1, 2], 120)
    label = np.where(rng.random(360) < 0.5, 0, rng.integers(0, 3, 360))
    shifts = np.array([[0.0, 0.0, 0.0, 0.0], [2.0, -1.0, 0.5, 1.0], [-1.0, 2.0, 0.0, 3.0]])
    x = np.eye(3, 4)[label] + shifts[domain] + 0.15 * rng.normal(size=(360, 4))
    return x.astype(np.float32), np.array(list("abc"))[domain], label


def brute(query: Any, keys: Any, k: int, admissible: Any = True) -> tuple[Any, Any]:
    """Return queries with k admissible keys, and these, nearest first."""
    apart = np.linalg.norm(query[:, None] - keys, axis=2)
    apart = np.where(admissible, apart, np.inf)
    matched = np.flatnonzero(np.isfinite(apart).sum(axis=1) >= k)
    return matched, np.argsort(apart[matched], axis=1, kind="stable")[:, :k]


def test_domains_a_constant_apart_are_paired_rightly_less_their_means():
    x, domain, label = offset()
    found = diagnose(x, domain, label, unlabelled=["c"], k=3, normalise=False)
    mine, others = domain == "a", domain == "b"
    truth, labels = label[mine], label[others]
    both = x[mine | others].astype(np.float64)
    units = []
    for side in (mine, others):
        own = x[side].astype(np.float64)
        less = own - (own.sum(axis=0) + PRIOR * both.mean(axis=0)) / (len(own) + PRIOR)
        units.append(less / np.linalg.norm(less, axis=1, keepdims=True))
    scale = np.sqrt(x[others].var(axis=0).sum())
    model = LogisticRegression(C=10, max_iter=1000).fit(x[others] / scale, labels)
    known, said = np.eye(3)[labels], model.predict_proba(x[mine] / scale)
    outcome = torch.from_numpy(np.concatenate([said, known]))
    is_known = torch.arange(len(outcome)) >= len(said)
    encodings = torch.from_numpy(x[mine]), torch.from_numpy(x[others])
    said = align(torch.from_numpy(said), *class_frequencies(outcome, is_known, encodings, 0.5)).numpy()
    width = np.sqrt((said.var(axis=0, ddof=1).sum() + known.var(axis=0, ddof=1).sum()) / 2) / 3
    within = np.linalg.norm(said[:, None] - known, axis=2) <= width
    wanted = {
        "none": brute(x[mine], x[others], 3),
        "centred": brute(*units, 3),
        "okapi_plus": brute(*units, 3, within),
    }
    for name, (matched, keys) in wanted.items():
        row = one(found.left_out, domain="a", strategy=name)
        assert row["matched"] == len(matched)
        assert row["precision"] == pytest.approx((labels[keys] == truth[matched][:, None]).mean())
        assert row["distinct_keys"] == pytest.approx(len(np.unique(keys)) / keys.size)
    plain, centred = (one(found.expected, strategy=name) for name in ("none", "centred"))
    assert plain["precision"] < 0.6 < 0.95 < centred["precision"]
    assert (plain["expectation"], centred["expectation"]) == ("hurt", "help")
    assert "With centring alone and Okapi+: a plain model gains by learning from pairs." in found.reasons
    assert found.settings["name"] == "okapi_plus"
    assert (
        one(found.unlabelled_matches, strategy="centred")["distinct_keys"]
        > 2 * (one(found.unlabelled_matches, strategy="none")["distinct_keys"])
    )


def test_numbers_are_compared_in_deviations_and_by_skill():
    x, domain, _ = sites()
    y = 5 + 7 * x[:, 0].astype(float)
    found = diagnose(x, domain, y, unlabelled=["c"], task="regression", k=2, normalise=False)
    row = one(found.left_out, domain="b", strategy="none")
    known = domain != "c"
    score = (y - y[known].mean()) / y[known].std()
    others, mine = score[domain == "a"], score[domain == "b"]
    near = NearestNeighbors(n_neighbors=2).fit(x[domain == "a"]).kneighbors(x[domain == "b"], return_distance=False)
    without = np.abs(mine - others.mean()).mean()
    assert row["precision"] == pytest.approx(1 - np.abs(others[near].mean(axis=1) - mine).mean() / without)
    assert row["predictor"] > 0.95  # which is linear
    assert one(found.unlabelled_matches, strategy="none")["agreement"] > 0.8


def test_a_separable_domain_funnels_the_calipers_onto_few_keys():
    rng = np.random.default_rng(0)
    domain, label = np.repeat([0, 1, 2], 400), rng.integers(0, 2, 1200)
    x = rng.normal(size=(1200, 6))
    x[:, 0] += np.where(domain == 2, 3.6, 0)
    x[:, 1] += 3 * label
    found = diagnose(x, domain, label, unlabelled=["2"], k=1, normalise=False)
    assert found.domains.auc.iloc[0] > 0.99
    assert "told apart almost without error" in found.reasons[0]
    row, nearest = (one(found.expected, strategy=name) for name in ("paper", "none"))
    assert row["busiest_key"] > 1.5 * nearest["busiest_key"]
    _, unlabelled = table(paper={"distinct_keys": 0.1})
    row = one(expectations("leave_one_domain_out", unlabelled, unlabelled), strategy="paper")
    assert (row["funnels"], row["expectation"]) == (True, "hurt")
    assert row["why"] == "few labelled samples serve as the match of many"


def test_labels_that_mean_nothing_are_found_out():
    x, domain, label = sites(n=200)
    found = diagnose(x, domain, np.random.default_rng(1).permutation(label), unlabelled=["c"])
    row = one(found.expected, strategy="none")
    assert row["precision"] == pytest.approx(row["chance"], abs=0.05)
    assert (found.verdict, found.chosen) == ("hurt", None)
    assert found.headline == "Matching is likely to hurt here."
    assert found.settings == ERM
    assert "these encodings say nothing of the targets" in found.reasons[1]


def test_good_pairs_are_not_said_to_hurt():
    x, domain, label = sites(shift=1.0)
    found = diagnose(x, domain, label, unlabelled=["c"])
    assert found.verdict in ("help", "may help")
    assert one(found.expected, strategy="okapi_plus")["precision"] > 0.9
    assert found.domains.estimated_accuracy.iloc[0] == pytest.approx(0.95, abs=0.1)


@pytest.mark.parametrize("labelled", [2, 1])
def test_a_shift_of_the_classes_is_found(labelled):
    x, domain, label = sites(n=400, domains=labelled + 1, shift=0.1)
    target = "abc"[labelled]
    rare = (domain == target) & (label != 0) & (np.arange(len(label)) % 6 > 0)
    for keep, shifted in ((~rare, True), (np.ones(len(label), bool), False)):
        found = diagnose(x[keep], domain[keep], label[keep], unlabelled=[target])
        here, there = (np.bincount(label[keep & side], minlength=3) for side in (domain == target, domain != target))
        truth = np.abs(here / here.sum() - there / there.sum()).sum() / 2
        assert found.domains.class_shift.iloc[0] == pytest.approx(truth, abs=0.06)
        assert any(reason.startswith("Classes seem to be more") for reason in found.reasons) == shifted


# What is read


def test_neither_the_order_of_rows_nor_targets_of_unlabelled_domains_matter():
    x, domain, label = sites(n=40)
    garbage = np.where(domain == "c", "?", label.astype(str))
    order = np.random.default_rng(1).permutation(len(x))
    missing = label.astype(object)
    missing[domain == "c"] = None
    first = diagnose(x, domain, garbage, unlabelled=["c"], limit=30).as_dict()
    assert diagnose(x[order], domain[order], missing[order], limit=30).as_dict() == first
    assert first["domains"][0]["samples"] == 30
    assert first["notes"] == ["30 samples of each larger domain are drawn (seed 0): 'a', 'b', 'c'."]


def test_a_sample_without_a_target_in_a_labelled_domain_is_left_out():
    x, domain, label = sites(n=40)
    found = gathered(x, domain, pd.Series(label, dtype="Int64").mask(np.arange(120) < 5))
    assert found.notes == ("5 samples of labelled domains have no target and are left out.",)
    assert len(found.rows("a")) == 35


def test_without_targets_each_domain_is_matched_to_all_others_and_nothing_is_promised():
    x, domain, _ = sites(n=20)
    found = diagnose(x, domain)
    assert (found.verdict, found.basis, found.task) == ("unknown", "none", None)
    assert found.domains.domain.tolist() == ["a", "b", "c"]
    assert found.left_out.empty
    assert found.expected.strategy.tolist() == ["none", "paper", "centred"]  # okapi_plus needs labels
    assert settings_of(found).matching == PrognosticMatchingSettings(prognostic_caliper=None)


def test_with_one_labelled_domain_pairs_are_held_against_the_predictor():
    x, domain, label = sites(n=60, domains=2)
    found = diagnose(x, domain, label, unlabelled=["b"])
    assert (found.basis, found.verdict) == ("agreement", "may help")
    assert one(found.expected, strategy="none")["agreement"] > 0.8
    assert len(found.domains) == 1


REJECTED = {
    "domain must hold at least two domains, got only": {"domain": ["a"] * 60},
    "domain 'b' has 3 samples, at least 10 are wanted": {"domain": ["a"] * 57 + ["b"] * 3},
    "domain is missing in row 1": {"domain": ["a", None] * 30},
    "domain must have shape": {"domain": ["a", "b"]},
    "X must have shape": {"X": np.zeros(60)},
    "X must be finite, row 7 holds": {"X": np.where(np.arange(60)[:, None] == 7, np.nan, np.ones((60, 2)))},
    "target must have shape": {"target": [1, 2]},
    "target must differ between samples": {"target": [1.0] * 30 + [np.nan] * 30},
    "target has no labels": {"target": [np.nan] * 60},
    "unlabelled must name the domains whose targets are not to be read": {"target": [0, 1] * 30},
    "unlabelled must name domains of 'a', 'b', got 'c'": {"target": [0, 1] * 30, "unlabelled": ["c"]},
    "unlabelled needs target": {"unlabelled": ["b"]},
    "domain 'a' has 4 targets, at least 10": {"target": [0, 1] * 2 + [np.nan] * 56, "unlabelled": ["b"]},
    "task must be classification or regression": {"task": "ranking"},
    "task must be regression for targets that are not whole, got 0.5": {"target": [0.5, 1] * 30, "unlabelled": ["b"]},
    "target must be a finite number for regression, got 'x' in row 1": {
        "target": ["1", "x"] * 30, "unlabelled": ["b"], "task": "regression"
    },
    "limit must be at least 10, got 3": {"limit": 3},
    "k must be a whole number": {"k": 0},
    "k must be at most 30, which is all the samples of the smallest domain, got 31": {"k": 31},
}  # fmt: skip


@pytest.mark.parametrize("message", REJECTED)
def test_what_is_rejected(message):
    good: dict[str, Any] = {"X": np.random.default_rng(0).normal(size=(60, 2)), "domain": ["a"] * 30 + ["b"] * 30}
    with pytest.raises(ValueError, match=message):
        diagnose(**(good | REJECTED[message]))


# Parts


@given(st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=3), min_size=1, max_size=6))
def test_a_vote_is_won_by_the_most_and_then_by_the_nearest(keys):
    for row, winner in zip(keys, vote(Task("classification", 4), np.array(keys)), strict=True):
        most = max(row.count(label) for label in row)
        assert winner == next(label for label in row if row.count(label) == most)


def test_a_class_that_the_predictor_never_saw_is_not_predicted():
    x, _, label = sites()
    known = label != 2
    logits = Predictor(Task("classification", 4)).fit(x[known], label[known]).outputs(x)
    assert logits.shape == (len(x), 4)
    assert set(logits.argmax(axis=1)) <= {0, 1}


# Rules


def table(**rows: dict[str, float]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return tables of domains left out and of matches with these numbers, and usual ones elsewhere."""
    usual = {"precision": 0.5, "pseudo_labelled": 0.6, "match_rate": 1.0, "distinct_keys": 0.3, "busiest_key": 0.01}
    usual["agreement"] = 0.9
    frame = pd.DataFrame([{"strategy": name, **usual, **rows.get(name, {})} for name in STRATEGIES])
    frame = frame.assign(domain="a", queries=100, predictor=0.6, predictor_matched=0.6, chance=0.1)
    frame["matched"] = (100 * frame.match_rate).astype(int)
    return frame, frame


@pytest.mark.parametrize(
    ("rows", "verdict", "chosen"),
    [
        ({}, "hurt", None),
        ({"okapi_plus": {"precision": 0.8}}, "may help", "okapi_plus"),
        ({"okapi_plus": {"precision": 0.8, "match_rate": LEAST_MATCHED - 0.01}}, "hurt", None),
        ({"okapi_plus": {"precision": 0.8, "pseudo_labelled": 0.6 + MARGIN}}, "help", "okapi_plus"),
        ({"okapi_plus": {"precision": 0.8, "pseudo_labelled": 0.5}}, "hurt", None),
        ({"okapi_plus": {"precision": 0.14}}, "hurt", None),
        ({"paper": {"precision": 0.7}}, "may help", "paper"),
        ({"centred": {"precision": 0.7}}, "may help", "centred"),
        ({"paper": {"precision": 0.7}, "okapi_plus": {"precision": 0.65}}, "may help", "okapi_plus"),
        ({"none": {"precision": 0.6, "pseudo_labelled": 0.7}, "okapi_plus": {"precision": 0.8}}, "help", "none"),
        ({"none": {"pseudo_labelled": 0.7}, "okapi_plus": {"precision": 0.8}}, "may help", "okapi_plus"),
        ({"centred": {"precision": 0.9, "pseudo_labelled": 0.9, "distinct_keys": 0.1}}, "hurt", None),
        ({"paper": {"precision": 0.9, "pseudo_labelled": 0.9, "distinct_keys": 0.1}}, "hurt", None),
        ({"paper": {"precision": 0.9, "pseudo_labelled": 0.9, "busiest_key": 0.3}}, "hurt", None),
    ],
)
def test_verdicts(rows, verdict, chosen):
    found = rule("leave_one_domain_out", expectations("leave_one_domain_out", *table(**rows)), APART, k=5)
    assert (found.verdict, found.chosen) == (verdict, chosen)
    assert all(reason.endswith(".") for reason in found.reasons)
    assert (found.settings == ERM) == (verdict == "hurt")


NEAREST = MatchingSettings(fixed_caliper=None, std_caliper=None)
MEANT = {
    "none": NEAREST,
    "paper": PAPER.matching,
    "centred": PrognosticMatchingSettings(prognostic_caliper=None),
    "okapi_plus": PrognosticMatchingSettings(),
}


def settings_of(found: Any) -> Any:
    """Return the settings to paste, as a config reads them."""
    rest = {"data": {"name": "sites"}, "model": {"name": "mlp"}, "training": {"steps": 600}}
    return make_config({**rest, "algorithm": found.settings}).algorithm


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_settings_to_paste_mean_what_was_matched(strategy):
    found = rule(
        "leave_one_domain_out",
        expectations("leave_one_domain_out", *table(**{strategy: {"pseudo_labelled": 0.7, "precision": 0.7}})),
        APART,
        5,
    )
    assert (found.verdict, found.chosen) == ("help", strategy)
    assert found.headline.startswith(f"Matching is likely to help here, with {CALLED[strategy]}")
    settings = settings_of(found)
    assert settings.matching == MEANT[strategy]
    plus = OkapiPlusSettings() if strategy in ("centred", "okapi_plus") else replace(PAPER, momentum=settings.momentum)
    assert replace(settings, matching=plus.matching) == plus
    assert settings.momentum.start == "auto"


@pytest.mark.parametrize(("agreement", "verdict"), [(0.6, "may help"), (0.4, "unknown")])
def test_a_predictor_that_pairs_contradict_is_not_believed(agreement, verdict):
    _, unlabelled = table(**{name: {"agreement": agreement} for name in STRATEGIES if name != "okapi_plus"})
    found = rule("agreement", expectations("agreement", pd.DataFrame(), unlabelled), APART, k=5)
    assert (found.verdict, found.chosen) == (verdict, "okapi_plus")


def test_domains_weigh_as_many_samples_as_they_have():
    one_, _ = table()
    other = one_.assign(domain="b", precision=0.8, queries=300, matched=300)
    found = expectations("leave_one_domain_out", pd.concat([one_, other]), one_)
    assert found.precision.tolist() == pytest.approx([(100 * 0.5 + 300 * 0.8) / 400] * 4)
