import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from okapi.evaluation import ece, reliability

SEEDS = st.integers(0, 2**32)


def drawn(seed: int, rows: int, classes: int):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(classes), rows), rng.integers(0, classes, rows)


@given(SEEDS, st.integers(1, 80), st.integers(2, 6), st.integers(1, 20))
def test_ece_is_its_definition_written_out(seed: int, rows: int, classes: int, bins: int):
    probability, target = drawn(seed, rows, classes)
    sure, right = probability.max(1), probability.argmax(1) == target
    error = 0.0
    for number in range(bins):
        here = (sure > number / bins) & (sure <= (number + 1) / bins)
        if here.any():
            error += here.sum() / rows * abs(right[here].mean() - sure[here].mean())
    assert ece(probability, target, bins=bins) == pytest.approx(error, abs=1e-12)
    assert ece(torch.tensor(probability), torch.tensor(target), bins=bins) == pytest.approx(error, abs=1e-12)
    table = reliability(probability, target, bins=bins)
    assert table.n.sum() == rows  # every sample once


@pytest.mark.parametrize("binning", ["equal_width", "equal_mass"])
def test_closed_forms(binning: str):
    sure = np.array([[0.8, 0.2]] * 10)
    assert ece(sure, [0] * 8 + [1] * 2, binning=binning) == pytest.approx(0)  # right as often as it says
    assert ece(sure, [1] * 10, binning=binning) == pytest.approx(0.8)
    assert ece(np.eye(2)[[0, 1, 1]], [0, 1, 1], binning=binning) == 0
    assert ece([[0.5, 0.5]], [1], binning=binning) == pytest.approx(0.5)  # of equally likely classes the first


def test_a_confidence_at_an_edge_belongs_to_the_bin_below():
    table = reliability([[0.5, 0.5], [0.51, 0.49]], [0, 0], bins=2)
    assert table.bin.tolist() == [0, 1]


@given(SEEDS, st.integers(1, 60), st.integers(1, 15))
def test_bins_of_equal_mass_hold_alike_and_never_part_equals(seed: int, rows: int, bins: int):
    probability, target = drawn(seed, rows, 3)
    table = reliability(probability, target, bins=bins, binning="equal_mass")
    if rows % bins == 0:
        assert table.n.tolist() == [rows // bins] * bins
    assert table.n.max() <= -(-rows // bins)
    order = np.random.default_rng(seed).permutation(rows)
    twice = np.concatenate([order, order])
    again = ece(probability[twice], target[twice], bins=bins, binning="equal_mass")
    assert again == pytest.approx(
        ece(probability[np.sort(twice)], target[np.sort(twice)], bins=bins, binning="equal_mass")
    )


def test_what_is_no_probability_is_refused():
    with pytest.raises(ValueError, match=r"sum to 1, got \[0.5, 0.6\] in row 1"):
        ece([[0.5, 0.5], [0.5, 0.6]], [0, 1])
    with pytest.raises(ValueError, match="in row 0"):
        ece([[np.nan, 0.5]], [0])
    with pytest.raises(ValueError, match=r"probability must be \(n, C\)"):
        ece([0.5, 0.6], [0, 1])
    with pytest.raises(ValueError, match="bins must be at least 1, got 0"):
        ece([[1.0, 0.0]], [0], bins=0)
    with pytest.raises(ValueError, match="binning must be one of equal_width, equal_mass, got 'log'"):
        ece([[1.0, 0.0]], [0], binning="log")
