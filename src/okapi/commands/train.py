"""``okapi train``."""

from collections.abc import Sequence
from pathlib import Path

from okapi.config import read_config


def train(
    config: Path | None,
    *,
    out: Path | None = None,
    resume: Path | None = None,
    seed: int | None = None,
    dry_run: bool = False,
    overrides: Sequence[tuple[str, str]] = (),
) -> None:
    """Begin a run by a config, resume one, or try a config without writing anything.

    Parameters
    ----------
    config : Path, optional
    out : Path, optional
        Directory of a new run.
    resume : Path, optional
        Directory of a run, in place of a config.
    seed : int, optional
    dry_run : bool, default False
    overrides : sequence of (key, text)
        Keys of the config.
    """
    if (config is None) == (resume is None):
        raise ValueError("give either CONFIG, to begin a run, or --resume DIR. See okapi train --help")
    if resume is not None and (out is not None or dry_run):
        raise ValueError("--resume continues in its own directory, without --out and --dry-run")
    if config is not None and out is None and not dry_run:
        raise ValueError("--out is missing: the directory for the run. See okapi train --help")
    if seed is not None:
        overrides = [("seed", str(seed)), *overrides]
    made = (
        None if config is None else read_config(config, list(overrides))
    )  # before torch, so that a typo costs a second
    from okapi import training
    from okapi.training.devices import is_first
    from okapi.training.summary import rehearsal_text, results_text

    if resume is not None:
        results = training.resume(resume, list(overrides))
        text = f"{resume} is finished already" if results is None else results_text(results, resume)
    elif made is not None and (out is None or dry_run):
        text = rehearsal_text(training.rehearse(made))
    elif made is not None and out is not None:
        text = results_text(training.train(made, out), out)
    if is_first():
        print(text)
