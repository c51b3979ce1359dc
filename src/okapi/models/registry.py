"""The models that a configuration may name, and how a network is built from settings."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from torch import Tensor, nn

from okapi.config import ModelSettings, TextSettings, VisionSettings
from okapi.models.encoders import cnn_encoder, mlp_encoder
from okapi.models.network import Network
from okapi.models.text import text_encoder
from okapi.models.vision import vision_encoder


class Outputs(Protocol):
    """A task, of which a network need know only how wide a prediction is."""

    @property
    def outputs(self) -> int:
        """Width of a prediction."""


MODELS: dict[str, Callable[[Any, Tensor | Mapping[str, Tensor]], nn.Module]] = {
    "mlp": mlp_encoder,
    "cnn": cnn_encoder,
    "vision": vision_encoder,
    "text": text_encoder,
}
"""What builds the encoder of settings of that ``name``, for inputs such as one sample."""


def untrained(settings: ModelSettings) -> ModelSettings:
    """Return settings of the same network with random weights: those of a file need not be found to be replaced."""
    if isinstance(settings, TextSettings):
        return replace(settings, pretrained=None, backbone=settings.backbone or settings.pretrained)
    return replace(settings, pretrained=None) if isinstance(settings, VisionSettings) else settings


def build(settings: ModelSettings, sample_input: Tensor | Mapping[str, Tensor], task: Outputs) -> Network:
    """Return a network with random weights, drawn from torch's generator, or those that the settings name.

    Parameters
    ----------
    settings : MLPSettings, CNNSettings, VisionSettings or TextSettings
    sample_input : tensor (...), or mapping of such
        One sample's input, with no dimension for rows: sizes are taken from it.
    task : Task
        Its ``outputs`` is the width of a prediction.

    Examples
    --------
    >>> import torch
    >>> from types import SimpleNamespace
    >>> from okapi.config import MLPSettings
    >>> network = build(MLPSettings(out_features=16), torch.zeros(1, 8, 8), SimpleNamespace(outputs=10))
    >>> [tuple(part.shape) for part in network(torch.zeros(3, 1, 8, 8))]
    [(3, 16), (3, 10)]
    """
    encoder = MODELS[settings.name](settings, sample_input)
    return Network(encoder, nn.Linear(int(encoder.out_features), task.outputs))  # type: ignore[arg-type]
