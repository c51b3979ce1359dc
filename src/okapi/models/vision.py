"""Backbones for pictures, of the transformers library: any number of channels, with or without weights of a file."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor, nn

from okapi.models.encoders import channels_of

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


class VisionBackbone(nn.Module):
    """A ConvNeXt or a ResNet up to its pooled features.

    Parameters
    ----------
    name : str
        One of ``BACKBONES``.
    channels : int
        Of the pictures (n, channels, H, W).
    pretrained : path, optional
        A folder that ``save_pretrained`` of transformers wrote, of the same backbone; by default weights are random. If
        those weights were learnt on another number of channels, their first layer is given the mean over its channels
        for each of ours, scaled so that its outputs are about as large as before.
    """

    def __init__(self, name: str = "convnext-tiny", channels: int = 3, pretrained: str | Path | None = None) -> None:
        from transformers import AutoConfig, AutoModel

        super().__init__()
        if name not in BACKBONES:
            raise ValueError(f"name must be one of {', '.join(BACKBONES)}, got {name!r}")
        if channels < 1:
            raise ValueError(f"channels must be at least 1, got {channels}")
        family, shape = BACKBONES[name]
        config = AutoConfig.for_model(family, num_channels=channels, **shape)
        self.backbone: nn.Module = AutoModel.from_config(config)  # type: ignore[no-untyped-call]
        self.out_features: int = shape["hidden_sizes"][-1]
        if pretrained is not None:
            self._load(Path(pretrained), name)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return encodings (n, out_features) of pictures (n, channels, H, W)."""
        pooled: Tensor = self.backbone(inputs).pooler_output
        return pooled.flatten(1)

    def _load(self, folder: Path, name: str) -> None:
        from transformers import AutoModel

        check_folder(folder)
        weights = AutoModel.from_pretrained(folder, local_files_only=True).state_dict()
        ours = self.backbone.state_dict()
        if weights.keys() != ours.keys():
            raise ValueError(f"pretrained must hold a {name}, {folder} holds another network")
        for key, weight in weights.items():
            wanted = ours[key].shape
            if weight.shape == wanted:
                continue
            if weight.ndim != 4 or (weight.shape[0], *weight.shape[2:]) != (wanted[0], *wanted[2:]):
                raise ValueError(f"pretrained must hold a {name}: {key} in {folder} is {tuple(weight.shape)}")
            scale = weight.shape[1] / wanted[1]
            weights[key] = scale * weight.mean(1, keepdim=True).expand(wanted)
        self.backbone.load_state_dict(weights)


@dataclass(frozen=True, kw_only=True)
class VisionSettings:
    """A backbone for pictures; it takes as many channels as the data has.

    Parameters
    ----------
    backbone : str
        convnext-tiny, convnext-small, resnet-18 or resnet-50.
    pretrained : str, optional
        A folder of weights in the format of transformers; by default weights are random.
    """

    name: ClassVar[str] = "vision"
    backbone: str = "convnext-tiny"
    pretrained: str | None = None

    def encoder(self, sample: Tensor | Mapping[str, Tensor]) -> VisionBackbone:
        """Return the encoder for pictures such as one sample (channels, H, W)."""
        return VisionBackbone(self.backbone, channels_of(sample, self.name), self.pretrained)


def check_folder(folder: Path) -> None:
    """Refuse a folder that holds no weights in the format of transformers."""
    if not (folder / "config.json").is_file():
        raise ValueError(f"pretrained must be a folder with config.json and weights, {folder} has no config.json")
