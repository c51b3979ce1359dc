import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from scipy.ndimage import convolve
from tests.data.wilds.tiny import write_iwildcam

from okapi.config import ImageFolderSettings, ImageSettings, IWildCamSettings, TableSettings, ViewSettings
from okapi.data.augment import POOL, Compose, Cutout, Flip, RandAugment, image_views, to_image, to_input
from okapi.data.batches import Batches, batch_loader, view_generators
from okapi.data.image_folder import image_folder_dataset
from okapi.data.images import ImageFiles
from okapi.data.sampling import Stream
from okapi.data.table_dataset import table_dataset
from okapi.data.wilds.iwildcam import iwildcam_dataset

SIZE = 32
STRENGTHS = (0.0, 0.1, 0.5, 0.77, 1.0)  # within the bounds of an operation
# Python warns of forking while other libraries' threads run; workers of a loader use none of them.
forks = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def pixels_of(seed: int, channels: int = 3) -> np.ndarray:
    """Return a picture (SIZE, SIZE, channels), uint8: a smooth one with some noise, neither black nor white."""
    rng = np.random.default_rng(seed)
    ramp = np.linspace(30, 200, SIZE)[:, None, None] * np.linspace(0.5, 1, SIZE)[None, :, None]
    pixels = ramp * rng.uniform(0.6, 1, channels) + rng.uniform(-10, 10, (SIZE, SIZE, channels))
    return pixels.round().astype(np.uint8)


PIXELS = pixels_of(0)


# The operations, by what they are: pixels (H, W, C) as float in, pixels out


def grey(pixels: np.ndarray) -> np.ndarray:
    return pixels @ [0.299, 0.587, 0.114]


def blend(base: np.ndarray | float, pixels: np.ndarray, by: float) -> np.ndarray:
    return np.clip(base + by * (pixels - base), 0, 255)


def stretched(pixels: np.ndarray) -> np.ndarray:
    low, high = pixels.min((0, 1)), pixels.max((0, 1))
    return (pixels - low) * 255 / (high - low)


def smoothed(pixels: np.ndarray) -> np.ndarray:
    kernel = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]])[..., None] / 13
    smooth = pixels.copy()
    smooth[1:-1, 1:-1] = convolve(pixels, kernel)[1:-1, 1:-1]  # the edge stays
    return smooth


def fetched(pixels: np.ndarray, a: float, b: float, c: float, d: float, e: float, f: float) -> np.ndarray:
    """Return what each pixel finds at (a x + b y + c, d x + e y + f); pixels lie at halves."""
    y, x = np.mgrid[:SIZE, :SIZE] + 0.5
    column, row = np.floor([a * x + b * y + c, d * x + e * y + f]).astype(int)
    inside = (row >= 0) & (row < SIZE) & (column >= 0) & (column < SIZE)
    return pixels[row.clip(0, SIZE - 1), column.clip(0, SIZE - 1)] * inside[..., None]


def turned(pixels: np.ndarray, degrees: float) -> np.ndarray:
    cos, sin, half = np.cos(np.radians(degrees)), np.sin(np.radians(degrees)), SIZE / 2
    return fetched(pixels, cos, -sin, half - half * cos + half * sin, sin, cos, half - half * cos - half * sin)


WITNESS = {
    "autocontrast": lambda pixels, _: stretched(pixels),
    "brightness": lambda pixels, by: pixels * by,
    "colour": lambda pixels, by: blend(grey(pixels)[..., None], pixels, by),
    "contrast": lambda pixels, by: blend(grey(pixels).mean(), pixels, by),
    "identity": lambda pixels, _: pixels,
    "posterise": lambda pixels, bits: pixels // 2 ** (8 - int(bits)) * 2 ** (8 - int(bits)),
    "rotate": turned,
    "sharpness": lambda pixels, by: blend(smoothed(pixels), pixels, by),
    "shear x": lambda pixels, by: fetched(pixels, 1, by, 0, 0, 1, 0),
    "shear y": lambda pixels, by: fetched(pixels, 1, 0, 0, by, 1, 0),
    "solarise": lambda pixels, above: np.where(pixels < above, pixels, 255 - pixels),
    "translate x": lambda pixels, by: fetched(pixels, 1, 0, by * SIZE, 0, 1, 0),
    "translate y": lambda pixels, by: fetched(pixels, 1, 0, 0, 0, 1, by * SIZE),
}
EXACT = {"identity", "posterise", "solarise"}
MOVES = {"rotate", "shear x", "shear y", "translate x", "translate y"}


