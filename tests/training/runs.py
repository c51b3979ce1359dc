"""Real runs of ``okapi train`` for tests, and what they leave."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from lightning_fabric.utilities.rank_zero import rank_zero_only

from okapi.cli import main
from okapi.runs.checkpoints import read_checkpoint

SERVER = multiprocessing.get_context("forkserver")


def environment(folder: Path) -> dict[str, str]:
    """Return an environment in which processes start quickly and do not wait for one another."""
    # Where Fabric finds torchmetrics, which nothing here uses, it spends three seconds to import it.
    (folder / "torchmetrics.py").write_text("raise ImportError")
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "OMP_NUM_THREADS": "1", "LOKY_MAX_CPU_COUNT": "1", "PYTHONPATH": path}


def start(words: list[object], env: dict[str, str], launcher: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """Start ``okapi train`` with a group of processes of its own."""
    command = [sys.executable, *launcher, "-m", "okapi", "train", *map(str, words)]
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=env, start_new_session=True, **streams)


class Forked:
    """``okapi`` with a group of processes of its own, as a copy of one that has imported everything.

    It has those methods of subprocess.Popen that are wanted here, but waits for no process that it leaves behind.
    """

    def __init__(self, *words: object, **variables: str) -> None:
        self._errors, theirs = SERVER.Pipe(duplex=False)
        self._process = SERVER.Process(target=_become_okapi, args=(theirs, [*map(str, words)], variables))
        self._process.start()
        theirs.close()
        assert self._process.pid
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for the end; return what it said on stdout, of which nothing is kept, and on stderr."""
        self._process.join(timeout)
        assert self.returncode is not None, f"still running after {timeout} s"
        os.set_blocking(self._errors.fileno(), False)
        with suppress(BlockingIOError):  # it has said nothing
            return "", os.read(self._errors.fileno(), 1 << 16).decode()
        return "", ""


def _become_okapi(errors: Connection, words: list[str], variables: dict[str, str]) -> None:
    multiprocessing.set_start_method(None, force=True)  # the usual one for processes that load data
    os.environ.update(variables)
    rank_zero_only.rank = int(variables.get("RANK", 0))  # which Lightning looks up when it is imported
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(errors.fileno(), 2)
    errors.close()
    sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, closefd=False) for number in (1, 2))
    sys.exit(main(words))


def end(process: subprocess.Popen[str] | Forked, code: int = 0) -> str:
    """Wait for a process that must end with an exit code; return what it said on stderr."""
    _, errors = process.communicate(timeout=180)
    assert process.returncode == code, errors
    assert "Traceback" not in errors
    return errors


@contextmanager
def held(lock: Path) -> Iterator[None]:
    """Let another process hold the lock of a folder, as if it wrote there."""
    program = "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); input()"
    command = [sys.executable, "-c", program, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout
        other.stdout.readline()
        try:
            yield
        finally:
            other.communicate("\n", timeout=60)


def wait_for(process: subprocess.Popen[str] | Forked, condition: Callable[[], bool]) -> None:
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
