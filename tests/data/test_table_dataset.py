import gzip
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tests.data.small_tokenizer import WORDS, save_tokenizer

from okapi.config import ColumnSettings, TableSettings
from okapi.data.augment import Noise, Views
from okapi.data.batches import Batches
from okapi.data.io import TableError
from okapi.data.registry import BUILDERS
from okapi.data.sample_files import ImageError
from okapi.data.sampling import Stream
from okapi.data.splits import SPLITS, SeenDomainWarning
from okapi.data.table_dataset import table_dataset
from okapi.data.task import Task

ROWS = {
    "name": list("abcdef"),
    "site": ["oslo", "oslo", "rome", "bern", "oslo", "rome"],
    "use": ["train", "train", "unlabelled", "ood_val", "train", "ood_test"],
    "kind": ["dog", "cat", "", "dog", "cat", "dog"],
    "wealth": ["0.5", "1", "", "-2.5", "3e2", "0"],
    "x": [0.5, 1.5, 2.5, 3.5, 4.5, 5.5],
    "z": [1, 2, 3, 4, 5, 6],
    "words": ["the okapi", "is shy", "", "not", "the", "shy"],
}


def table(folder: Path, suffix: str = ".csv", **changes) -> Path:
    frame = pd.DataFrame({**ROWS, **changes})
    path = folder / f"table{suffix}"
    if suffix == ".parquet":
        frame.to_parquet(path)
    elif suffix == ".npz":
        np.savez(path, **{name: np.array(frame[name].tolist()) for name in frame})
    else:
        frame.to_csv(path, index=False)
    return path


def settings(path: Path, **changes) -> TableSettings:
    columns = {
        "features": ("x", "z"),
        "target": "kind",
        "domain": "site",
        "split": "use",
        "id": "name",
        "scale": "none",
    }
    return TableSettings(**{"path": str(path), **columns, **changes})


# What comes of a table


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet", ".npz"])
def test_every_format_gives_the_same_data_set(tmp_path, suffix):
    data = BUILDERS["table"](settings(table(tmp_path, suffix), strong_noise=0.5))
    assert torch.equal(data.inputs, torch.tensor([ROWS["x"], ROWS["z"]]).T)
    assert (data.inputs.dtype, data.target.dtype) == (torch.float32, torch.int64)
    assert data.class_names == ("cat", "dog")
    assert data.target.tolist() == [1, 0, -1, 1, 0, 1]
    assert data.domain_names == ("bern", "oslo", "rome")
    assert data.domain.tolist() == [1, 1, 2, 0, 1, 2]
    assert data.split.tolist() == ROWS["use"]
    assert data.ids == list("abcdef")
    assert data.task == Task("classification", 2)
    assert data.views == Views(strong=Noise(0.5))


def test_classes_and_domains_may_be_numbers(tmp_path):
    for kind in ([10, 9, -1, 10, 9, 10], [10.0, 9.0, np.nan, 10.0, 9.0, 10.0], ["10", "9", "", "10", "9", "10"]):
        for suffix in (".csv", ".parquet"):
            data = table_dataset(settings(table(tmp_path, suffix, kind=kind, site=[7, 7, 30, 8, 7, 30])))
            assert data.class_names == ("9", "10")
            assert data.target.tolist()[:2] == [1, 0]
            assert data.target[2] == -1
            assert (data.domain_names, data.domain.tolist()) == (("7", "8", "30"), [0, 0, 2, 1, 0, 2])


def test_other_tasks(tmp_path):
    data = table_dataset(settings(table(tmp_path), target="wealth", task="regression"))
    torch.testing.assert_close(data.target, torch.tensor([0.5, 1.0, float("nan"), -2.5, 300.0, 0.0]), equal_nan=True)
    assert data.task == Task("regression", 1)
    data = table_dataset(settings(table(tmp_path), target=("x", "z"), features="x", task="regression"))
    assert data.target.shape == (6, 2)
    assert data.inputs.shape == (6, 1)
    flags = {"spots": [1, 0, 1, 0, 1, 1], "stripes": [True, False, True, False, False, True]}
    for suffix in (".csv", ".parquet"):
        path = table(tmp_path, suffix, **flags)
        data = table_dataset(settings(path, target=("spots", "stripes"), task="multilabel"))
        assert data.target.tolist() == [[1, 1], [0, 0], [1, 1], [0, 0], [1, 0], [1, 1]]
        assert (data.task, data.class_names) == (Task("multilabel", 2), ("spots", "stripes"))


