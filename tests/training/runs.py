"""Real runs of ``okapi train`` for tests, and what they leave."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from okapi.training.checkpoints import read_checkpoint


def environment(folder: Path) -> dict[str, str]:
    """Return an environment in which processes start quickly and do not wait for one another."""
    # Where Fabric finds torchmetrics, which nothing here uses, it spends three seconds to import it.
    (folder / "torchmetrics.py").write_text("raise ImportError")
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(folder)}


def start(words: list[object], env: dict[str, str], launcher: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """Start ``okapi train`` with a group of processes of its own."""
    command = [sys.executable, *launcher, "-m", "okapi", "train", *map(str, words)]
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=env, start_new_session=True, **streams)


def end(process: subprocess.Popen[str], code: int = 0) -> str:
    """Wait for a process that must end with an exit code; return what it said on stderr."""
    _, errors = process.communicate(timeout=180)
    assert process.returncode == code, errors
    assert "Traceback" not in errors
    return errors


def wait_for(process: subprocess.Popen[str], condition: Callable[[], bool]) -> None:
    """Wait until something is true that a running process brings about."""
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.003)


def steps_written(run: Path) -> int:
    """Return how many steps a run that logs each of them has written down."""
    log = run / "metrics.csv"
    return log.read_bytes().count(b",train,loss,") if log.exists() else 0


def outcome(run: Path, step: int) -> dict[str, Any]:
    """Return all that must not depend on how often a run was stopped, tensors as their bytes."""
    state = read_checkpoint(run / "checkpoints" / f"step-{step:08d}").state
    files = {name: (run / name).read_bytes() for name in ("model.safetensors", "metrics.csv")}
    return {**files, **dict(_leaves(state))}


def differing(first: dict[str, Any], second: dict[str, Any]) -> list[str]:
    """Return the names of what is not the same to the last bit."""
    return [name for name in {**first, **second} if first.get(name) != second.get(name)]


def _leaves(state: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(state, dict | list | tuple):
        for key, value in state.items() if isinstance(state, dict) else enumerate(state):
            yield from _leaves(value, f"{path}/{key}")
    elif isinstance(state, torch.Tensor):
        yield path, (state.dtype, state.shape, state.numpy().tobytes())
    else:
        yield path, state
