"""How far apart two groups of samples are, and how they are matched: no labels are needed."""

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import balanced_accuracy_score, roc_auc_score
from sklearn.model_selection import StratifiedKFold

from okapi.config import PAPER, Kind, MatchingSettings, PrognosticMatchingSettings
from okapi.evaluation.diagnosis.predictor import FOLDS
from okapi.evaluation.metrics import Floats
from okapi.matching import CaliperMatcher, Matches, Propensity, SeparableDomainsWarning, balance
from okapi.nn import Pool, match
from okapi.nn.match_metrics import hubness

NEAREST = MatchingSettings(fixed_caliper=None, std_caliper=None)
STRATEGIES: dict[str, MatchingSettings] = {
    "none": NEAREST,
    "fixed": replace(NEAREST, fixed_caliper=PAPER.matching.fixed_caliper),
    "std": replace(NEAREST, std_caliper=PAPER.matching.std_caliper),
    "paper": PAPER.matching,
    "centred": PrognosticMatchingSettings(outcome_caliper=None),
    "okapi_plus": PrognosticMatchingSettings(),
}
"""Strategies of matching by name: no caliper, the paper's two calipers alone and together, centring, Okapi+."""

BINS = 20


class Comparison(NamedTuple):
    """Rows for the tables of a diagnosis: one of separability, one per strategy and direction, one per bin; and scores.

    The scores (n,) are propensities by models that were not fitted to the samples.
    """

    scores: Floats
    separability: dict[str, Any]
    calipers: list[dict[str, Any]]
    histogram: list[dict[str, Any]]


def compare(X: NDArray[Any], other: NDArray[np.bool_], names: tuple[str, str], k: int) -> Comparison:
    """Compare two groups of samples.

    Parameters
    ----------
    X : array (n, d)
    other : array (n,), bool
        Which samples are of the second group, the unlabelled one.
    names : (str, str)
        Of both groups.
    k : int
        Keys per query.
    """
    side = other.astype(np.int64)
    both = {"labelled": names[0], "unlabelled": names[1]}
    unseen = held_out_scores(X, side)
    overlap = balance(
        unseen[:, None], unseen[:, None], query_domain=side, key_domain=side, matches=_nothing(k), direction=(1, 0)
    ).table
    separability = {
        **both,
        "samples_labelled": int((~other).sum()),
        "samples_unlabelled": int(other.sum()),
        "auc": float(roc_auc_score(side, unseen)),
        "balanced_accuracy": float(balanced_accuracy_score(side, unseen > 0.5)),
        "balanced_accuracy_fitted": fitted(X, side).balanced_accuracy_,
        "overlap": float(overlap["overlap_before"].iloc[0]),
    }
    rows = []
    pool = _pool(X, side, unseen)
    for name, settings in STRATEGIES.items():
        if not _needs_outcomes(settings):
            matches = match(len(X), pool, replace(settings, k=k))
            rows += _directions(X, side, unseen, matches, settings, names, {**both, "calipers": name})
    shares = [np.histogram(unseen[side == group], BINS, (0, 1))[0] / (side == group).sum() for group in (0, 1)]
    edges = np.linspace(0, 1, BINS + 1)
    histogram = [
        {**both, "low": low, "high": high, "share_labelled": first, "share_unlabelled": second}
        for low, high, first, second in zip(edges, edges[1:], *shares, strict=False)
    ]
    return Comparison(unseen, separability, rows, histogram)