def test_a_sample_may_be_of_several_domains(tmp_path):
    path = table(tmp_path, male=[1, 0, 0, 1, 1, 0], white=["true", "false", "false", "true", "false", "true"])
    data = table_dataset(settings(path, domain=("male", "white")))
    assert data.domain_names == ("male", "white")
    assert data.domain.dtype == torch.bool
    assert data.domain.int().tolist() == [[1, 1], [0, 0], [0, 0], [1, 1], [1, 0], [0, 1]]
    with pytest.raises(TableError, match=r"row 2, column 'male' must be 0 or 1, got '0.7'"):
        table_dataset(settings(table(tmp_path, male=[1, 0.7, 0, 1, 1, 0], white=[1] * 6), domain=("male", "white")))


def test_texts_are_tokens(tmp_path):
    tokenizer = save_tokenizer(tmp_path / "words")
    for suffix in (".csv", ".parquet"):
        path = table(tmp_path, suffix)
        data = table_dataset(settings(path, features=(), text="words", tokenizer=tokenizer, tokens=4))
        read = data.read([0, 2])["input_ids"].tolist()
        assert read == [[WORDS.index(word) for word in ("[CLS]", "the", "okapi", "[SEP]")], [2, 3, 0, 0]]


@pytest.fixture
def pictures(tmp_path: Path) -> dict[str, list[str]]:
    (tmp_path / "pictures").mkdir()
    for number, name in enumerate("abcdef"):
        Image.new("L", (5, 5), 51 * min(number, 5)).save(tmp_path / "pictures" / f"{name}.png")
    return {"file": [f"pictures/{name}.png" for name in "abcdef"]}


def test_pictures_are_read_from_the_root(tmp_path, pictures):
    changes = {"features": (), "image": "file", "colour": "grey", "size": 4}
    data = table_dataset(settings(table(tmp_path, **pictures), **changes))
    assert data.read(range(6))[:, 0, 0, 0].tolist() == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1])
    (tmp_path / "elsewhere").mkdir()
    path = table(tmp_path / "elsewhere", **pictures)
    assert table_dataset(settings(path, root=str(tmp_path), **changes)).sample(5).mean() == 1
    absolute = [str(tmp_path / name) for name in pictures["file"]]
    path = table(tmp_path / "elsewhere", file=absolute)
    assert table_dataset(settings(path, root=str(tmp_path), **changes)).sample(5).mean() == 1
    with pytest.raises(TableError, match=r"row 1, column 'file': path '/.*a\.png' leads out of .*elsewhere"):
        table_dataset(settings(path, **changes))


# Splits without a column


