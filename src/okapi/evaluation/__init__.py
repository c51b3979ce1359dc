"""Metrics, the worst domain, and which model is kept: pure functions."""

from okapi.evaluation.metrics import METRICS, by_domain, evaluate, higher_is_better, main_metric, metrics_for
from okapi.evaluation.selection import Selector, selector

__all__ = [
    "METRICS",
    "Selector",
    "by_domain",
    "evaluate",
    "higher_is_better",
    "main_metric",
    "metrics_for",
    "selector",
]
