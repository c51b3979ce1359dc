"""okapi init: what is recognised, what the config says and how wrong input is answered."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from PIL import Image

from okapi.cli import main
from okapi.config import read_config

ROWS = 80


def table(path: Path, **columns: object) -> Path:
    """Write a CSV of two sites and two classes, with other columns in place of these or beside them."""
    random = np.random.default_rng(0)
    standard = {
        "site": np.array(["oslo", "rome"])[np.arange(ROWS) % 2],
        "label": np.array(["sick", "well"])[np.arange(ROWS) // 2 % 2],
        "age": random.normal(50, 10, ROWS).round(2),
    }
    frame = pd.DataFrame({name: value for name, value in (standard | columns).items() if value is not None})
    frame.to_csv(path, index=False)
    return path


def images(root: Path, names: list[str], side: int = 16, mode: str = "RGB") -> Path:
    for number, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (side, side), (number, 9, 9)).convert(mode).save(root / name)
    return root


def started(source: Path, *words: str) -> dict:
    """Return the config that is written, which can be read."""
    out = source.parent / "my.yaml"
    assert main(["init", str(source), *words, "--out", str(out)]) == 0
    read_config(out)
    return yaml.safe_load(out.read_text())


def sites(per_class: int = 10) -> list[str]:
    return [f"{s}/{c}/{n}.png" for s in ("oslo", "rome") for c in ("a", "b") for n in range(per_class)]


def test_small_grey_images(tmp_path):
    config = started(images(tmp_path / "digits", sites(), 20, "L"), "--unlabelled", "rome")
    assert (config["data"]["size"], config["data"]["colour"], config["model"]["name"]) == (24, "grey", "cnn")


@pytest.mark.parametrize(("extra", "size", "model"), [(True, 128, "vision"), (False, 64, "cnn")])
def test_large_images_are_for_a_pretrained_network_where_there_is_one(extra, size, model, tmp_path, monkeypatch):
    monkeypatch.setattr("okapi.commands.init._has_efficientnet", lambda: extra)
    config = started(images(tmp_path / "photos", sites(4), 200), "--unlabelled", "rome")
    assert (config["data"]["size"], config["model"]["name"]) == (size, model)


def test_a_site_without_classes_is_the_unlabelled_one(tmp_path):
    names = [f"oslo/{c}/{n}.png" for c in ("a", "b") for n in range(10)] + [f"rome/{n}.png" for n in range(8)]
    config = started(images(tmp_path / "photos", names))
    assert config["data"]["held_out"] == "rome"
    assert "unlabelled" not in config["data"]  # a share of labelled samples
    assert config["training"]["unlabelled_batch"] == 8


def test_a_class_of_the_unlabelled_site_only(tmp_path, capsys):
    more = [f"rome/c/{number}.png" for number in range(5)]
    config = started(images(tmp_path / "photos", [*sites(), *more]), "--unlabelled", "rome")
    assert config["data"]["unlabelled"] == 1.0
    assert "Warning: 'c' occurs only at 'rome'" in capsys.readouterr().err


def test_a_class_of_the_unlabelled_site_only_in_a_table(tmp_path):
    labels = ["new" if row == 7 else "xy"[row % 4 < 2] for row in range(ROWS)]
    config = started(table(tmp_path / "t.csv", label=labels), "--unlabelled", "rome")
    assert config["data"]["unlabelled"] == 1.0


def test_a_table_with_its_own_splits(tmp_path):
    split = np.where(np.arange(ROWS) % 2, "unlabelled", np.where(np.arange(ROWS) % 8, "train", "id_val"))
    config = started(table(tmp_path / "t.csv", split=split))
    assert config["data"]["split"] == "split"
    assert "held_out" not in config["data"]
    assert config["training"]["selector"] == "id_val"


def test_columns_by_content(tmp_path):
    """The domain is where the unlabelled domain is; many whole numbers are a quantity; ids are no features."""
    where = np.array(["kenya", "peru"])[np.arange(ROWS) % 2]
    source = table(
        tmp_path / "t.csv", site=None, herd=where, label=None, y=np.arange(ROWS), camera_id=np.arange(ROWS) % 3
    )
    data = started(source, "--unlabelled", "peru")["data"]
    assert (data["domain"], data["target"], data["task"], data["features"]) == ("herd", "y", "regression", ["age"])


def test_an_empty_column_is_no_feature(tmp_path):
    only_there = [None if row % 2 == 0 else 1.5 for row in range(ROWS)]
    source = table(tmp_path / "t.csv", empty=[None] * ROWS, only_there=only_there)
    assert started(source, "--unlabelled", "rome")["data"]["features"] == ["age"]


def test_paths_of_images_in_a_table(tmp_path):
    names = [f"{row}.png" for row in range(ROWS)]
    images(tmp_path, names)
    config = started(table(tmp_path / "t.csv", file=names), "--unlabelled", "rome")
    assert (config["data"]["image"], config["data"]["size"], config["model"]["name"]) == ("file", 16, "cnn")


def test_a_text_model_is_pretrained_where_no_tokenizer_is_given(tmp_path):
    texts = [f"what I think of it is {row}" for row in range(ROWS)]
    config = started(table(tmp_path / "t.csv", age=None, comment=texts), "--unlabelled", "rome")
    assert config["data"]["text"] == "comment"
    assert config["model"] == {"name": "text", "pretrained": config["data"]["tokenizer"]}


def test_arrays_of_images(tmp_path):
    random = np.random.default_rng(0)
    site = np.array(["oslo", "rome"])[np.arange(40) % 2]
    np.savez(
        tmp_path / "f.npz", x=random.random((40, 3, 8, 8)), y=np.arange(40) // 2 % 2, domain=site, id=np.arange(40)
    )
    config = started(tmp_path / "f.npz", "--unlabelled", "rome")
    assert (config["model"]["name"], config["data"]["id"]) == ("cnn", "id")
    assert config["data"]["strong_warp"] > 0


WRONG = [
    ({}, ["--unlabelled", "rom"], "unlabelled must be domains of", "did you mean rome?"),
    ({}, [], "--unlabelled must be given, as every domain has labels: one or several of 'oslo', 'rome'", ""),
    ({}, ["--unlabelled", "oslo", "rome"], "has no labelled sample but those of", ""),
    ({"site": ["oslo"] * ROWS}, ["--unlabelled", "oslo"], "has one domain only, 'oslo'", ""),
    ({"label": None}, ["--unlabelled", "rome"], "say by --target which it is: 'site', 'age'", ""),
    ({"site": None}, ["--unlabelled", "rome"], "say by --domain which column", "'label', 'age'"),
    ({"age": None}, ["--unlabelled", "rome"], "no column of numbers, categories, texts or paths of images", ""),
    ({"age": ["oops", *range(ROWS - 1)]}, ["--unlabelled", "rome"], "row 1, column 'age': 'oops'", ""),
    ({"label": ["x"] * ROWS}, ["--unlabelled", "rome"], "must have two classes or more in train, got 'x'", ""),
    ({}, ["--unlabelled", "rome", "--target", "lable"], "lable", "label"),
]


@pytest.mark.parametrize(("columns", "words", "said", "hint"), WRONG)
def test_wrong_input_is_answered_in_a_sentence(columns, words, said, hint, tmp_path, capsys):
    source = table(tmp_path / "t.csv", **columns)
    assert main(["init", str(source), *words, "--out", str(tmp_path / "my.yaml")]) == 2
    told = capsys.readouterr().err.strip().splitlines()[-1]
    assert said in told
    assert hint in told
    assert not (tmp_path / "my.yaml").exists()


@pytest.mark.parametrize("name", ["nothing", "t.pdf", "empty"])
def test_what_is_no_data_set(name, tmp_path, capsys):
    (tmp_path / "t.pdf").write_text("x")
    (tmp_path / "empty").mkdir()
    assert main(["init", str(tmp_path / name), "--unlabelled", "rome"]) == 2
    assert name in capsys.readouterr().err
