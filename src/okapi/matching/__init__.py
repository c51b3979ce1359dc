"""Pairs samples across domains. Tensors in, indices out; imports nothing else of Okapi."""

from okapi.matching.caliper_nn import caliper_nn
from okapi.matching.centring import centred
from okapi.matching.diagnostics.balance import Balance, balance
from okapi.matching.diagnostics.effect import Effect, effect
from okapi.matching.diagnostics.precision import MatchPrecision, match_precision
from okapi.matching.diagnostics.tuning import Tuning, tune
from okapi.matching.diagnostics.weights import effective_sample_size, matching_weights
from okapi.matching.matcher import CaliperMatcher
from okapi.matching.matches import Matches
from okapi.matching.propensity import MatchingWarning, Propensity, SeparableDomainsWarning
from okapi.matching.suspicious import suspicious_columns

__all__ = [
    "Balance",
    "CaliperMatcher",
    "Effect",
    "MatchPrecision",
    "Matches",
    "MatchingWarning",
    "Propensity",
    "SeparableDomainsWarning",
    "Tuning",
    "balance",
    "caliper_nn",
    "centred",
    "effect",
    "effective_sample_size",
    "match_precision",
    "matching_weights",
    "suspicious_columns",
    "tune",
]
