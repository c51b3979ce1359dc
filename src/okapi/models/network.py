"""A network: an encoder and a linear head on its encoding."""

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor, nn


class Output(NamedTuple):
    """What a network says of n inputs.

    ``encoding`` has shape (n, d), ``prediction`` (n, outputs): logits of classes or labels, or numbers.
    """

    encoding: Tensor
    prediction: Tensor


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

    def forward(self, inputs: Tensor | Mapping[str, Tensor]) -> Output:
        """Return encodings and predictions."""
        encoding: Tensor = self.encoder(inputs)
        return Output(encoding, self.head(encoding))
