from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from okapi.config import ArraysSettings
from okapi.data.arrays import arrays_dataset, from_arrays
from okapi.data.augment import Affine, Compose, Noise, Views
from okapi.data.io import TableError
from okapi.data.registry import BUILDERS
from okapi.data.splits import SeenDomainWarning
from okapi.data.task import Task

ARRAYS = {
    "x": np.arange(24.0).reshape(6, 4),
    "y": np.array([0, 2, -1, 2, 1, 1]),
    "domain": np.array(["oslo", "oslo", "rome", "rome", "oslo", "rome"]),
    "split": np.array(["train", "train", "unlabelled", "ood_val", "train", "ood_test"]),
}


def saved(folder: Path, **changes) -> ArraysSettings:
    np.savez(folder / "data.npz", **ARRAYS | changes)
    return ArraysSettings(path=str(folder / "data.npz"))


def test_arrays_are_read(tmp_path: Path):
    data = arrays_dataset(saved(tmp_path))
    assert (data.inputs.dtype, data.target.dtype, data.domain.dtype) == (torch.float32, torch.int64, torch.int64)
    assert data.domain_names == ("oslo", "rome")
    assert data.domain.tolist() == [0, 0, 1, 1, 0, 1]
    assert data.task == Task("classification", 3)
    assert data.views == Views()
    settings = replace(saved(tmp_path, name=np.array(list("abcdef"))), id="name", strong_noise=0.5)
    data = BUILDERS["arrays"](settings)
    assert (data.ids, data.class_names, data.views) == (list("abcdef"), ("0", "1", "2"), Views(strong=Noise(0.5)))
    assert arrays_dataset(saved(tmp_path, domain=np.array([7, 7, 9, 9, 7, 9]))).domain_names == ("7", "9")


def test_arrays_of_other_tasks(tmp_path: Path):
    settings = replace(saved(tmp_path, y=np.array([1, 2.5, np.nan, 1, 1, 1])), task="regression")
    assert arrays_dataset(settings).target.dtype == torch.float32
    settings = replace(saved(tmp_path, y=np.ones((6, 3), dtype=bool)), task="multilabel")
    data = arrays_dataset(settings)
    assert (data.task, data.target.dtype) == (Task("multilabel", 3), torch.float32)
    sets = np.array([[True, False, True]] * 6)
    assert arrays_dataset(saved(tmp_path, domain=sets)).domain_names == ("domain_0", "domain_1", "domain_2")


def test_views_are_noise_after_a_warp(tmp_path: Path):
    pictures = saved(tmp_path, x=np.ones((6, 1, 8, 8)))
    views = arrays_dataset(replace(pictures, train_noise=0.1, train_warp=0.2, strong_warp=0.4)).views
    weak, strong = (
        Affine(degrees=angle, shear=angle, scale=scale, translate=move)
        for angle, scale, move in ((np.degrees(0.1), (0.8, 1.2), 0.1), (np.degrees(0.2), (0.6, 1.4), 0.2))
    )
    assert views == Views(labelled=Compose((weak, Noise(0.1))), unlabelled=Compose((weak, Noise(0.1))), strong=strong)
    with pytest.raises(TableError, match=r"array 'x' must be images .* its shape is \(6, 4\)"):
        arrays_dataset(replace(saved(tmp_path), strong_warp=0.1))
    with pytest.raises(ValueError, match="train_warp must be a number of at least 0 and less than 1, got"):
        replace(pictures, train_warp=1.0)


