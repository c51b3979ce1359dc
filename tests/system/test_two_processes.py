"""Two processes learn what one learns: half the batch each, matched together, every sample counted once."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import yaml
from tests.training.runs import Forked, differing, end, environment, outcome, start, steps_written, wait_for

from okapi.cli import main

STEPS = 20
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2")
CONFIG = {
    "data": {"name": "sites"},
    "model": {"name": "mlp", "hidden": [32], "out_features": 16},
    "algorithm": {
        "name": "okapi_plus",
        "bank": 100,
        "matching": {
            "k": 2,
            "fixed_caliper": 0.99,
            "std_caliper": 1.0,
            "prognostic_caliper": 1.2,  # wider than a class is from no idea at all: pairs from the first step on
        },
        "momentum": {"start": 0.9, "end": 1.0},
        "warm_up": 0.2,
        "scorer": {"learning_rate": 0.1},
    },
    "training": {
        "steps": STEPS,
        "labelled_batch": 16,
        "unlabelled_batch": 16,
        "accumulate": 2,
        "learning_rate": 0.01,
        "clip": 1.0,
        "validate_every": 10,
        "checkpoint_every": 5,
        "log_every": 1,
        "evaluation_batch": 50,
        "accelerator": "cpu",
    },
    "seed": 3,
}


NORMALISED = {
    **CONFIG,
    "model": {"name": "cnn", "width": 4, "out_features": 8, "dropout": 0.2},
    "algorithm": {
        "name": "okapi",
        "bank": 100,
        "matching": {"k": 2, "fixed_caliper": 0.99, "std_caliper": 1.0},
        "scorer": {"learning_rate": 0.1},
    },
}


@pytest.fixture
def begin(fork_two, tmp_path) -> Callable[[Path], list[Forked]]:
    """Return what begins a run in a folder, or resumes it if there is one."""
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(NORMALISED))

    def begin(run: Path) -> list[Forked]:
        begun = (run / "config.yaml").exists()
        return fork_two("train", *(("--resume", run) if begun else (tmp_path / "config.yaml", "--out", run)))

    return begin


def figures(run: Path) -> pd.Series:
    return pd.read_csv(run / "metrics.csv").set_index(["step", "split", "metric"]).value


def test_two_processes_with_half_the_batch_each_learn_what_one_learns(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(CONFIG))
    assert main(["train", str(config), "--out", str(tmp_path / "one")]) == 0
    errors = end(start([config, "--out", tmp_path / "two"], environment(tmp_path), TORCHRUN))
    assert errors.count("20 of 20 steps") == 1  # one of them speaks
    one, two = figures(tmp_path / "one"), figures(tmp_path / "two")
    pd.testing.assert_index_equal(one.index, two.index)
    loss, rate = (one.xs(("train", figure), level=("split", "metric")) for figure in ("supervised_loss", "match_rate"))
    assert len(loss) == STEPS
    assert loss.tail(5).mean() < loss.head(5).mean()
    assert 0 < rate.min() < rate.max()
    difference = (one - two).abs()
    assert difference.max() < 1e-5, difference.sort_values().tail()
    config = yaml.safe_load((tmp_path / "two" / "config.yaml").read_text())
    assert config["training"]["devices"] == 2


def test_two_processes_that_are_killed_end_in_the_same_bits(begin, tmp_path):
    """With batch normalisation, whose statistics the processes share, and dropout, which each draws for itself."""
    for process in begin(tmp_path / "undisturbed"):
        end(process)
    run = tmp_path / "killed"
    processes = begin(run)
    wait_for(processes[0], lambda: steps_written(run) >= 7)
    for process in processes:
        process.kill()
    for process in processes:
        process.communicate(timeout=60)
    assert steps_written(run) < STEPS
    errors = [end(process) for process in begin(run)]
    assert "Resuming after step" in errors[0]
    assert differing(outcome(run, STEPS), outcome(tmp_path / "undisturbed", STEPS)) == []
