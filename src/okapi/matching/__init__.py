"""Pairs samples across domains. Tensors in, indices out; imports nothing else of Okapi."""

from okapi.matching.caliper_nn import caliper_nn
from okapi.matching.centring import centred
from okapi.matching.diagnostics.balance import Balance, balance
from okapi.matching.diagnostics.effect import Effect, effect
from okapi.matching.diagnostics.precision import MatchPrecision, match_precision
from okapi.matching.diagnostics.sensitivity import e_value, rosenbaum_bounds
from okapi.matching.diagnostics.tuning import Tuning, tune
from okapi.matching.diagnostics.weights import effective_sample_size, matching_weights
from okapi.matching.matcher import CaliperMatcher
from okapi.matching.matches import Matches, Strata
from okapi.matching.propensity import MatchingWarning, Propensity, SeparableDomainsWarning
from okapi.matching.suspicious import suspicious_columns
from okapi.matching.treatments import effects_of_treatments

__all__ = [
    "Balance",
    "CaliperMatcher",
    "Effect",
    "MatchPrecision",
    "Matches",
    "MatchingWarning",
    "Propensity",
    "SeparableDomainsWarning",
    "Strata",
    "Tuning",
    "balance",
    "caliper_nn",
    "centred",
    "e_value",
    "effect",
    "effective_sample_size",
    "effects_of_treatments",
    "match_precision",
    "matching_weights",
    "rosenbaum_bounds",
    "suspicious_columns",
    "tune",
]
