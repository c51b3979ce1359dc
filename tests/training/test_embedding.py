"""Encodings of a data set in a file, and the file as a data set again."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

from okapi.config import Config, make_config
from okapi.data import read_table
from okapi.data.dataset import Dataset
from okapi.data.registry import build_dataset
from okapi.training import embed, embedding, open_model
from okapi.training.setup import build_network

ROWS = 2100  # three chunks


@pytest.fixture(scope="module")
def arrays(tmp_path_factory) -> Path:
    """Return a file of arrays with classes by name, some unknown."""
    path = tmp_path_factory.mktemp("arrays") / "arrays.npz"
    chance = np.random.default_rng(0)
    split = chance.choice(["train", "unlabelled", "id_val", "id_test"], ROWS)
    label = chance.choice(["elk", "hare", "okapi"], ROWS)
    np.savez(
        path,
        x=chance.normal(size=(ROWS, 6)),
        y=np.where(split == "unlabelled", "", label),
        domain=chance.choice(["oslo", "rome"], ROWS),
        split=split,
        name=[f"sample {row}" for row in range(ROWS)],
    )
    return path


def config_of(data: dict[str, Any], **sections: Any) -> Config:
    model = {"name": "mlp", "hidden": [8], "out_features": 5, "dropout": 0.5}
    training = {"steps": 30, "selector": "last", "labelled_batch": 8, "learning_rate": 0.01, "accelerator": "cpu"}
    return make_config({"data": data, "model": model, "algorithm": {"name": "erm"}, "training": training, **sections})


@pytest.fixture
def config(arrays: Path) -> Config:
    return config_of({"name": "arrays", "path": str(arrays), "id": "name"})


def dataset_of(data: dict[str, Any]) -> Dataset:
    config = config_of(data)
    return build_dataset(config.data)


def encodings(config: Config) -> tuple[Dataset, torch.Tensor]:
    """Return the data set and what its encoder makes of all of it, at once."""
    dataset = build_dataset(config.data)
    with torch.inference_mode():
        return dataset, build_network(config, dataset).eval().encoder(dataset.read(range(len(dataset))))


def test_a_file_has_who_where_what_and_the_encoding(config: Config, tmp_path: Path, capsys):
    done = embed(config, tmp_path / "z.parquet")
    dataset, wanted = encodings(config)
    frame = pd.read_parquet(done.path)
    assert list(frame) == ["id", "domain", "split", "target", "encoding"]
    assert frame["id"].tolist() == dataset.ids
    assert frame["domain"].tolist() == [dataset.domain_names[number] for number in dataset.domain]
    assert frame["split"].tolist() == list(dataset.split)
    assert frame["target"].isna().tolist() == (dataset.target < 0).tolist()
    known = frame["target"].dropna()
    assert known.tolist() == [dataset.class_names[dataset.target[row]] for row in known.index]
    found = np.stack(frame["encoding"])
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    assert (done.samples, done.width, done.found) == (ROWS, 5, 0)
    assert not (tmp_path / "z.parquet.parts").exists()
    assert "Note: the encoder has random weights" in capsys.readouterr().err


@pytest.mark.parametrize("suffix", ["parquet", "npz"])
def test_a_file_is_a_data_set_with_the_same_samples(suffix, config: Config, tmp_path: Path):
    done = embed(config, tmp_path / f"z.{suffix}")
    before, wanted = encodings(config)
    section = done.next_steps.splitlines()[1].removeprefix("To train:  data: ")
    after = dataset_of(_yaml(section))
    torch.testing.assert_close(after.inputs, wanted)
    assert torch.equal(after.target, before.target)
    assert torch.equal(after.domain, before.domain)
    assert list(after.split) == list(before.split)
    assert list(after.ids) == list(before.ids)
    assert (after.class_names, after.domain_names, after.task) == (before.class_names, before.domain_names, before.task)


@pytest.mark.parametrize("suffix", ["parquet", "npz", "csv"])
def test_a_file_can_be_matched(suffix, config: Config, tmp_path: Path):
    done = embed(config, tmp_path / f"z.{suffix}")
    x, y = ("x", "y") if suffix == "npz" else ("encoding", "target")
    columns = [f"encoding_{number}" for number in range(5)] if suffix == "csv" else [x]
    table = read_table(done.path, domain="domain", id="id", target=y, columns=columns)
    assert table.names == tuple(f"{x}_{number}" for number in range(5))
    assert "--columns encoding_{0..4}" in done.next_steps or suffix != "csv"
    _, wanted = encodings(config)
    np.testing.assert_allclose(table.X, wanted, rtol=1e-5, atol=1e-6)
    if suffix == "parquet":  # where nothing else looks like a covariate
        assert read_table(done.path, domain="domain", id="id", target="target").names == table.names


def test_parquet_says_what_encodings_came_from(config: Config, tmp_path: Path):
    embed(config, tmp_path / "z.parquet")
    origin = pq.read_schema(tmp_path / "z.parquet").metadata[b"okapi"]
    assert b'"name": "mlp"' in origin


def test_splits_unit_length_and_weights(config: Config, tmp_path: Path, arrays: Path):
    other = build_network(make_config({**config.as_dict(), "seed": 9}), encodings(config)[0])
    save_file({**other.state_dict(), "head.weight": torch.zeros(7, 5)}, tmp_path / "other.safetensors")  # other classes
    done = embed(
        config,
        tmp_path / "z.npz",
        weights=tmp_path / "other.safetensors",
        splits=["id_val", "train"],
        normalise=True,
        batch_size=100,
    )
    dataset = encodings(config)[0]
    rows = np.flatnonzero(np.isin(dataset.split, ["id_val", "train"]))
    with torch.inference_mode():
        wanted = torch.nn.functional.normalize(other.eval().encoder(dataset.read(rows)))
    with np.load(done.path) as file:
        np.testing.assert_allclose(file["x"], wanted, rtol=1e-5, atol=1e-6)
        assert set(file["split"]) == {"id_val", "train"}


def test_sets_of_domains_and_several_targets(tmp_path: Path):
    chance = np.random.default_rng(1)
    frame = pd.DataFrame(chance.normal(size=(40, 3)), columns=["a", "b", "c"])
    frame[["red", "blue"]] = chance.integers(0, 2, (40, 2))
    frame[["oslo", "rome"]] = chance.integers(0, 2, (40, 2)).astype(bool)
    frame.loc[:2, ["oslo", "rome"]] = [[True, True], [False, False], [False, True]]
    frame["split"] = ["train"] * 20 + ["unlabelled"] * 20
    frame.loc[25, "red"] = np.nan
    frame.to_parquet(tmp_path / "table.parquet")
    table = {"name": "table", "path": str(tmp_path / "table.parquet"), "features": ["a", "b", "c"], "split": "split"}
    names = {"target": ["red", "blue"], "domain": ["oslo", "rome"], "task": "multilabel"}
    config = config_of({**table, **names})
    before = dataset_of({**table, **names})
    for suffix in ("parquet", "npz"):
        done = embed(config, tmp_path / f"z.{suffix}")
        after = dataset_of(_yaml(done.next_steps.splitlines()[1].removeprefix("To train:  data: ")))
        assert torch.equal(after.domain, before.domain)
        assert torch.equal(after.target.nan_to_num(-1), before.target.nan_to_num(-1))
    written = pd.read_parquet(tmp_path / "z.parquet")
    assert written["domain"].tolist()[:3] == ["oslo|rome", "(none)", "rome"]
    assert {"target_red", "target_blue", "oslo", "rome"} < set(written)
    assert len(read_table(tmp_path / "z.npz", domain="domains", columns=["x"])) == 40


def test_numbers_are_targets_too(tmp_path: Path):
    y = np.array([0.5, 1.5, np.nan, 2.5], dtype=np.float32)
    np.savez(
        tmp_path / "a.npz", x=np.eye(4), y=y, domain=[0, 1, 0, 1], split=["train", "train", "unlabelled", "id_val"]
    )
    config = config_of({"name": "arrays", "path": str(tmp_path / "a.npz"), "task": "regression"})
    frame = pd.read_parquet(embed(config, tmp_path / "z.parquet").path)
    np.testing.assert_array_equal(frame["target"].to_numpy(), y)
    assert frame["domain"].tolist() == ["0", "1", "0", "1"]


# Going on


def test_what_a_run_has_left_is_used_and_what_another_has_left_refused(config: Config, tmp_path: Path, monkeypatch):
    out, append, written = tmp_path / "z.parquet", embedding.Partial.append, []

    def stopping(partial: Any, encodings: Any) -> None:
        if written:
            raise KeyboardInterrupt
        append(partial, encodings)
        written.append(len(encodings))

    with monkeypatch.context() as patched:
        patched.setattr(embedding.Partial, "append", stopping)
        with pytest.raises(KeyboardInterrupt):
            embed(config, out)
    assert written == [1024]
    for change, words in [({"normalise": True}, "other normalise: give --restart"), ({"splits": ["train"]}, "samples")]:
        with pytest.raises(ValueError, match=words):
            embed(config, out, **change)
    other = make_config({**config.as_dict(), "seed": 3})
    with pytest.raises(ValueError, match="other weights: give --restart"):
        embed(other, out)
    torn = shutil.copytree(tmp_path / "z.parquet.parts", tmp_path / "torn.parquet.parts") / "encodings.npy"
    torn.write_bytes(torn.read_bytes()[:-8])
    assert embed(config, out).found == 1024
    whole = embed(config, tmp_path / "whole.parquet")
    assert out.read_bytes() == whole.path.read_bytes()
    assert embed(config, tmp_path / "torn.parquet").found == 0
    assert (tmp_path / "torn.parquet").read_bytes() == whole.path.read_bytes()
    with pytest.raises(ValueError, match=r"z.parquet is there already; --restart writes it anew"):
        embed(other, out)
    assert embed(other, out, restart=True).found == 0
    assert out.read_bytes() != whole.path.read_bytes()


# What is refused


def test_what_cannot_be_embedded_is_told(config: Config, tmp_path: Path, arrays: Path):
    out = tmp_path / "z.parquet"
    for change, words in [
        ({"splits": ["test"]}, "split must be one of train, .*, got 'test'"),
        ({"splits": ["ood_val"]}, "split ood_val has no samples"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"workers": -1}, "workers must be at least 0, got -1"),
        ({"device": "cudda"}, "device must be auto, cpu or one that torch has here, got 'cudda'"),
    ]:
        with pytest.raises(ValueError, match=words):
            embed(config, out, **change)
    with pytest.raises(ValueError, match=r"cannot write '.txt'; want '.parquet', '.csv', '.npz'"):
        embed(config, tmp_path / "z.txt")
    save_file({"encoder.x": torch.zeros(1)}, tmp_path / "bad.safetensors")
    with pytest.raises(ValueError, match=r"bad.safetensors does not fit the encoder of the config: "):
        embed(config, out, weights=tmp_path / "bad.safetensors")
    assert list(tmp_path.glob("z.*")) == []


def test_an_encoding_that_is_not_finite_is_named(config: Config, tmp_path: Path):
    from okapi.training import NotFiniteError

    dataset, _ = encodings(config)
    network = build_network(config, dataset)
    torch.nn.init.constant_(network.encoder.layers[0].weight, float("nan"))
    save_file(network.state_dict(), tmp_path / "bad.safetensors")
    with pytest.raises(NotFiniteError, match="the encoding of sample sample 0 is not finite"):
        embed(config, tmp_path / "z.parquet", weights=tmp_path / "bad.safetensors")


def test_models_are_opened_from_a_config_or_a_run(tmp_path: Path, config: Config):
    run = tmp_path / "run"
    with pytest.raises(ValueError, match=r"config.yaml|run"):
        open_model(run)
    run.mkdir()
    (run / "config.yaml").write_text(config.as_yaml())
    (run / "classes.json").write_text("{}")
    with pytest.raises(ValueError, match=r"has no model.safetensors: its run is not finished"):
        open_model(run)
    (run / "model.safetensors").touch()
    opened, weights = open_model(run, [("data.task", "regression")], data=Path("other.npz"))
    assert (opened.data.path, opened.data.task, weights) == ("other.npz", "regression", run / "model.safetensors")
    assert open_model(run / "config.yaml")[1] is None
    with pytest.raises(ValueError, match=r"weights .*none do not exist"):
        open_model(run, weights=tmp_path / "none")
    (run / "config.yaml").write_text(
        config.as_yaml().replace(f"path: {config.data.path}", "").replace("arrays", "sites")
    )
    with pytest.raises(ValueError, match="data sites is in no file or folder, so DATA cannot say where it is"):
        open_model(run, data=Path("other.npz"))


def _yaml(text: str) -> dict[str, Any]:
    import yaml

    section: dict[str, Any] = yaml.safe_load(text)
    return section
