from math import factorial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from okapi.data.samplers import BalancedStream, Permutation, Stream, WeightedStream

SEEDS = st.integers(0, 2**63 - 1)


@given(st.integers(1, 5000), SEEDS)
@settings(max_examples=200)
def test_a_permutation_has_every_number_once(n: int, seed: int):
    np.testing.assert_array_equal(np.sort(Permutation(n, seed)(np.arange(n))), np.arange(n))


@pytest.mark.parametrize("n", range(1, 130))
def test_a_small_permutation_has_every_number_once(n: int):
    for seed in range(5):
        assert sorted(Permutation(n, seed)(range(n)).tolist()) == list(range(n))


@given(st.integers(1, 10**12), SEEDS, st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=20))
def test_places_are_looked_up_one_by_one_or_together(n: int, seed: int, shares: list[float]):
    places = np.array([int(share * n) for share in shares])
    order = Permutation(n, seed)
    together = order(places)
    assert [int(order([place])[0]) for place in places] == together.tolist()
    assert together.min() >= 0
    assert together.max() < n
    assert len(set(together.tolist())) == len(set(places.tolist()))


def test_seeds_and_epochs_give_other_orders():
    orders = {
        tuple(Permutation(100, seed)(range(100))) for seed in [*range(50), *((s, e) for s in (0, 1) for e in (1, 2))]
    }
    assert len(orders) == 54


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_every_order_of_a_few_numbers_is_equally_frequent(n: int):
    drawn = 20 * factorial(n)
    written = [Permutation(n, (seed, 1))(range(n)) @ 10 ** np.arange(n) for seed in range(drawn)]
    _, counts = np.unique(written, return_counts=True)
    assert len(counts) == factorial(n)
    assert chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("n", [30, 64, 81])
def test_first_places_and_pairs_of_places_are_uniform(n: int):
    first, second = np.array([Permutation(n, (seed, 0))([0, 1]) for seed in range(20 * n)]).T
    assert chisquare(np.bincount(first, minlength=n)).pvalue > 1e-3
    steps = np.bincount((second - first) % n, minlength=n)
    assert steps[0] == 0
    assert chisquare(steps[1:]).pvalue > 1e-3


def test_neighbours_are_not_left_together():
    order = Permutation(100_000, 0)(np.arange(100_000))
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.02
    assert abs(np.corrcoef(np.arange(100_000), order)[0, 1]) < 0.02


def test_places_that_do_not_exist():
    with pytest.raises(IndexError, match="from 0 to 4, got -1 to 2"):
        Permutation(5, 0)([2, -1])
    with pytest.raises(ValueError, match="at least 1, got 0"):
        Permutation(0, 0)


# Streams

STREAMS = st.tuples(st.integers(1, 60), st.integers(1, 8), st.integers(1, 4), SEEDS)


