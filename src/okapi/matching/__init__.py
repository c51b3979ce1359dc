"""Pairs samples across domains. Tensors in, indices out; imports nothing else of Okapi."""

from okapi.matching.balance import Balance, balance
from okapi.matching.caliper_nn import caliper_nn
from okapi.matching.effect import Effect, effect
from okapi.matching.matcher import CaliperMatcher
from okapi.matching.matches import Matches
from okapi.matching.precision import MatchPrecision, match_precision
from okapi.matching.propensity import Propensity, SeparableDomainsWarning
from okapi.matching.tuning import Tuning, tune
from okapi.matching.weights import effective_sample_size, matching_weights

__all__ = [
    "Balance",
    "CaliperMatcher",
    "Effect",
    "MatchPrecision",
    "Matches",
    "Propensity",
    "SeparableDomainsWarning",
    "Tuning",
    "balance",
    "caliper_nn",
    "effect",
    "effective_sample_size",
    "match_precision",
    "matching_weights",
    "tune",
]
