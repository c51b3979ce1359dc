import io
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from scipy.ndimage import gaussian_filter

from okapi.data import duplicates
from okapi.data.duplicates import LIKENESS, SIDE, Fingerprint, find_duplicates


def scene(seed: int, side: int = 128) -> Image.Image:
    """Return an image with things of all sizes in it."""
    rng = np.random.default_rng(seed)
    layers = [gaussian_filter(rng.normal(size=(side, side, 3)), (size, size, 0)) for size in (2, 6, 16)]
    light = sum(layer / layer.std() for layer in layers)
    return Image.fromarray(np.uint8(np.clip(127 + 30 * light, 0, 255)))


def small(image: Image.Image) -> np.ndarray:
    return np.asarray(image.convert("L").resize((SIDE, SIDE), Image.Resampling.BICUBIC))


def recompressed(image: Image.Image, quality: int) -> Image.Image:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    return Image.open(file)


def pairs_of(images: list[Image.Image], splits: list[int], most: int | None = 6) -> list[tuple[int, int, bool]]:
    """Return duplicates among images that are the same where they are the same object."""
    prints = [Fingerprint(str(id(image)).encode(), small(image)) for image in images]
    frame = find_duplicates(prints, np.array(splits), most)
    return list(frame[["row", "other", "exact"]].itertuples(index=False, name=None))


# Exact duplicates


@given(st.lists(st.tuples(st.sampled_from("abcd-"), st.integers(0, 3)), max_size=12))
def test_exact_duplicates_are_those_of_brute_force(samples: list[tuple[str, int]]):
    """Each sample with the first of the same content, by split and row; what cannot be read is none."""
    order = sorted(range(len(samples)), key=lambda row: (samples[row][1], row))
    wanted = {}
    for place, row in enumerate(order):
        earlier = [other for other in order[:place] if samples[other][0] == samples[row][0] != "-"]
        if earlier:
            wanted[row] = earlier[0]
    prints = [Fingerprint(None if content == "-" else content.encode()) for content, _ in samples]
    found = find_duplicates(prints, np.array([split for _, split in samples], dtype=int))
    assert dict(zip(found["row"], found["other"], strict=True)) == wanted
    assert found["exact"].all()


# Near duplicates

near = pytest.mark.skipif(not duplicates.can_find_near(), reason="the extra duplicates is not installed")


@near
@pytest.mark.parametrize("seed", range(5))
def test_another_size_or_quality_is_a_near_duplicate(seed: int):
    image = scene(seed)
    half = image.resize((64, 64), Image.Resampling.BICUBIC)
    brighter = image.point(lambda value: 0.9 * value + 20)
    others = [recompressed(image, 30), half, recompressed(half, 50), image.resize((200, 150)), brighter]
    assert sorted(pairs_of([image, *others], [0] + 5 * [1])) == [(row, 0, False) for row in range(1, 6)]


@near
def test_other_images_are_none():
    assert pairs_of([scene(seed) for seed in range(40)], 40 * [0], most=10) == []


@near
@given(st.integers(0, 2**32), st.integers(0, 16))
def test_near_duplicates_are_those_of_brute_force(seed: int, most: int):
    import imagehash

    rng = np.random.default_rng(seed)
    scenes = [small(scene(number, 32)).astype(float) for number in range(3)]
    greys = [
        np.uint8(np.clip(scenes[rng.integers(3)] + rng.normal(0, rng.choice([2, 20, 60]), (SIDE, SIDE)), 0, 255))
        for _ in range(10)
    ]
    split = rng.integers(0, 3, 10)
    hashes = [imagehash.phash(Image.fromarray(grey)) for grey in greys]
    order = sorted(range(10), key=lambda row: (split[row], row))
    wanted = {}
    for one, two in combinations(order, 2):
        bits = int(hashes[one] - hashes[two])
        if bits <= most and np.corrcoef(greys[one].ravel(), greys[two].ravel())[0, 1] >= LIKENESS:
            candidate = (split[one], bits, order.index(one), one)
            wanted[two] = min(wanted.get(two, candidate), candidate)
    found = find_duplicates([Fingerprint(bytes([row]), grey) for row, grey in enumerate(greys)], split, most)
    with pytest.MonkeyPatch.context() as patch:  # blocks lose nothing
        patch.setattr(duplicates, "_AT_A_TIME", 20)
        patch.setattr(duplicates, "_COMPARED", 3)
        again = find_duplicates([Fingerprint(bytes([row]), grey) for row, grey in enumerate(greys)], split, most)
    assert found.equals(again)
    got = {row: (other, bits) for row, other, bits in zip(found["row"], found["other"], found["bits"], strict=True)}
    assert got == {row: (candidate[3], candidate[1]) for row, candidate in wanted.items()}


@near
def test_the_earliest_split_comes_first_and_there_an_exact_duplicate():
    one, two = scene(1), scene(2)
    worse = recompressed(one, 30)
    images = [one, two, worse, worse, two, two]
    assert pairs_of(images, [0, 0, 0, 1, 2, 2]) == [(3, 2, True), (4, 1, True), (5, 1, True), (2, 0, False)]
    assert pairs_of(images, [2, 0, 1, 2, 2, 2]) == [(3, 2, True), (4, 1, True), (5, 1, True), (0, 2, False)]
    assert pairs_of(images, [0, 0, 0, 1, 2, 2], None) == [(3, 2, True), (4, 1, True), (5, 1, True)]


@near
def test_drawings_whose_hashes_agree_are_none_where_they_differ(monkeypatch):
    import imagehash

    monkeypatch.setattr(imagehash, "phash", lambda image: imagehash.ImageHash(np.ones((8, 8), dtype=bool)))
    assert pairs_of([scene(1), scene(2)], [0, 1]) == []
