"""Settings of the networks: small dataclasses."""

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias, get_args

from annotated_types import Interval

from okapi.config.values import Count, Few, Positive, Settings, ShareBelowOne, Width

Mean: TypeAlias = Annotated[float, Interval(ge=-1_000_000, le=1_000_000)]


@dataclass(frozen=True, kw_only=True)
class MLPSettings(Settings):
    """A multi-layer perceptron, for arrays and embeddings; its input is as wide as the data.

    Parameters
    ----------
    hidden : tuple of int
        Widths of the layers before the last, none or more.
    out_features : int
        Width of the encoding.
    dropout : float
        Share of each layer's outputs that is dropped in training.
    """

    name: Literal["mlp"] = "mlp"
    hidden: tuple[Width, ...] = (128,)
    out_features: Width = 64
    dropout: ShareBelowOne = 0.0


@dataclass(frozen=True, kw_only=True)
class CNNSettings(Settings):
    """A small convolutional network, for small images; it takes as many channels as the data has.

    Parameters
    ----------
    width : int
        Channels of the first two convolutions; the third has twice as many.
    out_features : int
        Width of the encoding.
    dropout : float
        Share of the encoding that is dropped in training.
    mean, std : tuple of float, optional
        One number for each channel, by which the network normalises images: (pixels - mean) / std, pixels in [0, 1].
        By default ImageNet's where there are three channels, else 0 and 1. Arrays are only normalised by what is given.
    """

    name: Literal["cnn"] = "cnn"
    width: Width = 32
    out_features: Width = 64
    dropout: ShareBelowOne = 0.0
    mean: tuple[Mean, ...] | None = None
    std: tuple[Positive, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class VisionSettings(Settings):
    """A backbone for images; it takes as many channels as the data has.

    Parameters
    ----------
    backbone : str
        convnext-tiny, convnext-small, resnet-18, resnet-50 or efficientnet-lite0; or any vision backbone of
        transformers, by its name on the hub or the folder of its config.json.
    pretrained : str, optional
        Weights of that backbone: a name on the hub, or a folder in the format of transformers; imagenet for
        efficientnet-lite0. By default weights are random.
    mean, std : tuple of float, optional
        One number for each channel, by which the network normalises images: (pixels - mean) / std, pixels in [0, 1].
        By default as in pretraining: 127 / 255 and 128 / 255 for efficientnet-lite0; else ImageNet's where there are
        three channels, or 0 and 1. Arrays are only normalised by what is given.
    """

    name: Literal["vision"] = "vision"
    backbone: str = "convnext-tiny"
    pretrained: str | None = None
    mean: tuple[Mean, ...] | None = None
    std: tuple[Positive, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class TextSettings(Settings):
    """A transformer with a hidden layer on its first token, for tokens; by default DistilBERT.

    Parameters
    ----------
    layers, width, heads, feed_forward : int
        Of a DistilBERT, if neither backbone nor pretrained says what the transformer is like.
    vocabulary : int
        How many tokens there are; of a DistilBERT.
    longest : int
        The most tokens that a text may have; of a DistilBERT.
    out_features : int
        Width of the encoding.
    dropout : float
        Share of the encoding that is dropped in training.
    backbone : str, optional
        A name on the hub, or a folder with a config.json: what the transformer is like.
    pretrained : str, optional
        Weights: a name on the hub, or a folder in the format of transformers, which without backbone also says what the
        transformer is like. By default weights are random.
    """

    name: Literal["text"] = "text"
    layers: Few = 6
    width: Width = 768
    heads: Few = 12
    feed_forward: Width = 3072
    vocabulary: Count = 30522
    longest: Width = 512
    out_features: Width = 768
    dropout: ShareBelowOne = 0.1
    backbone: str | None = None
    pretrained: str | None = None


ModelSettings: TypeAlias = MLPSettings | CNNSettings | VisionSettings | TextSettings

MODEL_SETTINGS: dict[str, type] = {kind.name: kind for kind in get_args(ModelSettings)}
"""What settings the section ``model`` has, by its ``name``."""
