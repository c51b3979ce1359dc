import colorsys
import pickle
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageEnhance

from okapi.config import ViewSettings
from okapi.data.augment import Affine, Compose, Cutout, Flip
from okapi.data.wilds.poverty_views import (
    MEAN,
    STD,
    ColourJitter,
    brighten,
    contrast,
    poverty_views,
    saturate,
    turn_hue,
)

MODULE = "okapi.data.wilds.poverty_views"
BANDS = [2, 1, 0]  # red, green and blue
COLOURS = torch.rand(3, 12, 10, generator=torch.Generator().manual_seed(0))
WILDS = ColourJitter(brightness=0.8, contrast=0.8, saturation=0.8, hue=0.1)


def image(reflectance: torch.Tensor) -> torch.Tensor:
    """Return an input (8, H, W) with these colours, red first, and five bands of anything."""
    sample = torch.randn(8, *reflectance.shape[1:], generator=torch.Generator().manual_seed(1))
    mean, std = (torch.tensor(values)[:, None, None] for values in (MEAN, STD))
    sample[BANDS] = (reflectance - mean) / std
    return sample


def colours_of(sample: torch.Tensor) -> torch.Tensor:
    """Return the reflectance of red, green and blue of an input."""
    mean, std = (torch.tensor(values)[:, None, None] for values in (MEAN, STD))
    return sample[BANDS] * std + mean


@given(st.integers(0, 2**32), st.floats(-0.5, 0.5))
def test_hue_is_turned_as_colorsys_does(seed: int, share: float):
    colours = torch.rand(3, 2, 3, generator=torch.Generator().manual_seed(seed))
    colours[:, 0, 0] = 0.25  # grey has no hue
    colours[:, 0, 1] = torch.tensor([1.0, 0.0, 0.0])
    got = turn_hue(colours, share).reshape(3, -1).T
    for before, after in zip(colours.reshape(3, -1).T.tolist(), got.tolist(), strict=True):
        hue, saturation, value = colorsys.rgb_to_hsv(*before)
        assert after == pytest.approx(colorsys.hsv_to_rgb((hue + share) % 1, saturation, value), abs=1e-5)


@pytest.mark.parametrize("factor", [0.0, 0.2, 1.0, 1.8])
@pytest.mark.parametrize(
    ("change", "theirs"),
    [(brighten, ImageEnhance.Brightness), (contrast, ImageEnhance.Contrast), (saturate, ImageEnhance.Color)],
)
def test_changes_are_pillow_s_but_for_rounding(change, theirs, factor: float):
    pixels = (255 * COLOURS).round()
    picture = Image.fromarray(pixels.permute(1, 2, 0).numpy().astype(np.uint8))
    wanted = np.asarray(theirs(picture).enhance(factor)).astype(np.float32)
    got = 255 * change(pixels / 255, factor).permute(1, 2, 0).numpy()
    np.testing.assert_allclose(got, wanted, atol=2.5)  # Pillow rounds greys, and then cuts decimals off


@given(st.integers(0, 2**32))
def test_jitter_is_of_reflectance_and_of_three_bands_only(seed: int):
    sample = image(COLOURS)
    before = sample.clone()
    view = WILDS(sample, np.random.default_rng(seed))
    assert torch.equal(sample, before)
    assert torch.equal(view[3:], sample[3:])
    # On colours themselves, which need no units, by the same numbers.
    rng = np.random.default_rng(seed)
    most = np.array([0.8, 0.8, 0.8, 0.1])
    strengths = rng.uniform(-most, most) + np.array([1, 1, 1, 0])
    wanted = COLOURS
    for number in rng.permutation(4):
        wanted = (brighten, contrast, saturate, turn_hue)[number](wanted, float(strengths[number]))
    torch.testing.assert_close(colours_of(view), wanted, atol=2e-4, rtol=0)  # a hue near grey is sensitive
    assert (view.shape, view.dtype) == (sample.shape, sample.dtype)


def test_red_is_the_third_channel():
    red = torch.zeros(3, 4, 4)
    red[0] = 0.5
    lit = ColourJitter(brightness=0.5)(image(red), np.random.default_rng(0))
    colours = colours_of(lit)
    assert float(colours[1:].abs().max()) < 1e-6
    assert not torch.allclose(lit[2], image(red)[2])
    turned = turn_hue(red, 1 / 3)
    torch.testing.assert_close(turned, red.roll(1, 0))  # to green


def test_no_jitter_is_no_change():
    sample = image(COLOURS)
    torch.testing.assert_close(ColourJitter()(sample, np.random.default_rng(0)), sample, atol=1e-4, rtol=0)


def test_brightness_uses_its_bounds():
    grey = image(torch.full((3, 4, 4), 0.3))
    factors = [
        float(colours_of(ColourJitter(brightness=0.8)(grey, np.random.default_rng(s)))[0, 0, 0]) / 0.3
        for s in range(300)
    ]
    assert 0.2 - 1e-3 <= min(factors) < 0.25
    assert 1.75 < max(factors) <= 1.8 + 1e-3


def test_changes_come_in_every_order(monkeypatch):
    called: list[str] = []
    names = ("brighten", "contrast", "saturate", "turn_hue")
    for name in names:
        monkeypatch.setattr(f"{MODULE}.{name}", lambda rgb, _, name=name: called.append(name) or rgb)
    for seed in range(300):
        WILDS(image(COLOURS), np.random.default_rng(seed))
    orders = {tuple(called[start : start + 4]) for start in range(0, 1200, 4)}
    assert len(called) == 1200
    assert orders == set(permutations(names))


def test_views_are_those_of_wilds():
    views = poverty_views(ViewSettings(labelled_view="none", unlabelled_view="weak"))
    assert views.labelled is None
    assert views.unlabelled == Compose((Flip(-1), Flip(-2)))
    affine = Affine(degrees=10, translate=0.1, shear=0.1, scale=(0.9, 1.1))
    assert views.strong == Compose((Flip(-1), Flip(-2), affine, WILDS, Cutout(0.5)))
    assert pickle.loads(pickle.dumps(views)) == views


@given(st.integers(0, 2**32))
def test_a_strong_view_is_its_generator_s_and_leaves_the_image_alone(seed: int):
    sample = image(COLOURS)
    before = sample.clone()
    strong = poverty_views(ViewSettings()).strong
    one, two = (strong(sample, np.random.default_rng(seed)) for _ in range(2))
    assert torch.equal(sample, before)
    assert torch.equal(one, two)
    assert not torch.equal(one, strong(sample, np.random.default_rng(seed + 1)))
    assert (one.shape, one.dtype) == (sample.shape, sample.dtype)
    # Whatever happens to colours, the other bands are pixels of the image, or 0.
    assert all(
        set(new.flatten().tolist()) <= {0.0, *old.flatten().tolist()}
        for new, old in zip(one[3:], sample[3:], strict=True)
    )


@pytest.mark.parametrize("change", [{"brightness": 1.5}, {"contrast": -0.1}, {"saturation": 2}, {"hue": 0.6}])
def test_jitter_beyond_its_bounds_is_refused(change):
    ((name, value),) = change.items()
    with pytest.raises(ValueError, match=rf"{name} must be in \[0, .*\], got {value}"):
        ColourJitter(**change)