ARRAY_ERRORS = {
    r"row 4, column 'x' is not finite": {"x": np.where(np.arange(6)[:, None] == 3, np.inf, 1.0)},
    r"array 'x' must be numbers of shape \(n, ...\), got <U1": {"x": np.array(list("abcdef"))},
    r"array 'x' has 2 rows, array 'y' is of shape \(6,\)": {"x": np.ones((2, 4))},
    r"row 1, column 'x' is not finite in float32 \(6 such rows\)": {"x": np.full((6, 4), 1e300)},
    r"row 5, column 'y' is missing, but the sample is in train": {"y": np.array([0, 2, -1, 2, -3, 2])},
    r"column 'y' must have two classes or more in train, got '1'": {"y": np.ones(6)},
    r"row 1, column 'y' must be a class, .*, got '0.5'": {"y": np.full(6, 0.5)},
    r"row 1, column 'split' must be one of .* got 'fit'": {"split": np.array(6 * ["fit"])},
    r"row 1, column 'domain_0' must be 0 or 1, got '0.5'": {"domain": np.full((6, 2), 0.5)},
    r"array 'domain' is of shape \(\)": {"domain": np.array("rome")},
    r"array 'split' must be of shape \(n,\)": {"split": np.array(6 * [["train"]])},
    r"column 'split' must name at least one sample 'train'": {"split": np.array(6 * ["id_val"])},
    r"row 4, column 'y': class 'c' is in ood_val, but not in train": {"y": np.array(list("abzcab"))},
    r"row 5, column 'y' is missing, but the sample is in train$": {"y": np.array(["a", "b", "", "a", "", "a"])},
    r"target must be one column for classification, got 2": {"y": np.array([["a", "b"]] * 6)},
    r"array 'y' must be numbers or str .*, got \|S1": {"y": np.array(list("abcdef"), dtype="S1")},
}


@pytest.mark.parametrize("words", ARRAY_ERRORS)
def test_errors_name_file_array_and_row(tmp_path: Path, words: str):
    settings = saved(tmp_path, **ARRAY_ERRORS[words])
    with pytest.raises(TableError, match=words) as caught:
        arrays_dataset(settings)
    assert str(caught.value).startswith(settings.path)


def test_files_that_are_not_npz(tmp_path: Path):
    settings = saved(tmp_path)
    with pytest.raises(TableError, match=r"has no array 'label'; it has 'x', 'y', 'domain', 'split'"):
        arrays_dataset(replace(settings, target="label"))
    with pytest.raises(TableError, match=r"none.npz does not exist"):
        arrays_dataset(replace(settings, path=str(tmp_path / "none.npz")))
    with pytest.raises(TableError, match="is a directory; a file is wanted"):
        arrays_dataset(replace(settings, path=str(tmp_path)))
    Path(settings.path).write_bytes(Path(settings.path).read_bytes()[:500])
    with pytest.raises(TableError, match=r"data.npz cannot be read"):
        arrays_dataset(settings)
    with pytest.raises(TableError, match=r"data.npz: array 'x' holds pickled objects"):
        arrays_dataset(saved(tmp_path, x=np.array([[object()]] * 6)))


def test_arrays_in_memory_are_the_same_data_set(tmp_path: Path):
    read, given = arrays_dataset(saved(tmp_path)), from_arrays(ARRAYS["x"], ARRAYS["y"], **_labels())
    assert torch.equal(read.inputs, given.inputs)
    assert torch.equal(read.target, given.target)
    assert torch.equal(read.domain, given.domain)
    assert (read.domain_names, read.task, read.split.tolist()) == (given.domain_names, given.task, given.split.tolist())
    named = from_arrays(ARRAYS["x"], ARRAYS["y"], **_labels(), ids=list("abcdef"), views=Views(labelled=Noise(1.0)))
    assert (named.ids, named.views.labelled) == (list("abcdef"), Noise(1.0))


def test_errors_of_arrays_in_memory_name_the_argument():
    with pytest.raises(ValueError, match=r"array 'inputs' must be numbers of shape"):
        from_arrays(np.arange(6), ARRAYS["y"], **_labels())
    with pytest.raises(ValueError, match=r"array 'inputs' has 6 rows, array 'target' is of shape \(5,\)"):
        from_arrays(ARRAYS["x"], ARRAYS["y"][:5], **_labels())
    with pytest.raises(ValueError, match=r"^target of row 1 is missing, but the sample is in train"):
        from_arrays(ARRAYS["x"], [1.0, np.nan, 1, 1, 1, 1], **_labels(), task="regression")


