"""Okapi: models that hold up on sites nobody labelled.

Public names are loaded on first use, so that ``import okapi`` and ``okapi --help`` are quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from okapi.estimators import OkapiClassifier, OkapiRegressor
    from okapi.matching import CaliperMatcher, Matches, caliper_nn
    from okapi.training.predictor import load

__all__ = ["CaliperMatcher", "Matches", "OkapiClassifier", "OkapiRegressor", "__version__", "caliper_nn", "load"]

_HOME = {
    "CaliperMatcher": "okapi.matching",
    "Matches": "okapi.matching",
    "OkapiClassifier": "okapi.estimators",
    "OkapiRegressor": "okapi.estimators",
    "caliper_nn": "okapi.matching",
    "load": "okapi.training.predictor",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'okapi' has no attribute {name!r}")
