"""Metrics, the worst domain or group, which model is kept, and whether matching will help: pure functions."""

from okapi.evaluation.calibration import ece, reliability
from okapi.evaluation.diagnosis import Diagnosis, diagnose
from okapi.evaluation.fairness import demographic_parity_gap, equal_opportunity_gap, fairness
from okapi.evaluation.groups import by_group, evaluate, group_table, never_predicted, worst_first
from okapi.evaluation.metrics import METRICS, SUFFIXES, higher_is_better, main_metric, metrics_for, plain_metric
from okapi.evaluation.selection import LABEL_FREE, Selector, SelectorName, selector

__all__ = [
    "LABEL_FREE",
    "METRICS",
    "SUFFIXES",
    "Diagnosis",
    "Selector",
    "SelectorName",
    "by_group",
    "demographic_parity_gap",
    "diagnose",
    "ece",
    "equal_opportunity_gap",
    "evaluate",
    "fairness",
    "group_table",
    "higher_is_better",
    "main_metric",
    "metrics_for",
    "never_predicted",
    "plain_metric",
    "reliability",
    "selector",
    "worst_first",
]
