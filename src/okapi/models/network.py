"""A network: an encoder and a linear head on its encoding."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


class Output(NamedTuple):
    """What a network says of n inputs.

    ``encoding`` has shape (n, d), ``prediction`` (n, outputs): logits of classes or labels, or numbers.
    """

    encoding: Tensor
    prediction: Tensor


class Normalise(nn.Module):
    """Turns pixels in [0, 1] into (pixels - mean) / std, by channel.

    Both are no part of the state: the config has them.

    Parameters
    ----------
    mean, std : sequence of float
        One number for each channel.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        for name, values in (("mean", mean), ("std", std)):
            self.register_buffer(name, torch.tensor(values)[:, None, None], persistent=False)

    def forward(self, pixels: Tensor) -> Tensor:
        """Return images (n, channels, H, W) normalised."""
        return (pixels - self.mean) / self.std


class Network(nn.Module):
    """An encoder and a head.

    Parameters
    ----------
    encoder : Module
        Takes inputs (n, ...), or a mapping of such, and gives encodings (n, ``encoder.out_features``).
    head : Module
        Takes encodings and gives predictions (n, outputs).
    """

    def __init__(self, encoder: nn.Module, head: nn.Module) -> None:
        super().__init__()
        if not isinstance(getattr(encoder, "out_features", None), int):
            raise TypeError(f"encoder must have a whole number out_features, {type(encoder).__name__} has none")
        self.encoder, self.head = encoder, head

    @property
    def has_batch_norm(self) -> bool:
        """Whether what the encoder says of an input depends, in training, on the others of its batch."""
        return any(isinstance(layer, _BatchNorm) and layer.training for layer in self.encoder.modules())

    def forward(self, inputs: Tensor | Mapping[str, Tensor], apart: int = 0) -> Output:
        """Return encodings and predictions.

        Parameters
        ----------
        inputs : tensor (n, ...), or mapping of such
        apart : int
            So many first inputs are encoded in a call of their own, and the rest in a second: each is a batch to layers
            of batch normalisation, and less memory is needed at a time. 0: all in one call.
        """
        parts = [_rows(inputs, rows) for rows in (slice(apart), slice(apart, None))] if apart else [inputs]
        encoding = torch.cat([self.encoder(part) for part in parts])
        return Output(encoding, self.head(encoding))


def _rows(inputs: Tensor | Mapping[str, Tensor], rows: slice) -> Tensor | Mapping[str, Tensor]:
    return inputs[rows] if isinstance(inputs, Tensor) else {name: each[rows] for name, each in inputs.items()}
