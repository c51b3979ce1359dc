"""Weights of a matched sample."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from okapi.matching import Matches
from okapi.matching.diagnostics.weights import effective_sample_size, matching_weights, pair_weights

N_QUERIES, N_KEYS = 8, 6


@st.composite
def matchings(draw: st.DrawFn) -> Matches:
    """Queries with up to k distinct keys, -1 for the rest, sometimes with none."""
    k = draw(st.integers(1, 4))
    query = sorted(draw(st.sets(st.integers(0, N_QUERIES - 1))))
    key = torch.full((len(query), k), -1)
    for row in range(len(query)):
        found = draw(st.lists(st.integers(0, N_KEYS - 1), max_size=k, unique=True))
        key[row, : len(found)] = torch.tensor(found, dtype=torch.int64)
    return Matches(torch.tensor(query, dtype=torch.int64), key, torch.zeros(key.shape))


@given(matchings())
def test_every_matched_query_gives_away_a_weight_of_one(matches: Matches) -> None:
    weight = pair_weights(matches)
    assert weight.dtype == torch.float64
    assert ((weight > 0) == (matches.key >= 0)).all()
    matched = (matches.key >= 0).any(dim=1)
    torch.testing.assert_close(weight.sum(dim=1), matched.double())

    query_weight, key_weight = matching_weights(matches, N_QUERIES, N_KEYS)
    assert set(np.flatnonzero(query_weight)) == set(matches.query[matched].tolist())
    assert query_weight.sum() == matched.sum()
    assert key_weight.sum() == pytest.approx(float(matched.sum()))


def test_a_key_weighs_what_its_queries_give_it() -> None:
    matches = Matches(torch.tensor([0, 2]), torch.tensor([[1, 0], [1, -1]]), torch.zeros(2, 2))
    query_weight, key_weight = matching_weights(matches, 3, 3)
    assert query_weight.tolist() == [1, 0, 1]
    assert key_weight.tolist() == [0.5, 1.5, 0]


@given(st.integers(1, 30), st.floats(1e-200, 1e200))
def test_equal_weights_are_worth_their_number_at_any_scale(size: int, scale: float) -> None:
    assert effective_sample_size(np.full(size, scale)) == pytest.approx(size)


def test_effective_sample_size_of_unequal_and_of_no_weights() -> None:
    assert effective_sample_size(torch.tensor([3.0, 1.0])) == pytest.approx(16 / 10)
    assert effective_sample_size([0.0, 0.0]) == effective_sample_size([]) == 0.0


@pytest.mark.parametrize(
    ("query", "key", "message"),
    [
        ([3], [[0]], "matches.query must hold rows of the 3 queries, got 3 to 3"),
        ([-1], [[0]], "matches.query must hold rows of the 3 queries, got -1 to -1"),
        ([0], [[4]], "matches.key must hold rows of the 4 keys, got 4 to 4"),
        ([0], [[-2]], "matches.key must hold rows of the 4 keys, got -2 to -2"),
        ([1, 1], [[0], [1]], "matches.query must hold every query once"),
    ],
)
def test_rows_that_do_not_exist(query: list[int], key: list[list[int]], message: str) -> None:
    matches = Matches(torch.tensor(query), torch.tensor(key), torch.zeros(len(key), 1))
    with pytest.raises(ValueError, match=message):
        matching_weights(matches, 3, 4)


@pytest.mark.parametrize("weights", [[-1.0, 2.0], [np.nan], [np.inf]])
def test_weights_that_are_none(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="weights must be finite and not negative"):
        effective_sample_size(weights)
