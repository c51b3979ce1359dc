"""Encoders for arrays, images and text, and heads; knows nothing of data sets or algorithms."""

from okapi.models.build import MODELS, build, untrained
from okapi.models.efficientnet import EfficientNetLite0
from okapi.models.encoders import MLP, SmallCNN
from okapi.models.network import Network, Output
from okapi.models.text_encoder import TextEncoder
from okapi.models.vision import VisionBackbone

__all__ = [
    "MLP",
    "MODELS",
    "EfficientNetLite0",
    "Network",
    "Output",
    "SmallCNN",
    "TextEncoder",
    "VisionBackbone",
    "build",
    "untrained",
]
