"""Pairs samples across domains. Tensors in, indices out; imports nothing else of Okapi."""

from okapi.matching.matches import Matches

__all__ = ["Matches"]
