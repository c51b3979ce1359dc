"""A dry run: everything is built, two steps are done, nothing is written, and the whole run is estimated."""

import sys
import time
from collections import deque
from dataclasses import dataclass
from math import ceil

import psutil
import torch

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


@dataclass(frozen=True, kw_only=True)
class DryRun:
    """What two steps say of a whole run.

    Parameters
    ----------
    trained, all_weights : int
        Numbers that are trained; those and the momentum encoder's.
    banks : int
        Bytes of other state, memory banks above all.
    memory : int
        Greatest memory of this process in bytes; of its GPU where there is one.
    device : str
    processes : int
    steps : int
        Of the whole run.
    images : int
        Of one step, of all processes together.
    seconds_per_step : float
        Of the second step: the first does things that are done once.
    seconds_per_validation : float
    seconds : float
        Of the whole run.
    loss : float
        Of the second step.
    """

    trained: int
    all_weights: int
    banks: int
    memory: int
    device: str
    processes: int
    steps: int
    images: int
    seconds_per_step: float
    seconds_per_validation: float
    seconds: float
    loss: float


def estimate(config: Config) -> DryRun:
    """Build everything, do two steps and two batches of validation, and estimate the whole run."""
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
    weights, buffers = list(algorithm.parameters()), algorithm.buffers()
    return DryRun(
        trained=sum(weight.numel() for weight in weights if weight.requires_grad),
        all_weights=sum(weight.numel() for weight in weights),
        banks=sum(buffer.numel() * buffer.element_size() for buffer in buffers),
        memory=_peak_memory(fabric.device),
        device=str(fabric.device),
        processes=fabric.world_size,
        steps=settings.steps,
        images=sum(map(len, drawn)) * fabric.world_size,
        seconds_per_step=seconds_per_step,
        seconds_per_validation=seconds_per_validation,
        seconds=settings.steps * seconds_per_step + validations * seconds_per_validation,
        loss=metrics["loss"],
    )


def _peak_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if sys.platform == "win32":
        return int(psutil.Process().memory_info().peak_wset)
    unit = 1 if sys.platform == "darwin" else 1024  # bytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
