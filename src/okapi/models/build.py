"""The models that a configuration may name, and how a network is built from settings."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from torch import Tensor, nn

from okapi.config import CNNSettings, ModelSettings, TextSettings, VisionSettings
from okapi.models.efficientnet import EFFICIENTNET_LITE0, MEAN, STD
from okapi.models.encoders import channels_of, cnn_encoder, mlp_encoder
from okapi.models.network import Network, Normalise
from okapi.models.text_encoder import text_encoder
from okapi.models.vision import vision_encoder

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


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


def build(
    settings: ModelSettings, sample_input: Tensor | Mapping[str, Tensor], task: Outputs, pixels: bool = True
) -> Network:
    """Return a network with random weights, drawn from torch's generator, or those that the settings name.

    Parameters
    ----------
    settings : MLPSettings, CNNSettings, VisionSettings or TextSettings
    sample_input : tensor (...), or mapping of such
        One sample's input, with no dimension for rows: sizes are taken from it.
    task : Task
        Its ``outputs`` is the width of a prediction.
    pixels : bool
        Whether inputs of an image model are pixels in [0, 1], which it normalises by what its backbone was pretrained
        with. Others are only normalised where the settings have a mean or a standard deviation.

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
    if isinstance(settings, CNNSettings | VisionSettings):
        encoder.normalise = _normalise(settings, channels_of(sample_input, settings.name), pixels)
    return Network(encoder, nn.Linear(int(encoder.out_features), task.outputs))  # type: ignore[arg-type]


def _normalise(settings: CNNSettings | VisionSettings, channels: int, pixels: bool) -> nn.Module:
    """Return what normalises images of so many channels as the settings say, or as the backbone was pretrained."""
    mean, std = channels * (0.0,), channels * (1.0,)
    if pixels and isinstance(settings, VisionSettings) and settings.backbone == EFFICIENTNET_LITE0:
        mean, std = channels * (MEAN,), channels * (STD,)
    elif pixels and channels == 3:
        mean, std = IMAGENET_MEAN, IMAGENET_STD
    mean, std = settings.mean or mean, settings.std or std
    for name, values in (("mean", mean), ("std", std)):
        if len(values) != channels:
            raise ValueError(f"{name} must have one number for each of {channels} channels, got {len(values)}")
    return Normalise(mean, std) if any(mean) or set(std) != {1.0} else nn.Identity()
