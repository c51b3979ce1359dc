"""A rehearsal: everything is built, two steps are done, nothing is written, and the whole run is estimated."""

import sys
import time
from dataclasses import dataclass
from itertools import islice
from math import ceil, inf

import psutil
import torch
from lightning_fabric import Fabric
from torch import nn

from okapi.config import Config
from okapi.data.batches import batch_loader, evaluation_batches
from okapi.evaluation import LABEL_FREE
from okapi.training.devices import as_launched, make_fabric
from okapi.training.errors import NotFiniteError
from okapi.training.learner import Learner
from okapi.training.offline import find_matches
from okapi.training.parts import Parts, build_batches
from okapi.training.running import prepare
from okapi.training.selection import ORACLE
from okapi.training.validation import VALIDATION
from okapi.training.validation_matches import MOST

if sys.platform != "win32":
    import resource


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """What two steps tell of a whole run.

    Parameters
    ----------
    trained, all_weights : int
        Numbers that are trained; those and momentum copies.
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


def rehearse(config: Config) -> Rehearsal:
    """Build everything, do two steps and two batches of validation, and estimate the whole run."""
    config = as_launched(config)
    settings, fabric = config.training, make_fabric(config)
    parts = prepare(config)
    fabric.launch()
    needs_matches = parts.algorithm.needs.matches
    matches = find_matches(config, parts.dataset, fabric.device) if needs_matches else None
    learner = Learner(config, parts.algorithm, fabric)
    batches = build_batches(config, parts, matches, fabric.global_rank, fabric.world_size)
    drawing = iter(batch_loader(batches, 0, 2 * settings.accumulate, settings.workers))
    for step in range(2):
        began = time.perf_counter()
        drawn = [next(drawing) for _ in range(settings.accumulate)]
        figures = learner.differentiate(drawn, step)
        if not learner.is_finite(figures):
            raise NotFiniteError(f"the loss of step {step + 1} is {figures['loss']}")
        learner.update(step)
        per_step = time.perf_counter() - began
    per_validation = _validation_seconds(config, parts, fabric)
    validations = ceil(settings.steps / settings.validate_every)
    weights = list(parts.algorithm.parameters())
    return Rehearsal(
        trained=sum(weight.numel() for weight in weights if weight.requires_grad),
        all_weights=sum(weight.numel() for weight in weights),
        banks=_bytes_of_buffers(parts.algorithm),
        memory=_peak_memory(fabric.device),
        device=str(fabric.device),
        processes=fabric.world_size,
        steps=settings.steps,
        images=sum(map(len, drawn)) * fabric.world_size,
        seconds_per_step=per_step,
        seconds_per_validation=per_validation,
        seconds=settings.steps * per_step + validations * per_validation,
        loss=figures["loss"],
    )


@torch.no_grad()
def _validation_seconds(config: Config, parts: Parts, fabric: Fabric) -> float:
    """Return the seconds of a validation, from two batches of each split."""
    network, size = parts.algorithm.network.eval(), config.training.evaluation_batch
    seconds = 0.0
    for split, most in _validated(config, parts).items():
        count = ceil(min(most, len(parts.dataset.rows(split))) / size / fabric.world_size)
        if not count:
            continue
        began = time.perf_counter()
        for samples in islice(evaluation_batches(parts.dataset, parts.dataset.rows(split), size), 2):
            with fabric.autocast():
                network(samples.to(fabric.device).inputs).prediction.sum().item()
        seconds += (time.perf_counter() - began) * count / min(2, count)
    return seconds


def _validated(config: Config, parts: Parts) -> dict[str, float]:
    """Return which splits a validation predicts, and at most how many samples of each."""
    name, most = config.training.selector, config.training.selection_samples
    splits: dict[str, float] = dict.fromkeys(VALIDATION, inf)
    if name == "oracle":
        splits[ORACLE] = inf
    if parts.algorithm.matching is not None:
        splits["train"] = MOST
    return splits | ({"unlabelled": most} if name in LABEL_FREE else {})


def _bytes_of_buffers(module: nn.Module) -> int:
    return sum(buffer.numel() * buffer.element_size() for buffer in module.buffers())


def _peak_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if sys.platform == "win32":
        return int(psutil.Process().memory_info().peak_wset)
    unit = 1 if sys.platform == "darwin" else 1024  # bytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
