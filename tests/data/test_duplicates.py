import io
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from scipy.ndimage import gaussian_filter

from okapi.data.duplicates import SIDE, Samples, _count_bytewise, find_copies, near_pairs, perceptual_hash


def scene(seed: int, side: int = 128) -> Image.Image:
    """Return a picture with things of all sizes in it."""
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


def bits(one: int, two: int) -> int:
    return (one ^ two).bit_count()


# Hashes


@pytest.mark.parametrize("seed", range(5))
def test_a_copy_at_another_size_or_quality_has_nearly_the_same_hash(seed):
    image = scene(seed)
    original = perceptual_hash(small(image))
    half = image.resize((64, 64), Image.Resampling.BICUBIC)
    brighter = image.point(lambda value: 0.9 * value + 20)
    for copy in (recompressed(image, 30), half, recompressed(half, 50), image.resize((200, 150)), brighter):
        assert bits(original, perceptual_hash(small(copy))) <= 6


def test_other_pictures_have_other_hashes():
    hashes = [perceptual_hash(small(scene(seed))) for seed in range(40)]
    assert min(bits(one, two) for one, two in combinations(hashes, 2)) > 10


def test_flat_pictures_have_none():
    rng = np.random.default_rng(0)
    for grey in (np.zeros((SIDE, SIDE)), np.full((SIDE, SIDE), 255), 200 + rng.integers(0, 3, (SIDE, SIDE))):
        assert perceptual_hash(grey.astype(np.uint8)) is None


# Pairs


@st.composite
def crowded(draw: st.DrawFn) -> np.ndarray:
    """Draw hashes of which many are close: some at random, and others with a few of their bits turned."""
    centres = draw(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=4))
    turned = st.lists(st.integers(0, 63), max_size=12)
    hashes = [
        draw(st.sampled_from(centres)) ^ sum({1 << place for place in draw(turned)})
        for _ in range(draw(st.integers(1, 25)))
    ]
    return np.array(hashes, dtype=np.uint64)


@given(crowded(), st.integers(0, 16))
def test_near_pairs_are_those_of_brute_force_each_once(hashes, most):
    found = [tuple(pair) for part in near_pairs(hashes, most) for pair in np.stack(part, axis=1).tolist()]
    numbers = hashes.tolist()
    every = ((i, j, bits(numbers[i], numbers[j])) for i, j in combinations(range(len(numbers)), 2))
    assert sorted(found) == [pair for pair in every if pair[2] <= most]


def test_blocks_of_a_large_bucket_lose_nothing(monkeypatch):
    rng = np.random.default_rng(0)
    hashes = rng.integers(0, 2**10, 300, dtype=np.uint64)  # all agree in most bands
    whole = sorted(np.concatenate([np.stack(part, axis=1) for part in near_pairs(hashes, 3)]).tolist())
    monkeypatch.setattr("okapi.data.duplicates._AT_A_TIME", 1000)
    parts = sorted(np.concatenate([np.stack(part, axis=1) for part in near_pairs(hashes, 3)]).tolist())
    numbers = hashes.tolist()
    assert whole == parts
    assert len(whole) == sum(bits(one, two) <= 3 for one, two in combinations(numbers, 2))


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20))
def test_bits_are_counted_without_the_newest_numpy(numbers):
    counted = _count_bytewise(np.array(numbers, dtype=np.uint64)[None])
    assert counted.tolist() == [[number.bit_count() for number in numbers]]


# Copies


def of(group, split, domain=None) -> Samples:
    group = np.array(group)
    return Samples(
        group=group, split=np.array(split), domain=np.zeros_like(group) if domain is None else np.array(domain)
    )


def told(frame) -> list[tuple[int, int, bool]]:
    return sorted(frame[["row", "other", "exact"]].itertuples(index=False, name=None))


def test_exact_copies_are_told_once_for_each_earlier_split():
    found = find_copies(of([7, 8, 7, 7, 8, 9], [0, 0, 0, 1, 3, 3]), 6)
    assert told(found.across_splits) == [(3, 0, True), (4, 1, True)]
    assert told(found.within_splits) == [(2, 0, True)]
    both = find_copies(of([1, 1, 1], [0, 1, 5]), None)
    assert told(both.across_splits) == [(1, 0, True), (2, 0, True), (2, 1, True)]


def test_copies_in_other_domains_are_pairs_that_stand_once():
    found = find_copies(of([0, 0, 0, 1, 1], [0, 0, 0, 0, 0], domain=[2, 2, 1, 1, 1]), None)
    assert told(found.across_domains) == [(0, 2, True), (1, 2, True)]
    assert told(found.within_splits) == [(1, 0, True), (2, 0, True), (4, 3, True)]


def test_what_cannot_be_read_is_no_copy():
    found = find_copies(of([-1, -1, 0], [0, 3, 3]), 6)
    assert found.across_splits.empty
    assert found.across_domains.empty
    assert found.within_splits.empty


def test_a_thousand_copies_are_a_thousand_lines():
    found = find_copies(of([0] * 3000, [0] * 2000 + [5] * 1000), 6)
    assert len(found.across_splits) == 1000
    assert len(found.within_splits) == 2998


def pictured(images: list[Image.Image], split: list[int], domain: list[int]) -> Samples:
    grey = np.stack([small(image) for image in images])
    group = np.unique([hash(image.tobytes()) for image in images], return_inverse=True)[1].astype(np.int64)
    hashes = np.array([perceptual_hash(part) for part in grey], dtype=np.uint64)
    return Samples(group, np.array(split), np.array(domain), np.arange(len(images)), hashes, grey)


def test_a_near_copy_is_told_with_its_nearest_and_an_exact_one_is_not_near():
    first, second = scene(1), scene(2)
    images = [first, second, recompressed(first, 20), recompressed(first, 90), second.copy(), scene(3)]
    found = find_copies(pictured(images, [0, 0, 3, 3, 5, 5], [0, 0, 1, 1, 2, 2]), 6)
    assert told(found.across_splits) == [(2, 0, False), (3, 0, False), (4, 1, True)]
    assert told(found.within_splits) == [(2, 3, False)]
    assert told(found.across_domains) == [(0, 2, False), (1, 4, True), (3, 0, False)]
    assert find_copies(pictured(images, [0] * 6, [0] * 6), None).across_splits.empty


def test_hashes_that_agree_are_no_copies_where_pictures_differ():
    one, two = small(scene(1)), small(scene(2))
    samples = Samples(
        np.array([0, 1]), np.array([0, 5]), np.zeros(2, dtype=int), np.arange(2), np.zeros(2, dtype=np.uint64),
        np.stack([one, two]),
    )  # fmt: skip
    assert find_copies(samples, 6).across_splits.empty
