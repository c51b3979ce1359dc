"""What a run computes on: devices, precision, processes."""

import logging
import os
from dataclasses import replace

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.slurm import SLURMEnvironment
from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning_fabric.utilities.rank_zero import rank_zero_only

from okapi.config import Config, ConfigError

PRECISIONS = {"fp32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}


def as_launched(config: Config) -> Config:
    """Return the config with as many processes as torchrun or Slurm has started; without them as it is."""
    settings = config.training
    if TorchElasticEnvironment.detect():
        here = int(os.environ["LOCAL_WORLD_SIZE"])
        settings = replace(settings, devices=here, nodes=int(os.environ["WORLD_SIZE"]) // here)
    elif SLURMEnvironment.detect():
        nodes = int(os.environ.get("SLURM_NNODES", "1"))
        settings = replace(settings, devices=int(os.environ["SLURM_NTASKS"]) // nodes, nodes=nodes)
    return replace(config, training=settings)


def is_first() -> bool:
    """Return whether this is the process that speaks and writes; so is any that trains alone."""
    return int(getattr(rank_zero_only, "rank", 0)) == 0


def find_device(name: str) -> torch.device:
    """Return a device by torch's name for it, or by "auto": a GPU where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ValueError(f"device must be auto, cpu or one that torch has here, got {name!r}") from error
    return device


def make_fabric(config: Config) -> Fabric:
    """Return the Fabric of a config, not yet launched; what this machine cannot do is rejected."""
    settings = config.training
    has_gpu = torch.cuda.is_available() or torch.backends.mps.is_available()
    on_gpu = settings.accelerator == "gpu" or (settings.accelerator == "auto" and has_gpu)
    if on_gpu and not has_gpu:
        raise ConfigError("training.accelerator is gpu, but torch finds none; use cpu or auto")
    if settings.precision == "fp16" and not on_gpu:
        raise ConfigError("training.precision fp16 needs a GPU; on a CPU use bf16 or fp32")
    if settings.compile and settings.compile not in torch.compiler.list_backends(exclude_tags=()):
        known = ", ".join(torch.compiler.list_backends())
        raise ConfigError(f"training.compile must be a backend of torch.compile ({known}), got {settings.compile!r}")
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    several = settings.devices * settings.nodes > 1
    try:
        return Fabric(
            accelerator=settings.accelerator if on_gpu else "cpu",
            devices=settings.devices,
            num_nodes=settings.nodes,
            strategy="ddp" if several else "auto",
            precision=PRECISIONS[settings.precision],  # type: ignore[arg-type]
        )
    except (RuntimeError, ValueError, TypeError) as error:
        raise ConfigError(f"training.devices {settings.devices}: {' '.join(str(error).split())}") from error