def many(folder: Path, rows: int = 100) -> Path:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=rows), "y": rng.integers(0, 3, rows), "site": np.arange(rows) % 4})
    frame.assign(place=np.arange(rows) // 8, year=np.arange(rows) // 4 % 2).to_csv(folder / "many.csv", index=False)
    return folder / "many.csv"


def test_domains_may_be_held_out(tmp_path):
    columns = {"path": str(many(tmp_path)), "features": "x", "target": "y", "domain": "site"}
    data = table_dataset(TableSettings(**columns, held_out="3", validation="0", id_test=0.1))
    site = data.domain.numpy()
    assert Counter(data.split[site == 3].tolist()) == {"unlabelled": 12, "ood_test": 13}
    assert set(data.split[site == 0].tolist()) == {"ood_val"}
    assert Counter(data.split[(site == 1) | (site == 2)].tolist()) == {"train": 35, "id_val": 10, "id_test": 5}
    grouped = table_dataset(TableSettings(**columns, held_out="3", group=("place", "year")))
    frame = pd.read_csv(columns["path"]).assign(split=grouped.split)
    source = frame[frame["site"] != 3]
    assert (source.groupby(["place", "year"])["split"].nunique() == 1).all()
    assert len(grouped.rows("id_val")) == 15


def test_rows_without_a_target_are_unlabelled(tmp_path):
    path = many(tmp_path)
    frame = pd.read_csv(path).astype({"y": object})
    frame.loc[[5, 6, 7], "y"] = None
    frame.to_csv(path, index=False)
    data = table_dataset(TableSettings(path=str(path), features="x", target="y", domain="site", held_out="3"))
    assert data.class_names == ("0", "1", "2")
    assert data.split[[5, 6, 7]].tolist() == ["unlabelled"] * 3
    assert data.target[[5, 6, 7]].tolist() == [-1] * 3


@given(st.lists(st.sampled_from(SPLITS), min_size=6, max_size=6).filter(lambda use: {"train"} <= {use[0], use[1]}))
def test_any_column_of_splits_is_taken_as_it_is(tmp_path_factory, use):
    use = ["train", "train", *use[2:]]
    kind = ["dog", "cat", "dog", "cat", "dog", "cat"]
    path = table(tmp_path_factory.mktemp("splits"), use=use, kind=kind, site=list("aabcde"))
    sites = ["a" if split == "train" else name for split, name in zip(use, "aabcde", strict=True)]
    path = table(path.parent, use=use, kind=kind, site=sites)
    assert table_dataset(settings(path)).split.tolist() == use


# Bad input


def test_a_missing_column_is_named_with_the_nearest(tmp_path):
    with pytest.raises(TableError, match=r"table\.csv has no column 'knid'; did you mean kind\? It has 'name', "):
        table_dataset(settings(table(tmp_path), target="knid"))
    for key in ("domain", "split", "id", "group", "features"):
        with pytest.raises(TableError, match=r"has no column 'qqq'\. It has"):
            table_dataset(settings(table(tmp_path), **{key: "qqq"}))


BAD = {
    "unknown class in a later split": (
        r"row 6, column 'kind': class 'zebra' is in ood_test, but not in train$",
        {"kind": ["dog", "cat", "", "dog", "cat", "zebra"]},
        {},
    ),
    "duplicate ids": (r"row 5, column 'name': 'b' was there before", {"name": list("abcdbf")}, {}),
    "strings in a regression": (
        r"row 2, column 'wealth': 'rich' is not a finite number",
        {"wealth": ["1", "rich", "", "2", "3", "4"]},
        {"target": "wealth", "task": "regression"},
    ),
    "infinity in a regression": (
        r"row 5, column 'wealth': 'inf' is not a finite number",
        {"wealth": ["1", "2", "", "2", "inf", "4"]},
        {"target": "wealth", "task": "regression"},
    ),
    "numbers as classes": (
        r"row 1, column 'wealth' must be a class, by name or whole number, got '0\.5'; is it a regression\?",
        {},
        {"target": "wealth"},
    ),
    "one class": (r"column 'kind' must have two classes or more in train, got 'dog'", {"kind": ["dog"] * 6}, {}),
    "missing label": (
        r"row 5, column 'kind' is missing, but the sample is in train",
        {"kind": ["dog", "cat", "", "dog", "", "dog"]},
        {},
    ),
    "missing domain": (r"row 3, column 'site' is missing", {"site": ["a", "a", "", "b", "a", "c"]}, {}),
    "unknown split": (
        r"row 4, column 'use' must be one of 'train', .*, got 'val'",
        {"use": ["train", "train", "unlabelled", "val", "train", "ood_test"]},
        {},
    ),
    "nothing to train on": (
        r"at least one sample 'train'|two classes or more in train, got none",
        {"use": ["id_val"] * 6},
        {},
    ),
    "features that are dates": (
        r"'day' holds dates, not numbers: leave it out, or save what matters of it, such as the year",
        {"day": ["2020-01-31", "2020-02-01"] * 3},
        {"features": ("x", "day")},
    ),
    "categories that are missing": (
        r"row 3, column 'words' is missing; missing: drop or impute says what to do",
        {},
        {"features": "words"},
    ),
    "features that are not finite": (
        r"row 3, column 'x' is inf, not a finite number",
        {"x": [1, 2, np.inf, 3, 4, 5]},
        {},
    ),
    "a group in two splits": (
        r"row 4, column 'place': group '7' is in more than one split",
        {"place": [1, 2, 7, 7, 3, 7]},
        {"group": "place"},
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_rows_are_named(tmp_path, name):
    words, changes, others = BAD[name]
    for suffix in (".csv", ".parquet"):
        path = table(tmp_path, suffix, **changes)
        with pytest.raises(TableError, match=words) as caught:
            table_dataset(settings(path, **others))
        assert str(caught.value).startswith(str(path))


def test_ragged_rows_are_named(tmp_path):
    path = table(tmp_path)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:3], lines[3] + ",more", *lines[4:]]))
    with pytest.raises(TableError, match=r"table\.csv: row 3 has 9 cells, the header 8"):
        table_dataset(settings(path))


