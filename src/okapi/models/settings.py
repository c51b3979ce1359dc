"""The models that a configuration may name, and how a network is built from settings."""

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor, nn

from okapi.models.encoders import CNNSettings, MLPSettings
from okapi.models.network import Network
from okapi.models.text import TextSettings
from okapi.models.vision import VisionSettings


class EncoderSettings(Protocol):
    """Settings that know their encoder."""

    def encoder(self, sample: Tensor | Mapping[str, Tensor], /) -> nn.Module:
        """Return the encoder for inputs such as this sample."""


class Outputs(Protocol):
    """A task, of which a network need know only how wide a prediction is."""

    @property
    def outputs(self) -> int:
        """Width of a prediction."""


MODELS: dict[str, type[EncoderSettings]] = {
    MLPSettings.name: MLPSettings,
    CNNSettings.name: CNNSettings,
    VisionSettings.name: VisionSettings,
    TextSettings.name: TextSettings,
}


def untrained(settings: EncoderSettings) -> EncoderSettings:
    """Return settings of the same network with random weights: those of a file need not be found to be replaced."""
    change = getattr(settings, "untrained", None)
    return settings if change is None else change()


def build(settings: EncoderSettings, sample_input: Tensor | Mapping[str, Tensor], task: Outputs) -> Network:
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
    >>> network = build(MLPSettings(out_features=16), torch.zeros(1, 8, 8), SimpleNamespace(outputs=10))
    >>> [tuple(part.shape) for part in network(torch.zeros(3, 1, 8, 8))]
    [(3, 16), (3, 10)]
    """
    encoder = settings.encoder(sample_input)
    return Network(encoder, nn.Linear(int(encoder.out_features), task.outputs))  # type: ignore[arg-type]
