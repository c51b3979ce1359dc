import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.ndimage import map_coordinates

from okapi.data.augment import Affine, Compose, Contrast, Cutout, Erase, Flip, Noise, Shift, moved

PICTURE = torch.rand(3, 9, 7, generator=torch.Generator().manual_seed(0))
TRANSFORMS = [
    Shift(2),
    Noise(0.1),
    Contrast(0.5),
    Erase(0.5),
    Flip(),
    Flip(-2),
    Cutout(0.8, (0.1, 0.2, 0.3)),
    Affine(degrees=30, shear=5, scale=(0.7, 1.3), translate=0.2),
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


@pytest.mark.parametrize("dim", [-1, -2])
def test_half_of_all_pictures_are_mirrored(dim: int):
    mirrored = 0
    for seed in range(400):
        view = Flip(dim)(PICTURE, np.random.default_rng(seed))
        again = Flip(dim)(view, np.random.default_rng(seed))
        assert torch.equal(again, PICTURE)  # twice, or twice not
        if not torch.equal(view, PICTURE):
            mirrored += 1
            assert np.array_equal(view, np.flip(PICTURE.numpy(), dim))
    assert 160 <= mirrored <= 240  # four standard deviations


@given(st.integers(0, 2**32), st.floats(0, 1))
def test_cutout_paints_one_square_that_the_edge_may_cut(seed: int, most: float):
    picture = torch.zeros(3, 40, 60)
    painted = Cutout(most, (1.0, 2.0, 3.0))(picture, np.random.default_rng(seed))
    covered = painted[0] == 1
    rows, columns = covered.any(1), covered.any(0)
    assert covered.equal(rows[:, None] & columns[None])
    assert torch.equal(painted, covered * torch.tensor([1.0, 2.0, 3.0])[:, None, None])
    assert max(int(rows.sum()), int(columns.sum())) <= most * 60 + 1
    if covered.any() and not (rows[[0, -1]].any() or columns[[0, -1]].any()):
        assert abs(int(rows.sum()) - int(columns.sum())) <= 1  # by rounding


def test_cutouts_are_anywhere_and_of_all_sizes():
    picture = torch.zeros(1, 40, 40)
    painted = torch.stack([Cutout(0.5, (1.0,))(picture, np.random.default_rng(seed))[0] for seed in range(3000)])
    # A square of side s covers s^2 of the picture, less what the edge cuts off: a strip of mean s / 8 at each side.
    sides = np.linspace(0, 0.5, 10_001)
    assert abs(float(painted.mean()) - np.mean((sides - sides**2 / 4) ** 2)) < 0.004
    assert painted.any(0).all()
    assert (painted.mean(0) - painted.mean(0).flip(0)).abs().max() < 0.06


def test_a_quarter_turn_and_a_move_are_what_numpy_makes_of_them():
    square = PICTURE[:, :7, :7]
    still, quarter = np.zeros(2), np.array([[0.0, -1.0], [1.0, 0.0]])  # y points down: clockwise
    assert np.array_equal(moved(square, quarter, still), np.rot90(square.numpy(), -1, (1, 2)))
    assert torch.equal(moved(PICTURE, np.eye(2), still), PICTURE)
    down = moved(PICTURE, np.eye(2), np.array([2.0, 3.0]))
    assert torch.equal(down[:, 3:, 2:], PICTURE[:, :-3, :-2])
    assert not down[:, :3].any()
    assert not down[:, :, :2].any()


@given(st.integers(0, 2**32))
def test_affine_is_scipy_s(seed: int):
    picture = np.random.default_rng(0).random((12, 20)).astype(np.float32)
    rng = np.random.default_rng(seed)
    turn, move = np.eye(2) + rng.uniform(-0.4, 0.4, (2, 2)), rng.uniform(-5, 5, 2)
    ours = moved(torch.from_numpy(picture)[None], turn, move)[0].numpy()
    # scipy counts from the first pixel's middle, rows first.
    back, middle = np.linalg.inv(turn)[::-1, ::-1], np.array([5.5, 9.5])
    places = np.stack(np.mgrid[:12, :20]) - middle[:, None, None] - move[::-1][:, None, None]
    source = np.einsum("ij,jhw->ihw", back, places) + middle[:, None, None]
    theirs = map_coordinates(np.pad(picture, 1), source + 1, order=0, mode="constant")
    clear = (np.abs(source % 1 - 0.5) > 1e-3).all(0)  # else it is a tie between two pixels
    np.testing.assert_array_equal(ours[clear], theirs[clear])


def test_affine_stays_within_its_bounds_and_uses_them():
    ramp = torch.stack(torch.meshgrid(torch.arange(101.0), torch.arange(101.0), indexing="ij")) - 50
    angles, scales, ways = [], [], []
    for seed in range(300):
        view = Affine(degrees=10, scale=(0.9, 1.1), translate=0.1)(ramp, np.random.default_rng(seed))
        middle, right = view[:, 50, 50], view[:, 50, 80]
        (down, along) = ((right - middle) / 30).tolist()  # where a step to the right came from
        angles.append(np.degrees(np.arctan2(-down, along)))
        scales.append(1 / np.hypot(down, along))
        ways.append(middle.abs().max())
    assert 8.5 < max(angles) < 12.5  # a pixel in thirty is two degrees
    assert -12.5 < min(angles) < -8.5
    assert 0.86 < min(scales) < 0.93
    assert 1.07 < max(scales) < 1.15
    assert 9 <= max(ways) <= 13
    assert torch.equal(Affine()(ramp, np.random.default_rng(0)), ramp)


def test_contrast_keeps_the_mean():
    for seed in range(20):
        contrast = Contrast(0.5)(PICTURE, np.random.default_rng(seed))
        torch.testing.assert_close(contrast.mean(), PICTURE.mean())
        assert 0.5 <= float(contrast.std() / PICTURE.std()) <= 1.5


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
        lambda: Flip(1): "dim must be -1 or -2, got 1",
        lambda: Cutout(-0.5): r"most must be in \[0, 1\], got -0.5",
        lambda: Affine(scale=(0, 1)): "scale must be two numbers, greater than 0, in order, got",
        lambda: Flip()(torch.zeros(4), np.random.default_rng(0)): r"image .* wanted, got a sample of shape \(4,\)",
        lambda: Shift(1)(torch.zeros(4), np.random.default_rng(0)): r"image .* wanted, got a sample of shape \(4,\)",
    }.items():
        with pytest.raises(ValueError, match=words):
            make()
