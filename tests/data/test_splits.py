from collections import Counter
from contextlib import suppress
from fractions import Fraction
from math import floor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from okapi.config import SplitSettings
from okapi.data.splits import (
    SeenDomainWarning,
    by_column,
    by_fraction,
    by_held_out,
    divide,
    leave_one_out,
    unseen_classes,
    warn_of_seen_domains,
)

SHARES = st.integers(0, 10).map(lambda tenths: Fraction(tenths, 10))


@given(st.integers(20, 200), SHARES, SHARES, st.integers(0, 2**32))
def test_shares_are_rounded_down_and_the_rest_gets_all_others(count, first, second, seed):
    first, second = first / 2, second / 2
    split = by_fraction(count, {"id_val": float(first), "id_test": float(second)}, "train", seed=seed)
    sizes = Counter(split.tolist())
    assert sizes["id_val"] == floor(first * count)
    assert sizes["id_test"] == floor(second * count)
    assert sizes.total() == count
    again = by_fraction(count, {"id_val": float(first), "id_test": float(second)}, "train", seed=seed)
    assert (split == again).all()


def test_another_seed_is_another_draw_and_all_samples_have_the_same_chance():
    draws = np.array([by_fraction(20, {"id_val": 0.25}, "train", seed=seed) == "id_val" for seed in range(4000)])
    chance = draws.mean(axis=0)
    np.testing.assert_allclose(chance, 0.25, atol=5 * np.sqrt(0.25 * 0.75 / 4000))  # five standard errors
    assert not (draws[0] == draws[1]).all()


@given(st.lists(st.integers(1, 3), min_size=30, max_size=60), st.integers(0, 1000))
def test_groups_stay_together_and_shares_are_never_exceeded(sizes, seed):
    group = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    split = by_fraction(len(group), {"id_val": 0.2, "id_test": 0.3}, "train", seed=seed, groups=group)
    for number in set(group.tolist()):
        assert len(set(split[group == number].tolist())) == 1
    found = Counter(split.tolist())
    assert 0.2 * len(group) - 3 < found["id_val"] <= 0.2 * len(group)
    assert 0.3 * len(group) - 3 < found["id_test"] <= 0.3 * len(group)


