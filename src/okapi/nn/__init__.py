"""Parts of a training step, each usable alone."""

from okapi.nn.consistency import Consistency, CrossDomainConsistency
from okapi.nn.distributed import gather
from okapi.nn.matching import Pool, match
from okapi.nn.memory_bank import MemoryBank
from okapi.nn.momentum import MomentumEncoder
from okapi.nn.propensity_scorer import PropensityScorer
from okapi.nn.schedules import Constant, Cosine, Linear, Schedule

__all__ = [
    "Consistency",
    "Constant",
    "Cosine",
    "CrossDomainConsistency",
    "Linear",
    "MemoryBank",
    "MomentumEncoder",
    "Pool",
    "PropensityScorer",
    "Schedule",
    "gather",
    "match",
]
