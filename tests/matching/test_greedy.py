"""Matching without replacement against brute force, on lines and in space."""

import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from okapi.matching import caliper_nn, free_keys
from okapi.matching.greedy import ORDERS, variable_ratio


def brute_force(x, domain, n_keys, order, own, admits, max_uses=1):
    """Return {query: keys}: rounds of taking the nearest key still free, one query domain at a time."""
    taken = {}
    for side in np.unique(domain):
        queries = [i for i in range(len(x)) if domain[i] == side]
        uses = {j: max_uses for j in range(len(x)) if domain[j] != side}
        if order in ("largest", "smallest"):
            queries.sort(key=lambda i: -own[i] if order == "largest" else own[i])
        if order == "random":
            drawn = np.random.default_rng(7).permutation(len(x))
            queries.sort(key=lambda i: drawn[i])

        def offers(i, uses):
            free = [j for j in uses if uses[j] and admits(i, j) and j not in taken.get(i, [])]
            return sorted((np.sqrt(((x[i] - x[j]) ** 2).sum()), j) for j in free)

        for rank in range(max(n_keys)):
            succeeded = []
            waiting = [i for i in queries if n_keys[i] > rank]
            while waiting:
                if order == "closest":
                    best = [(offers(i, uses)[0], i) for i in waiting if offers(i, uses)]
                    if not best:
                        break
                    (_, key), query = min(best)
                else:
                    query = waiting[0]
                    found = offers(query, uses)
                    key = found[0][1] if found else None
                waiting.remove(query)
                if key is not None:
                    uses[key] -= 1
                    taken.setdefault(query, []).append(key)
                    succeeded.append(query)
            queries = [i for i in queries if i in succeeded]
    return taken


def keys_of(matches):
    rows = zip(matches.query.tolist(), matches.key.tolist(), strict=True)
    return {query: [key for key in keys if key >= 0] for query, keys in rows}


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(2, 30),
    k=st.one_of(st.integers(1, 3), st.just("of each")),
    order=st.sampled_from(ORDERS),
    max_uses=st.integers(1, 3),
    ties=st.booleans(),
    caliper=st.sampled_from([None, 0.3, 2.0]),
    prognostic_caliper=st.sampled_from([None, 0.5, 1.5]),
    exact=st.booleans(),
    lists=st.integers(1, 5),
    batch=st.integers(1, 10),
)
def test_equals_brute_force(seed, n, k, order, max_uses, ties, caliper, prognostic_caliper, exact, lists, batch):
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 4, (n, 2)).astype(float) if ties else rng.normal(size=(n, 2))
    domain = np.append([0, 1], rng.integers(0, 2, n - 2))
    scores = rng.random(n)
    outcome = rng.normal(size=n)
    groups = rng.integers(0, 3, n) if exact else np.zeros(n, int)
    n_keys = rng.integers(1, 4, n) if k == "of each" else np.full(n, k)

    def admits(i, j):
        near = caliper is None or np.abs(scores[i] - scores[j]) <= caliper * scores.std(ddof=1)
        alike = prognostic_caliper is None or np.abs(outcome[i] - outcome[j]) <= prognostic_caliper
        return near and alike and groups[i] == groups[j]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(free_keys, "LIST", lists)
        patch.setattr(free_keys, "BATCH", batch)
        matches = match(
            x,
            domain,
            scores,
            k=n_keys if k == "of each" else k,
            order=order,
            max_uses=max_uses,
            std_caliper=caliper,
            query_exact=groups,
            key_exact=groups,
            **(
                {}
                if prognostic_caliper is None
                else _both("prognosis", outcome) | {"prognostic_caliper": prognostic_caliper}
            ),
        )
    own = np.where(domain == 1, scores, 1 - scores)
    assert keys_of(matches) == brute_force(x, domain, n_keys, order, own, admits, max_uses)


def _both(name, values):
    return {f"query_{name}": values, f"key_{name}": values}


def match(x, domain, scores, **settings):
    both = _both("domain", domain) | _both("propensity", scores)
    settings = {"caliper_sd": "all", "allow_fewer": True, "random_state": 7} | settings
    return caliper_nn(x, x, **both, replace=False, **settings)


