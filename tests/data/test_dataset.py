from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from okapi.data.dataset import DATA, SPLITS, ArraysSettings, Dataset, arrays_dataset
from okapi.data.formats import TableError
from okapi.data.task import Task
from okapi.data.views import Noise, Views


def dataset(**changes) -> Dataset:
    parts = {
        "inputs": torch.arange(24.0).reshape(6, 4),
        "target": torch.tensor([0, 1, -1, 1, 0, 1]),
        "domain": torch.tensor([0, 0, 1, 1, 0, 1]),
        "split": ["train", "train", "unlabelled", "ood_val", "train", "ood_test"],
        "task": Task("classification", 2),
        "domain_names": ("rome", "oslo"),
    }
    return Dataset(**parts | changes)


def test_rows_of_splits_are_a_partition():
    data = dataset()
    data.check()
    assert data.rows("train").tolist() == [0, 1, 4]
    assert torch.cat([data.rows(split) for split in SPLITS]).sort().values.tolist() == list(range(6))
    assert data.ids == list("012345")
    with pytest.raises(ValueError, match=r"split must be one of 'train', .* got 'test'"):
        data.rows("test")


def test_inputs_may_be_a_tensor_a_mapping_or_read_on_demand():
    inputs = torch.arange(24.0).reshape(6, 4)
    for given in (inputs, list(inputs)):
        data = dataset(inputs=given)
        data.check()
        torch.testing.assert_close(data.read([4, 1]), inputs[[4, 1]])
        torch.testing.assert_close(data.sample(3), inputs[3])
        assert data.read([]).shape == (0, 4)
    both = {"input_ids": inputs.long(), "attention_mask": inputs > 3}
    for given in (both, [{name: tensor[row] for name, tensor in both.items()} for row in range(6)]):
        data = dataset(inputs=given)
        data.check()
        assert data.sample(2)["input_ids"].tolist() == [8, 9, 10, 11]
        assert {name: tuple(tensor.shape) for name, tensor in data.read([0, 5, 5]).items()} == {
            "input_ids": (3, 4),
            "attention_mask": (3, 4),
        }
        assert data.read([])["attention_mask"].shape == (0, 4)