def _labels() -> dict[str, np.ndarray]:
    return {"domain": ARRAYS["domain"], "split": ARRAYS["split"]}


def test_classes_may_have_names_and_those_that_train_lacks_are_none(tmp_path: Path):
    data = arrays_dataset(saved(tmp_path, y=np.array(["dog", "cat", "bee", "cat", "emu", "dog"])))
    assert data.class_names == ("cat", "dog", "emu")
    assert data.target.tolist() == [1, 0, -1, 0, 2, 1]
    data = arrays_dataset(saved(tmp_path, y=np.array(["dog", "cat", "", "cat", "dog", "dog"])))
    assert (data.target.tolist(), data.task.outputs) == ([1, 0, -1, 0, 1, 1], 2)
    names = from_arrays(ARRAYS["x"], ["dog", "cat", "", "cat", "dog", "dog"], **_labels())
    assert (names.class_names, names.target.tolist()) == (data.class_names, data.target.tolist())


def test_half_precision_is_read_as_float32_and_scaled_by_one_number(tmp_path: Path):
    x = np.random.default_rng(0).normal(3, 5, (6, 4)).astype(np.float16)
    plain = arrays_dataset(saved(tmp_path, x=x))
    assert plain.inputs.dtype == torch.float32
    scaled = arrays_dataset(replace(saved(tmp_path, x=x), scale="unit"))
    ratio = plain.inputs / scaled.inputs
    torch.testing.assert_close(ratio, ratio[0, 0].expand(6, 4))
    train = scaled.inputs[scaled.rows("train")]
    assert train.square().mean().item() == pytest.approx(1, rel=1e-6)
    zero = arrays_dataset(replace(saved(tmp_path, x=np.zeros((6, 4))), scale="unit"))
    assert not zero.inputs.any()


