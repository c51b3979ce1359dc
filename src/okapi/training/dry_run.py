"""A dry run: everything is built, two steps are done, nothing is written, and the whole run is estimated."""

import sys
import time
from collections import deque
from datetime import timedelta
from math import ceil

import psutil
import torch
from torch import Tensor

from okapi.config import Config
from okapi.data.batches import batch_loader
from okapi.training.devices import as_launched, make_fabric
from okapi.training.errors import NotFiniteError
from okapi.training.inference import run_over
from okapi.training.learner import Learner
from okapi.training.offline import find_matches
from okapi.training.selection import Selection
from okapi.training.setup import build_batches
from okapi.training.trainer import prepare
from okapi.training.validation import Validation

if sys.platform != "win32":
    import resource


def estimate(config: Config) -> dict[str, str]:
    """Build everything, do two steps and two batches of validation; return what the whole run will take, by name.

    Times are of the second step: the first does things that are done once.
    """
    config = as_launched(config)
    settings, fabric = config.training, make_fabric(config)
    parts = prepare(config)
    dataset, algorithm, _ = parts
    fabric.launch()
    matches = find_matches(config, dataset, fabric.device) if algorithm.needs.matches else None
    learner = Learner(config, algorithm, fabric)
    batches = build_batches(config, parts, matches, fabric.global_rank, fabric.world_size)
    loader = iter(batch_loader(batches, 0, 2 * settings.accumulate, settings.workers))
    for step in range(2):
        began = time.perf_counter()
        drawn = [next(loader) for _ in range(settings.accumulate)]
        metrics = learner.differentiate(drawn, step)
        if not learner.is_finite(metrics):
            raise NotFiniteError(f"the loss of step {step + 1} is {metrics['loss']}")
        learner.update(step)
        seconds_per_step = time.perf_counter() - began
    validation = Validation(config, dataset, algorithm, Selection(settings, dataset), fabric)
    seconds_per_validation = 0.0
    if predicted := validation.rows():
        rows, size = torch.cat(predicted), settings.evaluation_batch
        some = rows[: 2 * size * fabric.world_size]
        began = time.perf_counter()
        deque(run_over(algorithm.network, dataset, some, batch_size=size, fabric=fabric), maxlen=0)
        seconds_per_validation = (time.perf_counter() - began) * len(rows) / len(some)
    validations = ceil(settings.steps / settings.validate_every)
    weights = list(algorithm.parameters())
    banks = sum(buffer.numel() * buffer.element_size() for buffer in algorithm.buffers())
    trained = sum(weight.numel() for weight in weights if weight.requires_grad)
    seconds = settings.steps * seconds_per_step + validations * seconds_per_validation
    processes = f"{fabric.world_size} processes, each" if fabric.world_size > 1 else "one process"
    return {
        "Weights": f"{trained:,} trained, {sum(map(Tensor.numel, weights)):,} with those of the momentum encoder",
        "Other state": f"{_size(banks)} (memory banks, statistics)",
        "Memory": f"{_size(_peak_memory(fabric.device))} at most on {fabric.device}, {processes}",
        "Time per step": f"{seconds_per_step:.3g} s for {sum(map(len, drawn)) * fabric.world_size} images",
        "Time per validation": f"{seconds_per_validation:.3g} s",
        "Whole run": f"{timedelta(seconds=round(seconds))} for {settings.steps} steps, validation included",
        "Loss": f"{metrics['loss']:.4g} at the second step",
    }


def _size(count: int) -> str:
    return f"{count / 2**20:,.1f} MiB"


def _peak_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if sys.platform == "win32":
        return int(psutil.Process().memory_info().peak_wset)
    unit = 1 if sys.platform == "darwin" else 1024  # bytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