@pytest.mark.parametrize("order", ORDERS)
def test_on_a_line_equals_brute_force_in_200_problems_with_ties(order):
    """Scores of few values, so that keys are equal, and equally far to the left and to the right."""
    for seed in range(200):
        rng = np.random.default_rng(seed)
        n, k, max_uses = rng.integers(4, 40), int(rng.integers(1, 4)), int(rng.integers(1, 3))
        scores = rng.integers(0, rng.integers(2, 40), n) / 64
        domain = np.append([0, 1], rng.integers(0, 2, n - 2))
        groups = rng.integers(0, rng.integers(1, 4), n)
        caliper = rng.choice([0.05, 0.5, 5.0])
        limit = caliper * scores.std(ddof=1)
        matches = match(
            scores[:, None],
            domain,
            scores,
            k=k,
            order=order,
            max_uses=max_uses,
            std_caliper=caliper,
            **_both("exact", groups),
        )

        def admits(i, j, scores=scores, groups=groups, limit=limit):
            return np.abs(scores[i] - scores[j]) <= limit and groups[i] == groups[j]

        own = np.where(domain == 1, scores, 1 - scores)
        expected = brute_force(scores[:, None], domain, [k] * n, order, own, admits, max_uses)
        assert keys_of(matches) == expected, seed
        for query, distance in zip(matches.query.tolist(), matches.distance, strict=True):
            found = [float(np.abs(scores[query] - scores[key])) for key in expected[query]]
            assert distance[: len(found)].tolist() == found


@pytest.mark.parametrize("order", ["largest", "closest"])
def test_on_a_line_equal_scores_and_crowded_keys_take_no_longer(order):
    rng = np.random.default_rng(0)
    domain = (np.arange(60_000) < 20_000).astype(int)
    scores = rng.integers(0, 20, len(domain)) / 20
    start = time.perf_counter()
    matches = match(scores[:, None], domain, scores, order=order, direction=(1, 0))
    assert len(matches) == 20_000
    assert time.perf_counter() - start < 20  # a quadratic time would be minutes


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("width", [1, 3])
def test_no_key_serves_more_queries_of_a_domain_than_it_may(order, width):
    rng = np.random.default_rng(1)
    domain, x, scores = rng.integers(0, 2, 300), rng.normal(size=(300, width)), rng.random(300)
    for max_uses in (1, 2):
        matches = match(x, domain, scores, order=order, k=2, max_uses=max_uses)
        for side in (0, 1):
            keys = matches.key[torch.from_numpy(domain[matches.query.numpy()] == side)].flatten()
            assert keys[keys >= 0].bincount().max() == max_uses
        assert (matches.key[:, 0] != matches.key[:, 1]).all()


def test_random_order_depends_on_its_seed_only():
    rng = np.random.default_rng(2)
    domain, scores = rng.integers(0, 2, 200), rng.random(200)
    first, again, other = (
        keys_of(match(scores[:, None], domain, scores, order="random", random_state=seed)) for seed in (1, 1, 2)
    )
    assert first == again != other


def test_variable_ratio_gives_few_keys_to_large_propensities():
    rng = np.random.default_rng(3)
    propensity = rng.random(101)
    count = variable_ratio(propensity, ratio=2.5, fewest=1, most=4)
    assert count.sum() == round(2.5 * 101)
    assert (np.diff(count[propensity.argsort()]) <= 0).all()
    assert ((count > 1) & (count < 4)).sum() <= 1
    with pytest.raises(ValueError, match="ratio must lie between fewest and most"):
        variable_ratio(propensity, ratio=4, fewest=1, most=4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"k": [1, 2]}, r"k must be a whole number of at least 1, or 4 such, got shape \(2,\)"),
        ({"k": [1, 2, 0, 1]}, "k must be a whole number of at least 1, or 4 such"),
        ({"max_uses": 0}, "max_uses must be a whole number of at least 1, got 0"),
        ({"order": "nearest"}, "order must be one of"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        match(np.zeros((4, 1)), np.array([0, 1, 0, 1]), np.full(4, 0.5), **settings)


def test_with_replacement_there_is_no_limit_on_uses():
    x, domain = np.zeros((4, 1)), np.array([0, 1, 0, 1])
    with pytest.raises(ValueError, match="max_uses needs replace=False"):
        caliper_nn(x, x, query_domain=domain, key_domain=domain, max_uses=2)
