"""What each sample of a matching weighs."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from okapi.matching.checks import as_array
from okapi.matching.matches import Matches

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Pairs(NamedTuple):
    """A matching with one entry per pair; each array has shape (p,).

    ``match`` is the row of the match in ``Matches``: pairs of one query share it.
    """

    match: Integers
    query: Integers
    key: Integers
    weight: Floats


def pair_weights(matches: Matches) -> Tensor:
    """Return the weight of every pair: a query shares a weight of 1 among the keys that it has.

    Parameters
    ----------
    matches : Matches
        m queries with up to k keys each.

    Returns
    -------
    Tensor of shape (m, k), float64
        1 / (number of keys of the query); 0 where ``matches.key`` is -1.

    Examples
    --------
    >>> import torch
    >>> from okapi.matching import Matches
    >>> key = torch.tensor([[4, 2], [7, -1]])
    >>> pair_weights(Matches(torch.tensor([0, 1]), key, torch.zeros(2, 2)))
    tensor([[0.5000, 0.5000],
            [1.0000, 0.0000]], dtype=torch.float64)
    """
    present = (matches.key >= 0).to(torch.float64)
    return present / present.sum(dim=1, keepdim=True).clamp(min=1)


def matching_weights(matches: Matches, n_queries: int, n_keys: int) -> tuple[Floats, Floats]:
    """Return what every query and every key weighs in the matched sample.

    Parameters
    ----------
    matches : Matches
        Rows of the queries and keys that were paired.
    n_queries, n_keys : int
        Number of queries and keys that the matching chose from.

    Returns
    -------
    query_weight : ndarray of shape (n_queries,)
        1 for a query with at least one key, 0 for the others.
    key_weight : ndarray of shape (n_keys,)
        Sum of the weights of the key's pairs; both sides have the same total.
    """
    pairs = flatten_pairs(matches, n_queries, n_keys)
    query_weight = np.zeros(n_queries)
    query_weight[pairs.query] = 1.0
    return query_weight, sum_by(pairs.key, pairs.weight, n_keys)


def effective_sample_size(weights: ArrayLike | Tensor) -> float:
    """Return Kish's effective sample size, ``(sum w)^2 / sum w^2``; 0 where nothing has weight.

    Parameters
    ----------
    weights : array-like of shape (n,)
        Weights, none of them negative; their scale does not matter.

    Examples
    --------
    >>> effective_sample_size([2, 2, 0, 2])
    3.0
    """
    w = as_array(weights, "weights", ndim=1).astype(np.float64)
    if not (np.isfinite(w) & (w >= 0)).all():
        raise ValueError("weights must be finite and not negative")
    if not w.any():
        return 0.0
    w = w / w.max()
    return float(w.sum() ** 2 / (w @ w))


def flatten_pairs(matches: Matches, n_queries: int, n_keys: int) -> Pairs:
    """Return the pairs, by match then rank, after checking that their rows exist."""
    query = matches.query.detach().cpu().numpy()
    key = matches.key.detach().cpu().numpy()
    for name, rows, lowest, size in (("query", query, 0, n_queries), ("key", key, -1, n_keys)):
        if rows.size and not (lowest <= rows.min() and rows.max() < size):
            wanted = f"rows of the {size} {'queries' if name == 'query' else 'keys'}"
            raise ValueError(f"matches.{name} must hold {wanted}, got {rows.min()} to {rows.max()}")
    if len(np.unique(query)) != len(query):
        raise ValueError("matches.query must hold every query once, got repeated rows")
    match, rank = np.nonzero(key >= 0)
    weight = pair_weights(matches).cpu().numpy()
    return Pairs(match, query[match], key[match, rank], weight[match, rank])


def sum_by(group: Integers, weights: Floats, n_groups: int) -> Floats:
    """Return the summed weights of each of the groups, shape (n_groups,)."""
    return np.bincount(group, weights=weights, minlength=n_groups).astype(np.float64, copy=False)