def test_text_with_nul_or_broken_utf8_is_named(tmp_path):
    tokenizer = save_tokenizer(tmp_path / "words")
    changes = {"features": (), "text": "words", "tokenizer": tokenizer, "tokens": 4}
    nul = ["the", "okapi", "is\0shy", "x", "y", "z"]
    for suffix in (".csv", ".parquet"):
        with pytest.raises(TableError, match=r"row 3, column 'words' has a NUL in it; text is wanted, in UTF-8"):
            table_dataset(settings(table(tmp_path, suffix, words=nul), **changes))
    path = table(tmp_path)
    content = path.read_bytes().replace(b"not", b"n\xf6t")
    path.write_bytes(content)
    words = r"row 4, column 'words' is not UTF-8"
    with pytest.raises(TableError, match=rf"table\.csv: {words}"):
        table_dataset(settings(path, **changes))
    (tmp_path / "table.csv.gz").write_bytes(gzip.compress(content))
    with pytest.raises(TableError, match=rf"table\.csv\.gz: {words}"):
        table_dataset(settings(tmp_path / "table.csv.gz", **changes))
    assert len(table_dataset(settings(path))) == 6  # a column that nobody asks for may be as it is
    frame = pa.Table.from_pandas(pd.DataFrame(ROWS))
    broken = pa.array([b"the", b"is", b"", b"n\xf6t", b"a", b"b"], pa.binary()).view(pa.string())
    pq.write_table(frame.set_column(frame.schema.get_field_index("words"), "words", broken), tmp_path / "table.parquet")
    with pytest.raises(TableError, match=rf"table\.parquet.*({words}|UTF|utf)"):
        table_dataset(settings(tmp_path / "table.parquet", **changes))
    empty = table(tmp_path, ".parquet", words=["the", None, "", "x", "y", "z"])
    with pytest.raises(TableError, match=r"row 2, column 'words' is missing"):
        table_dataset(settings(empty, **changes))


def test_paths_that_lead_nowhere_or_out_are_named(tmp_path, pictures):
    changes = {"features": (), "image": "file", "size": 4}

    def refused(error: type[Exception], words: str, row: int, name: str) -> None:
        files = [*pictures["file"]]
        files[row] = name
        with pytest.raises(error, match=words):
            table_dataset(settings(table(tmp_path, file=files), **changes))

    refused(TableError, r"row 3, column 'file': path '\.\./x\.png' leads out of", 2, "../x.png")
    refused(TableError, r"row 1, column 'file': path 'a/\.\./\.\./x\.png' leads out of", 0, "a/../../x.png")
    refused(TableError, r"row 2, column 'file': path '/etc/passwd' leads out of", 1, "/etc/passwd")
    refused(TableError, r"row 6, column 'file' is missing", 5, "")
    refused(TableError, r"row 6, column 'file' has a NUL in it", 5, "a\0.png")
    refused(ImageError, r"1 of 6 images cannot be used:\n  .*gone\.png does not exist", 4, "pictures/gone.png")