PICTURES = [torch.zeros(1, 8, 8)] * 4 + [torch.zeros(1, 8, 9)] + [torch.zeros(1, 8, 8)]
REFUSED = {
    r"inputs must have a row for each of the 6 targets, got 5": {"inputs": torch.zeros(5, 4)},
    r"tokens must have a row for each of the 6 targets, got 5": {"inputs": {"tokens": torch.zeros(5, 4)}},
    r"domain must have a row for each of the 6": {"domain": torch.zeros(7, dtype=torch.int64)},
    r"split must have a row for each of the 6": {"split": ["train"]},
    r"ids must have a row for each of the 6": {"ids": ["a"]},
    r"ids must differ, got 'b' in rows 1 and 4": {"ids": list("abcdbe")},
    r"split of row 2 must be one of .*, got 'test'": {"split": ["train", "train", "test", *3 * ["ood_val"]]},
    r"at least one sample 'train'": {"split": 6 * ["ood_val"]},
    r"target of row 3 must be .* 0 to 1, got 2": {"target": torch.tensor([0, 1, -1, 2, 0, 1])},
    r"target of row 4 must be .*, got -1": {"target": torch.tensor([0, 1, -1, 1, -1, 1])},
    r"domain of row 5 must be from 0 to 1, got 2": {"domain": torch.tensor([0, 0, 1, 1, 0, 2])},
    r"domain must be of shape \(n,\) and int64.*torch.float32": {"domain": torch.zeros(6)},
    r"\(n, 2\) and bool; got shape \(6, 3\)": {"domain": torch.zeros(6, 3, dtype=torch.bool)},
    r"one size: sample '0' is \(1, 8, 8\), sample '4' is \(1, 8, 9\) \(row 4\)": {"inputs": PICTURES},
    r"views are of tensors": {"inputs": {"x": torch.zeros(6, 4)}, "views": Views(train=Noise(1.0))},
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_learnt_from_is_refused_by_row(words: str):
    with pytest.raises(ValueError, match=words):
        dataset(**REFUSED[words]).check()


def test_sets_of_domains_and_other_tasks():
    dataset(domain=torch.tensor([[True, False]] * 3 + [[False, False]] * 3)).check()
    missing = torch.tensor([0.5, 1.0, float("nan"), 2.0, 3.0, 4.0])
    dataset(task=Task("regression"), target=missing).check()
    with pytest.raises(ValueError, match="target of row 3 must be a finite number"):
        dataset(task=Task("regression"), target=missing.roll(1)).check()
    dataset(task=Task("multilabel", 3), target=torch.ones(6, 3)).check()


def test_sizes_of_what_is_read_on_demand_are_compared_when_it_is_read():
    class Files:
        def __len__(self) -> int:
            return 6

        def __getitem__(self, row: int) -> torch.Tensor:
            return PICTURES[row]

    data = dataset(inputs=Files(), ids=[f"{row}.png" for row in range(6)])
    data.check()
    with pytest.raises(ValueError, match=r"sample '1.png' is \(1, 8, 8\), sample '4.png' is \(1, 8, 9\)"):
        data.read([1, 4])


# Arrays of one's own

ARRAYS = {
    "x": np.arange(24.0).reshape(6, 4),
    "y": np.array([0, 2, -1, 1, 0, 1]),
    "domain": np.array(["rome", "oslo", "rome", "rome", "oslo", "rome"]),
    "split": np.array(["train", "train", "unlabelled", "ood_val", "train", "ood_test"]),
}


def saved(folder: Path, **changes) -> ArraysSettings:
    np.savez(folder / "data.npz", **ARRAYS | changes)
    return ArraysSettings(path=str(folder / "data.npz"))


def test_arrays_are_read(tmp_path: Path):
    data = arrays_dataset(saved(tmp_path))
    assert (data.inputs.dtype, data.target.dtype, data.domain.dtype) == (torch.float32, torch.int64, torch.int64)
    assert data.domain_names == ("oslo", "rome")
    assert data.domain.tolist() == [1, 0, 1, 1, 0, 1]
    assert data.task == Task("classification", 3)
    assert data.views == Views()
    settings = replace(saved(tmp_path, name=np.array(list("abcdef"))), ids="name", outputs=5, strong_noise=0.5)
    data = DATA["arrays"].build(settings)
    assert (data.ids, data.task.outputs, data.views) == (list("abcdef"), 5, Views(strong=Noise(0.5)))
    assert arrays_dataset(saved(tmp_path, domain=np.array([9, 7, 9, 9, 7, 9]))).domain_names == ("7", "9")


def test_arrays_of_other_tasks(tmp_path: Path):
    settings = replace(saved(tmp_path, y=np.array([1, 2.5, np.nan, 1, 1, 1])), task="regression")
    assert arrays_dataset(settings).target.dtype == torch.float32
    settings = replace(saved(tmp_path, y=np.ones((6, 3), dtype=bool)), task="multilabel")
    data = arrays_dataset(settings)
    assert (data.task, data.target.dtype) == (Task("multilabel", 3), torch.float32)
    sets = np.array([[True, False, True]] * 6)
    assert arrays_dataset(saved(tmp_path, domain=sets)).domain_names == ("0", "1", "2")


ARRAY_ERRORS = {
    r"array 'x', row 3 is not finite": {"x": np.where(np.arange(6)[:, None] == 3, np.inf, 1.0)},
    r"array 'x' must be numbers of shape \(n, ...\), got <U1": {"x": np.array(list("abcdef"))},
    r"array 'x' has 2 rows, array 'y' is of shape \(6,\)": {"x": np.ones((2, 4))},
    r"array 'x', row 0 is not finite in float32": {"x": np.full((6, 4), 1e300)},
    r"array 'y': target of row 4 must be a whole number from 0 to 2, got -3": {"y": np.array([0, 2, -1, 1, -3, 1])},
    r"array 'y': target must be of shape \(n,\) for classification": {"y": np.ones(6)},
    r"array 'split': split of row 0 must be one of .* got 'fit'": {"split": np.array(6 * ["fit"])},
    r"array 'domain' must be whole numbers or str": {"domain": np.ones(6)},
    r"array 'domain': domain must be of shape \(n,\) and int64": {"domain": np.ones((6, 2))},
    r"array 'domain' is of shape \(\)": {"domain": np.array("rome")},
    r"array 'split': split must be of shape \(n,\)": {"split": np.array(6 * [["train"]])},
    r"array 'split': split must name at least one sample 'train'": {"split": np.array(6 * ["id_val"])},
    r"array 'y' must be numbers, got <U1": {"y": np.array(list("abcdef"))},
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
    with pytest.raises(TableError, match="is not a file"):
        arrays_dataset(replace(settings, path=str(tmp_path)))
    Path(settings.path).write_bytes(Path(settings.path).read_bytes()[:500])
    with pytest.raises(TableError, match=r"data.npz cannot be read"):
        arrays_dataset(settings)
    with pytest.raises(TableError, match=r"data.npz cannot be read"):
        arrays_dataset(saved(tmp_path, x=np.array([[object()]] * 6)))
