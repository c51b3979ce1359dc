"""From data to predictions as a new user would: init, data, train, predict, load; nothing written but commands."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from PIL import Image
from tests.data.small_tokenizer import save_tokenizer

import okapi
from okapi.cli import main

SHORT = ("--training.steps", "60", "--training.validate_every", "20", "--training.accelerator", "cpu")


def run(*words: object) -> None:
    assert main([str(word) for word in words]) == 0


def draw(path: Path, kind: str, site: str, number: int, mode: str = "RGB") -> None:
    """Save an image: cats have horizontal stripes, birds vertical ones; sites differ a little in colour."""
    pixels = np.random.default_rng(number).integers(0, 60, (24, 24, 3), dtype=np.uint8)
    stripes = pixels if kind == "cat" else pixels.transpose(1, 0, 2)
    stripes[np.arange(24) % 4 < 2] += 120
    pixels[..., 0 if site == "oslo" else 2] += 30
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).convert(mode).save(path)


def patients(folder: Path, count: int = 240) -> Path:
    """Write a table with names, numbers, empty cells and a column of ids."""
    random = np.random.default_rng(0)
    dead = random.integers(0, 2, count)
    frame = pd.DataFrame(
        {
            "patient_id": np.arange(count) + 1000,
            "hospital": random.choice(["Oslo", "Rome", "Kyiv"], count),
            "age": 50 + 20 * dead + random.normal(0, 5, count),
            "smoker": random.choice(["yes", "no"], count),
            "died": np.where(dead, "dead", "alive"),
        }
    )
    frame.loc[::7, "age"] = None
    frame.loc[::9, "smoker"] = None
    frame.to_csv(folder / "patients.csv", index=False)
    return folder / "patients.csv"


def test_images(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for site in ("oslo", "rome"):
        for kind in ("bird", "cat"):
            for number in range(24):
                mode = {1: "L", 2: "P"}.get(number, "RGB")
                draw(Path("photos", site, kind, f"{number}.png"), kind, site, number, mode)
    broken = Path("photos/oslo/cat/3.png")
    broken.write_bytes(broken.read_bytes()[:300])
    Path("photos/oslo/cat/._x.jpg").write_bytes(b"not an image")
    for number in range(20):
        kind = ("bird", "cat")[number % 2]
        draw(Path("new", f"{kind}-{number}.png"), kind, "rome", 100 + number)
    run("init", "photos", "--unlabelled", "rome")
    printed, told = capsys.readouterr()
    assert [line.split(":")[0] for line in told.splitlines()[-3:]] == ["Data", "Splits", "Training"]
    assert "1 of 96 images cannot be read" in told
    Path("photos.yaml").write_text(printed)
    config = yaml.safe_load(printed)
    assert config["data"] | {"root": "photos"} == {
        "name": "image_folder",
        "root": "photos",
        "held_out": "rome",
        "unlabelled": 0.5,
        "id_val": 0.2,
        "size": 24,
        "colour": "rgb",
        "unreadable": "skip",
    }
    assert config["model"]["name"] == "cnn"
    assert config["algorithm"]["name"] == "okapi_plus"
    assert config["training"]["labelled_batch"] <= 40
    assert config["training"]["unlabelled_batch"] <= 24
    assert main(["data", "photos.yaml"]) == 1  # as one file cannot be read
    run("train", "photos.yaml", "--out", "run", *SHORT)
    run("predict", "run", "new", "--out", "p.csv")
    frame = pd.read_csv("p.csv")
    assert (frame["prediction"] == frame["id"].str.split("-").str[0]).mean() > 0.8
    assert okapi.load("run").predict(Path("new")).tolist() == frame["prediction"].tolist()


def test_a_table_with_names_and_empty_cells(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    source = patients(tmp_path)
    run("init", source, "--unlabelled", "Oslo", "--target", "died", "--out", "my.yaml")
    data = yaml.safe_load(Path("my.yaml").read_text())["data"]
    assert data["features"] == ["age", "smoker"]
    assert (data["domain"], data["id"], data["missing"]) == ("hospital", "patient_id", "impute")
    run("data", "my.yaml")
    run("train", "my.yaml", "--out", "run", *SHORT)
    new = pd.read_csv(source).drop(columns=["died", "hospital"]).head(20)
    new.to_csv("new.csv", index=False)
    run("predict", "run", "new.csv", "--out", "p.csv")
    assert set(pd.read_csv("p.csv")["prediction"]) == {"alive", "dead"}
    assert main(["init", str(source), "--unlabelled", "Oslo", "--target", "died", "--out", "my.yaml"]) == 2
    assert "--out must be new" in capsys.readouterr().err


def test_texts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_tokenizer(tmp_path / "vocabulary")
    random = np.random.default_rng(0)
    shy = random.integers(0, 2, 160)
    words = [" ".join([*random.choice(["the", "okapi", "!"], 3), "is", "shy" if one else "not"]) for one in shy]
    shops = random.choice(["a", "b"], 160)
    pd.DataFrame({"review": words, "label": shy, "shop": shops}).to_csv("reviews.csv", index=False)
    run("init", "reviews.csv", "--unlabelled", "b", "--tokenizer", "vocabulary", "--out", "my.yaml")
    data = yaml.safe_load(Path("my.yaml").read_text())["data"]
    assert (data["text"], data["target"], data["domain"]) == ("review", "label", "shop")
    run("train", "my.yaml", "--out", "run", *SHORT)
    pd.DataFrame({"review": ["the okapi ! is shy", "the okapi ! is not"]}).to_csv("new.csv", index=False)
    run("predict", "run", "new.csv", "--out", "p.csv")
    assert pd.read_csv("p.csv")["prediction"].tolist() == [1, 0]


@pytest.mark.parametrize("method", ["okapi", "okapi_plus", "fixmatch", "erm"])
def test_arrays_by_each_method(method, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    label = random.integers(0, 3, 150)
    site = np.array(["kenya", "peru"])[random.integers(0, 2, 150)]
    np.savez("f.npz", features=random.normal(size=(150, 8)) + 2 * np.eye(8)[label], label=label, site=site)
    run("init", "f.npz", "--unlabelled", "peru", "--method", method, "--out", "my.yaml")
    data = yaml.safe_load(Path("my.yaml").read_text())["data"]
    assert (data["inputs"], data["target"], data["domain"], data["split"]) == ("features", "label", "site", None)
    run("train", "my.yaml", "--out", "run", *SHORT)
    np.savez("new.npz", features=random.normal(size=(5, 8)))
    run("predict", "run", "new.npz", "--out", "p.csv")
    assert len(pd.read_csv("p.csv")) == 5
