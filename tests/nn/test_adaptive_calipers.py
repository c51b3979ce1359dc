"""Adaptive calipers: what the rules promise, on queries that are drawn at random, and their state."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from okapi.nn.adaptive_calipers import GAIN

from okapi.matching import Matches
from okapi.nn import AdaptiveCalipers

ALL = {"fixed_caliper": 0.9, "std_caliper": 0.2, "outcome_caliper": 0.8}
NONE = Matches(torch.zeros(0).long(), torch.zeros(0, 1).long(), torch.zeros(0, 1))


def matched(count):
    return Matches(torch.arange(count), torch.arange(count)[:, None], torch.zeros(count, 1))


def observe(adaptive, count, asked=10):
    rows = torch.randn(asked, 1)
    return adaptive.update(rows, rows, matched(count), torch.zeros(asked).long(), asked)


@given(counts=st.lists(st.integers(0, 10), min_size=1, max_size=60), target=st.floats(0.05, 0.95))
def test_the_share_matched_is_the_target_but_for_how_far_the_width_went(counts, target):
    """The sum of the errors is the change of the width: an identity, whatever the matches were."""
    adaptive = AdaptiveCalipers("match_rate", ALL, target_match_rate=target)
    for count in counts:
        observe(adaptive, count)
    moved = float(adaptive.log_width)
    if abs(moved) < 2:
        assert np.mean(counts) / 10 == pytest.approx(target - moved / (GAIN * len(counts)), abs=1e-4)
    width = math.exp(moved)
    now = adaptive.calipers()
    assert now["std_caliper"] == pytest.approx(0.2 * width)
    assert now["outcome_caliper"] == pytest.approx(0.8 * width)
    assert np.log(now["fixed_caliper"] / (1 - now["fixed_caliper"])) == pytest.approx(width * np.log(9))


@pytest.mark.parametrize("target", [0.2, 0.7])
def test_the_caliper_finds_the_quantile_of_what_it_cuts(target):
    """Queries matched where |t| < caliper, t normal: the caliper must come to the normal's quantile."""
    adaptive = AdaptiveCalipers("match_rate", {"std_caliper": 0.01}, target_match_rate=target)
    generator = torch.Generator().manual_seed(0)
    found = []
    for _ in range(600):
        caliper = adaptive.calipers()["std_caliper"]
        observe(adaptive, int((torch.randn(64, generator=generator).abs() < caliper).sum()), 64)
        found.append(math.log(caliper))
    expected = torch.distributions.Normal(0, 1).icdf(torch.tensor((1 + target) / 2))
    assert np.mean(found[300:]) == pytest.approx(math.log(expected), abs=0.05)


def test_widths_are_bounded_and_wide_means_all():
    adaptive = AdaptiveCalipers("match_rate", ALL)
    for _ in range(300):
        observe(adaptive, 0)
    assert adaptive.calipers() == pytest.approx({"fixed_caliper": 1.0, "std_caliper": 20.0, "outcome_caliper": 80.0})
    for _ in range(300):
        observe(adaptive, 10)
    narrow = adaptive.calipers()
    assert 0.5 < narrow["fixed_caliper"] < 0.51
    assert narrow["std_caliper"] == pytest.approx(0.002)


def test_either_way_of_writing_the_fixed_caliper_is_the_same():
    one, two = (AdaptiveCalipers("match_rate", {"fixed_caliper": t}) for t in (0.9, 0.1))
    assert one.calipers() == pytest.approx(two.calipers())
    assert one.calipers()["fixed_caliper"] == pytest.approx(0.9)


def test_balance_is_that_of_the_pairs_written_out():
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(40, 3, dtype=torch.float64, generator=generator)
    keys = 0.3 + 1.4 * torch.randn(60, 3, dtype=torch.float64, generator=generator)
    pairs = Matches(torch.arange(40), torch.randint(60, (40, 2), generator=generator), torch.zeros(40, 2))
    adaptive = AdaptiveCalipers("balance", {"std_caliper": 0.2}, features=3, dtype=torch.float64)
    figures = adaptive.update(query, keys, pairs, torch.zeros(40).long(), 40)
    theirs = keys[pairs.key.flatten()]
    smd = (query.mean(0) - theirs.mean(0)).abs() / query.std(0, correction=0)
    ratio = query.var(0, correction=0) / theirs.var(0, correction=0)
    assert figures["running_smd"] == pytest.approx(smd.mean().item())
    assert figures["running_variance_ratio"] == pytest.approx(ratio.log().abs().mean().exp().item())
    # The same matches again: sums over steps, of which the old ones count less, have the same means.
    assert adaptive.update(query, keys, pairs, torch.zeros(40).long(), 40)["running_smd"] == pytest.approx(
        smd.mean().item()
    )