@given(STREAMS)
def test_every_row_comes_once_in_every_pass(drawn):
    n, share, world, seed = drawn
    rows = np.arange(n) * 3 + 7
    stream = Stream(rows, share * world, seed)
    steps = -(-3 * n // stream.batch_size)
    sequence = np.concatenate([stream.rows_at(step) for step in range(steps)])
    for epoch in range(3):
        assert sorted(sequence[epoch * n : (epoch + 1) * n]) == rows.tolist()


@given(STREAMS, st.integers(0, 10**9))
def test_ranks_together_see_the_batch_of_one_process(drawn, step: int):
    n, share, world, seed = drawn
    rows, size = torch.arange(n), share * world
    ranks = [Stream(rows, size, seed, rank, world) for rank in range(world)]
    shares = [stream.rows_at(step) for stream in ranks]
    assert {len(part) for part in shares} == {share}
    np.testing.assert_array_equal(np.concatenate(shares), Stream(rows, size, seed).rows_at(step))
    if (step + 1) * size // n == step * size // n:  # within one pass
        assert len(set(np.concatenate(shares).tolist())) == size


def test_a_step_needs_none_of_the_steps_before():
    forward = Stream(np.arange(37), 5, seed=3)
    steps = [forward.rows_at(step).tolist() for step in range(30)]
    for step in reversed(range(30)):
        assert Stream(np.arange(37), 5, seed=3).rows_at(step).tolist() == steps[step]


def test_passes_and_seeds_differ():
    a, b = Stream(np.arange(50), 50, seed=0), Stream(np.arange(50), 50, seed=1)
    assert len({tuple(stream.rows_at(step)) for stream in (a, b) for step in range(4)}) == 8


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"batch_size": 5, "world": 2}, "multiple of the number of processes, got 5 for 2"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"rank": 2, "world": 2}, "got rank 2 of 2"),
        ({"rows": np.arange(0)}, r"not empty, got shape \(0,\)"),
    ],
)
def test_streams_that_cannot_be(arguments, words: str):
    with pytest.raises(ValueError, match=words):
        Stream(**{"rows": np.arange(10), "batch_size": 4, "seed": 0} | arguments)
    with pytest.raises(IndexError, match="step must be 0 or more"):
        Stream(np.arange(3), 1, 0).rows_at(-1)


GROUPS = st.lists(st.integers(0, 4), min_size=1, max_size=40)


@given(groups=GROUPS, batch=st.integers(1, 12), seed=SEEDS, step=st.integers(0, 10**9))
def test_a_balanced_batch_has_as_many_of_each_group(groups: list[int], batch: int, seed: int, step: int):
    groups = np.array(groups)
    rows = BalancedStream(np.arange(len(groups)), groups, batch, seed).rows_at(step)
    present = np.unique(groups)
    counts = [np.count_nonzero(groups[rows] == group) for group in present]
    assert max(counts) - min(counts) <= (1 if batch % len(present) else 0)


@given(groups=GROUPS, seed=SEEDS)
def test_within_its_group_every_row_comes_once_in_a_pass(groups: list[int], seed: int):
    groups = np.array(groups)
    count = len(np.unique(groups))
    stream = BalancedStream(np.arange(len(groups)), groups, count, seed)  # one of each group in a step
    for group in np.unique(groups):
        size = np.count_nonzero(groups == group)
        seen = np.concatenate([stream.rows_at(step) for step in range(size, 2 * size)])  # its second pass
        assert sorted(seen[groups[seen] == group]) == sorted(np.flatnonzero(groups == group))


@pytest.mark.parametrize("kind", [BalancedStream, WeightedStream])
@given(groups=GROUPS, world=st.integers(1, 4), share=st.integers(1, 5), seed=SEEDS, step=st.integers(0, 10**9))
def test_the_shares_of_ranks_are_the_batch_of_one(kind, groups, world: int, share: int, seed: int, step: int):
    groups, rows = np.array(groups), 3 * np.arange(len(groups))
    alone = kind(rows, groups, world * share, seed).rows_at(step)
    shares = [kind(rows, groups, world * share, seed, rank, world).rows_at(step) for rank in range(world)]
    np.testing.assert_array_equal(np.concatenate(shares), alone)


def test_in_expectation_groups_are_as_frequent_and_rows_within_them():
    groups = np.array([0] * 3 + [1] * 12)
    stream = WeightedStream(np.arange(15), groups, 50, seed=1)
    rows = np.concatenate([stream.rows_at(step) for step in range(200)])
    assert chisquare(np.bincount(groups[rows])).pvalue > 1e-3
    for group in (0, 1):
        assert chisquare(np.bincount(rows, minlength=15)[groups == group]).pvalue > 1e-3


def test_groups_must_be_of_the_rows():
    with pytest.raises(ValueError, match=r"groups must be of shape \(3,\), as rows are, got \(2,\)"):
        BalancedStream(np.arange(3), np.arange(2), 2, seed=0)


def test_epochs_are_samples_seen():
    assert Stream(np.arange(40), 16, seed=0).epochs_at(5) == 2.0
