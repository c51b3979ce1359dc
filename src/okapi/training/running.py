"""What the verb ``okapi train`` calls: begin a run, resume one."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from lightning_fabric import Fabric

from okapi.config import Config, ConfigError, differences
from okapi.console import say
from okapi.files import remove_unfinished
from okapi.runs import Results, Run
from okapi.runs.checkpoints import Checkpoint, has_checkpoint, read_checkpoint, read_newest
from okapi.runs.run import environment
from okapi.training.devices import as_launched, make_fabric
from okapi.training.errors import RunError
from okapi.training.fit import fit
from okapi.training.offline import check_erm_run, read_matches
from okapi.training.parts import Parts, build_parts
from okapi.training.trackers import check_trackers


def train(config: Config, out: Path) -> Results:
    """Begin a run and train to its end.

    Parameters
    ----------
    config : Config
    out : Path
        The run directory: new, or empty.

    Returns
    -------
    Results
    """
    folder = Run(out)
    config = as_launched(config)
    fabric = make_fabric(config)
    if fabric.is_global_zero:
        folder.check_new()
    parts = prepare(config, folder)
    fabric.launch()
    with ExitStack() as stack:
        if fabric.is_global_zero:
            folder.create(config, parts.dataset)
            stack.enter_context(folder.locked())
        fabric.barrier()
        return _run(config, parts, fabric, folder, None)


def resume(out: Path, overrides: Sequence[tuple[str, str]] = ()) -> Results | None:
    """Go on with a run, to its end, from its newest good checkpoint; the result is as if it had never stopped.

    Parameters
    ----------
    out : Path
        The run directory.
    overrides : sequence of (key, text)
        Of ``okapi.config.MAY_CHANGE`` only.

    Returns
    -------
    Results, or None if the run was finished before
    """
    folder = Run(out)
    folder.check_begun()
    if folder.state == "finished":
        return None
    config = as_launched(folder.config(overrides))
    _refuse_changes(folder.config().as_dict(), config, "config.yaml")
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


def prepare(config: Config, folder: Run | None = None) -> Parts:
    """Return the parts of a run, refusing all that can be refused before anything is written."""
    check_trackers(config)
    check_erm_run(config, folder)
    try:
        return build_parts(config, resumed=folder is not None and has_checkpoint(folder.checkpoints))
    except TypeError as error:  # a network that cannot take the data
        raise ConfigError(str(error)) from error


def _run(config: Config, parts: Parts, fabric: Fabric, folder: Run, checkpoint: Checkpoint | None) -> Results:
    run_id, matches = "", None
    try:
        if fabric.is_global_zero:
            before, now = folder.environment(), environment()
            run_id = before["run"]
            if changes := [
                f"{key}: {before.get(key)} then, {now[key]} now" for key in now if before.get(key) != now[key]
            ]:
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


def _newest(folder: Run, config: Config) -> Checkpoint | None:
    """Return where to go on, if there is a checkpoint, saying which were rejected."""
    remove_unfinished(folder.path)
    checkpoint, rejected = read_newest(folder.checkpoints)
    for path, reason in rejected:
        say(f"Rejected {path.name.removesuffix('.rejected')}: {reason}. It is now {path}")
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
