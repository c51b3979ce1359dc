import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from okapi.data.sampling import BalancedStream, Stream, WeightedStream

SEEDS = st.integers(0, 2**63 - 1)


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


def test_a_pass_that_is_begun_in_the_middle_or_gone_back_to_has_the_same_order():
    stream = Stream(np.arange(37), 5, seed=3)
    steps = [stream.rows_at(step).tolist() for step in range(30)]
    assert [stream.rows_at(step).tolist() for step in reversed(range(30))] == steps[::-1]


@given(n=st.integers(1, 60), more=st.integers(1, 200), seed=SEEDS, step=st.integers(0, 10**9))
def test_a_batch_larger_than_the_pool_has_every_row_as_often_as_it_can(n: int, more: int, seed: int, step: int):
    rows = Stream(np.arange(n), n + more, seed).rows_at(step)
    counts = np.bincount(rows, minlength=n)
    assert len(rows) == n + more
    assert counts.min() >= (n + more) // n - 1
    assert counts.max() <= (n + more) // n + 2
    assert Stream(np.arange(n), n + more, seed).rows_at(step).tolist() == rows.tolist()


def test_orders_are_uniform():
    """Each row is as often at each place, and follows each other row as often."""
    n = 30
    orders = np.array([Stream(np.arange(n), n, seed).rows_at(step) for seed in range(200) for step in range(4)])
    first, second = orders[:, 0], orders[:, 1]
    assert chisquare(np.bincount(first, minlength=n)).pvalue > 1e-3
    assert chisquare(np.bincount((second - first) % n, minlength=n)[1:]).pvalue > 1e-3


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
