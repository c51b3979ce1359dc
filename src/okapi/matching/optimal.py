"""Optimal matching: pairs of the least total distance, and full matching, both exact and inside the calipers."""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from okapi.matching import optimal_line, optimal_sparse
from okapi.matching.calipers import Admissible
from okapi.matching.line import Line

Array = NDArray[Any]


class FullMatching(NamedTuple):
    """Subclasses of one query and one or more keys, or of one key and one or more queries.

    Parameters
    ----------
    query, key : array of shape (n,) and (m,), int64
        Number of the subclass of each query and key; -1 where no key, or no query, is admissible to it.
    distance : float
        Total distance of the pairs of a query and a key in the subclasses.
    """

    query: Array
    key: Array
    distance: float


def match_optimally(
    queries: Tensor, keys: Tensor, admissible: Admissible, n_keys: Tensor, k: int
) -> tuple[Tensor, Tensor]:
    """Match the most pairs and, among such matchings, one of the least total distance; every key serves one query.

    Queries of different domains are matched apart.

    Parameters
    ----------
    queries, keys : Tensor of shape (n, d) and (m, d)
    admissible : Admissible
    n_keys : Tensor of shape (n,), int64
        The most keys of each query.
    k : int
        The most of these.

    Returns
    -------
    distance, index : Tensor of shape (n, k)
        As `okapi.matching.search.nearest` returns them.
    """
    distance = torch.full((len(queries), k), torch.inf, dtype=torch.float64)
    index = torch.full((len(queries), k), -1)
    line, counts = Line.of(queries, keys, admissible), n_keys.cpu().numpy()
    for query_rows, key_rows in admissible.by_domain():
        if line is not None:
            copies, at = np.repeat(query_rows.cpu().numpy(), counts[query_rows.cpu().numpy()]), key_rows.cpu().numpy()
            limit = line.limit(int(admissible.query.domain[query_rows[0]]))
            query, key = optimal_line.optimal_pairs(line.query[copies], line.key[at], limit)
            query, key = copies[query], at[key]
        else:
            distances = optimal_sparse.Distances(queries, keys, admissible.plan(keys.shape[1], query_rows, key_rows))
            query, key = optimal_sparse.optimal_pairs(distances, counts)
        apart = _apart(queries, keys, query, key)
        order = np.lexsort((key, apart, query))
        query, key, apart = query[order], key[order], apart[order]
        rank = np.arange(len(query)) - np.searchsorted(query, query)
        distance[query, rank], index[query, rank] = torch.from_numpy(apart), torch.from_numpy(key)
    return distance.to(queries.device), index.to(queries.device)


def full_matching(queries: Tensor, keys: Tensor, admissible: Admissible) -> FullMatching:
    """Put every sample with an admissible partner into a subclass, so that the total distance in them is the least.

    Parameters
    ----------
    queries, keys : Tensor of shape (n, d) and (m, d)
    admissible : Admissible
        Of the queries of one domain and the keys of another.

    References
    ----------
    Hansen and Klopfer, Optimal Full Matching and Related Designs via Network Flows, Journal of Computational and
    Graphical Statistics 15 (2006).
    """
    found = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    line = Line.of(queries, keys, admissible)
    for query_rows, key_rows in admissible.by_domain():
        if line is not None:
            rows = query_rows.cpu().numpy(), key_rows.cpu().numpy()
            limit = line.limit(int(admissible.query.domain[query_rows[0]]))
            query, key = optimal_line.full_matching(line.query[rows[0]], line.key[rows[1]], limit)
            query, key = rows[0][query], rows[1][key]
        else:
            distances = optimal_sparse.Distances(queries, keys, admissible.plan(keys.shape[1], query_rows, key_rows))
            query, key = optimal_sparse.full_matching(distances)
        found[0].append(query)
        found[1].append(key)
    query, key = (np.concatenate(side) for side in found)
    return _subclasses(query, key, _apart(queries, keys, query, key), len(queries), len(keys))


def _apart(queries: Tensor, keys: Tensor, query: Array, key: Array) -> Array:
    """Return the distances of pairs."""
    apart: Array = (queries[query].double() - keys[key].double()).square().sum(1).sqrt().cpu().numpy()
    return apart


def _subclasses(query: Array, key: Array, distance: Array, n_queries: int, n_keys: int) -> FullMatching:
    """Return the subclasses that pairs make, without those pairs both of whose ends have others."""
    first = np.unique(query * n_keys + key, return_index=True)[1]
    query, key, distance = query[first], key[first], distance[first]
    of_query, of_key = np.bincount(query, minlength=n_queries), np.bincount(key, minlength=n_keys)
    keep = np.ones(len(query), bool)
    for pair in np.argsort(-distance, kind="stable"):
        if of_query[query[pair]] > 1 and of_key[key[pair]] > 1:  # only among ties
            keep[pair] = False
            of_query[query[pair]] -= 1
            of_key[key[pair]] -= 1
    query, key = query[keep], key[keep]
    centre = np.where(of_key[key] > 1, n_queries + key, query)
    subclass = np.unique(centre, return_inverse=True)[1]
    query_subclass, key_subclass = np.full(n_queries, -1), np.full(n_keys, -1)
    query_subclass[query], key_subclass[key] = subclass, subclass
    return FullMatching(query_subclass, key_subclass, float(distance[keep].sum()))
