from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from tests.data.wilds.tiny import write_iwildcam

from okapi.config import IWildCamSettings
from okapi.data.image_folder import FolderError
from okapi.data.io import TableError
from okapi.data.registry import BUILDERS
from okapi.data.sample_files import ImageError
from okapi.data.task import Task
from okapi.data.wilds.iwildcam import iwildcam_dataset
from okapi.evaluation import evaluate

OURS = {"train": "train", "val": "ood_val", "test": "ood_test", "id_val": "id_val", "id_test": "id_test"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_iwildcam(tmp_path)


def settings(root: Path, **changes) -> IWildCamSettings:
    return IWildCamSettings(**{"root": str(root), "size": 8, **changes})


def test_the_folder_is_read(root):
    data = BUILDERS["iwildcam"](settings(root))
    data.check()
    table = pd.read_csv(root / "iwildcam_v2.0" / "metadata.csv")
    assert len(data) == 52
    assert data.task == Task("classification", 4)
    assert data.split.tolist() == [OURS[name] for name in table["split"]] + ["unlabelled"] * 12
    assert data.target[:40].tolist() == table["y"].tolist()
    assert np.array(data.domain_names)[data.domain[:40]].tolist() == table["location_remapped"].astype(str).tolist()
    assert data.ids[17] == "iwildcam_v2.0/train/17.jpg"
    assert data.ids[45] == "iwildcam_unlabeled_v1.0/images/u05.jpg"
    torch.testing.assert_close(data.sample(17)[:, 4, 4] * 255, torch.tensor([17.0, 34.0, 0.0]), rtol=0, atol=3)
    assert IWildCamSettings(root="").size == 448


def test_unlabelled_pictures_are_of_other_traps_and_keep_what_is_known(root):
    data = iwildcam_dataset(settings(root))
    assert data.target[40:].tolist() == [0, 1, 2, 3, -1, -1] * 2  # -1 and 99999 are no species
    assert [data.domain_names[number] for number in data.domain[40:43]] == [f"unlabelled {n}" for n in range(3)]
    assert not set(data.domain[:40].tolist()) & set(data.domain[40:].tolist())
    full = iwildcam_dataset(settings(root, fully_labelled=True))
    assert Counter(full.split[40:].tolist()) == {"train": 8, "unlabelled": 4}
    full.check()
    without = iwildcam_dataset(settings(root, unlabelled=False))
    assert (len(without), len(without.rows("unlabelled"))) == (40, 0)


def test_the_root_may_be_one_of_the_folders(root):
    assert iwildcam_dataset(settings(root / "iwildcam_v2.0")).ids == iwildcam_dataset(settings(root)).ids


def test_a_folder_that_lacks_something_says_what_and_how_it_must_look(root, tmp_path):
    (root / "iwildcam_unlabeled_v1.0" / "metadata.csv").rename(root / "elsewhere.csv")
    words = (
        r"has no 'iwildcam_unlabeled_v1.0/metadata.csv'. In it must be:\n  iwildcam_v2.0/metadata.csv .* columns split"
    )
    with pytest.raises(FolderError, match=words):
        iwildcam_dataset(settings(root))
    assert len(iwildcam_dataset(settings(root, unlabelled=False))) == 40
    (root / "empty").mkdir()
    with pytest.raises(FolderError, match=r"has no 'iwildcam_v2.0', 'iwildcam_unlabeled_v1.0'. In it must be"):
        iwildcam_dataset(settings(root / "empty"))
    with pytest.raises(FolderError, match=r"none does not exist. In it must be:"):
        iwildcam_dataset(settings(tmp_path / "none"))


def test_wrong_metadata_is_named_by_row(root):
    path = root / "iwildcam_v2.0" / "metadata.csv"
    table = pd.read_csv(path).astype(object)

    def refused(words: str, column: str, row: int, value: object) -> None:
        changed = table.copy()
        changed.loc[row, column] = value
        changed.to_csv(path, index=False)
        with pytest.raises(TableError, match=rf"^{path}: row {row + 1}, column '{column}'{words}"):
            iwildcam_dataset(settings(root))

    refused(r" must be one of 'train', .*, got 'extra'", "split", 3, "extra")
    refused(r" must be 0 or more, got -1", "y", 4, -1)
    refused(r" must be a whole number, got '1.5'", "y", 4, 1.5)
    refused(r": 'dog' is not a finite number", "y", 4, "dog")
    refused(r" is missing", "location_remapped", 6, None)
    refused(r": '00.jpg' was there before", "filename", 9, "00.jpg")
    refused(r": path '../secret.jpg' leads out of the folder", "filename", 9, "../secret.jpg")
    table.drop(columns="location_remapped").to_csv(path, index=False)
    with pytest.raises(TableError, match=r"has no column 'location_remapped'"):
        iwildcam_dataset(settings(root))
    path.write_text("split,filename,y,location_remapped\n")
    with pytest.raises(TableError, match=r"metadata.csv has no rows"):
        iwildcam_dataset(settings(root))


def test_pictures_that_are_missing_or_broken_are_named(root):
    (root / "iwildcam_unlabeled_v1.0" / "images" / "u03.jpg").write_text("nonsense")
    data = iwildcam_dataset(settings(root))
    with pytest.raises(ImageError, match=r"1 of 52 images .*\n  .*u03.jpg is no image"):
        data.verify()
    with pytest.raises(ImageError, match=r"1 of 52 images .*\n  .*u03.jpg is no image"):
        iwildcam_dataset(replace(settings(root), verify="headers"))
    (root / "iwildcam_v2.0" / "train" / "11.jpg").unlink()
    with pytest.raises(ImageError, match=r"1 of 52 images .*\n  .*train/11.jpg does not exist"):
        iwildcam_dataset(settings(root))


@pytest.mark.filterwarnings("ignore")
def test_the_package_reads_the_same(root):
    theirs = pytest.importorskip("wilds.datasets.iwildcam_dataset", exc_type=ImportError)
    more = pytest.importorskip("wilds.datasets.unlabeled.iwildcam_unlabeled_dataset", exc_type=ImportError)
    labelled, unlabelled = (
        theirs.IWildCamDataset(root_dir=str(root)),
        more.IWildCamUnlabeledDataset(root_dir=str(root)),
    )
    data = iwildcam_dataset(settings(root))
    names = {number: name for name, number in labelled.split_dict.items()}
    assert data.split[:40].tolist() == [OURS[names[number]] for number in labelled.split_array.tolist()]
    assert torch.equal(data.target[:40], labelled.y_array)
    assert data.task.outputs == labelled.n_classes
    assert [Path(name).name for name in data.ids] == [*labelled._input_array, *unlabelled._input_array]
    known = unlabelled._y_array
    assert torch.equal(data.target[40:], torch.where(known < 0, -1, known))


@pytest.mark.filterwarnings("ignore")
def test_the_package_measures_the_same(root):
    theirs = pytest.importorskip("wilds.datasets.iwildcam_dataset", exc_type=ImportError)
    labelled, data = theirs.IWildCamDataset(root_dir=str(root)), iwildcam_dataset(settings(root))
    prediction = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
    results, _ = labelled.eval(prediction.argmax(1), labelled.y_array, labelled.metadata_array)
    ours = evaluate(data.task, prediction, data.target[:40], data.domain[:40], data.domain_names)
    assert ours["macro_f1"] == pytest.approx(float(results["F1-macro_all"]), abs=1e-6)
    assert ours["accuracy"] == pytest.approx(float(results["acc_avg"]), abs=1e-6)
