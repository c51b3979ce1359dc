"""The bank against a deque, which is what a ring is."""

from collections import deque

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from okapi.nn import MemoryBank


@given(capacity=st.integers(1, 9), sizes=st.lists(st.integers(0, 20), max_size=8))
def test_it_holds_the_newest_rows(capacity, sizes):
    bank, newest, count = MemoryBank(capacity, (2,)), deque(maxlen=capacity), 0
    for size in sizes:
        rows = torch.arange(count, count + size, dtype=torch.float32)[:, None].expand(-1, 2)
        bank.push(rows)
        newest.extend(rows[:, 0].tolist())
        count += size
        assert sorted(bank.rows()[:, 0].tolist()) == sorted(newest)
        assert len(bank) == len(newest)
        assert int(bank.pointer) == count % capacity


@given(sizes=st.lists(st.integers(0, 7), min_size=1, max_size=6))
def test_how_rows_are_split_into_pushes_does_not_matter(sizes):
    rows = torch.arange(sum(sizes))
    at_once, in_parts = MemoryBank(5, dtype=torch.int64), MemoryBank(5, dtype=torch.int64)
    at_once.push(rows)
    for part in rows.split(sizes):
        in_parts.push(part)
    assert torch.equal(at_once.rows(), in_parts.rows())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.bool])
def test_any_dtype(dtype):
    bank = MemoryBank(4, (3,), dtype)
    rows = torch.tensor([[0, 1, 0], [1, 1, 0]]).to(dtype)
    bank.push(rows)
    assert bank.rows().dtype == dtype
    assert torch.equal(bank.rows(), rows)


def test_a_checkpoint_holds_all_of_it():
    bank, other = MemoryBank(3), MemoryBank(3)
    bank.push(torch.arange(5.0))
    other.load_state_dict(bank.state_dict())
    for each in (bank, other):
        each.push(torch.tensor([9.0]))
    assert torch.equal(bank.rows(), other.rows())
    assert set(bank.state_dict()) == {"slots", "pointer", "fill"}


def test_it_keeps_no_graph():
    bank = MemoryBank(3, (2,))
    bank.push(torch.ones(2, 2, requires_grad=True) * 2)
    assert not bank.rows().requires_grad


def test_bad_input():
    with pytest.raises(ValueError, match="capacity must be at least 1, got 0"):
        MemoryBank(0)
    with pytest.raises(ValueError, match=r"rows must be of shape \(n, 2\), got \(3, 4\)"):
        MemoryBank(3, (2,)).push(torch.zeros(3, 4))
