import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from okapi.data.views import Brightness, Compose, Contrast, Erase, Noise, Shift

PICTURE = torch.rand(3, 9, 7, generator=torch.Generator().manual_seed(0))
TRANSFORMS = [
    Shift(2),
    Noise(0.1),
    Brightness(0.3),
    Contrast(0.5),
    Erase(0.5),
    Compose((Shift(1), Erase(0.3), Noise(0.2))),
]


@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda transform: type(transform).__name__)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_view_is_its_generator_s_and_leaves_the_sample_alone(transform, dtype):
    sample = PICTURE.to(dtype)
    before = sample.clone()
    views = [transform(sample, np.random.default_rng(seed)) for seed in (1, 1, 2, 3, 4)]
    torch.testing.assert_close(sample, before, rtol=0, atol=0)
    torch.testing.assert_close(views[0], views[1], rtol=0, atol=0)
    assert {(view.shape, view.dtype) for view in views} == {(sample.shape, dtype)}
    assert any(not torch.equal(views[0], view) for view in views[2:])
    assert pickle.loads(pickle.dumps(transform)) == transform  # other processes get it by pickle


@given(st.integers(0, 2**32), st.integers(0, 4))
def test_shift_moves_by_whole_pixels_and_repeats_the_edge(seed: int, pixels: int):
    moved = Shift(pixels)(PICTURE, np.random.default_rng(seed))

    def move(down: int, right: int) -> torch.Tensor:
        rows, columns = (np.arange(9) - down).clip(0, 8), (np.arange(7) - right).clip(0, 6)
        return PICTURE[:, rows][:, :, columns]

    shifts = range(-pixels, pixels + 1)
    assert any(torch.equal(moved, move(down, right)) for down in shifts for right in shifts)


def test_shift_uses_every_direction():
    moved = {tuple(Shift(1)(PICTURE, np.random.default_rng(seed)).flatten().tolist()) for seed in range(100)}
    assert len(moved) == 9


@given(st.integers(0, 2**32), st.floats(0, 1))
def test_erase_paints_one_rectangle_no_larger_than_asked(seed: int, most: float):
    erased = Erase(most)(PICTURE, np.random.default_rng(seed))
    changed = (erased != PICTURE).any(0)
    rows, columns = changed.any(1), changed.any(0)
    assert changed.equal(rows[:, None] & columns[None])
    assert rows.sum() <= round(most * 9)
    assert columns.sum() <= round(most * 7)
    torch.testing.assert_close(erased[:, changed], PICTURE.mean().expand(3, int(changed.sum())))


def test_contrast_keeps_the_mean_and_brightness_the_differences():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        contrast, bright = Contrast(0.5)(PICTURE, rng), Brightness(0.3)(PICTURE, rng)
        torch.testing.assert_close(contrast.mean(), PICTURE.mean())
        assert 0.5 <= float(contrast.std() / PICTURE.std()) <= 1.5
        assert float((bright - PICTURE).std()) < 1e-6
        assert abs(float((bright - PICTURE).mean())) <= 0.3


def test_noise_is_as_large_as_asked():
    added = Noise(0.5)(torch.zeros(100, 100), np.random.default_rng(0))
    assert abs(float(added.std()) - 0.5) < 0.02
    assert abs(float(added.mean())) < 0.02
    assert torch.equal(Noise(0.0)(PICTURE, np.random.default_rng(0)), PICTURE)


def test_settings_and_samples_that_are_refused():
    for make, words in {
        lambda: Shift(-1): "pixels must be 0 or more, got -1",
        lambda: Noise(-0.1): "std must be 0 or more",
        lambda: Erase(1.5): r"most must be in \[0, 1\], got 1.5",
        lambda: Contrast(2): r"most must be in \[0, 1\]",
        lambda: Brightness(-1): "most must be 0 or more",
        lambda: Shift(1)(torch.zeros(4), np.random.default_rng(0)): r"picture .* wanted, got a sample of shape \(4,\)",
    }.items():
        with pytest.raises(ValueError, match=words):
            make()
