from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from okapi.data.arrays import ArraysSettings, arrays_dataset, from_arrays
from okapi.data.dataset import DATA
from okapi.data.formats import TableError
from okapi.data.task import Task
from okapi.data.views import Noise, Views

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


def test_arrays_in_memory_are_the_same_data_set(tmp_path: Path):
    read, given = arrays_dataset(saved(tmp_path)), from_arrays(ARRAYS["x"], ARRAYS["y"], **_labels())
    assert torch.equal(read.inputs, given.inputs)
    assert torch.equal(read.target, given.target)
    assert torch.equal(read.domain, given.domain)
    assert (read.domain_names, read.task, read.split.tolist()) == (given.domain_names, given.task, given.split.tolist())
    named = from_arrays(ARRAYS["x"], ARRAYS["y"], **_labels(), ids=list("abcdef"), views=Views(train=Noise(1.0)))
    assert (named.ids, named.views.train) == (list("abcdef"), Noise(1.0))


def test_errors_of_arrays_in_memory_name_the_argument():
    with pytest.raises(ValueError, match=r"^inputs must be numbers of shape"):
        from_arrays(np.arange(6), ARRAYS["y"], **_labels())
    with pytest.raises(ValueError, match=r"^inputs has 6 rows, target is of shape \(5,\)"):
        from_arrays(ARRAYS["x"], ARRAYS["y"][:5], **_labels())
    with pytest.raises(ValueError, match=r"^target of row 1 must be a finite number, got nan"):
        from_arrays(ARRAYS["x"], [1.0, np.nan, 1, 1, 1, 1], **_labels(), task="regression")


def _labels() -> dict[str, np.ndarray]:
    return {"domain": ARRAYS["domain"], "split": ARRAYS["split"]}
