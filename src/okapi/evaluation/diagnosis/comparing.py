"""How far apart two groups of samples are, and what calipers leave of them: no labels are needed."""

import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import balanced_accuracy_score, roc_auc_score
from sklearn.model_selection import StratifiedKFold

from okapi.evaluation.diagnosis.predictor import FOLDS
from okapi.evaluation.values import Floats
from okapi.matching import CaliperMatcher, Matches, Propensity, SeparableDomainsWarning, balance, caliper_nn
from okapi.nn.match_figures import hubness

# The calipers of the paper's PovertyMap experiment, each alone and together; and the prognostic caliper.
CALIPERS: dict[str, dict[str, Any]] = {
    "none": {},
    "fixed": {"fixed_caliper": 0.9},
    "std": {"std_caliper": 0.2},
    "paper": {"fixed_caliper": 0.9, "std_caliper": 0.2},
    "prognostic": {"outcome_caliper": 0.5},
}
BINS = 20


class Comparison(NamedTuple):
    """Rows for the tables of a diagnosis: one of separability, one per calipers and direction, one per bin; and scores.

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
    for name, calipers in CALIPERS.items():
        if "outcome_caliper" not in calipers:
            matcher = CaliperMatcher(k=k, **calipers).fit(X, side, propensity_scores=unseen)
            rows += _directions(X, side, matcher, names, {**both, "calipers": name})
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
    scores: Floats | None = None,
) -> Iterator[tuple[str, Matches]]:
    """Yield the matches of queries (n, d) in keys (m, d) by each of the calipers; outcomes are (n, c) and (m, c).

    Scores (m + n,), of the keys and then of the queries, are propensities as ``held_out_scores`` gives them, which is
    called where they are not given.
    """
    side = np.repeat([0, 1], [len(keys), len(queries)])
    scores = held_out_scores(np.concatenate([keys, queries]), side) if scores is None else scores
    for name, calipers in CALIPERS.items():
        yield (
            name,
            caliper_nn(
                queries,
                keys,
                query_domain=side[len(keys) :],
                key_domain=side[: len(keys)],
                query_propensity=scores[len(keys) :],
                key_propensity=scores[: len(keys)],
                query_outcome=query_outcome,
                key_outcome=key_outcome,
                k=k,
                **calipers,
            ),
        )


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
    X: NDArray[Any], side: NDArray[np.int64], matcher: CaliperMatcher, names: tuple[str, str], row: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return a row for the unlabelled as queries, and one for the labelled."""
    matches = matcher.match()
    found = balance(X, X, query_domain=side, key_domain=side, matches=matches, max_pairs=0).pairs
    left = matcher.removed(matches).iloc[-2]
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
