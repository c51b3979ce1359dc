"""Optimal assignment without all distances at once: solved on few pairs, until prices prove that no other is needed."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import min_weight_full_bipartite_matching
from torch import Tensor

from okapi.matching.search.plan import Plan

Array = NDArray[Any]

MORE = 16  # edges of a query that are added at a time from a piece of the pairs
ROUNDING = 1e-13  # of prices: what is cheaper by less costs the same


class Edges(NamedTuple):
    """Pairs, as positions in a plan's orders, and their distances; arrays of shape (e,)."""

    query: Array
    key: Array
    distance: Array


class Distances:
    """Distances of all admissible pairs of a plan, a piece at a time.

    Attributes
    ----------
    of_query, of_key : array of shape (n,) and (m,), float64
        Distance of each to its nearest on the other side; infinite where none is admissible.
    key_of, query_of : array of shape (n,) and (m,), int64
        Position of that nearest one.
    farthest : float
        Greatest distance of an admissible pair.
    """

    def __init__(self, queries: Tensor, keys: Tensor, plan: Plan) -> None:
        self._queries, self._keys = queries[plan.query_order].double(), keys[plan.key_order].double()
        self.plan = plan
        n, m = len(self._queries), len(self._keys)
        self.of_query, self.of_key = np.full(n, np.inf), np.full(m, np.inf)
        self.key_of, self.query_of = np.full(n, -1), np.full(m, -1)
        self.farthest = 0.0
        for rows, keys_at, distance in self.pieces():
            for nearest, which, at, others, matrix in (
                (self.of_query, self.key_of, rows, keys_at, distance),
                (self.of_key, self.query_of, keys_at, rows, distance.T),
            ):
                best = matrix.argmin(1)
                value = matrix[np.arange(len(at)), best]
                closer = value < nearest[at]
                nearest[at[closer]], which[at[closer]] = value[closer], others[best[closer]]
            self.farthest = max(self.farthest, distance.max(initial=0.0, where=np.isfinite(distance)))

    def pieces(self) -> Iterator[tuple[Array, Array, Array]]:
        """Yield positions of queries (r,) and keys (c,) and their distances (r, c), infinite where inadmissible."""
        for block in self.plan.blocks:
            rows = np.arange(block.rows.start, block.rows.stop)
            for which, inside in self.plan.inside(block):
                keys = self._keys[which]
                distance = torch.cdist(self._queries[block.rows], keys, compute_mode="donot_use_mm_for_euclid_dist")
                distance.masked_fill_(~inside, torch.inf)
                at = np.arange(which.start, which.stop) if isinstance(which, slice) else which.cpu().numpy()
                yield rows, at, distance.cpu().numpy()

    def rows(self, query: Array, key: Array) -> tuple[Array, Array]:
        """Return the rows of queries and keys at these positions."""
        return self.plan.query_order.cpu().numpy()[query], self.plan.key_order.cpu().numpy()[key]


def optimal_pairs(distances: Distances, n_keys: Array) -> tuple[Array, Array]:
    """Return queries and keys of the most admissible pairs and, among such, of the least total distance.

    Parameters
    ----------
    distances : Distances
    n_keys : array, int64
        The most keys of each query, by row.

    Returns
    -------
    query, key : array of shape (p,), int64
        Rows of each pair.
    """
    n_keys = n_keys[distances.plan.query_order.cpu().numpy()]
    unmatched = (n_keys.sum() + 1) * (distances.farthest or 1.0)  # more than rearranging all others can save
    nothing = np.zeros_like(distances.of_query), np.zeros_like(distances.of_key)
    return distances.rows(*_assign(distances, *nothing, n_keys, unmatched))


def full_matching(distances: Distances) -> tuple[Array, Array]:
    """Return rows of queries and keys: the pairs of least total distance that hold everyone with an admissible pair.

    Without a pair of two that are in no other, everyone goes with its nearest. Such a pair saves two distances at the
    cost of one: the best pairs are an assignment by that saving.
    """
    of_query, of_key = (np.where(np.isfinite(each), each, 0.0) for each in (distances.of_query, distances.of_key))
    query, key = _assign(distances, of_query, of_key, np.ones(len(of_query), np.int64), 0.0)
    alone = np.setdiff1d(np.flatnonzero(distances.key_of >= 0), query)
    key_alone = np.setdiff1d(np.flatnonzero(distances.query_of >= 0), key)
    queries = np.concatenate([query, alone, distances.query_of[key_alone]])
    return distances.rows(queries, np.concatenate([key, distances.key_of[alone], key_alone]))


