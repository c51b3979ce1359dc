"""A run that is killed, stopped or out of disk goes on and ends in the same bits as one left alone.

Real processes, real signals, with dropout, batch normalisation, augmentation, bf16, accumulated gradients and two
processes that load data.
"""

import os
import random
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.training.runs import Forked, differing, end, environment, outcome, start, steps_written, wait_for

from okapi.runs.checkpoints import read_newest

STEPS = 32
CONFIG = {
    "data": {"name": "sites"},
    "model": {"name": "cnn", "width": 4, "out_features": 8, "dropout": 0.3},
    "algorithm": {
        "name": "okapi_plus",
        "bank": 100,
        "matching": {"k": 2, "std_caliper": 1.0},
        "warm_up": 0.5,
    },
    "training": {
        "steps": STEPS,
        "labelled_batch": 8,
        "unlabelled_batch": 8,
        "accumulate": 2,
        "learning_rate": 0.01,
        "warm_up": 0.1,
        "clip": 1.0,
        "precision": "bf16",
        "validate_every": 7,
        "checkpoint_every": 4,
        "log_every": 1,
        "workers": 2,
        "accelerator": "cpu",
    },
    "seed": 5,
}


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("config") / "config.yaml"
    path.write_text(yaml.safe_dump(CONFIG))
    return path


@pytest.fixture(scope="module")
def begin(config, fork) -> Callable[..., Forked]:
    """Return what begins a run in a folder, or resumes it if there is one."""

    def begin(run: Path, *words: object) -> Forked:
        begun = (run / "config.yaml").exists()
        return fork("train", *(("--resume", run) if begun else (config, "--out", run)), *words)

    return begin


@pytest.fixture(scope="module")
def undisturbed(config, tmp_path_factory) -> dict[str, Any]:
    """Return what a run that is left alone ends in, the only one whose process is no copy."""
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    end(start([config, "--out", run], environment(config.parent)))
    found = outcome(run, STEPS)
    assert {"model.safetensors", "/learner/algorithm/consistency.encodings.pointer"} < set(found)
    assert {"/learner/optimiser/state/0/exp_avg", "/learner/algorithm/consistency.scorer.linear.weight"} < set(found)
    return found


def test_killed_at_random_moments(begin, undisturbed, tmp_path):
    run, moments = tmp_path / "run", []
    for kill in range(2):
        process = begin(run)
        # Anywhere in a quarter of the run: in a step, in a validation, while a checkpoint is written.
        step, seconds = kill * STEPS // 4 + random.randrange(1, STEPS // 4), random.uniform(0, 0.1)
        moments.append((step, seconds))
        wait_for(process, lambda step=step: steps_written(run) >= step)
        time.sleep(seconds)
        process.kill()
        process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL
    # Say the machine died too, and the disk did not keep what it had promised.
    newest = max((run / "checkpoints").glob("step-*"))
    content = (newest / "state.pt").read_bytes()
    (newest / "state.pt").write_bytes(content[:-1000])
    errors = end(begin(run))
    assert f"Rejected {newest.name}: state.pt is torn: {len(content) - 1000} bytes of {len(content)}" in errors
    assert f"Resuming after step {int(newest.name[5:]) - 4}" in errors
    assert differing(outcome(run, STEPS), undisturbed) == [], f"killed at {moments}"
    assert [path for path in run.rglob("*") if path.name.endswith(".new")] == []


def test_stopped_by_signals_a_run_writes_a_checkpoint_and_goes_on(begin, undisturbed, tmp_path):
    run = tmp_path / "run"
    process = begin(run)
    for step, number, workers in ((5, signal.SIGTERM, 1), (15, signal.SIGINT, 0)):
        wait_for(process, lambda step=step: steps_written(run) >= step)
        if number == signal.SIGINT:  # which a terminal sends to all processes, those that load data too
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        message = end(process, code=130).splitlines()[-1]
        done = int(message.split("stopped after step ")[1].split(f" of {STEPS}")[0])
        assert message.endswith(f"resume with: okapi train --resume {run}")
        assert (run / "checkpoints" / f"step-{done:08d}").is_dir()
        # By how many processes data is loaded may change: what is learnt does not.
        process = begin(run, "--training.workers", workers)
    assert f"Resuming after step {done}" in end(process)
    assert differing(outcome(run, STEPS), undisturbed) == []


def test_a_run_that_trains_is_resumed_by_no_other_process(begin, fork, undisturbed, tmp_path):
    run = tmp_path / "run"
    process = begin(run)
    for step in (1, 9, 20):  # before the first checkpoint, and after files were written
        wait_for(process, lambda step=step: steps_written(run) >= step)
        process.send_signal(signal.SIGSTOP)  # so that it does not end meanwhile
        errors = end(fork("train", "--resume", run), code=2)
        process.send_signal(signal.SIGCONT)
        assert f"{run} is being trained, or evaluated, by another process" in errors
    end(process)
    assert differing(outcome(run, STEPS), undisturbed) == []


def test_a_file_that_cannot_grow_stops_the_run(begin, tmp_path):
    run = tmp_path / "run"
    process = begin(run)
    wait_for(process, lambda: (run / "checkpoints" / "step-00000004").exists())
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (10_000, 10_000))
    message = end(process, code=1).splitlines()[-1]
    assert "File too large" in message
    assert "state.pt" in message
    assert message.endswith(f"resume with: okapi train --resume {run}")
    found, rejected = read_newest(run / "checkpoints")
    assert found.step >= 4
    assert rejected == []


def test_a_full_disk_stops_the_run_and_loses_nothing(begin, undisturbed, small_disk):
    disk, enlarge = small_disk
    run = disk / "run"
    message = end(begin(run), code=1).splitlines()[-1]
    assert "No space left on device" in message
    assert str(run) in message
    found, rejected = read_newest(run / "checkpoints")
    assert found.step >= 4
    assert rejected == []
    enlarge()
    assert f"Resuming after step {found.step}" in end(begin(run))
    assert differing(outcome(run, STEPS), undisturbed) == []


@pytest.fixture
def small_disk(tmp_path) -> Iterator[tuple[Path, Callable[[], object]]]:
    """A disk that a checkpoint or two fit on, but not three; and what makes it larger."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=150k", "okapi-test", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("no right to mount a small disk")
    yield disk, lambda: subprocess.run(["mount", "-o", "remount,size=16m", str(disk)], check=True)
    subprocess.run(["umount", str(disk)], check=True)


def test_a_run_that_started_from_another_s_weights_goes_on_without_them(config, begin, fork, tmp_path):
    erm, words = tmp_path / "erm", ("--training.start_from", tmp_path / "erm")
    (tmp_path / "erm.yaml").write_text(yaml.safe_dump(CONFIG | {"algorithm": {"name": "erm"}}))
    end(fork("train", tmp_path / "erm.yaml", "--out", erm, "--training.steps", 4))
    end(begin(tmp_path / "undisturbed", *words))
    run = tmp_path / "run"
    for step in (1, STEPS // 2):  # before and after the first checkpoint of the loop
        process = begin(run, *([] if run.exists() else words))
        wait_for(process, lambda step=step: steps_written(run) >= step)
        process.kill()
        process.communicate(timeout=60)
        if erm.exists():
            erm.rename(tmp_path / "gone")
    assert "Resuming after step" in end(begin(run))
    assert differing(outcome(run, STEPS), outcome(tmp_path / "undisturbed", STEPS)) == []
    assert (run / "results.json").read_bytes() == (tmp_path / "undisturbed" / "results.json").read_bytes()
    assert b'"algorithm": "erm"' in (run / "results.json").read_bytes()
