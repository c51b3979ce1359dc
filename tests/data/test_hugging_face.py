import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.data.small_tokenizer import save_tokenizer

from okapi.config import ColumnSettings
from okapi.data.augment import image_views
from okapi.data.hugging_face import hugging_face_dataset
from okapi.data.io import TableError
from okapi.data.sample_files import ImageError
from okapi.data.task import Task

datasets = pytest.importorskip("datasets")

ROWS = {
    "site": ["oslo", "oslo", "rome", "bern", "oslo", "rome"],
    "use": ["train", "train", "unlabelled", "ood_val", "train", "ood_test"],
    "kind": [1, 0, -1, 1, 0, 1],
    "x": [[0.5, 1.5], [1.5, 2.5], [2.5, 3.5], [3.5, 4.5], [4.5, 5.5], [5.5, 6.5]],
    "z": [1, 2, 3, 4, 5, 6],
    "words": ["the okapi", "is shy", "", "not", "the", "shy"],
}
COLUMNS = {"target": "kind", "domain": "site", "split": "use"}


def rows(**changes) -> "datasets.Dataset":
    features = datasets.Features(
        {
            "site": datasets.Value("string"),
            "use": datasets.Value("string"),
            "kind": datasets.ClassLabel(names=["dog", "cat"]),
            "x": datasets.Sequence(datasets.Value("float32")),
            "z": datasets.Value("int64"),
            "words": datasets.Value("string"),
        }
    )
    return datasets.Dataset.from_dict({**ROWS, **changes}, features=features)


def test_features_and_class_labels():
    data = hugging_face_dataset(rows(), ColumnSettings(features=("x", "z"), scale="none", **COLUMNS))
    assert torch.equal(data.inputs, torch.tensor([[*x, z] for x, z in zip(ROWS["x"], ROWS["z"], strict=True)]))
    assert data.class_names == ("cat", "dog")
    assert data.target.tolist() == [0, 1, -1, 0, 1, 0]
    assert data.task == Task("classification", 2)
    assert data.domain_names == ("bern", "oslo", "rome")
    assert data.split.tolist() == ROWS["use"]


def test_texts(tmp_path: Path):
    tokenizer = save_tokenizer(tmp_path / "words")
    data = hugging_face_dataset(rows(), ColumnSettings(text="words", tokenizer=tokenizer, tokens=5, **COLUMNS))
    assert data.sample(0)["attention_mask"].tolist() == [1, 1, 1, 1, 0]


def test_pictures_are_turned_as_exif_says_and_broken_ones_named():
    exif = Image.Exif()
    exif[0x0112] = 6
    pixels = np.repeat(np.arange(6, dtype=np.uint8)[:, None] * 51, 6, axis=1)
    encoded = []
    for _ in range(6):
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG", exif=exif)
        encoded.append({"bytes": file.getvalue(), "path": None})
    pictures = {name: ROWS[name] for name in ("site", "use", "z")}
    features = datasets.Features(
        {"site": datasets.Value("string"), "use": datasets.Value("string"), "z": datasets.Value("int64")}
        | {"picture": datasets.Image()}
    )
    settings = ColumnSettings(
        image="picture", target="z", domain="site", split="use", task="regression", size=6, colour="grey"
    )
    data = hugging_face_dataset(
        datasets.Dataset.from_dict({**pictures, "picture": encoded}, features=features), settings
    )
    torch.testing.assert_close(data.sample(3)[0], torch.from_numpy(np.rot90(pixels, -1).copy()) / 255)
    assert data.views == image_views(settings, 1)
    encoded[2] = {"bytes": b"nonsense", "path": None}
    with pytest.raises(ImageError, match=r"1 of 6 images cannot be used:\n  .*row 2, column 'picture' is no image"):
        hugging_face_dataset(datasets.Dataset.from_dict({**pictures, "picture": encoded}, features=features), settings)


def test_parts_of_a_mapping_are_splits():
    whole = rows(kind=[1, 0, 1, 1, 0, 1]).remove_columns("use")
    parts = datasets.DatasetDict({"train": whole.select([0, 1, 4]), "test": whole.select([2, 5])})
    settings = ColumnSettings(features="x", **COLUMNS)
    data = hugging_face_dataset(parts, settings, split_names={"test": "ood_test"})
    assert data.split.tolist() == ["train"] * 3 + ["ood_test"] * 2
    assert data.inputs[4].tolist() == ROWS["x"][5]
    with pytest.raises(TableError, match=r"row 3, column 'use' must be one of .*, got 'test'"):
        hugging_face_dataset(parts, settings)
    with pytest.raises(ValueError, match=r"split_names must be of parts \('train', 'test'\), got 'validation'"):
        hugging_face_dataset(parts, settings, split_names={"validation": "id_val"})


def test_errors_name_row_and_column():
    settings = ColumnSettings(features="x", **COLUMNS)
    with pytest.raises(TableError, match=r"has no column 'label'"):
        hugging_face_dataset(rows(), ColumnSettings(features="x", target="label", domain="site", split="use"))
    with pytest.raises(TableError, match=r"row 4, column 'kind' is missing, but the sample is in train"):
        hugging_face_dataset(rows(kind=[1, 0, 1, 1, -1, 1]), settings)
    with pytest.raises(TableError, match=r"row 1, column 'x' holds 2 values, the first row 1"):
        hugging_face_dataset(rows(x=[[1.0]] + [[1.0, 2.0]] * 5), settings)
    with pytest.raises(TableError, match=r"row 1, column 'x_1' is inf, not a finite number"):
        hugging_face_dataset(rows(x=[[1.0, 1.0], [1.0, np.inf]] + [[1.0, 2.0]] * 4), settings)
    with pytest.raises(ValueError, match="cache is of images in files"):
        hugging_face_dataset(rows(), ColumnSettings(features="x", cache="somewhere", **COLUMNS))
