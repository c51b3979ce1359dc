"""A finished run, read back and checked: its results, its config and its weights, none of them edited since."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from torch import Tensor

from okapi import __version__
from okapi.config import Config, ConfigError, differences, make_config, read_config
from okapi.files import write_json
from okapi.training.checkpoints import read_newest
from okapi.training.run_directory import FORMAT, RunDirectory
from okapi.training.weights import read_weights, sha256, step_of, weights_bytes

Which: TypeAlias = Literal["selected", "last"]

MAY_DIFFER: tuple[str, ...] = ("data.root", "data.path", "data.cache", "training.accelerator", "training.precision")
MAY_DIFFER += ("training.evaluation_batch", "training.workers")
"""Keys that may have other values than in training: where the data is, and what computes."""

_PARTS = {"selection": dict, "config": dict, "weights": dict, "opened": dict, "evaluations": list, "classes": list}


@dataclass(frozen=True, kw_only=True, eq=False)
class Weights:
    """Weights of a run.

    Parameters
    ----------
    which : {"selected", "last"}
        Those of model.safetensors, or those of the last checkpoint.
    tensors : dict
    step : int
        At which they were written.
    sha256 : str
        Of the ``.safetensors`` file that holds them, or would; equal weights of one step have equal ones.
    selector : str
        What chose them.
    edited : bool
        Whether they are not those that the run selected.
    """

    which: Which
    tensors: dict[str, Tensor]
    step: int
    sha256: str
    selector: str
    edited: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class FinishedRun:
    """A run that has ended, and what is worth knowing before it is believed.

    Parameters
    ----------
    folder : RunDirectory
    config : Config
    weights : Weights
    classes : tuple of str
        Names of the classes; empty where they are not known.
    overrides : dict
        Keys that differ from the run's config, as text.
    notes : list of str
        Sentences for whoever looks.
    """

    folder: RunDirectory
    config: Config
    weights: Weights
    classes: tuple[str, ...] = ()
    overrides: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def read_run(
    path: Path, *, which: Which = "selected", overrides: Sequence[tuple[str, str]] = (), force: bool = False
) -> FinishedRun:
    """Return a finished run; one that is not finished, of a later format, or edited since is refused.

    Parameters
    ----------
    path : Path
        The run directory.
    which : {"selected", "last"}
    overrides : sequence of (key, text)
        Of ``MAY_DIFFER`` only.
    force : bool
        Whether to take a config or weights that were edited, with a note.
    """
    folder, notes = RunDirectory(path), []
    results = read_results(folder)
    if results.get("okapi") != __version__:
        notes.append(f"{path} was trained by okapi {results.get('okapi')}, this is {__version__}")
    config = _config(folder, results, overrides, notes, force)
    weights = _selected(folder, results, notes, force) if which == "selected" else _last(folder)
    return FinishedRun(
        folder=folder,
        config=config,
        weights=weights,
        classes=tuple(results.get("classes", ())),
        overrides=dict(overrides),
        notes=notes,
    )


def read_named_run(key: str, path: str) -> FinishedRun:
    """Return the finished run that a key of a config names; one that cannot serve is a ConfigError with the key."""
    try:
        run = read_run(Path(path), force=True)
    except ValueError as error:
        raise ConfigError(f"{key} must be the directory of a finished run: {error}") from error
    if run.weights.edited:
        raise ConfigError(f"{key} must be the directory of a finished run: {run.folder.model} was edited since")
    return run


def read_results(folder: RunDirectory) -> dict[str, Any]:
    """Return what results.json holds; a run without one, or with one that cannot be understood, is refused."""
    if not folder.path.is_dir():
        raise ValueError(f"{folder.path} does not exist" if not folder.path.exists() else f"{folder.path} is no folder")
    if not folder.config.is_file():
        raise ValueError(f"{folder.path} holds no run: it has no config.yaml")
    if not folder.results.is_file():
        raise ValueError(
            f"{folder.path} has no results.json: the run is not finished; go on with: okapi train --resume "
            f"{folder.path}. Until then its validation figures are in {folder.metrics.name}"
        )
    try:
        results = json.loads(folder.results.read_text(encoding="utf-8"))
    except ValueError as error:  # neither JSON nor UTF-8
        raise ValueError(f"{folder.results} is no JSON, it was edited or damaged: {error}") from error
    if not isinstance(results, dict):
        raise ValueError(f"{folder.results} must hold an object, it holds a {type(results).__name__}")
    if not isinstance(version := results.get("format", FORMAT), int) or version > FORMAT:
        raise ValueError(
            f"{folder.results} is of format {version}, written by okapi {results.get('okapi')}; this is okapi "
            f"{__version__}, which reads format {FORMAT}"
        )
    missing = [name for name in ("selection", "config") if name not in results]
    wrong = [name for name, kind in _PARTS.items() if name in results and not isinstance(results[name], kind)]
    if missing or wrong:
        raise ValueError(f"{folder.results} was edited or damaged: {', '.join(missing + wrong)} is missing or wrong")
    return results


@contextmanager
def changing_results(folder: RunDirectory) -> Iterator[dict[str, Any]]:
    """Yield what results.json holds, to be changed; it is written as a whole, while no other process writes."""
    with folder.locked():
        results = read_results(folder)
        yield results
        write_json(folder.results, results)


def _config(
    folder: RunDirectory, results: dict[str, Any], overrides: Sequence[tuple[str, str]], notes: list[str], force: bool
) -> Config:
    if refused := [key for key, _ in overrides if key not in MAY_DIFFER]:
        raise ConfigError(
            f"--{refused[0]} cannot differ from what the model was trained with; {', '.join(MAY_DIFFER)} can"
        )
    try:
        own = read_config(folder.config)
        trained = make_config(results["config"], source=str(folder.results))
        config = read_config(folder.config, overrides)
    except ConfigError as error:
        other = results.get("okapi")
        raise ConfigError(f"{error}; the run is of okapi {other}" if other != __version__ else str(error)) from error
    if changes := differences(trained.as_dict(), own.as_dict()):
        edited = f"{folder.config} was edited after the run: {'; '.join(changes)}"
        if not force:
            raise ValueError(f"{edited}. --force takes it as it is")
        notes.append(edited)
    return config


def _selected(folder: RunDirectory, results: dict[str, Any], notes: list[str], force: bool) -> Weights:
    if not folder.model.is_file():
        raise ValueError(f"{folder.model} does not exist, although the run is finished: somebody removed it")
    found, said = sha256(folder.model.read_bytes()), results.get("weights", {}).get("sha256")
    if said is None:
        notes.append(f"{folder.results} has no hash of the weights: whether they are those of the run cannot be told")
    edited = said is not None and found != said
    if edited:
        text = (
            f"{folder.model} is not what the run selected: its SHA-256 begins with {found[:12]}, that of "
            f"{folder.results.name} with {str(said)[:12]}"
        )
        if not force:
            raise ValueError(f"{text}. --force evaluates it all the same, and the evaluation will say so")
        notes.append(text)
    return Weights(
        which="selected",
        tensors=read_weights(folder.model),
        step=step_of(folder.model),
        sha256=found,
        selector=str(results["selection"].get("selector")),
        edited=edited,
    )


def _last(folder: RunDirectory) -> Weights:
    checkpoint, _ = read_newest(folder.checkpoints)
    if checkpoint is None:
        raise ValueError(f"{folder.checkpoints} has no checkpoint: of the last weights nothing is left")
    state, prefix = checkpoint.state["learner"]["algorithm"], "network."
    tensors = {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}
    content = weights_bytes(tensors, checkpoint.step)
    return Weights(which="last", tensors=tensors, step=checkpoint.step, sha256=sha256(content), selector="last")
