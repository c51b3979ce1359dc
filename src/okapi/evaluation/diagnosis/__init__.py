"""Will matching help here? A verdict before training that needs no label of the unlabelled domains."""

from okapi.evaluation.diagnosis.diagnosing import Diagnosis, diagnose
from okapi.evaluation.diagnosis.rules import Reason

__all__ = ["Diagnosis", "Reason", "diagnose"]