def _assign(
    distances: Distances, of_query: Array, of_key: Array, n_keys: Array, unmatched: float
) -> tuple[Array, Array]:
    """Return the pairs of the least total cost: each costs its distance less those given, no pair costs ``unmatched``.

    Solved among few pairs at first. The duals are prices of queries and keys: where no other pair costs less than the
    prices of its two, the solution is optimal among all; such as cost less join.
    """
    seat = np.repeat(np.arange(len(of_query)), n_keys)  # a query that is to have several keys has several seats
    key_of_seat = np.full(len(seat), -1)
    edges = Edges(*(np.zeros(0, kind) for kind in (np.int64, np.int64, np.float64)))
    query_price, key_price = np.full(len(of_query), unmatched), np.zeros(len(of_key))
    while True:
        n_before = len(edges.distance)
        edges = _with_cheaper(edges, distances, query_price + of_query, key_price + of_key)
        if len(edges.distance) == n_before:
            return seat[key_of_seat >= 0], key_of_seat[key_of_seat >= 0]
        graph = _graph(edges, of_query, of_key, seat)
        key_of_seat = _solve(graph, unmatched)
        seat_price, key_price = _prices(graph, key_of_seat, unmatched)
        query_price = np.full(len(of_query), -np.inf)
        np.maximum.at(query_price, seat, seat_price)


def _with_cheaper(edges: Edges, distances: Distances, query_price: Array, key_price: Array) -> Edges:
    """Return the edges and, of pairs nearer than the prices of its two together, the cheapest of every query."""
    parts = [edges]
    for rows, keys, distance in distances.pieces():
        excess = distance - query_price[rows, None] - key_price[keys]
        least = -ROUNDING * np.abs(query_price[rows])
        some = np.flatnonzero(excess.min(1, initial=np.inf) < least)
        place = np.argpartition(excess[some], min(MORE, len(keys)) - 1, axis=1)[:, :MORE]
        row, column = np.nonzero(np.take_along_axis(excess[some], place, 1) < least[some, None])
        row, place = some[row], place[row, column]
        parts.append(Edges(rows[row], keys[place], distance[row, place]))
    query, key, distance = (np.concatenate(each) for each in zip(*parts, strict=True))
    first = np.unique(query * len(key_price) + key, return_index=True)[1]
    return Edges(query[first], key[first], distance[first])


def _graph(edges: Edges, of_query: Array, of_key: Array, seat: Array) -> csr_array:
    """Return the costs of edges, by query in order, as a sparse matrix (seats, keys)."""
    ends = np.searchsorted(edges.query, np.arange(len(of_query) + 1))
    costs = edges.distance - of_query[edges.query] - of_key[edges.key]
    return csr_array((costs, edges.key, ends), shape=(len(of_query), len(of_key)))[seat]


def _solve(graph: csr_array, unmatched: float) -> Array:
    """Return the key of every seat, -1 for none, by which the costs are least."""
    n, m = graph.shape
    row = np.repeat(np.arange(n), np.diff(graph.indptr))
    lift = (np.abs(graph.data).max() or 1.0) - graph.data.min()  # no weight may be zero
    weights = np.append(graph.data, np.full(n, unmatched)) + lift
    places = np.append(row, np.arange(n)), np.append(graph.indices, m + np.arange(n))
    key = min_weight_full_bipartite_matching(coo_array((weights, places), shape=(n, m + n)).tocsr())[1]
    return np.where(key < m, key, -1)


def _prices(graph: csr_array, key_of_seat: Array, unmatched: float) -> tuple[Array, Array]:
    """Return duals of a solution: no edge costs less than the prices of its two, and those chosen cost just these.

    Prices of keys are lengths of shortest paths that alternate between edges chosen and not, by Bellman and Ford.
    """
    n, m = graph.shape
    taken = np.flatnonzero(key_of_seat >= 0)
    owner = np.full(m, -1)
    owner[key_of_seat[taken]] = taken
    cost = np.full(n, unmatched)
    cost[taken] = graph[taken, key_of_seat[taken]]
    seat_price, key_price = cost.copy(), np.zeros(m)
    active = np.arange(n)
    for _ in range(m + 1):
        sizes = graph.indptr[active + 1] - graph.indptr[active]
        at = np.repeat(graph.indptr[active] - np.append(0, sizes.cumsum()[:-1]), sizes) + np.arange(sizes.sum())
        key, bid = graph.indices[at], graph.data[at] - np.repeat(seat_price[active], sizes)
        lower = (bid < key_price[key] - ROUNDING * np.abs(bid)) & (owner[key] >= 0)
        if not lower.any():
            break
        np.minimum.at(key_price, key[lower], bid[lower])
        active = owner[np.unique(key[lower])]
        seat_price[active] = cost[active] - key_price[key_of_seat[active]]
    return seat_price, key_price
