from itertools import combinations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from okapi.config import SitesSettings
from okapi.data.dataset import Dataset
from okapi.data.sites import SITES, sites_dataset
from okapi.data.splits import SPLITS

DATA = sites_dataset()


def digits(data: Dataset, split: str) -> set[int]:
    """Return the numbers, in scikit-learn's data, of the digits of a split."""
    return {int(data.ids[row].rpartition("-")[2]) for row in data.rows(split)}


def names(data: Dataset, split: str) -> set[str]:
    """Return the sites of a split."""
    return {data.domain_names[number] for number in data.domain[data.rows(split)]}


def test_sites_are_a_data_set_of_some_size():
    DATA.check()
    assert DATA.inputs.shape == (9000, 1, 32, 32)
    assert DATA.inputs.dtype == torch.float32
    assert (DATA.inputs.min(), DATA.inputs.max()) == (0, 1)
    for split in set(DATA.split):
        assert set(DATA.target[DATA.rows(split)].tolist()) == set(range(10))
    assert DATA.ids[0].startswith("labelled-00-train-000-digit-")


def test_sites_follow_the_seed():
    again, other = sites_dataset(SitesSettings()), sites_dataset(SitesSettings(seed=1))
    assert torch.equal(DATA.inputs, again.inputs)
    assert torch.equal(DATA.target, again.target)
    assert DATA.ids == again.ids
    assert not torch.equal(DATA.inputs, other.inputs)
    assert digits(DATA, "train") != digits(other, "train")


def test_no_digit_is_in_two_splits_and_each_keeps_its_label():
    for one, other in combinations(sorted(set(DATA.split)), 2):
        assert not digits(DATA, one) & digits(DATA, other)
    label = load_digits().target
    assert DATA.target.tolist() == [label[int(name.rpartition("-")[2])] for name in DATA.ids]


def test_sites_of_a_split_and_images_of_a_site():
    each = {
        "train": ("labelled", 12, 200),
        "unlabelled": ("unlabelled", 48, 50),
        "id_val": ("labelled", 12, 40),
        "id_test": ("labelled", 12, 60),
        "ood_val": ("validation", 12, 50),
        "ood_test": ("test", 24, 50),
        "unlabelled_test": ("unlabelled", 48, 25),
    }
    assert set(each) == set(SPLITS)
    for split, (group, sites, images) in each.items():
        rows = DATA.rows(split)
        assert names(DATA, split) == set(SITES[group])
        assert len(SITES[group]) == sites
        assert set(np.unique(DATA.domain[rows], return_counts=True)[1].tolist()) == {images}
    assert len(set(DATA.domain_names)) == sum(map(len, SITES.values())) == 96


def test_splits_have_their_share_of_the_digits():
    shares = {"train": 0.34, "unlabelled": 0.22, "id_val": 0.08}
    for split in SPLITS:
        share = shares.get(split, 0.09) * 1797
        assert 0.8 * share < len(digits(DATA, split)) <= share + 1  # not each of them is drawn


def test_the_unlabelled_may_be_labelled_and_nothing_else_changes():
    full = sites_dataset(SitesSettings(fully_labelled=True))
    changed = DATA.split != full.split
    assert set(DATA.split[changed]) == {"unlabelled"}
    assert set(full.split[changed]) == {"train"}
    assert not len(full.rows("unlabelled"))
    assert torch.equal(DATA.inputs, full.inputs)


def test_sites_differ_as_far_as_the_difficulty_says():
    """The mean image of each site, its contrast and its classes, as standard deviations over sites."""
    alike, near, far = (spread(sites_dataset(SitesSettings(difficulty=each))) for each in (0, 0.5, 1.5))
    assert (alike < near).all()
    assert (near < far).all()
    with pytest.raises(ValueError, match="difficulty must be a number from 0 to 1,000,000, got -1"):
        SitesSettings(difficulty=-1)


def spread(data: Dataset) -> np.ndarray:
    sites = [data.domain == number for number in range(96)]
    images = [data.inputs[here] for here in sites]
    light = np.std([its.mean() for its in images])
    contrast = np.std([its.std() for its in images])
    classes = np.std([np.bincount(data.target[here], minlength=10) / int(here.sum()) for here in sites], axis=0).mean()
    return np.array([light, contrast, classes])


def test_a_site_has_a_background_and_class_frequencies_of_its_own():
    """What two splits of a site have in common, though they have no digit in common, other sites have not."""
    train, test = ([profile(DATA, split, site) for site in range(12)] for split in ("train", "id_test"))
    for number, (median, _) in enumerate(test):
        assert np.argmax([np.corrcoef(other, median)[0, 1] for other, _ in train]) == number
    likeness = np.corrcoef([often for _, often in train], [often for _, often in test])[:12, 12:]
    assert np.diag(likeness).mean() > 0.6
    assert abs(likeness[~np.eye(12, dtype=bool)].mean()) < 0.2


def profile(data: Dataset, split: str, site: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the median image and how often each class is seen."""
    rows = data.rows(split)
    rows = rows[data.domain[rows] == site]
    return data.inputs[rows].median(0).values.flatten().numpy(), np.bincount(data.target[rows], minlength=10)