def many(folder: Path, **changes) -> ArraysSettings:
    """Return settings for 200 samples of four domains without an array of splits."""
    rows = np.arange(200)
    np.savez(
        folder / "many.npz",
        x=rows[:, None] * np.ones(3),
        y=rows % 3,
        domain=np.array(["bari", "oslo", "rome", "turin"])[rows % 4],
        lat=(rows // 8 % 5).astype(np.float32),
        lon=(rows // 40).astype(np.float32),
    )
    return ArraysSettings(path=str(folder / "many.npz"), split=None, **changes)


def test_splits_are_drawn_where_no_array_names_them(tmp_path: Path):
    data = arrays_dataset(many(tmp_path, held_out="rome", validation="oslo"))
    name = np.array(data.domain_names)[data.domain]
    assert set(data.split[name == "rome"]) == {"unlabelled", "ood_test"}
    assert set(data.split[name == "oslo"]) == {"ood_val"}
    assert {len(data.rows("unlabelled")), len(data.rows("ood_test"))} == {25}
    assert len(data.rows("id_val")) == 20
    again = arrays_dataset(many(tmp_path, held_out="rome", validation="oslo", split_seed=1))
    assert again.split.tolist() != data.split.tolist()
    full = arrays_dataset(many(tmp_path, held_out="rome", fully_labelled=True))
    assert not len(full.rows("unlabelled"))


def test_the_mean_of_a_domain_is_that_of_what_training_sees(tmp_path: Path):
    x = np.random.default_rng(0).normal(size=(6, 2, 3)) + np.array([5, 5, -3, -3, 5, -3])[:, None, None]
    data = arrays_dataset(replace(saved(tmp_path, x=x), centre="domain"))
    oslo, rome = x[[0, 1, 4]].mean(0), x[2]  # of rome one sample is unlabelled, the others are not to be looked at
    expected = x - np.where((ARRAYS["domain"] == "oslo")[:, None, None], oslo, rome)
    np.testing.assert_allclose(data.inputs.numpy(), expected, atol=1e-6)
    unseen = ARRAYS["split"].copy()
    unseen[2] = "id_val"
    data = arrays_dataset(replace(saved(tmp_path, x=x, split=unseen, y=np.arange(6) % 2), centre="domain"))
    np.testing.assert_allclose(data.inputs.numpy(), x - oslo, atol=1e-6)  # the mean of all that training sees
    both = arrays_dataset(replace(saved(tmp_path, x=x), centre="domain", scale="unit"))
    assert both.inputs[both.rows("train")].square().mean().item() == pytest.approx(1, rel=1e-5)
    sets = replace(saved(tmp_path, domain=np.ones((6, 2), dtype=bool)), centre="domain")
    with pytest.raises(TableError, match="samples have several domains, by whose means inputs cannot be centred"):
        arrays_dataset(sets)


def test_places_are_not_torn_apart(tmp_path: Path):
    data = arrays_dataset(many(tmp_path, held_out="rome", group=("lat", "lon")))
    rows = np.arange(200)
    place = rows // 8 % 5 * 10 + rows // 40
    for name in ("rome", "source"):
        here = (np.array(data.domain_names)[data.domain] == "rome") == (name == "rome")
        for value in np.unique(place):
            assert len(set(data.split[here & (place == value)])) == 1
    torn = arrays_dataset(many(tmp_path, held_out="rome"))
    source = np.array(torn.domain_names)[torn.domain] != "rome"
    assert any(len(set(torn.split[source & (place == value)])) > 1 for value in np.unique(place))


def test_some_domains_take_part(tmp_path: Path):
    data = arrays_dataset(many(tmp_path, domains=("turin", "bari"), held_out="turin"))
    assert (len(data), data.domain_names) == (100, ("bari", "turin"))
    assert data.inputs[:3, 0].tolist() == [0, 3, 4]
    data = arrays_dataset(replace(saved(tmp_path), domains="oslo"))
    assert data.split.tolist() == ["train"] * 3


def test_what_splits_cannot_be_drawn_from(tmp_path: Path):
    with pytest.raises(
        ValueError, match="split names a column, so held_out and validation must be empty; or set it to null"
    ):
        ArraysSettings(path="", held_out="rome")
    with pytest.raises(TableError, match=r"many.npz: held_out must be domains .*, got 'roma'; did you mean rome"):
        arrays_dataset(many(tmp_path, held_out="roma"))
    with pytest.raises(TableError, match=r"'domain' has no domain 'paris'; it has 'bari', 'oslo'"):
        arrays_dataset(many(tmp_path, domains=("rome", "paris")))
    with pytest.raises(TableError, match=r"array 'x' must be of shape \(n,\), got \(200, 3\)"):
        arrays_dataset(many(tmp_path, held_out="rome", group="x"))
    sets = replace(saved(tmp_path, domain=np.ones((6, 2), dtype=bool)), split=None)
    with pytest.raises(TableError, match="split must be given where samples have several domains"):
        arrays_dataset(sets)
    with pytest.raises(TableError, match="of which domains cannot choose"):
        arrays_dataset(replace(sets, split="split", domains="0"))


def test_domains_that_are_trained_on_are_told_if_a_split_calls_them_unknown(tmp_path: Path):
    settings = saved(tmp_path, domain=np.array(["rome", "oslo", "rome", "rome", "oslo", "bari"]))
    with pytest.warns(SeenDomainWarning, match="1 domain is in both train and ood_val, .*: 'rome'"):
        arrays_dataset(settings)


def test_labels_of_unlabelled_samples_may_be_handed_over(tmp_path: Path):
    data = arrays_dataset(replace(saved(tmp_path, y=np.array([0, 2, 1, 2, 1, 1])), fully_labelled=True))
    assert data.split.tolist()[2] == "train"
    assert arrays_dataset(replace(saved(tmp_path), fully_labelled=True)).split.tolist()[2] == "unlabelled"
