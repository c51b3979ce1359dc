"""A run directory: what lies where, and who may write to it."""

import json
import os
import platform
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from okapi import __version__
from okapi.config import Config, ConfigError, differences, make_config, read_config
from okapi.files import is_unfinished, locked, remove_unfinished, write_bytes, write_json
from okapi.runs.results import FORMAT, Results, parse_results

if TYPE_CHECKING:
    import pandas as pd

    from okapi.data.dataset import Dataset
    from okapi.runs.trained import TrainedModel, Which

MAY_DIFFER: tuple[str, ...] = ("data.root", "data.path", "data.cache", "training.accelerator", "training.precision")
MAY_DIFFER += ("training.evaluation_batch", "training.workers")
"""Keys that may have other values than in training: where the data is, and what computes."""

_BEFORE_CONFIG = ("classes.json", "environment.json", ".lock")  # a process that was killed may have left them


class Run:
    """A run directory.

    Reading needs no torch. Whoever writes holds ``locked()``.

    Parameters
    ----------
    path : Path or str

    Attributes
    ----------
    config_file, classes_file, environment_file, metrics_file, timings_file, weights_file, matches_file, results_file,
    checkpoints : Path
        What lies in it: ``config.yaml``, ``classes.json``, ``environment.json``, ``metrics.csv``, ``timings.csv``,
        ``model.safetensors`` (the selected weights), ``matches.safetensors`` (of offline Okapi), ``results.json`` and
        the folder ``checkpoints``.

    Examples
    --------
    >>> Run("runs/okapi").state
    'new'
    """

    def __init__(self, path: Path | str) -> None:
        self.path = path = Path(path)
        self.config_file = path / "config.yaml"
        self.classes_file = path / "classes.json"
        self.environment_file = path / "environment.json"
        self.metrics_file = path / "metrics.csv"
        self.timings_file = path / "timings.csv"
        self.checkpoints = path / "checkpoints"
        self.weights_file = path / "model.safetensors"
        self.matches_file = path / "matches.safetensors"
        self.reference_file = path / "reference.npz"
        self.card_file = path / "README.md"
        self.results_file = path / "results.json"

    # What is there

    @property
    def state(self) -> Literal["new", "begun", "finished"]:
        """Whether there is no run yet, one to resume, or one with results."""
        if self.results_file.exists():
            return "finished"
        return "begun" if self.config_file.exists() else "new"

    def check_new(self) -> None:
        """Reject a folder that has something in it."""
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"{self.path} is not a directory")
        if self.config_file.exists():
            raise ValueError(f"{self.path} holds a run already; resume it by --resume {self.path}, or give another")
        if self.path.is_dir() and any(
            not is_unfinished(inner) and inner.name not in _BEFORE_CONFIG for inner in self.path.iterdir()
        ):
            raise ValueError(f"{self.path} is not empty; give a new directory, or --resume that of a run")

    def check_begun(self) -> None:
        """Reject a folder that holds no run, or one of an older format."""
        if not self.path.is_dir():
            raise ValueError(f"{self.path} does not exist" if not self.path.exists() else f"{self.path} is no folder")
        if not self.config_file.is_file():
            raise ValueError(f"{self.path} holds no run: it has no config.yaml; begin one with --out")
        if not self.classes_file.is_file():
            raise ValueError(
                f"{self.path} has no classes.json: it was written by an older okapi, in format {FORMAT - 1}; okapi "
                f"{__version__} reads format {FORMAT}. Use it with that version, or train it again"
            )

    def config(self, overrides: Sequence[tuple[str, str]] = ()) -> Config:
        """Return the config of config.yaml, with overrides."""
        return read_config(self.config_file, overrides)

    def classes(self) -> dict[str, Any]:
        """Return what a prediction needs to know of the data: ``task``, ``classes`` (names) and ``inputs``."""
        return _read_object(self.classes_file, {"task": dict, "classes": list, "inputs": dict})

    def environment(self) -> dict[str, Any]:
        """Return what the run was begun on, ``run`` (its id) and ``threads`` among it."""
        content = _read_object(self.environment_file, {"run": str, "threads": int})
        if content["threads"] < 1:
            raise ValueError(f"{self.environment_file} was edited or damaged: threads is {content['threads']}")
        return content

    def results(self) -> Results:
        """Return the results; a run without some, or with some that cannot be understood, is rejected."""
        self.check_begun()
        try:
            content = self.results_file.read_bytes()
        except FileNotFoundError:
            raise ValueError(
                f"{self.path} has no results.json: the run is not finished; resume it by: okapi train --resume "
                f"{self.path}. Until then its validation metrics are in {self.metrics_file.name}"
            ) from None
        return parse_results(content, str(self.results_file))

    def metrics(self) -> "pd.DataFrame":
        """Return metrics.csv, columns ``step``, ``split``, ``metric``, ``value``; lines that make no sense left out."""
        from okapi.runs.log import METRICS, read_log

        frame = read_log(self.metrics_file, METRICS, numbers=("step", "value"))
        return frame[frame["step"].between(0, 2**53) & frame["split"].notna() & frame["metric"].notna()].reset_index(
            drop=True
        )

    def timings(self) -> "pd.DataFrame":
        """Return timings.csv, columns ``step``, ``seconds``, ``images_per_second``, ``seconds_waiting_for_data``."""
        from okapi.runs.log import TIMINGS, read_log

        return read_log(self.timings_file, TIMINGS, numbers=TIMINGS).dropna().reset_index(drop=True)

    def trained_model(
        self, *, which: "Which" = "selected", overrides: Sequence[tuple[str, str]] = (), force: bool = False
    ) -> "TrainedModel":
        """Return the config and the weights of a finished run; those that were edited since are rejected.

        Parameters
        ----------
        which : {"selected", "last"}
            The weights of model.safetensors, or those of the last checkpoint.
        overrides : sequence of (key, text)
            Of ``MAY_DIFFER`` only.
        force : bool
            Whether to take a config or weights that were edited, with a note.
        """
        from okapi.runs.trained import TrainedModel, last_weights, selected_weights

        results, notes = self.results(), []
        if results.okapi != __version__:
            notes.append(f"{self.path} was trained by okapi {results.okapi}, this is {__version__}")
        config = self._checked_config(results, overrides, notes, force)
        weights = last_weights(self) if which == "last" else selected_weights(self, results, notes, force)
        return TrainedModel(run=self, config=config, weights=weights, overrides=dict(overrides), notes=notes)

    # Writing

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from writing to the run; a process that dies lets go of it."""
        with locked(self.path, f"{self.path} is being trained, or evaluated, by another process"):
            yield

    def create(self, config: Config, dataset: "Dataset") -> None:
        """Make the folder, with its config last: from then on the run can be resumed."""
        self.check_new()
        self.path.mkdir(parents=True, exist_ok=True)
        remove_unfinished(self.path)
        write_json(self.classes_file, _about(dataset))
        self.write_environment()
        self.write_config(config)

    def write_config(self, config: Config) -> None:
        """Write the config with all its keys."""
        write_bytes(self.config_file, config.as_yaml().encode())

    def write_environment(self, threads: int | None = None) -> None:
        """Write what the run is begun on, with a new id; by default it computes with as many threads as torch now."""
        content = {"run": secrets.token_hex(4), **environment()}
        write_json(self.environment_file, content | ({} if threads is None else {"threads": threads}))

    def finish(self, results: Results) -> None:
        """Write the results of a run that has ended; whoever calls it holds the lock."""
        self._write(results)

    @contextmanager
    def changing_results(self) -> Iterator[Results]:
        """Yield the results, to be changed; they are written as a whole, while no other process writes."""
        with self.locked():
            results = self.results()
            yield results
            self._write(results)

    def _write(self, results: Results) -> None:
        write_json(self.results_file, results.as_dict())

    def _checked_config(
        self, results: Results, overrides: Sequence[tuple[str, str]], notes: list[str], force: bool
    ) -> Config:
        if rejected := [key for key, _ in overrides if key not in MAY_DIFFER]:
            raise ConfigError(
                f"--{rejected[0]} cannot differ from what the model was trained with; {', '.join(MAY_DIFFER)} can"
            )
        try:
            now = self.config()
            trained = make_config(results.config, source=str(self.results_file))
            config = self.config(overrides)
        except ConfigError as error:
            other = f"{error}; the run is of okapi {results.okapi}"
            raise ConfigError(other if results.okapi != __version__ else str(error)) from error
        if changes := differences(trained.as_dict(), now.as_dict()):
            edited = f"{self.config_file} was edited after the run: {'; '.join(changes)}"
            if not force:
                raise ValueError(f"{edited}. --force takes it as it is")
            notes.append(edited)
        return config


def environment() -> dict[str, Any]:
    """Return what the numbers of a run may depend on besides its config."""
    import numpy as np
    import torch

    return {
        "okapi": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "lightning_fabric": version("lightning-fabric"),
        "numpy": np.__version__,
        "platform": platform.platform(),
        "machine": platform.machine(),
        "processor": torch.backends.cpu.get_cpu_capability(),
        "gpus": [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())],
        "threads": torch.get_num_threads(),
        "processors": os.cpu_count(),
        "byte_order": sys.byteorder,
    }


def _about(dataset: "Dataset") -> dict[str, Any]:
    return {
        "task": {"kind": dataset.task.kind, "outputs": dataset.task.outputs},
        "classes": list(dataset.class_names),
        "inputs": dataset.description(),
    }


def _read_object(path: Path, kinds: Mapping[str, type]) -> dict[str, Any]:
    """Return the object that a JSON file holds; one that is missing, damaged or without these keys is a ValueError."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist") from None
    except ValueError as error:
        raise ValueError(f"{path} is no JSON, it was edited or damaged: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold an object, it holds a {type(content).__name__}")
    if wrong := [key for key, kind in kinds.items() if not isinstance(content.get(key), kind)]:
        raise ValueError(f"{path} was edited or damaged: {', '.join(wrong)} is missing or wrong")
    return content