def matchings(
    queries: NDArray[Any],
    keys: NDArray[Any],
    query_outcome: Floats,
    key_outcome: Floats,
    k: int,
    *,
    kind: Kind,
    scores: Floats | None = None,
) -> Iterator[tuple[str, Matches]]:
    """Yield the name and the matches of each strategy, that without anything first.

    Parameters
    ----------
    queries, keys : array (n, d) and (m, d)
    query_outcome, key_outcome : array (n, c) and (m, c)
        What is predicted of the queries, and what is known of the keys.
    k : int
    kind : {"classification", "regression"}
    scores : array (m + n,), optional
        Propensities of the keys and then of the queries, by default those of ``held_out_scores``.
    """
    m = len(keys)
    side = np.repeat([0, 1], [m, len(queries)])
    if scores is None:
        scores = held_out_scores(np.concatenate([keys, queries]), side)
    query = _pool(queries, side[m:], scores[m:], query_outcome, known=False)
    key = _pool(keys, side[:m], scores[:m], key_outcome, known=True)
    for name, settings in STRATEGIES.items():
        yield name, match(query, key, replace(settings, k=k), kind)


def _pool(
    X: NDArray[Any], side: NDArray[np.int64], scores: Floats, outcome: Floats | None = None, *, known: bool = False
) -> Pool:
    pool = Pool(torch.from_numpy(X), torch.from_numpy(side), torch.from_numpy(scores))
    if outcome is None:
        return pool
    return pool._replace(outcome=torch.from_numpy(outcome), known=torch.full((len(X),), known))


def _needs_outcomes(settings: MatchingSettings) -> bool:
    return isinstance(settings, PrognosticMatchingSettings) and settings.outcome_caliper is not None


def figures(matches: Matches, queries: int) -> dict[str, Any]:
    """Return how many of the queries are matched, and how few keys serve them."""
    served = hubness(matches)
    return {
        "queries": queries,
        "matched": len(matches),
        "match_rate": len(matches) / queries,
        "distinct_keys": float(served["distinct_keys"]) if len(matches) else np.nan,
        "busiest_key": float(served["busiest_key"]) / len(matches) if len(matches) else np.nan,
    }


def fitted(X: NDArray[Any], side: NDArray[np.int64]) -> Propensity:
    """Return the library's propensity model; that groups are separable is a figure here and no warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeparableDomainsWarning)
        return Propensity().fit(X, side)


def held_out_scores(X: NDArray[Any], side: NDArray[np.int64]) -> Floats:
    """Return propensities (n,) by models that were fitted to other samples.

    Calipers use these: in training, too, a batch is scored before the scorer learns from it, and wide encodings
    separate any samples that a model was fitted to.
    """
    scores = np.empty(len(X))
    for seen, unseen in StratifiedKFold(FOLDS).split(X, side):
        scores[unseen] = fitted(X[seen], side[seen]).scores(X[unseen])
    return scores


def _directions(
    X: NDArray[Any],
    side: NDArray[np.int64],
    scores: Floats,
    matches: Matches,
    settings: MatchingSettings,
    names: tuple[str, str],
    row: dict[str, Any],
) -> list[dict[str, Any]]:
    """Return a row for the unlabelled as queries, and one for the labelled."""
    matcher = CaliperMatcher(k=matches.k, fixed_caliper=settings.fixed_caliper, std_caliper=settings.std_caliper).fit(
        X, side, propensity_scores=scores
    )
    left = matcher.removed(matches).iloc[-2]
    found = balance(X, X, query_domain=side, key_domain=side, matches=matches, max_pairs=0).pairs
    rows = []
    for query in (1, 0):
        mine = torch.from_numpy(side)[matches.query] == query
        part = Matches(matches.query[mine], matches.key[mine], matches.distance[mine])
        (smd,) = found[(found.query_domain == query) & (found.key_domain == 1 - query)].to_dict("records")
        rows.append(
            {
                **row,
                "query_domain": names[query],
                "key_domain": names[1 - query],
                **figures(part, int((side == query).sum())),
                "admissible_samples": int(left["queries"]),
                "admissible_pairs": int(left["pairs"]),
                **{f"{size}_smd_{when}": smd[f"{size}_abs_smd_{when}"] for size in _SIZES for when in _WHEN},
            }
        )
    return rows


_SIZES, _WHEN = ("max", "mean"), ("before", "after")


def _nothing(k: int) -> Matches:
    return Matches(torch.empty(0, dtype=torch.int64), torch.empty(0, k, dtype=torch.int64), torch.empty(0, k))
