"""What each algorithm does, against its definition written out."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.algorithms.test_contract import SIZE, TASKS, make, toy
from tests.matching.oracle import brute_force
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss, normalize, one_hot

from okapi.algorithms import Okapi, SharedDomainsWarning, offline_matches, supervised_loss
from okapi.algorithms.fixmatch import FixMatchSettings
from okapi.algorithms.offline_okapi import OfflineOkapiSettings, offline_outcomes
from okapi.algorithms.okapi import OkapiSettings
from okapi.algorithms.outcomes import OUTCOMES, teaching_loss
from okapi.data.batches import Batch
from okapi.data.task import Task
from okapi.matching import SeparableDomainsWarning
from okapi.matching.centring import PRIOR
from okapi.nn.outcome_bank import predicted_outcome


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


def test_fixmatch_of_classes_teaches_where_the_weak_view_is_sure():
    task = TASKS["classification"]
    batch, algorithm = toy(task), make("fixmatch", task, threshold=0.4, weight=3.0)
    labelled, weak, strong = predictions(
        algorithm, batch.labelled.inputs, batch.unlabelled.inputs, batch.unlabelled.strong
    )
    confidence, pseudo = weak.softmax(1).max(1)
    sure = confidence >= 0.4
    assert 0 < sure.sum() < SIZE
    expected = cross_entropy(strong[sure], pseudo[sure], reduction="sum") / SIZE
    loss, figures = algorithm.training_step(batch, 0)
    assert loss.item() == pytest.approx(
        (cross_entropy(labelled, batch.labelled.target) + 3 * expected).item(), rel=1e-5
    )
    assert figures["taught"].item() == pytest.approx(sure.float().mean().item())


def test_fixmatch_of_numbers_compares_all_samples():
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
    (supervised + teaching_loss(task, predicted_outcome(weak, OUTCOMES[kind]), strong, 0.0)[0]).backward()
    for ours, theirs in zip(algorithm.network.parameters(), constant.network.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-6)


def test_fixmatch_needs_strong_views_and_a_sound_threshold():
    with pytest.raises(ValueError, match=r"threshold must be in \[0, 1\], got 1.2"):
        FixMatchSettings(threshold=1.2)
    batch = toy(TASKS["classification"])
    object.__setattr__(batch.unlabelled, "strong", None)
    with pytest.raises(ValueError, match="strong views are missing"):
        make("fixmatch", TASKS["classification"]).training_step(batch, 0)


def test_okapi_teaches_strong_views_the_aligned_prognosis():
    task = TASKS["classification"]
    settings = {"outcome_caliper": "auto", "fixed_caliper": None, "std_caliper": None, "weight": 0.0}
    settings |= {"outcome_tolerance": 0.25}
    algorithm = make("okapi", task, outcome_clusters=0, self_training=2.0, confidence=0.5, bank=64, **settings)
    batch = toy(task)
    labelled, weak, strong_view = predictions(
        algorithm, batch.labelled.inputs, batch.unlabelled.inputs, batch.unlabelled.strong
    )
    said = weak.softmax(1)
    aligned = said * one_hot(batch.labelled.target, task.outputs).float().mean(0) / said.mean(0)
    confidence, pseudo = (aligned / aligned.sum(1, keepdim=True)).max(1)
    sure = confidence >= 0.5
    assert 0 < sure.sum() < SIZE
    lesson = cross_entropy(strong_view[sure], pseudo[sure], reduction="sum") / SIZE
    algorithm.consistency.outcomes.judged.copy_(torch.tensor([0.5, 1.0]))
    loss, figures = algorithm.training_step(batch, 0)
    scorer = figures["propensity_loss"]
    expected = cross_entropy(labelled, batch.labelled.target) + 2 * 0.5**2 * lesson + scorer
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert figures["taught"].item() == pytest.approx(sure.float().mean().item())
    assert algorithm.needs.strong == "unlabelled"


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("regression", {}),
        ("classification", {"outcome_caliper": None}),
        ("classification", {"queries": "online", "direction": (0, 1)}),
        ("classification", {"self_training": 0.0}),
    ],
)
def test_what_cannot_teach_asks_for_no_strong_views(kind, settings):
    assert make("okapi", TASKS["classification"], outcome_caliper="auto").needs.strong == "unlabelled"
    assert make("okapi", TASKS[kind], **{"outcome_caliper": "auto"} | settings).needs.strong == "none"


def test_okapi_does_without_strong_views_that_are_not_there():
    batch = toy(TASKS["classification"])
    object.__setattr__(batch.unlabelled, "strong", None)
    loss, figures = make("okapi", TASKS["classification"], outcome_caliper="auto").training_step(batch, 0)
    assert loss.isfinite()
    assert "taught" not in figures


def test_confidence_is_a_probability():
    with pytest.raises(ValueError, match=r"confidence must be in \[0, 1\], got 1.5"):
        OkapiSettings(confidence=1.5)


def test_some_error_is_tolerated():
    with pytest.raises(ValueError, match=r"outcome_tolerance must be in \(0, 1\], got 0"):
        OkapiSettings(outcome_tolerance=0)


def test_offline_okapi_pulls_both_sides_of_a_pair():
    task = TASKS["classification"]
    batch, algorithm = toy(task), make("offline_okapi", task, weight=2.0)
    algorithm.eval()
    encode = algorithm.network.encoder
    samples = torch.cat([batch.labelled.inputs, batch.unlabelled.inputs])
    matched = torch.cat([batch.labelled.matched, batch.unlabelled.matched])
    match = torch.cat([batch.labelled.match, batch.unlabelled.match]).requires_grad_()
    pairs = normalize(encode(samples[matched]), dim=1) - normalize(encode(match), dim=1)
    loss, figures = algorithm.training_step(batch, 0)
    expected = pairs.square().sum(1).mean() * matched.float().mean()
    assert (loss - figures["supervised_loss"]).item() == pytest.approx(2 * expected.item(), rel=1e-4)
    expected.backward()
    assert match.grad.abs().sum() > 0
    assert figures["match_rate"].item() == pytest.approx(matched.float().mean().item())


def test_offline_okapi_without_any_match_is_erm():
    task = TASKS["classification"]
    batch = toy(task)
    for pool in (batch.labelled, batch.unlabelled):
        object.__setattr__(pool, "matched", torch.zeros(SIZE, dtype=torch.bool))
        object.__setattr__(pool, "match", pool.inputs[:0])
    loss, figures = make("offline_okapi", task).training_step(batch, 0)
    assert loss.item() == figures["supervised_loss"].item()


def test_offline_matches_are_those_of_brute_force_on_unit_vectors():
    torch.manual_seed(0)
    x, domain = torch.randn(40, 3), (torch.rand(40) < 0.5).long()
    x[domain == 1] += 0.5
    settings = OfflineOkapiSettings()
    rows = offline_matches(x, domain, settings)
    from okapi.matching import Propensity

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


def test_offline_matches_inside_the_prognostic_caliper():
    generator = torch.Generator().manual_seed(0)
    x, domain = torch.randn(30, 4, generator=generator), torch.arange(30) // 15
    free = OfflineOkapiSettings(fixed_caliper=None, std_caliper=None, outcome_caliper=0.4)
    for task, prediction, target in (
        (Task("classification", 2), 3 * torch.randn(30, 2, generator=generator), torch.arange(15) % 2),
        (Task("regression"), torch.randn(30, 1, generator=generator), 5 * torch.randn(15, generator=generator)),
    ):
        outcome = offline_outcomes(task, prediction, target)
        rows = offline_matches(x, domain, free, outcome)
        unit = x / x.norm(dim=1, keepdim=True)
        admissible = (torch.cdist(outcome.double(), outcome.double()) <= 0.4) & (domain[:, None] != domain)
        distance = torch.cdist(unit.double(), unit.double()).masked_fill(~admissible, torch.inf)
        expected = torch.where(admissible.any(1), distance.argmin(1), -1)
        assert rows.tolist() == expected.tolist()
        assert 0 < (rows < 0).sum() < 30
    assert outcome[:15].std() == pytest.approx(1)  # numbers are counted in deviations of those known
    known = offline_outcomes(Task("classification", 2), prediction.expand(-1, 2), torch.arange(15) % 2)[:15]
    assert known.tolist() == torch.eye(2)[torch.arange(15) % 2].tolist()


def test_offline_matches_of_centred_encodings():
    generator = torch.Generator().manual_seed(0)
    x, domain = torch.randn(30, 4, generator=generator), torch.arange(30) // 15
    x[:15] += 3
    rows = offline_matches(x, domain, OfflineOkapiSettings(fixed_caliper=None, std_caliper=None, centred=True))
    unit = normalize(x, dim=1)
    means = [(unit[domain == side].sum(0) + PRIOR * unit.mean(0)) / (15 + PRIOR) for side in (0, 1)]
    direction = normalize(unit - torch.stack(means)[domain], dim=1)
    distance = torch.cdist(direction, direction).masked_fill(domain[:, None] == domain, torch.inf)
    assert rows.tolist() == distance.argmin(1).tolist()
    plain = offline_matches(x, domain, OfflineOkapiSettings(fixed_caliper=None, std_caliper=None))
    assert rows.tolist() != plain.tolist()


def test_offline_matches_warn_of_separable_domains():
    x = torch.cat([torch.randn(20, 2), torch.randn(20, 2) + 100])
    with pytest.warns(SeparableDomainsWarning):
        offline_matches(torch.cat([x, torch.ones(40, 1)], 1), torch.arange(40) // 20, OfflineOkapiSettings())


@pytest.mark.parametrize("direction", [(0, 1), (1, 0)])
def test_one_direction_with_online_queries_encodes_only_what_it_needs(direction):
    task = TASKS["classification"]
    batch = toy(task)
    algorithm = make("okapi", task, queries="online", direction=direction, fixed_caliper=None, std_caliper=None)
    online, momentum = [], []
    algorithm.network.encoder.register_forward_hook(lambda module, inputs, output: online.append(len(output)))
    algorithm.consistency.momentum.register_forward_hook(lambda module, inputs, output: momentum.append(len(output)))
    _, figures = algorithm.training_step(batch, 0)
    assert sum(momentum) == SIZE
    assert sum(online) == (SIZE if direction == (0, 1) else 2 * SIZE)
    assert figures["match_rate"].item() == 0.5  # every query of one pool, over the samples of both
    pool = batch.unlabelled if direction == (0, 1) else batch.labelled
    expected = normalize(algorithm.consistency.momentum(pool.inputs), dim=1)
    torch.testing.assert_close(algorithm.consistency.encodings.rows(), expected)


@pytest.mark.parametrize("one_way", [False, True])
def test_labelled_samples_can_be_normalised_without_the_others(one_way):
    task = TASKS["classification"]
    batch = toy(task)
    elsewhere = replace(batch.unlabelled, inputs=3 * batch.unlabelled.inputs + 1)
    settings = {"queries": "online", "direction": (1, 0)} if one_way else {}

    def losses(**more):
        made = [make("okapi", task, outcome_caliper="auto", **settings, **more) for _ in range(2)]
        batches = batch, Batch(batch.labelled, elsewhere)
        return [
            algorithm.training_step(each, 0)[1]["supervised_loss"]
            for algorithm, each in zip(made, batches, strict=True)
        ]

    first, second = losses(batch_norm="by_pool")
    assert first == second
    first, second = losses()
    assert first != second


@pytest.mark.parametrize("loss", ["squared_l2", "cosine", "jsd", "kl"])
def test_okapi_learns_by_each_loss(loss):
    task = TASKS["classification"]
    algorithm = make("okapi", task, loss=loss, weight=5.0)
    value, figures = algorithm.training_step(toy(task), 0)
    value.backward()
    assert figures["consistency"] > 0
    assert algorithm.network.encoder[0].weight.grad.abs().sum() > 0


def test_losses_on_predictions_are_for_classes():
    with pytest.raises(ValueError, match="loss 'jsd' compares predicted classes, the task is regression"):
        make("okapi", TASKS["regression"], loss="jsd")


def test_shared_domains_are_named():
    algorithm = make("okapi", TASKS["classification"])
    names = ("oslo", "bergen", "tromso")
    with pytest.warns(SharedDomainsWarning, match=r"2 domains .* \(bergen, tromso\)"):
        algorithm.check_pools(torch.tensor([0, 1, 2]), torch.tensor([1, 1, 2]), names)
    algorithm.check_pools(torch.tensor([0, 1]), torch.tensor([2]), names)  # nothing shared, no warning
    by_label = make("okapi", TASKS["classification"], "label")
    by_label.check_pools(torch.tensor([0]), torch.tensor([0]), names)


def test_the_scorer_may_have_its_own_learning_rate():
    task = TASKS["classification"]
    assert [group["lr"] for group in make("okapi", task).parameter_groups(0.1)] == [0.1, 0.1]
    own = make("okapi", task, scorer_learning_rate=3.0).parameter_groups(0.1)
    assert [group["lr"] for group in own] == [0.1, 3.0]


@pytest.mark.parametrize(("steps", "paper"), [(120_000, 0.999), (30_000, 0.996), (20_000, 0.996)])
def test_momentum_by_the_length_of_the_training_is_about_the_papers(steps, paper):
    schedule = OkapiSettings().decay(steps)
    assert schedule(0) == schedule(steps)
    assert 1 - schedule(0) == pytest.approx(1 - paper, rel=0.26)


def test_momentum_goes_from_what_is_given_to_what_is_given():
    assert [OkapiSettings(momentum=0.9, final_momentum=1.0).decay(10)(step) for step in (0, 5, 10)] == [0.9, 0.95, 1.0]
    assert OkapiSettings(momentum=0.9).decay(10)(10) == 0.9
    assert OkapiSettings().decay(50)(0) == 0  # so short that nothing may lag


def test_bad_settings():
    with pytest.raises(ValueError, match=r"momentum must be in \[0, 1\], got 1.1"):
        OkapiSettings(momentum=1.1)
    with pytest.raises(ValueError, match=r"final_momentum must be in \[0, 1\], got -0.5"):
        OkapiSettings(final_momentum=-0.5)
    with pytest.raises(ValueError, match="fixed_caliper"):
        make("okapi", TASKS["classification"], fixed_caliper=0.5)


def test_a_domain_the_scorer_has_never_seen_is_refused():
    task = TASKS["classification"]
    batch = toy(task, "label")
    batch.unlabelled.domain[0] = 7
    with pytest.raises(ValueError, match=r"the scorer has never seen \[7\]"):
        make("okapi", task, "label").training_step(batch, 0)


def test_the_papers_settings_are_there():
    network, task = make("erm", TASKS["regression"]).network, TASKS["regression"]
    algorithm = Okapi(network, task, OkapiSettings.paper(), steps=30_000)
    assert algorithm.consistency.encodings.capacity == 65_536
    assert algorithm.consistency.momentum.decay(0) == 0.996
    assert algorithm.consistency.weight(1500) == 0.5
    assert not algorithm.consistency.centred
    assert not algorithm.consistency.by_outcome
    assert not algorithm.teaches
    assert algorithm.settings.batch_norm == "joint"
    assert OkapiSettings.paper(k=1, std_caliper=0.5) == OkapiSettings.paper(k=1, std_caliper=0.5, fixed_caliper=0.9)
    assert isinstance(algorithm.network.head, nn.Linear)
