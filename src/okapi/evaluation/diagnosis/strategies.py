"""Strategies of matching by name, and the matches of some samples by each of them."""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold

from okapi.config import PAPER, Kind, MatchingSettings, PrognosticMatchingSettings
from okapi.evaluation.metrics import Floats
from okapi.matching import Matches, Propensity, SeparableDomainsWarning
from okapi.nn import Pool, match

NEAREST = MatchingSettings(fixed_caliper=None, std_caliper=None)
STRATEGIES: dict[str, MatchingSettings] = {
    "none": NEAREST,
    "fixed": replace(NEAREST, fixed_caliper=PAPER.matching.fixed_caliper),
    "std": replace(NEAREST, std_caliper=PAPER.matching.std_caliper),
    "paper": PAPER.matching,
    "centred": PrognosticMatchingSettings(outcome_caliper=None),
    "okapi_plus": PrognosticMatchingSettings(),
}
CALLED = {
    "none": "no caliper",
    "fixed": "the fixed caliper",
    "std": "the std-caliper",
    "paper": "the paper's two calipers",
    "centred": "centring alone",
    "okapi_plus": "Okapi+",
}
FOLDS = 3


def held_out_scores(X: NDArray[Any], side: NDArray[np.int64]) -> Floats:
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


def match_by_each(
    queries: NDArray[Any],
    keys: NDArray[Any],
    scores: Floats,
    k: int,
    *,
    outcomes: tuple[Floats, Floats] | None = None,
    kind: Kind | None = None,
) -> dict[str, Matches]:
    """Return the matches of each strategy.

    Parameters
    ----------
    queries, keys : array (n, d) and (m, d)
    scores : array (m + n,)
        Propensities of the keys and then of the queries.
    k : int
    outcomes : pair of array (n, C) and (m, C), optional
        What is predicted of the queries, and what is known of the keys; without, strategies that need them are absent.
    kind : {"classification", "regression"}, optional
        What the outcomes are.
    """
    key_scores, query_scores = np.split(scores, [len(keys)])
    query = _pool(queries, 1, query_scores, outcomes and outcomes[0], known=False)
    key = _pool(keys, 0, key_scores, outcomes and outcomes[1], known=True)
    return {
        name: match(query, key, replace(settings, k=k), kind)
        for name, settings in STRATEGIES.items()
        if outcomes is not None or not _needs_outcomes(settings)
    }


def _pool(X: NDArray[Any], side: int, scores: Floats, outcome: Floats | None, *, known: bool) -> Pool:
    pool = Pool(torch.from_numpy(X), torch.full((len(X),), side), torch.from_numpy(scores))
    if outcome is None:
        return pool
    return pool._replace(outcome=torch.from_numpy(outcome), known=torch.full((len(X),), known))


def _needs_outcomes(settings: MatchingSettings) -> bool:
    return isinstance(settings, PrognosticMatchingSettings) and settings.outcome_caliper is not None
