"""The folder of a run: what lies where, and who may write to it."""

import json
import os
import platform
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from okapi import __version__
from okapi.config import Config
from okapi.files import is_unfinished, locked, remove_unfinished, write_bytes, write_json

FORMAT = 1
"""Of results.json; a later one is refused."""


class RunDirectory:
    """The folder of a run.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.environment = path / "environment.json"
        self.metrics = path / "metrics.csv"
        self.timings = path / "timings.csv"
        self.checkpoints = path / "checkpoints"
        self.model = path / "model.safetensors"
        self.matches = path / "matches.safetensors"
        self.results = path / "results.json"

    def check_new(self) -> None:
        """Refuse a folder that has something in it."""
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"{self.path} is not a directory")
        if self.config.exists():
            raise ValueError(f"{self.path} holds a run already; go on with it by --resume {self.path}, or give another")
        if self.path.is_dir() and any(not is_unfinished(inner) for inner in self.path.iterdir()):
            raise ValueError(f"{self.path} is not empty; give a new directory, or --resume that of a run")

    def check_begun(self) -> None:
        """Refuse a folder that holds no run."""
        if not self.config.is_file():
            raise ValueError(f"{self.path} holds no run: it has no config.yaml; begin one with --out")

    def create(self, config: Config) -> None:
        """Make the folder, with its config: from then on the run can be resumed."""
        self.check_new()
        self.path.mkdir(parents=True, exist_ok=True)
        remove_unfinished(self.path)
        self.write_config(config)

    def write_config(self, config: Config) -> None:
        """Write the config with all its keys."""
        write_bytes(self.config, config.as_yaml().encode())

    def describe_environment(self) -> tuple[str, list[str]]:
        """Write what the run runs on, unless that was done; return the run's id and what has changed since."""
        now = environment()
        if not self.environment.exists():
            write_json(self.environment, {"run": secrets.token_hex(4), **now})
        before = json.loads(self.environment.read_text(encoding="utf-8"))
        changed = [key for key in now if before.get(key) != now[key]]
        return before["run"], [f"{key}: {before.get(key)} then, {now[key]} now" for key in changed]

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from writing to the run; a process that dies lets go of it."""
        with locked(self.path, f"{self.path} is being trained, or evaluated, by another process"):
            yield


def environment() -> dict[str, Any]:
    """Return what the numbers of a run may depend on besides its config."""
    return {
        "okapi": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "lightning_fabric": version("lightning-fabric"),
        "numpy": version("numpy"),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "processor": torch.backends.cpu.get_cpu_capability(),
        "gpus": [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())],
        "threads": torch.get_num_threads(),
        "processors": os.cpu_count(),
        "byte_order": sys.byteorder,
    }
