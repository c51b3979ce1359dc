"""The prognostic caliper against brute force, and what it must not do."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.matching.oracle import brute_force
from tests.matching.test_caliper_nn import KINDS, TYPES, assert_same, in_types, make_problem, settings, small_blocks

from okapi.matching import caliper_nn
from okapi.matching.search.prognosis import PrognosticPlan

OUTCOMES = ("labels", "probabilities", "numbers", "several numbers", "far from zero")


def outcomes(rng, rows, kind, classes=3):
    if kind == "labels":
        return np.eye(classes)[rng.integers(0, classes, rows)]
    if kind == "probabilities":
        return rng.dirichlet(np.full(classes, 0.3), rows)
    if kind == "several numbers":
        return rng.normal(size=(rows, 2))
    return rng.normal(size=rows) + (1e6 if kind == "far from zero" else 0)


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(0, 25),
    m=st.integers(0, 40),
    width=st.integers(1, 4) | st.just(30),
    kind=st.sampled_from(KINDS),
    outcome=st.sampled_from(OUTCOMES),
    caliper=st.sampled_from([0.0, 0.05, 0.5, 1.0, 2**0.5, 3.0]),
    domains=st.sampled_from([2, 4, 30]),
    block=st.integers(1, 9),
    piece=st.integers(1, 40),
    tile_flops=st.sampled_from([100.0, 5e3, 1e9]),
    types=TYPES,
    arguments=settings,
)
def test_equals_brute_force(
    seed, n, m, width, kind, outcome, caliper, domains, block, piece, tile_flops, types, arguments
):
    """Whatever the outcomes, their types, the caliper and the other calipers beside it."""
    rng = np.random.default_rng(seed)
    queries, keys, given_domains = make_problem(rng, n, m, width, kind, n_domains=max(domains, 4), ties=bool(seed % 2))
    arguments |= {
        "query_prognosis": outcomes(rng, n, outcome),
        "key_prognosis": outcomes(rng, m, outcome),
        "prognostic_caliper": caliper,
    }
    queries, keys, arguments = in_types(types, queries, keys, given_domains | arguments)
    with small_blocks(block, piece, tile_flops):
        matches = caliper_nn(queries, keys, **arguments)
    assert_same(matches, brute_force(queries, keys, **arguments))


def test_blocks_are_searched_among_near_outcomes_only():
    """Of ten classes a query's own is a tenth of the other domain: windows hold little more."""
    rng = np.random.default_rng(0)
    n, m, classes = 4000, 8000, 10
    queries, keys, domains = make_problem(rng, n, m, 4, "two domains", dtype=np.float32)
    sharp = [0.98 * outcomes(rng, rows, "labels", classes) + 0.002 for rows in (n, m)]
    built = []

    class Kept(PrognosticPlan):
        def __init__(self, *args):
            super().__init__(*args)
            built.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("okapi.matching.calipers.PrognosticPlan", Kept)
        caliper_nn(queries, keys, **domains, query_prognosis=sharp[0], key_prognosis=sharp[1], prognostic_caliper=0.5)
    (plan,) = built
    searched = sum(
        (block.rows.stop - block.rows.start) * sum(span.stop - span.start for span in block.spans)
        for block in plan.blocks
    )
    assert plan.count_pairs() <= searched < 2 * plan.count_pairs()
    assert searched < n * m / 8


def test_pairs_on_the_edge_of_the_caliper_are_admissible():
    x, domain = np.zeros((2, 1)), np.array([0, 1])
    for apart in (0.1, 1 / 3, 0.7):
        both = {
            "query_domain": domain,
            "key_domain": domain,
            "query_prognosis": [0.0, apart],
            "key_prognosis": [0.0, apart],
        }
        both = {name: np.asarray(value) for name, value in both.items()}
        assert len(caliper_nn(x, x, **both, prognostic_caliper=apart)) == 2
        assert len(caliper_nn(x, x, **both, prognostic_caliper=np.nextafter(apart, 0))) == 0


def test_bad_outcomes_are_refused_by_name():
    x, domain = np.zeros((3, 1)), np.array([0, 1, 1])
    good = np.array([0.0, 1.0, 2.0])

    def match(query, key, caliper=0.5):
        sides = {"query_domain": domain, "key_domain": domain, "query_prognosis": query, "key_prognosis": key}
        return caliper_nn(x, x, **sides, prognostic_caliper=caliper)

    for arguments, words in [
        ((None, good), "query_prognosis is needed by prognostic_caliper, got None"),
        ((good, good[:2]), r"key_prognosis must have shape \(3,\) or \(3, c\), got \(2,\)"),
        ((good, np.eye(3)), "query_prognosis and key_prognosis must have the same width, got 1 and 3"),
        ((np.array([0, np.nan, 1]), good), "query_prognosis must be finite, row 1 holds NaN or infinity"),
        ((good, good, -0.1), r"prognostic_caliper must be a number of at least 0, got -0\.1"),
        ((good, good, float("nan")), "prognostic_caliper must be a number of at least 0, got nan"),
    ]:
        with pytest.raises(ValueError, match=words):
            match(*arguments)
    assert len(match(torch.zeros(3), torch.zeros(3))) == 3


@pytest.mark.parametrize("fixed", [None, 0.8])
def test_an_automatic_caliper_is_a_third_of_the_deviation_of_admissible_outcomes(fixed):
    generator = np.random.default_rng(0)
    vectors, domain = generator.normal(size=(80, 4)), np.arange(80) % 2
    outcome, score = generator.normal(size=(80, 3)) * [1, 2, 3], generator.uniform(size=80)
    inside = np.ones(80, dtype=bool) if fixed is None else (score > 0.2) & (score < 0.8)
    queries = slice(0, 50)
    variances = [outcome[rows][inside[rows]].var(axis=0, ddof=1).sum() for rows in (queries, slice(None))]
    sides = {"query_domain": domain[queries], "key_domain": domain}
    sides |= {"query_propensity": score[queries], "key_propensity": score}
    sides |= {"query_prognosis": outcome[queries], "key_prognosis": outcome}
    found, wanted = (
        caliper_nn(vectors[queries], vectors, k=2, fixed_caliper=fixed, prognostic_caliper=caliper, **sides)
        for caliper in ("auto", np.sqrt(sum(variances) / 2) / 3)
    )
    assert 0 < len(found.query) < 50
    assert torch.equal(found.query, wanted.query)
    assert torch.equal(found.key, wanted.key)


def test_a_word_other_than_auto_is_no_caliper():
    with pytest.raises(ValueError, match="prognostic_caliper must be a number of at least 0 or 'auto', got 'wide'"):
        caliper_nn(np.ones((2, 1)), np.ones((2, 1)), query_domain=[0, 1], key_domain=[0, 1], prognostic_caliper="wide")
