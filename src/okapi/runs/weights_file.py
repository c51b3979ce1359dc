"""The file of a run's weights: equal weights give equal bytes, so that a hash tells whether they are the same."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor

from okapi import __version__


def weights_bytes(weights: Mapping[str, Tensor], step: int) -> bytes:
    """Return the content of a ``.safetensors`` file."""
    alone = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in weights.items()}
    # One entry only: several come in any order.
    return save(alone, {"okapi": json.dumps({"version": __version__, "step": step})})


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the weights of a ``.safetensors`` file; one that is broken is a ValueError."""
    try:
        return load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error


def step_of(path: Path) -> int:
    """Return the step at which a file of weights was written."""
    with safe_open(path, "pt") as file:
        return int(json.loads((file.metadata() or {}).get("okapi", "{}")).get("step", 0))


def sha256(content: bytes) -> str:
    """Return the SHA-256 of a file's content."""
    return hashlib.sha256(content).hexdigest()
