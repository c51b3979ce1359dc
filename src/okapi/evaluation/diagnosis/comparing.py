"""How far apart two groups of samples are, and how they are matched: no labels are needed."""

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
from okapi.matching import CaliperMatcher, Matches, Propensity, SeparableDomainsWarning, balance, caliper_nn, centred
from okapi.nn.match_figures import hubness
from okapi.nn.outcome_bank import as_frequent

# Ways to match, in settings of Okapi: without anything; by the calipers of the PovertyMap experiment of the paper, each
# alone and together; less the mean of the domain; as Okapi does by default.
PLAIN: dict[str, Any] = {
    "fixed_caliper": None,
    "std_caliper": None,
    "outcome_caliper": None,
    "outcome_alignment": False,
    "centred": False,
}
WAYS: dict[str, dict[str, Any]] = {
    "none": PLAIN,
    "fixed": PLAIN | {"fixed_caliper": 0.9},
    "std": PLAIN | {"std_caliper": 0.2},
    "paper": PLAIN | {"fixed_caliper": 0.9, "std_caliper": 0.2},
    "centred": PLAIN | {"centred": True},
    "ours": PLAIN | {"outcome_caliper": "auto", "outcome_alignment": True, "centred": True},
}
BINS = 20


class Comparison(NamedTuple):
    """Rows for the tables of a diagnosis: one of separability, one per way and direction, one per bin; and scores.

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
    searched = {False: X, True: from_centres(X, side)}
    for name, way in WAYS.items():
        if way["outcome_caliper"] is None:
            calipers = {caliper: way[caliper] for caliper in ("fixed_caliper", "std_caliper")}
            matcher = CaliperMatcher(k=k, **calipers).fit(searched[way["centred"]], side, propensity_scores=unseen)
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
    *,
    classes: bool,
    scores: Floats | None = None,
) -> Iterator[tuple[str, Matches]]:
    """Yield the name and the matches of each of the ways, that without anything first.

    Parameters
    ----------
    queries, keys : array (n, d) and (m, d)
    query_outcome, key_outcome : array (n, c) and (m, c)
        What is predicted of the queries, and what is known of the keys.
    k : int
    classes : bool
        Whether outcomes are probabilities of classes.
    scores : array (m + n,), optional
        Propensities of the keys and then of the queries, by default those of ``held_out_scores``.
    """
    m = len(keys)
    side = np.repeat([0, 1], [m, len(queries)])
    X = np.concatenate([keys, queries])
    searched = {False: X, True: from_centres(X, side)}
    scores = held_out_scores(X, side) if scores is None else scores
    said = {False: query_outcome, True: _aligned(query_outcome, key_outcome) if classes else query_outcome}
    for name, way in WAYS.items():
        vectors = searched[way["centred"]]
        yield (
            name,
            caliper_nn(
                vectors[m:],
                vectors[:m],
                query_domain=side[m:],
                key_domain=side[:m],
                query_propensity=scores[m:],
                key_propensity=scores[:m],
                query_outcome=said[way["outcome_alignment"]],
                key_outcome=key_outcome,
                k=k,
                **{caliper: way[caliper] for caliper in ("fixed_caliper", "std_caliper", "outcome_caliper")},
            ),
        )


def from_centres(X: NDArray[Any], side: NDArray[np.int64]) -> NDArray[Any]:
    """Return samples (n, d) less the mean of their side (n,), as unit vectors."""
    vectors, where = torch.from_numpy(X), torch.from_numpy(side)
    return np.asarray(centred(vectors[:0], vectors, where[:0], where)[1])


def _aligned(said: Floats, known: Floats) -> Floats:
    """Return predicted classes (n, C), made as frequent as those that are known (m, C)."""
    values, wanted = torch.from_numpy(said), torch.from_numpy(known).mean(0)
    return np.asarray(as_frequent(values, wanted, values.mean(0)))


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
