import inspect
import re
from dataclasses import fields

import pytest
import torch

from okapi.config import DATA_SETTINGS
from okapi.data.augment import Noise, Views
from okapi.data.dataset import Dataset
from okapi.data.registry import BUILDERS
from okapi.data.splits import SPLITS
from okapi.data.task import Task


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
    r"class_names must be one for each of 2 outputs, got 3": {"class_names": ("a", "b", "c")},
    r"groups must be of shape \(6, 1\) and bool, got shape \(6, 2\)": {
        "groups": torch.zeros(6, 2, dtype=torch.bool),
        "group_names": ("urban",),
    },
    r"groups must be of shape \(6, 2\) and bool, got .* torch.int64": {
        "groups": torch.zeros(6, 2, dtype=torch.int64),
        "group_names": ("rural", "urban"),
    },
    r"views are of tensors": {"inputs": {"x": torch.zeros(6, 4)}, "views": Views(unlabelled=Noise(1.0))},
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


def test_verify_reads_files_through_and_leaves_what_is_in_memory():
    class Files:
        checked = 0

        def __len__(self) -> int:
            return 6

        def __getitem__(self, row: int) -> torch.Tensor:
            return PICTURES[0]

        def check(self) -> None:
            self.checked += 1

    files = Files()
    dataset(inputs=files).verify()
    assert files.checked == 1
    dataset().verify()


@pytest.mark.parametrize("name", BUILDERS)
def test_every_setting_of_a_data_set_is_explained(name: str):
    settings = DATA_SETTINGS[name]
    assert settings.name == name
    text = "".join(inspect.getdoc(kind) or "" for kind in settings.__mro__)
    explained = {word for line in re.findall(r"^([\w, ]+) : ", text, re.MULTILINE) for word in line.split(", ")}
    assert {field.name for field in fields(settings)} - {"name"} <= explained
