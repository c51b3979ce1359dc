"""Small encoders, trained from scratch: for arrays and embeddings, and for small images."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from torch import Tensor, nn

from okapi.config import CNNSettings, MLPSettings


class MLP(nn.Module):
    """Layers of a linear map, GELU and dropout; the last one's output is the encoding.

    Parameters
    ----------
    in_features : int
        Numbers of a sample; inputs (n, ...) are flattened to (n, in_features).
    hidden : sequence of int
        Widths of the layers before the last, none or more.
    out_features : int
        Width of the encoding.
    dropout : float
        Share of each layer's outputs that is dropped in training.
    """

    def __init__(
        self, in_features: int, hidden: Sequence[int] = (128,), out_features: int = 64, dropout: float = 0.0
    ) -> None:
        super().__init__()
        widths = [in_features, *hidden, out_features]
        if min(widths) < 1:
            raise ValueError(f"in_features, hidden and out_features must be at least 1, got {widths}")
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [nn.Linear(before, after), nn.GELU(), nn.Dropout(dropout)]
        self.layers = nn.Sequential(*layers)
        self.out_features = out_features

    def forward(self, inputs: Tensor) -> Tensor:
        """Return encodings (n, out_features) of inputs (n, ...)."""
        encoding: Tensor = self.layers(inputs.flatten(1))
        return encoding


class SmallCNN(nn.Module):
    """Convolutions with batch normalisation, the mean over the image, and a layer of its own width.

    Three convolutions see about ten pixels; a larger image is halved first, by a convolution of stride 2 each time.

    Parameters
    ----------
    channels : int
        Of the images (n, channels, H, W), whose sides are at least 2 pixels.
    width : int
        Channels of the first two convolutions; the third has twice as many.
    out_features : int
        Width of the encoding.
    dropout : float
        Share of the encoding that is dropped in training.
    halvings : int
        How often images are halved before the three convolutions.
    """

    def __init__(
        self, channels: int = 1, width: int = 32, out_features: int = 64, dropout: float = 0.0, halvings: int = 0
    ) -> None:
        super().__init__()
        if min(channels, width, out_features) < 1:
            raise ValueError(
                f"channels, width and out_features must be at least 1, got {channels}, {width}, {out_features}"
            )
        halving: list[nn.Module] = []
        for _ in range(halvings):
            halving += _convolution(channels, width, stride=2)
            channels = width
        self.layers = nn.Sequential(
            *halving,
            *_convolution(channels, width),
            *_convolution(width, width),
            nn.MaxPool2d(2),
            *_convolution(width, 2 * width),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(2 * width, out_features),
            nn.GELU(),
            nn.Dropout(dropout),
        )
        self.out_features = out_features
        self.normalise: nn.Module = nn.Identity()

    def forward(self, inputs: Tensor) -> Tensor:
        """Return encodings (n, out_features) of images (n, channels, H, W)."""
        encoding: Tensor = self.layers(self.normalise(inputs))
        return encoding


def mlp_encoder(settings: MLPSettings, sample: Tensor | Mapping[str, Tensor]) -> MLP:
    """Return the encoder for inputs such as one sample (...)."""
    width = tensor_sample(sample, settings.name).numel()
    return MLP(width, settings.hidden, settings.out_features, settings.dropout)


def cnn_encoder(settings: CNNSettings, sample: Tensor | Mapping[str, Tensor]) -> SmallCNN:
    """Return the encoder for images such as one sample (channels, H, W)."""
    channels, shorter = channels_of(sample, settings.name), min(tensor_sample(sample, settings.name).shape[1:])
    halvings = max(0, (shorter // 8).bit_length() - 1)  # to 8 pixels or a few more
    return SmallCNN(channels, settings.width, settings.out_features, settings.dropout, halvings)


def tensor_sample(sample: Tensor | Mapping[str, Tensor], model: str) -> Tensor:
    """Return the sample, which must be a tensor for this model."""
    if not isinstance(sample, Tensor):
        raise TypeError(f"model {model!r} takes tensors, got samples that are {type(sample).__name__}")
    return sample


def channels_of(sample: Tensor | Mapping[str, Tensor], model: str) -> int:
    """Return how many channels an image has, which the sample must be for this model."""
    image = tensor_sample(sample, model)
    if image.ndim != 3:
        raise ValueError(f"model {model!r} takes images (channels, H, W), got samples of shape {tuple(image.shape)}")
    return image.shape[0]


def _convolution(before: int, after: int, stride: int = 1) -> list[nn.Module]:
    # Batch normalisation has an offset of its own.
    return [nn.Conv2d(before, after, 3, stride, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