def operation(name: str):
    return next(operation for operation in POOL if operation.name == name)


@pytest.mark.parametrize("name", WITNESS)
@pytest.mark.parametrize("share", STRENGTHS)
def test_an_operation_is_what_its_name_says(name: str, share: float):
    chosen = operation(name)
    strength = chosen.least + share * (chosen.most - chosen.least)
    got = np.asarray(chosen.apply(Image.fromarray(PIXELS), strength)).astype(float)
    wanted = WITNESS[name](PIXELS.astype(float), strength)
    if name in MOVES:  # a pixel between two may be either
        assert (got == wanted).all(-1).mean() > 0.97
    else:
        np.testing.assert_allclose(got, wanted, atol=0 if name in EXACT else 1.5)  # greys are rounded, sums cut


def test_equalised_values_are_spread_evenly_in_the_same_order():
    got = np.asarray(operation("equalise").apply(Image.fromarray(PIXELS), 0.5)).astype(int)
    for before, after in zip(PIXELS.reshape(-1, 3).T, got.reshape(-1, 3).T, strict=True):
        order = np.argsort(before, kind="stable")
        assert (np.diff(after[order]) >= 0).all()
        # Even: as many pixels are below each level as its share of 255, but for those of one value.
        most = np.bincount(before).max() / len(before)
        below = np.array([(after <= level).mean() for level in range(256)])
        assert np.abs(below - np.arange(256) / 255).max() < most + 2 / 255


def test_the_pool_is_that_of_wilds():
    bounds = {chosen.name: (chosen.least, chosen.most) for chosen in POOL}
    assert bounds == {
        **dict.fromkeys(("autocontrast", "equalise", "identity"), (0, 1)),
        **dict.fromkeys(("brightness", "colour", "contrast", "sharpness"), (0.05, 0.95)),
        **dict.fromkeys(("shear x", "shear y", "translate x", "translate y"), (-0.3, 0.3)),
        "posterise": (4, 8),
        "rotate": (-30, 30),
        "solarise": (0, 256),
    }
    assert len(POOL) == 14


@pytest.mark.parametrize("chosen", POOL, ids=lambda chosen: chosen.name)
def test_a_grey_picture_is_distorted_as_one_of_equal_channels_is(chosen):
    band = pixels_of(3, 1)[..., 0]
    strength = chosen.least + 0.3 * (chosen.most - chosen.least)
    alone = np.asarray(chosen.apply(Image.fromarray(band), strength)).astype(int)
    thrice = np.asarray(chosen.apply(Image.fromarray(np.stack(3 * [band], -1)), strength)).astype(int)
    assert alone.shape == band.shape
    np.testing.assert_allclose(np.stack(3 * [alone], -1), thrice, atol=1)


# RandAugment


