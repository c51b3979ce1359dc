"""Encoders for arrays, images and text, and heads; knows nothing of data sets or algorithms."""

from okapi.models.efficientnet import EfficientNetLite0
from okapi.models.encoders import MLP, CNNSettings, MLPSettings, SmallCNN
from okapi.models.network import Network, Output
from okapi.models.settings import MODELS, build, untrained
from okapi.models.text import TextEncoder, TextSettings
from okapi.models.vision import VisionBackbone, VisionSettings

__all__ = [
    "MLP",
    "MODELS",
    "CNNSettings",
    "EfficientNetLite0",
    "MLPSettings",
    "Network",
    "Output",
    "SmallCNN",
    "TextEncoder",
    "TextSettings",
    "VisionBackbone",
    "VisionSettings",
    "build",
    "untrained",
]
