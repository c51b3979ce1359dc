"""Schedules are functions of the step alone."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from okapi.nn import Constant, Cosine, Linear


@given(start=st.floats(-9, 9), end=st.floats(-9, 9), steps=st.integers(0, 50), step=st.integers(0, 99))
def test_a_line_stays_between_its_ends(start, end, steps, step):
    low, high = sorted((start, end))
    assert low - 1e-9 <= Linear(start, end, steps)(step) <= high + 1e-9
    assert Linear(start, end, steps)(steps) == end


def test_the_cosine_is_that_of_torch():
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimiser = torch.optim.SGD([parameter], lr=0.3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=20, eta_min=0.01)
    ours = Cosine(0.3, 0.01, steps=20)
    for step in range(20):
        assert ours(step) == pytest.approx(scheduler.get_last_lr()[0])
        optimiser.step()
        scheduler.step()


def test_warm_up_rises_to_the_start():
    rate = Cosine(1.0, 0.0, steps=100, warm_up=10)
    values = [rate(step) for step in range(101)]
    assert values[:11] == sorted(values[:11])
    assert values[9] == values[10] == max(values) == 1.0
    assert values[10:] == sorted(values[10:], reverse=True)
    assert rate(1000) == 0.0


def test_bad_input():
    with pytest.raises(ValueError, match="warm_up must be between 0 and steps"):
        Cosine(1.0, 0.0, steps=5, warm_up=6)
    with pytest.raises(ValueError, match="steps must be at least 0, got -1"):
        Linear(0.0, 1.0, steps=-1)
    assert Constant(2.0)(7) == 2.0