def pairs_at(distance, spread, generator, n=64):
    """Return queries, and keys as far from them in the mean."""
    query = torch.randn(n, 4, generator=generator)
    return query, distance + spread * torch.randn(n, 4, generator=generator), matched(n)


@pytest.mark.parametrize(
    ("distance", "spread", "wider"), [(0.0, 1.0, True), (0.5, 1.0, False), (0.0, 3.0, False), (0.0, 0.2, False)]
)
def test_balance_widens_where_matches_are_balanced_and_narrows_where_not(distance, spread, wider):
    adaptive = AdaptiveCalipers("balance", {"std_caliper": 0.2}, features=4)
    generator = torch.Generator().manual_seed(0)
    widths = []
    for _ in range(60):
        query, keys, matches = pairs_at(distance, spread, generator)
        adaptive.update(query, keys, matches, torch.arange(64) % 2, 64)
        widths.append(float(adaptive.log_width))
    assert (widths[-1] > widths[30]) == wider


def test_few_pairs_of_balanced_groups_do_not_close_the_caliper():
    """Three pairs a step differ by chance far more than 0.1; over the steps they do not."""
    adaptive = AdaptiveCalipers("balance", {"std_caliper": 0.2}, features=4)
    generator = torch.Generator().manual_seed(0)
    alone = []
    for _ in range(300):
        query = torch.randn(64, 4, generator=generator)
        keys = query + 0.5 * torch.randn(64, 4, generator=generator)
        alone.append((query[:3] - keys[:3]).mean(0).abs().mean() / 1.0)
        adaptive.update(query, keys, matched(3), torch.arange(64) % 2, 64)
    assert np.mean(alone) > 0.2
    assert adaptive.calipers()["std_caliper"] > 0.2


def test_nothing_matched_widens_and_nobody_asking_teaches_nothing():
    adaptive = AdaptiveCalipers("balance", {"std_caliper": 0.2}, features=1)
    rows, domain = torch.randn(4, 1), torch.zeros(4).long()
    assert adaptive.update(rows, rows, NONE, domain, 4) == {}
    assert float(adaptive.log_width) == pytest.approx(GAIN)
    assert adaptive.update(rows, rows, NONE, domain, 0) == {}
    assert float(adaptive.log_width) == pytest.approx(GAIN)


@pytest.mark.parametrize("rule", ["match_rate", "balance"])
def test_state_goes_through_a_checkpoint_bit_for_bit(rule):
    one, two = (AdaptiveCalipers(rule, ALL, features=4) for _ in range(2))
    generator = torch.Generator().manual_seed(0)
    steps = [pairs_at(0.1, 1.0, generator) for _ in range(20)]
    for step, (query, keys, matches) in enumerate(steps):
        if step == 10:
            two.load_state_dict(one.state_dict())
        for adaptive in (one, two)[: 1 + (step >= 10)]:
            adaptive.update(query, keys, matches, torch.arange(64) % 2, 100)
    assert all(torch.equal(value, two.state_dict()[name]) for name, value in one.state_dict().items())
    assert one.calipers() == two.calipers() != AdaptiveCalipers(rule, ALL).calipers()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rule": "luck"}, "adapt must be 'match_rate' or 'balance', got 'luck'"),
        ({"target_match_rate": 0.0}, "target_match_rate must be between 0 and 1, got 0"),
        ({"target_match_rate": 1.0}, "target_match_rate must be between 0 and 1, got 1"),
        ({"calipers": {"std_caliper": None}}, "adapt needs a caliper to start from"),
        ({"calipers": {"fixed_caliper": 1.0, "outcome_caliper": 0.0}}, "adapt needs a caliper to start from"),
    ],
)
def test_bad_settings(arguments, message):
    with pytest.raises(ValueError, match=message):
        AdaptiveCalipers(**{"rule": "match_rate", "calipers": ALL, **arguments})
