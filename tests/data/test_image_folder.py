from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from okapi.config import ImageFolderSettings
from okapi.data.batches import Batches, batch_loader
from okapi.data.image_folder import FolderError, image_folder_dataset
from okapi.data.io import TableError
from okapi.data.registry import BUILDERS
from okapi.data.sample_files import ImageError
from okapi.data.sampling import Stream
from okapi.data.splits import by_held_out
from okapi.data.task import Task

DOMAINS = {"art": (10, 20), "photo": (20, 30), "sketch": (15, 5)}  # light of dogs and of cats, in tenths of 255
EACH = 10


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for domain, lights in DOMAINS.items():
        for label, light in zip(("dog", "cat"), lights, strict=True):
            folder = tmp_path / domain / label
            folder.mkdir(parents=True)
            for number in range(EACH):
                Image.new("RGB", (6, 6), (light + number,) * 3).save(folder / f"{number}.png")
    return tmp_path


def settings(root: Path, **changes) -> ImageFolderSettings:
    return ImageFolderSettings(**{"root": str(root), "size": 4, "held_out": "sketch", **changes})


def test_domains_and_classes_are_folders(root):
    data = BUILDERS["image_folder"](settings(root))
    data.check()
    assert len(data) == 60
    assert data.domain_names == ("art", "photo", "sketch")
    assert data.class_names == ("cat", "dog")
    assert data.task == Task("classification", 2)
    row = data.ids.index("photo/dog/7.png")
    assert (int(data.domain[row]), int(data.target[row])) == (1, 1)
    torch.testing.assert_close(data.sample(row), torch.full((3, 4, 4), 27 / 255))


def test_splits_follow_the_protocol(root):
    data = image_folder_dataset(settings(root))
    sketch = data.domain == 2
    assert Counter(np.asarray(data.split)[sketch].tolist()) == {"unlabelled": 10, "ood_test": 10}
    assert Counter(np.asarray(data.split)[~sketch].tolist()) == {"train": 32, "id_val": 8}
    again = image_folder_dataset(settings(root, split_seed=1))
    assert again.split.tolist() != data.split.tolist()
    names = np.array(data.domain_names)[data.domain]
    both = image_folder_dataset(settings(root, held_out=("art",), validation=("photo",), id_test=0.3))
    wanted = by_held_out(names, held_out=["art"], validation=["photo"], id_test=0.3, classes=data.target.numpy())
    assert both.split.tolist() == wanted.tolist()
    full = image_folder_dataset(settings(root, fully_labelled=True))
    assert len(full.rows("unlabelled")) == 0
    assert len(full.rows("train")) == len(data.rows("train")) + 10


def test_only_pictures_count_and_folders_in_classes_are_looked_into(root):
    (root / "art" / "dog" / "Thumbs.db").write_text("")
    (root / "art" / "dog" / "._0.png").write_text("")
    (root / ".git" / "dog").mkdir(parents=True)
    (root / "readme.txt").write_text("")
    (root / "art" / "dog" / "more").mkdir()
    Image.new("L", (3, 3)).save(root / "art" / "dog" / "more" / "X.JPG")
    data = image_folder_dataset(settings(root))
    assert len(data) == 61
    assert "art/dog/more/X.JPG" in data.ids
    assert image_folder_dataset(settings(root, domains=("photo", "sketch"))).domain_names == ("photo", "sketch")


def test_pictures_of_no_class_are_unlabelled(root):
    for number in range(4):
        Image.new("L", (3, 3)).save(root / "sketch" / f"{number}.png")
    (root / "harbour").mkdir()
    Image.new("L", (3, 3)).save(root / "harbour" / "0.png")
    data = image_folder_dataset(settings(root))
    data.check()
    none = [row for row, name in enumerate(data.ids) if name.count("/") == 1]
    assert len(none) == 5
    assert set(data.target[none].tolist()) == {-1}
    assert set(np.asarray(data.split)[none].tolist()) == {"unlabelled"}
    assert len(data.rows("ood_test")) == 10


def test_pictures_are_decoded_in_workers_as_here(root):
    data = image_folder_dataset(settings(root, cache=str(root / ".cache")))
    batches = Batches(data, labelled=Stream(data.rows("train"), 8, seed=0), seed=0)
    for workers in (0, 1):
        for step, batch in enumerate(batch_loader(batches, 0, 3, workers=workers)):
            assert torch.equal(batch.labelled.inputs, data.read(batches.labelled.rows_at(step)))


def test_a_class_that_training_does_not_know_is_named(root):
    (root / "sketch" / "zebra").mkdir()
    for number in range(3):
        Image.new("L", (3, 3)).save(root / "sketch" / "zebra" / f"{number}.png")
    with pytest.raises(TableError, match=r"sketch/zebra/\d\.png: class 'zebra' is in ood_test, but not in train"):
        image_folder_dataset(settings(root, unlabelled=0.1))


def test_broken_pictures_are_named_before_training(root):
    (root / "art" / "cat" / "3.png").write_bytes(b"nothing")
    with pytest.raises(ImageError, match=r"1 of 60 images cannot be used:\n  .*art/cat/3\.png is no image"):
        image_folder_dataset(settings(root))
    data = image_folder_dataset(settings(root, verify="exists"))
    with pytest.raises(ImageError, match=r"1 of 60 images"):
        data.verify()


def test_folders_that_look_otherwise_are_refused(root, tmp_path_factory):
    def refused(words: str, folder: Path, **changes) -> None:
        with pytest.raises(FolderError, match=words):
            image_folder_dataset(settings(folder, **changes))

    empty = tmp_path_factory.mktemp("empty")
    refused("no/such does not exist. Wanted:\n  domain/class/image.jpg", Path("no/such"))
    refused("has no folders, one for each domain", empty)
    refused(r"has no folder 'sketsh'; it has 'art', 'photo', 'sketch'", root, domains="sketsh")
    (empty / "harbour" / "dog").mkdir(parents=True)
    refused(r"harbour has no images \(\.jpg, ", empty)
    Image.new("L", (3, 3)).save(empty / "harbour" / "dog" / "0.png")
    refused(r"must have two classes or more, got 'dog'", empty)
    with pytest.raises(ValueError, match=r"held_out must be domains \('art', 'photo', 'sketch'\), got 'clipart'"):
        image_folder_dataset(settings(root, held_out="clipart"))
    with pytest.raises(ValueError, match="size must be a whole number from 1"):
        settings(root, size=0)
    with pytest.raises(ValueError, match="unlabelled must be a number from 0 to 1"):
        settings(root, unlabelled=-1.0)


def test_pacs(data_dir: Path):
    """Counts of the folder's own description."""
    data = image_folder_dataset(
        ImageFolderSettings(root=str(data_dir / "pacs"), held_out="sketch", size=32, verify="exists")
    )
    data.check()
    sizes = Counter(np.array(data.domain_names)[data.domain].tolist())
    assert sizes == {"photo": 1670, "art_painting": 2048, "cartoon": 2344, "sketch": 3929}
    assert data.class_names == ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
    assert len(data.rows("unlabelled")) == 3929 // 2
    assert len(data.rows("id_val")) == (9991 - 3929) // 5
    assert data.read(data.rows("train")[:4]).shape == (4, 3, 32, 32)
    small = replace(ImageFolderSettings(root=str(data_dir / "pacs")), domains=("photo", "sketch"), colour="grey")
    assert len(image_folder_dataset(small)) == 1670 + 3929
