"""Models of finished runs, whose data is gone, predict for samples that they have never seen."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from tests.data.small_tokenizer import save_tokenizer
from tests.models.tiny import TEXT, save

from okapi.config import make_config
from okapi.data.registry import build_dataset
from okapi.evaluation import decide
from okapi.runs import Run
from okapi.training import Predictor, train
from okapi.training.inference import predict


def finished(folder: Path, data: dict[str, Any], model: dict[str, Any]) -> tuple[Path, Any, np.ndarray, torch.Tensor]:
    """Train for two steps; return the run, its data set, and what it says of all samples while the data is there."""
    training = {"steps": 2, "labelled_batch": 4, "learning_rate": 0.01, "accelerator": "cpu"}
    config = make_config({"data": data, "model": model, "algorithm": {"name": "erm"}, "training": training})
    train(config, folder / "run")
    dataset = build_dataset(config.data)
    network = Run(folder / "run").trained_model().network()
    output = predict(network, dataset, torch.arange(len(dataset)), batch_size=16)
    decided = decide(dataset.task, output.prediction)
    return folder / "run", dataset, decided, output.encoding


@pytest.fixture
def table(tmp_path: Path) -> Path:
    chance = np.random.default_rng(0)
    frame = pd.DataFrame(chance.normal(5, 3, (40, 2)), columns=["height", "width"])
    frame["kind"] = chance.choice(["elk", "hare", "okapi"], 40)
    frame["sex"] = chance.choice(["f", "m"], 40)
    frame["site"] = np.repeat(["oslo", "rome"], 20)
    frame["split"] = np.tile(["train", "train", "train", "id_val"], 10)
    frame["text"] = np.tile(["the okapi is shy", "not shy !"], 20)
    frame.to_csv(tmp_path / "table.csv", index=False)
    return tmp_path / "table.csv"


def test_a_table(table: Path, tmp_path: Path):
    features = {"features": ["height", "width", "sex"], "target": "kind", "domain": "site", "split": "split"}
    data = {"name": "table", "path": str(table), **features}
    run, dataset, decided, encodings = finished(tmp_path, data, {"name": "mlp", "hidden": [4], "out_features": 3})
    unseen = tmp_path / "unseen.csv"
    pd.read_csv(table).drop(columns=["kind", "site", "split"]).to_csv(unseen, index=False)
    table.unlink()
    model = Predictor(run)
    assert model.classes == list(dataset.class_names)
    assert model.predict(unseen).tolist() == [dataset.class_names[number] for number in decided]
    assert model.predict_proba(str(unseen)).sum(axis=1) == pytest.approx(np.ones(40))
    np.testing.assert_array_equal(model.encode(unseen), encodings)
    np.testing.assert_array_equal(model.predict(dataset.inputs), model.predict(unseen))
    with pytest.raises(ValueError, match=r"samples must be of shape \(n, 4\), got \(2, 3\)"):
        model.predict(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="samples must be an array or a path, for a model of table; got list"):
        model.predict(["elk"])


def test_arrays_and_numbers(tmp_path: Path):
    x = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    np.savez(tmp_path / "a.npz", x=x, y=x[:, 0], domain=np.arange(20) % 2, split=["train"] * 15 + ["id_val"] * 5)
    data = {"name": "arrays", "path": str(tmp_path / "a.npz"), "task": "regression"}
    run, dataset, decided, _ = finished(tmp_path, data, {"name": "mlp", "hidden": [4], "out_features": 3})
    (tmp_path / "a.npz").rename(tmp_path / "moved.npz")
    model = Predictor(run, batch_size=16)
    np.testing.assert_array_equal(model.predict(tmp_path / "moved.npz"), decided[:, 0])
    assert model.predict(dataset.inputs[:3]).shape == (3,)
    with pytest.raises(ValueError, match="a regression predicts numbers, which have no probabilities"):
        model.predict_proba(dataset.inputs)
    with pytest.raises(ValueError, match="samples must not be empty"):
        model.predict(dataset.inputs[:0])


def test_images(tmp_path: Path):
    chance = np.random.default_rng(0)
    for domain in ("day", "night"):
        for label in ("elk", "hare"):
            folder = tmp_path / "images" / domain / label
            folder.mkdir(parents=True)
            for number in range(5):
                Image.fromarray(chance.integers(0, 255, (20, 16, 3), dtype=np.uint8)).save(folder / f"{number}.png")
    data = {"name": "image_folder", "root": str(tmp_path / "images"), "size": 16, "held_out": "night"}
    run, dataset, decided, _ = finished(tmp_path, data, {"name": "cnn", "width": 4, "out_features": 3})
    wanted = {name: dataset.class_names[number] for name, number in zip(dataset.ids, decided, strict=True)}
    (tmp_path / "images").rename(tmp_path / "moved")
    model = Predictor(run, batch_size=16)
    names = sorted(wanted)
    assert model.predict([tmp_path / "moved" / name for name in names]).tolist() == [wanted[name] for name in names]
    assert model.predict(tmp_path / "moved").tolist() == [wanted[name] for name in names]
    assert model.predict(tmp_path / "moved" / names[0]).tolist() == [wanted[names[0]]]


def test_texts(table: Path, tmp_path: Path):
    tokenizer = save_tokenizer(tmp_path / "words")
    data = {"name": "table", "path": str(table), "text": "text", "target": "kind", "domain": "site", "split": "split"}
    model = {"name": "text", "pretrained": save(tmp_path / "bert", "bert", TEXT["bert"])}
    run, dataset, decided, _ = finished(tmp_path, data | {"tokenizer": tokenizer, "tokens": 8}, model)
    table.unlink()
    found = Predictor(run, batch_size=16).predict(np.tile(["the okapi is shy", "not shy !"], 20).tolist())
    assert found.tolist() == [dataset.class_names[number] for number in decided]
