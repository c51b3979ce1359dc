"""What the verb ``okapi train`` calls: begin a run, resume one."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from lightning_fabric import Fabric

from okapi.config import Config, ConfigError, differences, read_config
from okapi.console import say
from okapi.files import remove_unfinished
from okapi.training.checkpoints import Checkpoint, has_checkpoint, read_checkpoint, read_newest
from okapi.training.devices import as_launched, make_fabric
from okapi.training.errors import RunError
from okapi.training.fit import fit
from okapi.training.offline import check_erm_run, read_matches
from okapi.training.parts import Parts, build_parts
from okapi.training.run_directory import RunDirectory
from okapi.training.trackers import check_trackers


def train(config: Config, out: Path) -> dict[str, Any]:
    """Begin a run and train to its end.

    Parameters
    ----------
    config : Config
    out : Path
        The run directory: new, or empty.

    Returns
    -------
    dict
        What results.json holds.
    """
    folder = RunDirectory(out)
    config = as_launched(config)
    fabric = make_fabric(config)
    if fabric.is_global_zero:
        folder.check_new()
    parts = prepare(config, folder)
    fabric.launch()
    with ExitStack() as stack:
        if fabric.is_global_zero:
            folder.create(config)
            stack.enter_context(folder.locked())
        fabric.barrier()
        return _run(config, parts, fabric, folder, None)


def resume(out: Path, overrides: Sequence[tuple[str, str]] = ()) -> dict[str, Any] | None:
    """Go on with a run, to its end, from its newest good checkpoint; the result is as if it had never stopped.

    Parameters
    ----------
    out : Path
        The run directory.
    overrides : sequence of (key, text)
        Of ``okapi.config.MAY_CHANGE`` only.

    Returns
    -------
    dict, or None if the run was finished before
        What results.json holds.
    """
    folder = RunDirectory(out)
    folder.check_begun()
    if folder.results.exists():
        return None
    config = as_launched(read_config(folder.config, overrides))
    _refuse_changes(read_config(folder.config).as_dict(), config, "config.yaml")
    fabric = make_fabric(config)
    with ExitStack() as stack:
        checkpoint = None
        if fabric.is_global_zero:
            stack.enter_context(folder.locked())
            checkpoint = _newest(folder, config)
        parts = prepare(config, folder)
        fabric.launch()
        if fabric.is_global_zero:
            folder.write_config(config)
        name = fabric.broadcast(checkpoint.path.name if checkpoint else None)
        if name and checkpoint is None:
            checkpoint = read_checkpoint(folder.checkpoints / name)
        return _run(config, parts, fabric, folder, checkpoint)


def prepare(config: Config, folder: RunDirectory | None = None) -> Parts:
    """Return the parts of a run, refusing all that can be refused before anything is written."""
    check_trackers(config)
    check_erm_run(config, folder)
    try:
        return build_parts(config, resumed=folder is not None and has_checkpoint(folder.checkpoints))
    except TypeError as error:  # a network that cannot take the data
        raise ConfigError(str(error)) from error


def _run(
    config: Config, parts: Parts, fabric: Fabric, folder: RunDirectory, checkpoint: Checkpoint | None
) -> dict[str, Any]:
    run_id, matches = "", None
    try:
        if fabric.is_global_zero:
            run_id, changes = folder.describe_environment()
            if changes:
                say(f"Note: the environment has changed, results may differ in the last bits. {'; '.join(changes)}")
            matches = read_matches(config, parts.dataset, folder, fabric.device)
        fabric.barrier()
        if not fabric.is_global_zero:
            matches = read_matches(config, parts.dataset, folder, fabric.device)
        return fit(config, parts, fabric, folder, run_id=run_id, matches=matches, checkpoint=checkpoint)
    except OSError as error:
        raise RunError(
            f"{error}; what was written before is good. That mended, go on with: okapi train --resume {folder.path}"
        ) from error


def _newest(folder: RunDirectory, config: Config) -> Checkpoint | None:
    """Return where to go on, if there is a checkpoint, saying which were refused."""
    remove_unfinished(folder.path)
    checkpoint, refused = read_newest(folder.checkpoints)
    for path, reason in refused:
        say(f"Refused {path.name.removesuffix('.refused')}: {reason}. It is now {path}")
    if checkpoint is None:
        say(f"{folder.path} has no checkpoint yet: the run begins again")
    else:
        _refuse_changes(checkpoint.config, config, f"checkpoint {checkpoint.path.name}")
        say(f"Going on after step {checkpoint.step}, from {checkpoint.path}")
    return checkpoint


def _refuse_changes(before: dict[str, Any], config: Config, what: str) -> None:
    if changes := differences(before, config.as_dict()):
        raise ConfigError(
            f"a run must be resumed with the config it began with, this differs from its {what}: {'; '.join(changes)}"
        )