def test_groups_of_one_size_fill_shares_exactly():
    place = np.repeat(np.arange(50), 4)
    both = np.stack([place // 5, place % 5], axis=1)  # the same places by two numbers, such as latitude and longitude
    for group in (place, both, both.astype(str)):
        split = by_fraction(200, {"id_val": 0.2}, "train", seed=3, groups=group)
        assert Counter(split.tolist()) == {"id_val": 40, "train": 160}
        assert all(len(set(split[place == number].tolist())) == 1 for number in range(50))


@given(st.lists(st.integers(0, 12), min_size=60, max_size=90), st.integers(0, 1000), st.booleans())
def test_training_knows_all_classes(classes, seed, grouped):
    labels = np.array(classes)
    groups = np.arange(len(labels)) // 2 if grouped else None
    split = by_fraction(len(labels), {"id_val": 0.2, "id_test": 0.2}, "train", seed=seed, classes=labels, groups=groups)
    assert set(labels[split == "train"].tolist()) == set(classes)
    assert not unseen_classes(labels, split).any()
    assert (split == "id_val").sum() >= floor(0.2 * len(labels)) - grouped


@given(st.lists(st.integers(0, 12), min_size=10, max_size=30), st.integers(0, 1000), st.integers(1, 3))
def test_a_share_gives_way_to_the_classes_of_training(classes, seed, together):
    labels = np.array(classes)
    groups = np.arange(len(labels)) // together
    with suppress(ValueError):  # where nothing is left for it
        split = by_fraction(len(labels), {"id_val": 0.4}, "train", seed=seed, classes=labels, groups=groups)
        assert set(labels[split == "train"].tolist()) == set(classes)


def test_a_share_of_no_sample_is_refused():
    with pytest.raises(ValueError, match=r"id_val is 0\.2 of 4 samples, which leaves none for it"):
        by_fraction(4, {"id_val": 0.2}, "train", seed=0)
    with pytest.raises(ValueError, match=r"id_val is 0\.2 of 10 samples in 2 groups"):
        by_fraction(10, {"id_val": 0.2}, "train", seed=0, groups=np.arange(10) // 5)
    with pytest.raises(ValueError, match=r"id_val is 0\.5 of 4 samples.*4 hold one of each class for train"):
        by_fraction(4, {"id_val": 0.5}, "train", seed=0, classes=[1, 2, 3, 4])
    with pytest.raises(ValueError, match="groups must have a row for each of the 4 samples, got 3"):
        by_fraction(4, {}, "train", seed=0, groups=[1, 2, 3])


# Held-out domains

DOMAIN = np.repeat(["art", "cartoon", "photo", "sketch"], [20, 30, 40, 50])


def sizes(split: np.ndarray, domain: str) -> dict[str, int]:
    return dict(Counter(split[domain == DOMAIN].tolist()))


def test_half_of_the_target_is_unlabelled_and_a_fifth_of_the_source_is_for_validation():
    split = by_held_out(DOMAIN, held_out=["sketch"])
    assert sizes(split, "sketch") == {"unlabelled": 25, "ood_test": 25}
    source = Counter(split[DOMAIN != "sketch"].tolist())
    assert source == {"train": 72, "id_val": 18}


def test_validation_domains_and_several_targets():
    split = by_held_out(
        DOMAIN, held_out=("art", "photo"), validation=["sketch"], unlabelled=0.25, id_val=0.1, id_test=0.5
    )
    assert sizes(split, "art") == {"unlabelled": 5, "ood_test": 15}
    assert sizes(split, "photo") == {"unlabelled": 10, "ood_test": 30}
    assert sizes(split, "sketch") == {"ood_val": 50}
    assert sizes(split, "cartoon") == {"id_val": 3, "id_test": 15, "train": 12}


def test_how_a_target_is_divided_does_not_depend_on_the_other_domains():
    alone = by_held_out(DOMAIN, held_out=["sketch"])
    beside = by_held_out(DOMAIN, held_out=["art", "sketch"], validation=["photo"], id_val=0.5)
    here = DOMAIN == "sketch"
    assert (alone[here] == beside[here]).all()
    other = by_held_out(DOMAIN, held_out=["sketch"], seed=1)
    assert not (alone[here] == other[here]).all()


def test_samples_without_a_label_are_unlabelled_wherever_they_are():
    labelled = np.arange(len(DOMAIN)) % 5 > 0
    split = by_held_out(DOMAIN, held_out=["sketch"], validation=["art"], labelled=labelled)
    assert set(split[~labelled].tolist()) == {"unlabelled"}
    assert sizes(split, "sketch") == {"unlabelled": 10 + 20, "ood_test": 20}
    assert sizes(split, "art") == {"unlabelled": 4, "ood_val": 16}


def test_places_that_recur_are_not_in_two_splits():
    place = np.arange(len(DOMAIN)) // 2
    split = by_held_out(DOMAIN, held_out=["sketch"], id_test=0.2, groups=place)
    assert all(len(set(split[place == number].tolist())) == 1 for number in set(place.tolist()))
    assert sizes(split, "sketch") == {"unlabelled": 24, "ood_test": 26}


def test_leave_one_out_holds_out_every_domain_once():
    held = dict(leave_one_out(DOMAIN, id_val=0.1))
    assert list(held) == ["art", "cartoon", "photo", "sketch"]
    for name, split in held.items():
        assert (split == by_held_out(DOMAIN, held_out=[name], id_val=0.1)).all()
        assert set(DOMAIN[split == "ood_test"].tolist()) == {name}
        assert name not in set(DOMAIN[np.isin(split, ["train", "id_val"])].tolist())


def test_wrong_domains_are_named():
    with pytest.raises(
        ValueError, match=r"held_out must be domains \('art', .*\), got 'scetch'; did you mean sketch\?"
    ):
        by_held_out(DOMAIN, held_out=["scetch"])
    with pytest.raises(ValueError, match=r"validation must be other domains than held_out, got 'art' for both"):
        by_held_out(DOMAIN, held_out=["art"], validation=["art"])
    with pytest.raises(ValueError, match="leave no labelled domain to train on"):
        by_held_out(DOMAIN, held_out=["art", "cartoon"], validation=["photo", "sketch"])


def test_settings_say_the_same_and_may_hand_over_the_labels():
    settings = SplitSettings(held_out="sketch", validation=("art",), split_seed=5)
    split = divide(settings, DOMAIN)
    assert (split == by_held_out(DOMAIN, held_out=["sketch"], validation=["art"], seed=5)).all()
    labelled = np.arange(len(DOMAIN)) != 139
    full = SplitSettings(held_out="sketch", validation="art", split_seed=5, fully_labelled=True)
    joined = divide(full, DOMAIN, labelled=labelled)
    assert joined[139] == "unlabelled"  # what has no label cannot join
    assert (joined == "train").sum() == (split == "train").sum() + 24
    for words, wrong in {
        r"unlabelled must be a number from 0 to 1, got 1.5": {"unlabelled": 1.5},
        "id_val and id_test must leave something to train on, got 0.5 and 0.5": {"id_val": 0.5, "id_test": 0.5},
        "split_seed must be a whole number from 0 .*, got -1": {"split_seed": -1},
    }.items():
        with pytest.raises(ValueError, match=words):
            SplitSettings(**wrong)


def test_zero_unlabelled_samples_may_be_asked_for():
    split = by_held_out(DOMAIN, held_out=["sketch"], unlabelled=0)
    assert sizes(split, "sketch") == {"ood_test": 50}
    split = by_held_out(DOMAIN, held_out=["sketch"], unlabelled=1)
    assert sizes(split, "sketch") == {"unlabelled": 50}
    assert Counter(by_held_out(DOMAIN, held_out=[]).tolist()) == {"train": 112, "id_val": 28}


# By column


def test_a_column_may_be_spelled_the_american_way():
    assert by_column(["unlabeled", "train", "unlabelled"]).tolist() == ["unlabelled", "train", "unlabelled"]


def test_domains_in_train_and_out_of_distribution_are_warned_of_by_name():
    domain = np.array([0, 0, 1, 1, 2])
    names = ["rome", "oslo", "bern"]
    with pytest.warns(SeenDomainWarning, match=r"1 domain is in both train and ood_test, .*: 'oslo'$"):
        warn_of_seen_domains(domain, np.array(["train", "id_val", "train", "ood_test", "ood_val"]), names)
    warn_of_seen_domains(domain, np.array(["train", "id_test", "unlabelled", "ood_test", "ood_val"]), names)
    warn_of_seen_domains(np.ones((2, 3), dtype=bool), np.array(["train", "ood_test"]), names)
