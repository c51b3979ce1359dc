"""``okapi train`` as a user meets it: what a run leaves, what is refused, and how it is told."""

import csv
import json
import re
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors import safe_open
from safetensors.torch import load_file

from okapi import __version__
from okapi.cli import main
from okapi.config import read_config
from okapi.data.batches import take
from okapi.data.registry import BUILDERS
from okapi.evaluation import evaluate
from okapi.models import build

CONFIGS = Path(__file__).parents[2] / "configs" / "sites"
SHORT = [
    *("--training.steps", 12, "--training.labelled_batch", 16, "--training.unlabelled_batch", 16),
    *("--training.validate_every", 5, "--training.checkpoint_every", 4, "--training.log_every", 3),
    *("--model.width", 8, "--model.out_features", 8),
]


def train(*words: object) -> int:
    try:
        return main(["train", *map(str, words)])
    except SystemExit as stopped:
        return int(str(stopped.code))


def rows(run: Path) -> list[dict[str, str]]:
    with (run / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def figure(run: Path, split: str, name: str) -> dict[int, float]:
    """Return a figure by step."""
    wanted = [row for row in rows(run) if (row["split"], row["metric"]) == (split, name)]
    return {int(row["step"]): float(row["value"]) for row in wanted}


@pytest.fixture(scope="module")
def erm_run(tmp_path_factory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "erm"
    assert train(CONFIGS / "erm.yaml", "--out", run, *SHORT, "--seed", 7) == 0
    return run


# What a run leaves


@pytest.mark.parametrize("name", ["erm", "fixmatch", "okapi", "offline_okapi"])
def test_every_config_trains(name, erm_run, tmp_path, capsys):
    extra = ["--algorithm.erm_run", erm_run] if name == "offline_okapi" else []
    run = tmp_path / "deep" / "run"
    assert train(CONFIGS / f"{name}.yaml", "--out", run, *SHORT, *extra, "--seed", 7) == 0
    out, errors = capsys.readouterr()
    assert f"Weights: {run / 'model.safetensors'}" in out
    assert re.search(r"12 of 12 steps  loss \d.*images/s  0:00:00 left", errors)
    assert ("match rate" in errors) == (name in ("okapi", "offline_okapi"))
    left = {path.name for path in run.iterdir()} - {"matches.safetensors"}
    assert left == {".lock", "checkpoints", "classes.json", "config.yaml", "environment.json", "metrics.csv"} | {
        "README.md",
        "model.safetensors",
        "reference.npz",
        "results.json",
        "timings.csv",
    }
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["step-00000008", "step-00000012"]
    assert list(figure(run, "train", "loss")) == [3, 6, 9, 12]
    assert list(figure(run, "ood_val", "accuracy")) == [5, 10, 12]
    assert {row["split"] for row in rows(run)} == {"train", "id_val", "ood_val"}  # tests stay sealed
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert (config["algorithm"]["name"], config["seed"], config["training"]["steps"]) == (name, 7, 12)
    results = json.loads((run / "results.json").read_text())
    assert (results["seed"], results["config"], results["okapi"], results["steps"]) == (7, config, __version__, 12)
    environment = json.loads((run / "environment.json").read_text())
    assert {"python", "torch", "platform", "threads", "okapi"} < set(environment)
    if name == "offline_okapi":
        matches = load_file(run / "matches.safetensors")["match"]
        assert 0 < (matches >= 0).sum() < len(matches)


def test_the_selected_weights_are_the_best_and_give_the_figures_that_are_told(erm_run):
    results = json.loads((erm_run / "results.json").read_text())
    accuracy = figure(erm_run, "ood_val", "accuracy")
    chosen = results["selection"]
    assert chosen["selector"] == "ood_val"
    assert chosen["metric"] == "accuracy"
    assert chosen["step"] == max(accuracy, key=lambda step: (accuracy[step], -step))
    config = read_config(erm_run / "config.yaml")
    dataset = BUILDERS["sites"](config.data)
    network = build(config.model, dataset.sample(0), dataset.task).eval()
    network.load_state_dict(load_file(erm_run / "model.safetensors"))
    rows = dataset.rows("ood_val")
    with torch.no_grad():
        prediction = network(take(dataset.inputs, rows)).prediction
    found = evaluate(dataset.task, prediction, dataset.target[rows], dataset.domain[rows], dataset.domain_names)
    assert found == pytest.approx(chosen["metrics"]["ood_val"], abs=1e-9)
    with safe_open(erm_run / "model.safetensors", "pt") as file:
        assert json.loads(file.metadata()["okapi"]) == {"version": __version__, "step": chosen["step"]}


def test_the_written_config_reproduces_the_run(erm_run, tmp_path):
    assert train(erm_run / "config.yaml", "--out", tmp_path / "again") == 0
    for name in ("metrics.csv", "model.safetensors", "results.json", "config.yaml"):
        assert (tmp_path / "again" / name).read_bytes() == (erm_run / name).read_bytes()
    assert train(erm_run / "config.yaml", "--out", tmp_path / "other", "--seed", 8) == 0
    assert (tmp_path / "other" / "metrics.csv").read_bytes() != (erm_run / "metrics.csv").read_bytes()


def test_patience_ends_a_run_early_and_last_keeps_the_last(tmp_path, capsys):
    words = [CONFIGS / "erm.yaml", *SHORT, "--training.steps", 40, "--training.validate_every", 1]
    slow = ["--training.learning_rate", 1e-9, "--training.final_learning_rate", 0, "--training.patience", 3]
    assert train(*words, *slow, "--out", tmp_path / "early") == 0
    results = json.loads((tmp_path / "early" / "results.json").read_text())
    assert results["stopped_early"]
    assert results["steps"] < 40
    assert results["selection"]["step"] == results["steps"] - 3
    assert "(stopped early)" in capsys.readouterr().out
    assert train(*words, "--training.steps", 4, "--training.selector", "last", "--out", tmp_path / "last") == 0
    assert json.loads((tmp_path / "last" / "results.json").read_text())["selection"]["step"] == 4


def test_two_accumulated_batches_are_one_of_twice_the_size(tmp_path):
    config = arrays_config(tmp_path, arrays(tmp_path / "data.npz"), algorithm={"name": "erm"})
    words = [config, "--training.log_every", 1, "--training.learning_rate", 0.01]
    assert train(*words, "--out", tmp_path / "two", "--training.accumulate", 2) == 0
    assert train(*words, "--out", tmp_path / "one", "--training.labelled_batch", 16) == 0
    assert train(*words, "--out", tmp_path / "half") == 0
    two, one, half = (list(figure(tmp_path / run, "train", "loss").values()) for run in ("two", "one", "half"))
    assert two == pytest.approx(one, rel=1e-6)
    assert two != pytest.approx(half, rel=1e-3)


def test_compiled_and_bf16_runs_learn_alike(tmp_path, erm_run):
    words = [CONFIGS / "erm.yaml", *SHORT, "--seed", 7]
    assert train(*words, "--out", tmp_path / "compiled", "--training.compile", "aot_eager") == 0
    assert train(*words, "--out", tmp_path / "bf16", "--training.precision", "bf16") == 0
    expected = list(figure(erm_run, "train", "loss").values())
    assert list(figure(tmp_path / "compiled", "train", "loss").values()) == pytest.approx(expected, rel=1e-4)
    half = list(figure(tmp_path / "bf16", "train", "loss").values())
    assert half == pytest.approx(expected, rel=0.05)
    assert half != expected


def test_trackers_get_what_metrics_csv_has(tmp_path):
    pytest.importorskip("tensorboard")
    pytest.importorskip("wandb")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = tmp_path / "run"
    words = [CONFIGS / "erm.yaml", *SHORT, "--training.trackers", "[tensorboard, wandb]", "--out", run]
    assert train(*words) == 0
    events = EventAccumulator(str(run / "tensorboard")).Reload()
    for row in rows(run):
        found = {event.step: event.value for event in events.Scalars(f"{row['split']}/{row['metric']}")}
        assert found[int(row["step"])] == pytest.approx(float(row["value"]), rel=1e-6)
    assert wandb_history(run) >= {(int(row["step"]), f"{row['split']}/{row['metric']}") for row in rows(run)}


def wandb_history(run: Path) -> set[tuple[int, str]]:
    """Return the steps and names in the file that an offline run of Weights & Biases leaves."""
    from wandb.proto import wandb_internal_pb2

    (path,) = run.glob("wandb/offline-run-*/run-*.wandb")
    found = set()
    for content in leveldb_log(path.read_bytes(), header=7):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(content)
        for item in record.history.item:
            found.add((record.history.step.num, item.key or "/".join(item.nested_key)))
    return found


def leveldb_log(content: bytes, header: int) -> Iterator[bytes]:
    """Yield the records of a LevelDB log: blocks of 32 KiB with pieces of (checksum, length, kind, data)."""
    place, begun = header, b""
    while place + 7 <= len(content):
        if 32768 - place % 32768 < 7:  # too little for a piece: the rest of the block is empty
            place += 32768 - place % 32768
            continue
        length, kind = struct.unpack_from("<HB", content, place + 4)
        begun += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a whole record, or the last piece of one
            yield begun
            begun = b""


def test_a_dry_run_tells_what_to_expect_and_writes_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert train(CONFIGS / "okapi.yaml", "--dry-run", *SHORT) == 0
    out = capsys.readouterr().out
    config = read_config(CONFIGS / "okapi.yaml", [("model.width", "8"), ("model.out_features", "8")])
    dataset = BUILDERS["sites"](config.data)
    network = build(config.model, dataset.sample(0), dataset.task)
    trained = sum(weight.numel() for weight in network.parameters()) + 8 + 1  # and the scorer's
    assert re.search(rf"Weights +{trained:,} trained", out)
    for name in ("Memory .*MiB at most on", "Time per step .*s for 32 images", "Whole run .* for 12 steps"):
        assert re.search(name, out)
    assert list(tmp_path.iterdir()) == []


# What is refused: exit code 2, one line, nothing written

REFUSED = {
    "--training.stesp 4": r"--training\.stesp is no key of the config; did you mean training\.steps\?",
    "--trainig.steps 4": r"--trainig\.steps is no key of the config; did you mean training\?",
    "--training.steps few": r"--training\.steps must be a whole number from 1 to 1,000,000,000, got 'few'",
    "--training.steps": r"--training\.steps needs a value",
    "--training.steps --seed 3": r"--training\.steps needs a value",
    "--training.precision fp16": r"training\.precision fp16 needs a GPU; on a CPU use bf16 or fp32",
    "--training.accelerator gpu": r"training\.accelerator is gpu, but torch finds none",
    "--training.compile llvm": r"training\.compile must be a backend of torch\.compile .*, got 'llvm'",
    "--data.fully_labelled true": r"split 'unlabelled' has no samples, but algorithm okapi needs some",
    "--training.metric mse": r"training\.metric must be one of accuracy, .*, got 'mse'",
    "--training.selector last --training.patience 2": r"training\.patience needs a selector that compares",
    "--algorithm.name erm --algorithm.bank 3": r"--algorithm\.bank is no key of the config; known are none",
    "--algorithm.matching.k 0": "k must be",
    "--algorithm.matching.fixed_caliper 0.5": "fixed_caliper must not be 0.5",
    "--model.dropout 2": "dropout",
    "--seed -1": "--seed must be a whole number from 0 to",
    "--seed one": "--seed must be a whole number, got 'one'",
    "--nonsense": "unknown option --nonsense",
    "--dry-runs": r"did you mean --dry-run\?",
}


@pytest.mark.parametrize("words", REFUSED)
def test_bad_settings_are_refused_by_name_before_anything_is_written(words, tmp_path, capsys):
    code = train(CONFIGS / "okapi.yaml", "--out", tmp_path / "run", *words.split())
    out, errors = capsys.readouterr()
    assert (code, out) == (2, "")
    assert len(errors.splitlines()) == 1
    assert re.search(REFUSED[words], errors)
    assert list(tmp_path.iterdir()) == []


SPLIT = np.repeat(["train", "unlabelled", "id_val", "ood_val", "ood_test"], 20)


def arrays(path: Path, **changes: Any) -> Path:
    """Write a data set of arrays; changes replace whole arrays."""
    target = np.arange(100) % 3
    x = np.random.default_rng(0).normal(size=(100, 4)) + target[:, None]
    domain = np.where(np.isin(SPLIT, ["ood_val", "ood_test"]), 2, np.arange(100) % 2)
    np.savez(path, **{"x": x, "y": target, "domain": domain, "split": SPLIT, **changes})
    return path


def arrays_config(folder: Path, data: Path, **changes: Any) -> Path:
    """Write a config for arrays; changes replace whole sections."""
    content = read_config(CONFIGS / "okapi.yaml").as_dict()
    content["data"] = {"name": "arrays", "path": str(data)}
    content["model"] = {"name": "mlp", "hidden": [8], "out_features": 4}
    content["training"] |= {"steps": 4, "labelled_batch": 8, "unlabelled_batch": 8}
    (folder / "config.yaml").write_text(yaml.safe_dump({**content, **changes}))
    return folder / "config.yaml"


BAD_DATA = {
    "label out of range": (
        {"y": np.where(np.arange(100) == 3, -2, np.arange(100) % 3)},
        "row 4, column 'y' is missing",
    ),
    "no validation": ({"split": np.where(SPLIT == "ood_val", "ood_test", SPLIT)}, "split 'ood_val' has no samples"),
    "no unlabelled": ({"split": np.where(SPLIT == "unlabelled", "id_val", SPLIT)}, "split 'unlabelled' has no samples"),
    "no train": ({"split": np.where(SPLIT == "train", "id_val", SPLIT)}, "'train'"),
    "unknown split": ({"split": np.where(SPLIT == "ood_test", "test", SPLIT)}, "row 81, column 'split' must be one of"),
    "not finite": ({"x": np.full((100, 4), np.inf)}, "row 1, column 'x' is not finite"),
}


@pytest.mark.parametrize("name", BAD_DATA)
@pytest.mark.filterwarnings("ignore::okapi.algorithms.SharedDomainsWarning")
def test_bad_data_is_refused_before_anything_is_written(name, tmp_path, capsys):
    changes, words = BAD_DATA[name]
    config = arrays_config(tmp_path, arrays(tmp_path / "data.npz", **changes))
    assert train(config, "--out", tmp_path / "run") == 2
    errors = capsys.readouterr().err
    assert words in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "run").exists()


def test_a_directory_that_is_not_free_is_refused(erm_run, tmp_path, capsys):
    assert train(CONFIGS / "erm.yaml", "--out", erm_run) == 2
    assert f"{erm_run} holds a run already; resume it by --resume {erm_run}" in capsys.readouterr().err
    (tmp_path / "thesis.tex").write_text("")
    assert train(CONFIGS / "erm.yaml", "--out", tmp_path) == 2
    assert "is not empty" in capsys.readouterr().err
    for words, expected in (
        ([], "give either CONFIG"),
        ([CONFIGS / "erm.yaml"], "--out is missing"),
        ([CONFIGS / "erm.yaml", "--resume", erm_run], "give either CONFIG"),
        (["--resume", erm_run, "--out", tmp_path / "x"], "--resume continues in its own directory"),
        (["--resume", tmp_path], "holds no run"),
        ([tmp_path / "none.yaml", "--out", tmp_path / "x"], "cannot be read: No such file"),
    ):
        assert train(*words) == 2
        assert expected in capsys.readouterr().err


# Runs that stop


def test_a_loss_that_is_not_finite_stops_the_run_and_names_step_samples_and_checkpoint(tmp_path, capsys):
    x = np.where(np.arange(100)[:, None] == 7, 3e38, np.ones((100, 4)))  # whose products are infinite
    config = arrays_config(tmp_path, arrays(tmp_path / "data.npz", x=x), algorithm={"name": "erm"})
    words = [config, "--training.labelled_batch", 2, "--training.checkpoint_every", 1, "--training.steps", 20]
    assert train(*words, "--out", tmp_path / "run") == 1
    message = capsys.readouterr().err.splitlines()[-1]
    found = re.fullmatch(
        r"okapi: step (\d+): (loss|gradient_norm) is (nan|inf); lower training.learning_rate \(\S+\) in "
        r"a new run; the last good checkpoint is (.*); the samples of the batch are (\d+), (\d+)",
        message,
    )
    assert found
    assert "7" in (found[5], found[6])
    checkpoints = tmp_path / "run" / "checkpoints"
    assert found[4] == str(checkpoints / f"step-{int(found[1]) - 1:08d}")
    assert sorted(path.name for path in checkpoints.iterdir())[-1] == Path(found[4]).name
    assert not (tmp_path / "run" / "results.json").exists()


def test_resuming_with_another_config_says_what_differs(erm_run, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(erm_run, run)
    assert train("--resume", run) == 0
    assert capsys.readouterr().out == f"{run} is finished already\n"
    (run / "results.json").unlink()
    assert train("--resume", run, "--training.steps", 99, "--seed", 1) == 2
    message = capsys.readouterr().err
    assert "training.steps: 12 then, 99 now" in message
    assert "seed: 7 then, 1 now" in message
    config = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(config.replace("learning_rate: 0.005", "learning_rate: 0.002"))
    assert train("--resume", run) == 2
    assert "training.learning_rate: 0.005 then, 0.002 now" in capsys.readouterr().err
    (run / "config.yaml").write_text(config)
    assert train("--resume", run, "--training.workers", 1) == 0
    assert "Resuming after step 12" in capsys.readouterr().err
    assert (run / "model.safetensors").read_bytes() == (erm_run / "model.safetensors").read_bytes()


# Help


def test_help_has_an_example_and_explains_every_key(capsys):
    assert train("--help") == 0
    out = capsys.readouterr().out
    assert "example:\n  okapi train configs/sites/okapi.yaml --out" in out
    config = read_config(CONFIGS / "erm.yaml").as_dict()
    for key in config["training"]:
        assert re.search(rf"^training.{key}: .*\n(        .*\n)*    \w", out, re.MULTILINE)
