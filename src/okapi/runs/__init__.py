"""A run directory: its files, its typed results, its checkpoints and its log. One class, ``Run``."""

from okapi.runs.results import FORMAT, Evaluation, Opened, Results, Selection, Started, WeightsFile
from okapi.runs.run import MAY_DIFFER, Run
from okapi.runs.trained import TrainedModel, Weights, Which

__all__ = [
    "FORMAT",
    "MAY_DIFFER",
    "Evaluation",
    "Opened",
    "Results",
    "Run",
    "Selection",
    "Started",
    "TrainedModel",
    "Weights",
    "WeightsFile",
    "Which",
]
