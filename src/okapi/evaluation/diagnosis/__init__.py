"""Will matching help here? A verdict before training that needs no label of the unlabelled domains."""

from okapi.evaluation.diagnosis.diagnosing import Diagnosis, diagnose
from okapi.evaluation.diagnosis.strategies import CALLED, STRATEGIES
from okapi.evaluation.diagnosis.verdict import HEADLINES

__all__ = ["CALLED", "HEADLINES", "STRATEGIES", "Diagnosis", "diagnose"]