def test_zero_unlabelled_samples_are_a_data_set_but_no_batch(tmp_path):
    use = ["train", "train", "id_val", "ood_val", "train", "ood_test"]
    data = table_dataset(settings(table(tmp_path, use=use, kind=["dog", "cat", "cat", "dog", "cat", "dog"])))
    assert len(data.rows("unlabelled")) == 0
    with pytest.raises(ValueError, match=r"rows must be of shape .* and not empty"):
        Batches(
            data, labelled=Stream(data.rows("train"), 2, 0), unlabelled=Stream(data.rows("unlabelled"), 2, 0), seed=0
        )


def test_a_domain_in_train_and_ood_test_is_warned_of_by_name(tmp_path):
    path = table(tmp_path, site=["oslo", "oslo", "rome", "bern", "rome", "rome"])
    with pytest.warns(SeenDomainWarning, match=r"1 domain is in both train and ood_test.*: 'rome'"):
        table_dataset(settings(path))


def test_an_empty_table_is_refused(tmp_path):
    (tmp_path / "empty.csv").write_text("name,site,use,kind,x,z\n")
    with pytest.raises(TableError, match=r"empty\.csv has no rows"):
        table_dataset(settings(tmp_path / "empty.csv"))
    with pytest.raises(TableError, match=r"none\.csv does not exist"):
        table_dataset(settings(tmp_path / "none.csv"))


def test_settings_that_contradict_each_other_are_refused():
    good = {"features": "x"}
    ColumnSettings(**good)
    for words, wrong in {
        "image, text or features must be given, one of them, got none": {"features": ()},
        "one of them, got image and features": {"image": "file"},
        "split names a column, so held_out and validation must be empty": {"split": "use", "held_out": "a"},
        "split must be given where samples have several domains": {"domain": ("a", "b")},
        "target must be one column for classification, got 2": {"target": ("a", "b")},
        "target must be given, got none": {"target": ()},
        "train_noise and strong_noise are of features": {"features": (), "text": "words", "train_noise": 1.0},
        "tokens must be a whole number from 1": {"tokens": 0},
        "id_test must be a number from 0 to 1": {"id_test": 2.0},
    }.items():
        with pytest.raises(ValueError, match=words):
            ColumnSettings(**{**good, **wrong})


# Real data


def test_reviews_of_seven_domains(data_dir, tmp_path):
    """Counts of the file's own description: 12,293 texts of seven domains."""
    columns = {"text": "text", "target": "label", "domain": "domain", "tokens": 16}
    settings_ = TableSettings(
        path=str(data_dir / "sentiment7.csv.gz"),
        tokenizer=save_tokenizer(tmp_path / "words"),
        held_out="kitchen",
        validation="dvd",
        **columns,
    )
    data = table_dataset(settings_)
    assert len(data) == 12293
    assert data.domain_names == ("airline", "blog", "books", "dvd", "electronics", "imdb", "kitchen")
    assert set(np.array(data.domain_names)[data.domain[data.rows("ood_test")]].tolist()) == {"kitchen"}
    assert data.read(data.rows("train")[:3])["input_ids"].shape == (3, 16)
    with pytest.raises(ValueError, match="held_out must be domains"):
        table_dataset(replace(settings_, held_out="cars"))


def test_features_of_pacs(data_dir):
    columns = {"features": "x", "target": "label", "domain": "domain", "id": "path", "held_out": "photo"}
    data = table_dataset(TableSettings(path=str(data_dir / "pacs_features.npz"), **columns))
    assert data.inputs.shape == (9991, 1280)
    assert data.task.outputs == 7
    assert len(data.rows("ood_test")) == 1670 // 2
