"""What each algorithm does, against its definition written out."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.algorithms.test_contract import SIZE, TASKS, make, toy
from tests.matching.oracle import brute_force
from torch.nn.functional import cross_entropy, mse_loss, normalize, one_hot

from okapi.algorithms import SharedDomainsWarning, offline_matches, supervised_loss
from okapi.algorithms.cross_domain import momentum_schedule
from okapi.config import (
    PAPER,
    MatchingSettings,
    MomentumSettings,
    OfflineOkapiSettings,
    PrognosticMatchingSettings,
    PseudoLabelSettings,
    ScorerSettings,
)
from okapi.data.batches import Batch
from okapi.data.task import Task
from okapi.matching import Propensity, SeparableDomainsWarning
from okapi.nn import Pool, consistency, match
from okapi.nn.pseudo_labels import predicted_outcome, pseudo_label_loss

NEAREST = MatchingSettings(k=1, fixed_caliper=None, std_caliper=None)


def test_supervised_losses_by_hand():
    prediction = torch.tensor([[0.3], [1.0]])
    assert supervised_loss(Task("regression"), prediction, torch.tensor([0.0, 3.0])).item() == pytest.approx(4.09 / 2)
    logits, target = torch.tensor([[2.0, 0.0, -1.0]]), torch.tensor([1])
    p = np.exp([2.0, 0.0, -1.0])
    assert supervised_loss(Task("classification", 3), logits, target).item() == pytest.approx(-np.log(p[1] / p.sum()))
    labels = supervised_loss(Task("multilabel", 2), torch.tensor([[0.0, 2.0]]), torch.tensor([[1, 0]]))
    assert labels.item() == pytest.approx((np.log(2) + np.log1p(np.exp(2))) / 2)


def test_erm_sees_labelled_samples_only():
    task = TASKS["classification"]
    batch = toy(task)
    alone = make("erm", task).training_step(Batch(batch.labelled), 0)[0]
    assert make("erm", task).training_step(batch, 0)[0].item() == alone.item()


def predictions(algorithm, *inputs):
    """Return predictions of several inputs in evaluation mode, in which samples do not see one another."""
    algorithm.eval()
    return [algorithm.network(x).prediction for x in inputs]


def test_fixmatch_of_classes_learns_where_the_weak_view_is_confident():
    task = TASKS["classification"]
    batch, algorithm = toy(task), make("fixmatch", task, threshold=0.4, weight=3.0)
    labelled, weak, strong = predictions(
        algorithm, batch.labelled.inputs, batch.unlabelled.inputs, batch.unlabelled.strong
    )
    confidence, pseudo = weak.softmax(1).max(1)
    confident = confidence >= 0.4
    assert 0 < confident.sum() < SIZE
    expected = cross_entropy(strong[confident], pseudo[confident], reduction="sum") / SIZE
    loss, metrics = algorithm.training_step(batch, 0)
    assert loss.item() == pytest.approx(
        (cross_entropy(labelled, batch.labelled.target) + 3 * expected).item(), rel=1e-5
    )
    assert metrics["pseudo_label_rate"].item() == pytest.approx(confident.float().mean().item())


def test_fixmatch_of_a_regression_compares_all_samples():
    task = TASKS["regression"]
    batch, algorithm = toy(task), make("fixmatch", task, weight=2.0)
    weak_l, strong_l, weak_u, strong_u = predictions(
        algorithm, batch.labelled.inputs, batch.labelled.strong, batch.unlabelled.inputs, batch.unlabelled.strong
    )
    expected = mse_loss(weak_l[:, 0], batch.labelled.target) + 2 * mse_loss(
        torch.cat([strong_l, strong_u]), torch.cat([weak_l, weak_u])
    )
    assert algorithm.training_step(batch, 0)[0].item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("kind", TASKS)
def test_fixmatch_stops_the_gradient_at_the_weak_view(kind):
    """The gradient equals that with the weak predictions given as constants."""
    task = TASKS[kind]
    batch, algorithm = toy(task), make("fixmatch", task, threshold=0.0)
    algorithm.eval()
    constant = copy.deepcopy(algorithm)
    algorithm.training_step(batch, 0)[0].backward()
    weak = constant.network(batch.unlabelled.inputs).prediction.detach()
    strong = constant.network(batch.unlabelled.strong).prediction
    supervised = constant.supervised(constant.network(batch.labelled.inputs).prediction, batch.labelled)
    if kind == "regression":
        weak = torch.cat([constant.network(batch.labelled.inputs).prediction.detach(), weak])
        strong = torch.cat([constant.network(batch.labelled.strong).prediction, strong])
    (supervised + pseudo_label_loss(task, predicted_outcome(weak, kind), strong, 0.0)[0]).backward()
    for ours, theirs in zip(algorithm.network.parameters(), constant.network.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-6)


def test_fixmatch_needs_strong_views():
    batch = toy(TASKS["classification"])
    object.__setattr__(batch.unlabelled, "strong", None)
    with pytest.raises(ValueError, match="strong views are missing"):
        make("fixmatch", TASKS["classification"]).training_step(batch, 0)


def test_okapi_plus_learns_aligned_pseudo_labels_of_strong_views_behind_the_error_gate():
    task = TASKS["classification"]
    matching = PrognosticMatchingSettings(class_prior=0.0)
    pseudo_labels = PseudoLabelSettings(weight=2.0, confidence=0.5, error_gate=0.25)
    algorithm = make("okapi_plus", task, matching=matching, pseudo_labels=pseudo_labels, weight=0.0)
    batch = toy(task)
    labelled, weak, strong_view = predictions(
        algorithm, batch.labelled.inputs, batch.unlabelled.inputs, batch.unlabelled.strong
    )
    probability = weak.softmax(1)
    aligned = probability * one_hot(batch.labelled.target, task.outputs).float().mean(0) / probability.mean(0)
    confidence, pseudo = (aligned / aligned.sum(1, keepdim=True)).max(1)
    confident = confidence >= 0.5
    assert 0 < confident.sum() < SIZE
    loss_of_confident = cross_entropy(strong_view[confident], pseudo[confident], reduction="sum") / SIZE
    algorithm.gate.errors.copy_(torch.tensor([0.5, 1.0]))
    loss, metrics = algorithm.training_step(batch, 0)
    expected = cross_entropy(labelled, batch.labelled.target) + 2 * 0.5**2 * loss_of_confident
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert metrics["pseudo_label_loss"].item() == pytest.approx(loss_of_confident.item(), rel=1e-5)
    assert metrics["pseudo_label_rate"].item() == pytest.approx(confident.float().mean().item())
    assert algorithm.needs.strong == "unlabelled"


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("regression", {}),
        ("classification", {"matching": PrognosticMatchingSettings(prognostic_caliper=None)}),
        ("classification", {"pseudo_labels": PseudoLabelSettings(weight=0.0)}),
    ],
)
def test_without_pseudo_labels_no_strong_views_are_needed(kind, settings):
    algorithm = make("okapi_plus", TASKS[kind], **settings)
    assert algorithm.needs.strong == "none"
    assert "pseudo_label_loss" not in algorithm.training_step(toy(TASKS[kind]), 0)[1]


def test_okapi_plus_does_without_strong_views_where_the_data_have_none():
    batch = toy(TASKS["classification"])
    object.__setattr__(batch.unlabelled, "strong", None)
    loss, metrics = make("okapi_plus", TASKS["classification"]).training_step(batch, 0)
    assert loss.isfinite()
    assert "pseudo_label_loss" not in metrics


def test_the_momentum_head_predicts_once_in_a_step():
    algorithm, calls = make("okapi_plus", TASKS["classification"]), []
    algorithm.momentum_head.register_forward_hook(lambda module, inputs, output: calls.append(len(output)))
    for step in range(3):
        algorithm.training_step(toy(TASKS["classification"]), step)
    assert calls == [2 * SIZE] * 3


@pytest.mark.parametrize(
    ("name", "matching", "scorer"),
    [
        ("okapi", MatchingSettings(), True),
        ("okapi", MatchingSettings(fixed_caliper=None), True),
        ("okapi", NEAREST, False),
        ("okapi_plus", PrognosticMatchingSettings(), False),
        ("okapi_plus", PrognosticMatchingSettings(std_caliper=1.0), True),
    ],
)
def test_there_is_a_scorer_only_if_a_caliper_compares_propensities(name, matching, scorer):
    algorithm = make(name, TASKS["classification"], matching=matching)
    assert (algorithm.consistency.scorer is not None) == scorer
    assert any("scorer" in key for key in algorithm.state_dict()) == scorer
    metrics = algorithm.training_step(toy(TASKS["classification"]), 0)[1]
    assert ({"propensity_loss", "propensity_accuracy"} <= set(metrics)) == scorer
    groups = algorithm.parameter_groups(0.1)
    assert [group["lr"] for group in groups] == [0.1] * (1 + scorer)


@pytest.mark.parametrize("mode", ["binary", "label", "multi-label"])
@pytest.mark.parametrize(
    ("name", "kind", "matching"),
    [
        ("okapi", "classification", MatchingSettings(k=1, std_caliper=1.0)),
        ("okapi", "regression", NEAREST),
        ("okapi_plus", "classification", PrognosticMatchingSettings(k=1, prognostic_caliper=1.0)),
        ("okapi_plus", "regression", PrognosticMatchingSettings(k=1)),
        ("okapi_plus", "multilabel", PrognosticMatchingSettings(k=1, prognostic_caliper=1.0)),
        ("okapi_plus", "classification", PrognosticMatchingSettings(k=1, fixed_caliper=0.9, prognostic_caliper=1.0)),
    ],
)
def test_a_training_step_and_validation_and_offline_okapi_match_the_same_samples_alike(
    name, kind, matching, mode, monkeypatch
):
    task, matches_of_the_step = TASKS[kind], []

    def recorded(*arguments):
        matches_of_the_step.append(match_prepared(*arguments))
        return matches_of_the_step[-1]

    match_prepared = consistency.match_prepared
    monkeypatch.setattr(consistency, "match_prepared", recorded)
    algorithm, batch = make(name, task, mode, torch.float64, matching=matching), toy(task, mode, torch.float64)
    algorithm.eval()  # the network's encodings are those of the momentum encoder then
    algorithm.training_step(batch, 0)
    (trained,) = matches_of_the_step

    with torch.no_grad():
        outputs = [algorithm.network(part.inputs) for part in (batch.labelled, batch.unlabelled)]
    pools = [
        algorithm.pool(*outputs[0], batch.labelled.domain, batch.labelled.target),
        algorithm.pool(*outputs[1], batch.unlabelled.domain, None),
    ]
    both = Pool(*(None if parts[0] is None else torch.cat(parts) for parts in zip(*pools, strict=True)))
    validated = match(len(both.domain), both, matching, kind)
    assert len(trained) > 0
    for ours, theirs in zip((trained.query, trained.key), (validated.query, validated.key), strict=True):
        assert torch.equal(ours, theirs)
    torch.testing.assert_close(trained.distance, validated.distance)
    if name == "okapi" and not matching.needs_propensity:  # offline Okapi fits a scorer of its own
        rows = offline_matches(both.encoding, both.domain, OfflineOkapiSettings(matching=matching))
        assert torch.equal(rows[trained.query], trained.key[:, 0])
        assert (rows >= 0).sum() == len(trained)


def test_offline_okapi_pulls_both_sides_of_a_pair():
    task = TASKS["classification"]
    batch, algorithm = toy(task), make("offline_okapi", task, weight=2.0)
    algorithm.eval()
    encode = algorithm.network.encoder
    samples = torch.cat([batch.labelled.inputs, batch.unlabelled.inputs])
    matched = torch.cat([batch.labelled.matched, batch.unlabelled.matched])
    match = torch.cat([batch.labelled.match, batch.unlabelled.match]).requires_grad_()
    pairs = normalize(encode(samples[matched]), dim=1) - normalize(encode(match), dim=1)
    loss, metrics = algorithm.training_step(batch, 0)
    expected = pairs.square().sum(1).mean() * matched.float().mean()
    assert (loss - metrics["supervised_loss"]).item() == pytest.approx(2 * expected.item(), rel=1e-4)
    expected.backward()
    assert match.grad.abs().sum() > 0
    assert metrics["match_rate"].item() == pytest.approx(matched.float().mean().item())


def test_offline_okapi_without_any_match_is_erm():
    task = TASKS["classification"]
    batch = toy(task)
    for pool in (batch.labelled, batch.unlabelled):
        object.__setattr__(pool, "matched", torch.zeros(SIZE, dtype=torch.bool))
        object.__setattr__(pool, "match", pool.inputs[:0])
    loss, metrics = make("offline_okapi", task).training_step(batch, 0)
    assert loss.item() == metrics["supervised_loss"].item()


def test_offline_matches_are_those_of_brute_force_on_unit_vectors():
    torch.manual_seed(0)
    x, domain = torch.randn(40, 3), (torch.rand(40) < 0.5).long()
    x[domain == 1] += 0.5
    rows = offline_matches(x, domain, OfflineOkapiSettings())
    unit = normalize(x, dim=1).numpy()
    score = Propensity(temperature=0.7).fit(unit, domain.numpy()).scores(unit)
    expected = torch.full((40,), -1)
    for query, keys, _ in brute_force(
        unit, unit, query_domain=domain, key_domain=domain, query_propensity=score, key_propensity=score,
        fixed_caliper=0.9, std_caliper=0.6,
    ):  # fmt: skip
        expected[query] = keys[0]
    assert torch.equal(rows, expected)
    assert 0 < (rows >= 0).sum() < 40 or (rows >= 0).all()


def test_offline_matches_warn_of_separable_domains():
    x = torch.cat([torch.randn(20, 2), torch.randn(20, 2) + 100])
    with pytest.warns(SeparableDomainsWarning):
        offline_matches(torch.cat([x, torch.ones(40, 1)], 1), torch.arange(40) // 20, OfflineOkapiSettings())


@pytest.mark.parametrize("direction", [(0, 1), (1, 0)])
def test_one_direction_with_online_queries_encodes_only_what_it_needs(direction):
    task = TASKS["classification"]
    batch = toy(task)
    algorithm = make("okapi", task, queries="online", matching=replace(NEAREST, direction=direction))
    online, momentum = [], []
    algorithm.network.encoder.register_forward_hook(lambda module, inputs, output: online.append(len(output)))
    algorithm.consistency.momentum.register_forward_hook(lambda module, inputs, output: momentum.append(len(output)))
    _, metrics = algorithm.training_step(batch, 0)
    assert sum(momentum) == SIZE
    assert sum(online) == (SIZE if direction == (0, 1) else 2 * SIZE)
    assert metrics["match_rate"].item() == 0.5  # every query of one pool, over the samples of both
    pool = batch.unlabelled if direction == (0, 1) else batch.labelled
    expected = normalize(algorithm.consistency.momentum(pool.inputs), dim=1)
    torch.testing.assert_close(algorithm.consistency.encodings.rows(), expected)


@pytest.mark.parametrize(
    ("name", "normalised", "calls"),
    [
        ("okapi", True, [SIZE, SIZE]),  # by pool, as in the paper
        ("okapi", False, [2 * SIZE]),
        ("okapi_plus", True, [3 * SIZE]),
        ("okapi_plus", False, [2 * SIZE, SIZE]),  # weak views, then strong ones
    ],
)
def test_which_samples_are_encoded_together(name, normalised, calls):
    algorithm, seen = make(name, TASKS["classification"]), []
    if not normalised:
        for encoder in (algorithm.network.encoder, algorithm.consistency.momentum.average.module):
            encoder[1] = torch.nn.Identity()
    algorithm.network.encoder.register_forward_hook(lambda module, inputs, output: seen.append(len(output)))
    algorithm.training_step(toy(TASKS["classification"]), 0)
    assert seen == calls


@pytest.mark.parametrize("one_way", [False, True])
def test_by_pool_labelled_samples_are_normalised_without_the_others(one_way):
    task = TASKS["classification"]
    batch = toy(task)
    elsewhere = replace(batch.unlabelled, inputs=3 * batch.unlabelled.inputs + 1)
    settings = {"queries": "online", "matching": replace(PAPER.matching, direction=(1, 0))} if one_way else {}

    def losses(batch_norm):
        made = [make("okapi", task, batch_norm=batch_norm, **settings) for _ in range(2)]
        batches = batch, Batch(batch.labelled, elsewhere)
        return [
            algorithm.training_step(each, 0)[1]["supervised_loss"]
            for algorithm, each in zip(made, batches, strict=True)
        ]

    first, second = losses("by_pool")
    assert first == second
    first, second = losses("joint")
    assert first != second


def test_shared_domains_are_named():
    algorithm = make("okapi", TASKS["classification"])
    names = ("oslo", "bergen", "tromso")
    with pytest.warns(SharedDomainsWarning, match=r"2 domains .* \(bergen, tromso\)"):
        algorithm.check_pools(torch.tensor([0, 1, 2]), torch.tensor([1, 1, 2]), names)
    algorithm.check_pools(torch.tensor([0, 1]), torch.tensor([2]), names)  # nothing shared, no warning
    by_label = make("okapi", TASKS["classification"], "label")
    by_label.check_pools(torch.tensor([0]), torch.tensor([0]), names)


def test_the_scorer_may_have_a_learning_rate_that_differs():
    algorithm = make("okapi", TASKS["classification"], scorer=ScorerSettings(learning_rate=3.0))
    assert [group["lr"] for group in algorithm.parameter_groups(0.1)] == [0.1, 3.0]


@pytest.mark.parametrize(("steps", "paper"), [(120_000, 0.999), (30_000, 0.996), (20_000, 0.996)])
def test_momentum_by_the_length_of_the_training_is_about_the_papers(steps, paper):
    schedule = momentum_schedule(MomentumSettings(), steps)
    assert schedule(0) == schedule(steps)
    assert 1 - schedule(0) == pytest.approx(1 - paper, rel=0.26)


def test_momentum_goes_from_start_to_end():
    schedule = momentum_schedule(MomentumSettings(start=0.9, end=1.0), 10)
    assert [schedule(step) for step in (0, 5, 10)] == [0.9, 0.95, 1.0]
    assert momentum_schedule(MomentumSettings(start=0.9), 10)(10) == 0.9
    assert momentum_schedule(MomentumSettings(), 50)(0) == 0  # so short that nothing may lag


def test_an_unknown_domain_is_rejected():
    task = TASKS["classification"]
    batch = toy(task, "label")
    batch.unlabelled.domain[0] = 7
    for name in ("okapi", "okapi_plus"):
        with pytest.raises(ValueError, match=r"domain must be between 0 and 2, got \[7\]"):
            make(name, task, "label").training_step(batch, 0)
