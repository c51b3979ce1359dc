"""Metrics, the worst domain or group, and which model is kept: pure functions.

`okapi.evaluation.diagnosis` estimates before training whether matching helps.
"""

from okapi.evaluation.groups import (
    evaluate,
    fairness,
    group_table,
    never_predicted,
    worst_first,
)
from okapi.evaluation.metrics import (
    METRICS,
    SUFFIXES,
    decide,
    ece,
    higher_is_better,
    main_metric,
    metrics_for,
    plain_metric,
    probabilities,
    reliability,
)
from okapi.evaluation.selectors import LABEL_FREE, Selector, selector

__all__ = [
    "LABEL_FREE",
    "METRICS",
    "SUFFIXES",
    "Selector",
    "decide",
    "ece",
    "evaluate",
    "fairness",
    "group_table",
    "higher_is_better",
    "main_metric",
    "metrics_for",
    "never_predicted",
    "plain_metric",
    "probabilities",
    "reliability",
    "selector",
    "worst_first",
]
