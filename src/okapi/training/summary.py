"""Results and rehearsals in words."""

from datetime import timedelta
from pathlib import Path

from okapi.evaluation import plain_metric
from okapi.runs import Results
from okapi.training.rehearsal import Rehearsal


def results_text(results: Results, folder: Path) -> str:
    """Return how the weights were selected and how good they are on the validation splits."""
    chosen = results.selection
    early = " (stopped early)" if results.stopped_early else ""
    lines = [f"Trained {results.steps} steps{early}. Selected by {chosen.selector}: step {chosen.step}"]
    if chosen.selector == "oracle":
        lines.append("An oracle has seen ood_test: these weights show what selection could gain, not what it does")
    for split, metrics in chosen.metrics.items():
        shown = {name: value for name, value in metrics.items() if name in (plain_metric(name), chosen.metric)}
        lines.append(f"{split}: " + ", ".join(f"{name} {value:.4g}" for name, value in shown.items()))
    return "\n".join([*lines, f"Weights: {folder / 'model.safetensors'}"])


def rehearsal_text(rehearsal: Rehearsal) -> str:
    """Return what a rehearsal found."""
    each = f"{rehearsal.processes} processes, each" if rehearsal.processes > 1 else "one process"
    rows = {
        "Weights": f"{rehearsal.trained:,} trained, {rehearsal.all_weights:,} with momentum copies",
        "Other state": f"{_size(rehearsal.banks)} (memory banks, statistics)",
        "Memory": f"{_size(rehearsal.memory)} at most on {rehearsal.device}, {each}",
        "Time per step": f"{rehearsal.seconds_per_step:.3g} s for {rehearsal.images} images",
        "Time per validation": f"{rehearsal.seconds_per_validation:.3g} s",
        "Whole run": f"{timedelta(seconds=round(rehearsal.seconds))} for {rehearsal.steps} steps, validation included",
        "Loss": f"{rehearsal.loss:.4g} at the second step",
    }
    width = max(map(len, rows))
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows.items())


def _size(count: int) -> str:
    return f"{count / 2**20:,.1f} MiB"
