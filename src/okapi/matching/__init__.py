"""Pairs samples across domains. Tensors in, indices out; imports nothing else of Okapi."""

from okapi.matching.caliper_nn import caliper_nn
from okapi.matching.matches import Matches

__all__ = ["Matches", "caliper_nn"]