def as_input(pixels: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(pixels.transpose(2, 0, 1).astype(np.float32) / 255)


@given(st.integers(0, 2**32))
def test_pixels_go_to_a_picture_and_back_to_the_bit(seed: int):
    pixels = np.random.default_rng(seed).integers(0, 256, (8, 9, 3), dtype=np.uint8)
    sample = as_input(pixels)
    image = to_image(sample)
    assert np.array_equal(np.asarray(image), pixels)
    assert torch.equal(to_input(image), sample)
    assert torch.equal(RandAugment(0)(sample, np.random.default_rng(seed)), sample)


@pytest.mark.parametrize("chosen", POOL, ids=lambda chosen: chosen.name)
def test_operations_see_pixels_and_not_what_was_made_of_them(chosen, monkeypatch):
    monkeypatch.setattr("okapi.data.augment.POOL", (chosen,))
    strength = np.random.default_rng(1)
    strength.integers(1, size=1)
    once = RandAugment(1)(as_input(PIXELS), np.random.default_rng(1))
    wanted = chosen.apply(Image.fromarray(PIXELS), strength.uniform(chosen.least, chosen.most))
    assert torch.equal(once, as_input(np.asarray(wanted)))


def test_every_operation_is_drawn_as_often_as_any_other():
    names = []
    spies = tuple(
        chosen._replace(apply=lambda image, _, name=chosen.name: names.append(name) or image) for chosen in POOL
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("okapi.data.augment.POOL", spies)
        for seed in range(2000):
            RandAugment()(as_input(PIXELS[:2, :2]), np.random.default_rng(seed))
    counts = pd.Series(names).value_counts()
    assert counts.sum() == 4000
    assert set(counts.index) == {chosen.name for chosen in POOL}
    assert counts.between(4000 / 14 * 0.75, 4000 / 14 * 1.25).all()  # four standard deviations


# The views


def views_of(colour: str = "rgb", **changes):
    settings = ImageSettings(size=SIZE, colour=colour, **changes)
    return image_views(settings, settings.channels)


@given(st.integers(0, 2**32), st.sampled_from(["rgb", "grey"]), st.sampled_from([torch.float32, torch.float64]))
def test_a_strong_view_is_its_generator_s_and_leaves_the_picture_alone(seed: int, colour: str, dtype: torch.dtype):
    strong = views_of(colour).strong
    sample = torch.rand(3 if colour == "rgb" else 1, 12, 15, generator=torch.Generator().manual_seed(seed)).to(dtype)
    before, state = sample.clone(), torch.get_rng_state()
    one, two = (strong(sample, next(view_generators(seed, 3, [4], 1))) for _ in range(2))
    assert torch.equal(sample, before)
    assert torch.equal(one, two)
    assert (one.shape, one.dtype) == (sample.shape, dtype)
    assert torch.equal(torch.get_rng_state(), state)
    assert bool(torch.isfinite(one).all())


def test_strong_views_differ_by_seed_step_and_sample():
    strong = views_of().strong
    numbers = [(seed, step, row) for seed in range(3) for step in range(4) for row in range(4)]
    views = {
        strong(as_input(PIXELS), next(view_generators(seed, step, [row], 1))).numpy().tobytes()
        for seed, step, row in numbers
    }
    assert len(views) == len(numbers)


def test_strong_views_stay_within_what_pixels_can_be():
    strong = views_of().strong
    views = torch.stack([strong(as_input(PIXELS), np.random.default_rng(seed)) for seed in range(100)])
    assert -1e-5 < float(views.min()) < 1e-5  # black comes in from the sides
    assert 0.9 < float(views.max()) < 1 + 1e-5


def test_cutout_paints_the_colour_of_wilds(monkeypatch):
    monkeypatch.setattr("okapi.data.augment.POOL", (operation("identity"),))
    view = views_of().strong(torch.zeros(3, SIZE, SIZE), np.random.default_rng(1))
    colours = (view * 255).round().reshape(3, -1).T.unique(dim=0)
    assert colours.tolist() == [[0, 0, 0], [125, 123, 114]]
    grey_view = views_of("grey").strong(torch.zeros(1, SIZE, SIZE), np.random.default_rng(1))
    assert (255 * grey_view).round().unique().tolist() == [
        0,
        Image.new("RGB", (1, 1), (125, 123, 114)).convert("L").getpixel((0, 0)),
    ]


@pytest.mark.parametrize("labelled", ["none", "weak", "strong"])
@pytest.mark.parametrize("unlabelled", ["none", "weak", "strong"])
def test_each_pool_gets_the_view_that_was_asked_for(labelled: str, unlabelled: str):
    settings = ViewSettings(labelled_view=labelled, unlabelled_view=unlabelled)
    views = image_views(settings, 3)
    kinds = {None: "none", Flip: "weak", Compose: "strong"}
    assert kinds[type(views.labelled) if views.labelled else None] == labelled
    assert kinds[type(views.unlabelled) if views.unlabelled else None] == unlabelled
    assert [type(part) for part in views.strong.transforms] == [Flip, RandAugment, Cutout]
    assert pickle.loads(pickle.dumps(views)) == views


def test_what_is_refused():
    with pytest.raises(ValueError, match="labelled_view must be one of none, weak, strong, got 'mild'"):
        ImageSettings(labelled_view="mild")
    with pytest.raises(ValueError, match="unlabelled_view must be one of none, weak, strong, got 1"):
        ViewSettings(unlabelled_view=1)
    with pytest.raises(ValueError, match="operations must be 0 or more, got -1"):
        RandAugment(-1)
    with pytest.raises(ValueError, match=r"an image \(3, H, W\) or \(1, H, W\) is wanted, got a sample of \(8, 4, 4\)"):
        RandAugment()(torch.zeros(8, 4, 4), np.random.default_rng(0))


# Data sets of pictures


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(48):
        path = tmp_path / "ab"[number % 2] / "xy"[number // 2 % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels_of(number)).save(path)
    return tmp_path


def test_every_reader_of_pictures_has_the_views_of_its_settings(folder, tmp_path):
    changes = {"size": 8, "labelled_view": "strong", "unlabelled_view": "none"}
    wanted = image_views(ViewSettings(labelled_view="strong", unlabelled_view="none"), 3)
    folders = image_folder_dataset(ImageFolderSettings(root=str(folder), held_out="b", **changes))
    names = [name for name in folders.ids if name.startswith("a")]
    table = pd.DataFrame({"image": names, "target": [name[2] for name in names], "domain": "a", "split": "train"})
    table.to_csv(folder / "table.csv", index=False)
    tabled = table_dataset(TableSettings(path=str(folder / "table.csv"), image="image", split="split", **changes))
    wild = iwildcam_dataset(IWildCamSettings(root=str(write_iwildcam(tmp_path / "wild")), **changes))
    for data in (folders, tabled, wild):
        assert data.views == wanted
    plain = TableSettings(path=str(folder / "table.csv"), image="image", split="split", size=8)
    assert table_dataset(plain).views == views_of()
    assert table_dataset(replace(plain, colour="grey")).views == views_of("grey")


@forks
def test_batches_repeat_with_and_without_workers(folder):
    data = image_folder_dataset(ImageFolderSettings(root=str(folder), size=16, held_out="b", labelled_view="strong"))
    streams = {
        name: Stream(data.rows(split), 4, 0)
        for name, split in {"labelled": "train", "unlabelled": "unlabelled"}.items()
    }
    source = Batches(data, **streams, seed=9, strong="unlabelled")
    for one, other in zip(batch_loader(source, 0, 4), batch_loader(source, 0, 4, workers=2), strict=True):
        assert torch.equal(one.labelled.inputs, other.labelled.inputs)
        assert torch.equal(one.unlabelled.inputs, other.unlabelled.inputs)
        assert torch.equal(one.unlabelled.strong, other.unlabelled.strong)
        for samples in (one.labelled, one.unlabelled):
            assert not torch.equal(samples.inputs, data.read(samples.id.tolist()))


def test_a_deep_picture_keeps_eight_bits_in_a_strong_view(tmp_path):
    deep = np.linspace(0, 65535, 64).reshape(8, 8).round().astype(np.uint16)
    Image.fromarray(deep).save(tmp_path / "deep.png")
    sample = ImageFiles(tmp_path, ["deep.png"], ImageSettings(size=8, colour="grey"))[0]
    view = RandAugment(0)(sample, np.random.default_rng(0))
    assert float((view - sample).abs().max()) <= 0.5 / 255 + 1e-6
