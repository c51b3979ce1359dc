"""``okapi train``."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from okapi.config import read_config

if TYPE_CHECKING:
    from okapi.runs import Results
    from okapi.training import DryRun


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
        text = dry_run_text(training.estimate(read))
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


def dry_run_text(tried: "DryRun") -> str:
    """Return what a dry run says of the whole run, a line each."""
    each = f"{tried.processes} processes, each" if tried.processes > 1 else "one process"
    rows = {
        "Weights": f"{tried.trained:,} trained, {tried.all_weights:,} with those of the momentum encoder",
        "Other state": f"{_size(tried.banks)} (memory banks, statistics)",
        "Memory": f"{_size(tried.memory)} at most on {tried.device}, {each}",
        "Time per step": f"{tried.seconds_per_step:.3g} s for {tried.images} images",
        "Time per validation": f"{tried.seconds_per_validation:.3g} s",
        "Whole run": f"{timedelta(seconds=round(tried.seconds))} for {tried.steps} steps, validation included",
        "Loss": f"{tried.loss:.4g} at the second step",
    }
    width = max(map(len, rows))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows.items())


def _size(count: int) -> str:
    return f"{count / 2**20:,.1f} MiB"
