"""Strategies of matching by name, and the matches of some samples by each of them."""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold

from okapi.config import PAPER, MatchingSettings, PrognosticMatchingSettings
from okapi.evaluation.diagnosis.inputs import Samples
from okapi.evaluation.metrics import Floats, probabilities
from okapi.matching import Matches, Propensity, SeparableDomainsWarning
from okapi.nn import Pool, match

NEAREST = MatchingSettings(fixed_caliper=None, std_caliper=None)
STRATEGIES: dict[str, MatchingSettings] = {
    "none": NEAREST,
    "paper": PAPER.matching,
    "centred": PrognosticMatchingSettings(prognostic_caliper=None),
    "okapi_plus": PrognosticMatchingSettings(),
}
CALLED = {
    "none": "no calipers",
    "paper": "the paper's calipers",
    "centred": "centring alone",
    "okapi_plus": "Okapi+",
}
"""What messages call the strategies."""
FOLDS = 3


def match_by_each(
    samples: Samples, queries: NDArray[np.int64], keys: NDArray[np.int64], outputs: Floats | None, k: int
) -> tuple[Floats, dict[str, Matches]]:
    """Return propensities of the keys and then of the queries, and the matches of the queries by each strategy.

    Parameters
    ----------
    samples : Samples
    queries, keys : array (n,) and (m,)
        Rows.
    outputs : array (n, outputs), optional
        Of a predictor, for the queries; without, strategies that need them are absent.
    k : int
    """
    X, task = samples.X, samples.task
    scores = _held_out_scores(X[np.concatenate([keys, queries])], np.repeat([0, 1], [len(keys), len(queries)]))
    query = Pool(*map(torch.from_numpy, (X[queries], np.ones(len(queries), np.int64), scores[len(keys) :])))
    key = Pool(*map(torch.from_numpy, (X[keys], np.zeros(len(keys), np.int64), scores[: len(keys)])))
    if task is not None and outputs is not None:
        labels = samples.target[keys]
        predicted, truth = outputs, labels[:, None]
        if task.kind == "classification":
            predicted, truth = probabilities(task, outputs), np.eye(task.outputs)[labels]
        query = query._replace(outcome=torch.from_numpy(predicted), known=torch.full((len(queries),), False))
        key = key._replace(outcome=torch.from_numpy(truth), known=torch.full((len(keys),), True))
    return scores, {
        name: match(query, key, replace(settings, k=k), task.kind if task else None)
        for name, settings in STRATEGIES.items()
        if outputs is not None or not _needs_outcomes(settings)
    }


def _held_out_scores(X: NDArray[Any], side: NDArray[np.int64]) -> Floats:
    """Return propensities (n,) of side 1 by models that were fitted to other samples.

    In training, too, a batch is scored before the scorer learns from it, and wide encodings separate any samples that a
    model was fitted to.
    """
    scores = np.empty(len(X))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeparableDomainsWarning)  # that is a result here
        for seen, unseen in StratifiedKFold(FOLDS).split(X, side):
            scores[unseen] = Propensity().fit(X[seen], side[seen]).scores(X[unseen])
    return scores


def _needs_outcomes(settings: MatchingSettings) -> bool:
    return isinstance(settings, PrognosticMatchingSettings) and settings.prognostic_caliper is not None
