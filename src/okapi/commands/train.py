"""``okapi train``."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from okapi.config import read_config

if TYPE_CHECKING:
    from okapi.runs import Results


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
    overrides = [*([("seed", str(seed))] if seed is not None else []), *overrides]
    read = None if config is None else read_config(config, overrides)  # before torch, so that a typo costs a second
    from okapi import training
    from okapi.training.devices import is_first

    if resume is not None:
        results = training.resume(resume, overrides)
        text = f"{resume} is finished already" if results is None else results_text(results, resume)
    elif read is not None and (out is None or dry_run):
        text = "\n".join(f"{name:<20} {value}" for name, value in training.estimate(read).items())
    elif read is not None and out is not None:
        text = results_text(training.train(read, out), out)
    if is_first():
        print(text)


def results_text(results: "Results", run: Path) -> str:
    """Return how the weights were selected and how good they are on the validation splits."""
    from okapi.evaluation import plain_metric

    chosen = results.selection
    early = " (stopped early)" if results.stopped_early else ""
    lines = [f"Trained {results.steps} steps{early}. Selected by {chosen.selector}: step {chosen.step}"]
    if chosen.selector == "oracle":
        lines.append("An oracle has seen ood_test: these weights show what selection could gain, not what it does")
    for split, metrics in chosen.metrics.items():
        shown = {name: value for name, value in metrics.items() if name in (plain_metric(name), chosen.metric)}
        lines.append(f"{split}: " + ", ".join(f"{name} {value:.4g}" for name, value in shown.items()))
    return "\n".join([*lines, f"Weights: {run / 'model.safetensors'}"])
