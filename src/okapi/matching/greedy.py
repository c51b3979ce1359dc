"""Matching without replacement: queries choose in turn, and a key chosen as often as it may be is gone."""

import heapq
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from okapi.matching.calipers import Admissible
from okapi.matching.free_keys import Candidate, FreeKeys, KeysBySearch, KeysOnLine
from okapi.matching.line import Line

Array = NDArray[Any]

ORDERS = ("largest", "smallest", "closest", "random", "data")


class Turns(NamedTuple):
    """Who chooses when, and how often.

    Parameters
    ----------
    order : {"largest", "smallest", "closest", "random", "data"}
        Who chooses first: the query with the largest or the smallest propensity of its domain, the query of the closest
        pair, a random one, or the first row. Ties to the earlier row.
    n_keys : Tensor of shape (n,), int64
        The most keys of each query.
    k : int
        The most of these.
    max_uses : int
        How many queries of a domain may have one key.
    random_state : int
        Seed of the random order.
    """

    order: str
    n_keys: Tensor
    k: int
    max_uses: int = 1
    random_state: int = 0


def match_without_replacement(
    queries: Tensor, keys: Tensor, admissible: Admissible, turns: Turns
) -> tuple[Tensor, Tensor]:
    """Match in rounds; in each every query takes the nearest admissible key that is still free.

    Queries of different domains are matched apart. A query that finds no key in a round takes no part in the next.

    Returns
    -------
    distance, index : Tensor of shape (n, k)
        As `okapi.matching.search.nearest` returns them, for the rows of ``queries``.
    """
    distance = torch.full((len(queries), turns.k), torch.inf, dtype=torch.float64)
    index = torch.full((len(queries), turns.k), -1)
    for free, turn in _problems(queries, keys, admissible, turns):
        chosen = _Chosen(free, turns.n_keys.tolist(), turns.max_uses)
        chosen.match(turn, closest_first=turns.order == "closest")
        distance[chosen.query, chosen.rank] = torch.tensor(chosen.distance, dtype=torch.float64)
        index[chosen.query, chosen.rank] = torch.tensor(chosen.key, dtype=torch.int64)
    return distance.to(queries.device), index.to(queries.device)


def _problems(
    queries: Tensor, keys: Tensor, admissible: Admissible, turns: Turns
) -> Iterator[tuple[FreeKeys, list[int]]]:
    """Yield problems that share no key among queries of one domain, with the turn of their queries."""
    line = Line.of(queries, keys, admissible)
    priority = _priority(admissible, turns)
    n_own = turns.k - 1 if turns.max_uses > 1 else 0
    for query_rows, key_rows in admissible.by_domain(strata=line is None):
        turn = query_rows[priority[query_rows].argsort(stable=True)].tolist()
        if line is not None:
            yield _free_keys_on_line(line, query_rows, key_rows), turn
        else:
            plan = admissible.plan(keys.shape[1], query_rows, key_rows)
            yield KeysBySearch(queries, keys, plan, turn, in_turn=turns.order != "closest", n_own=n_own), turn


def _priority(admissible: Admissible, turns: Turns) -> Tensor:
    """Return numbers by which queries choose, the smallest first; equal ones by row."""
    device = admissible.query.domain.device
    if turns.order in ("largest", "smallest"):
        propensity = admissible.query.domain_propensity()
        return -propensity if turns.order == "largest" else propensity
    n = len(admissible.query.domain)
    if turns.order == "random":
        return torch.from_numpy(np.random.default_rng(turns.random_state).permutation(n)).to(device)
    return torch.arange(n, device=device)


def _free_keys_on_line(line: Line, query_rows: Tensor, key_rows: Tensor) -> KeysOnLine:
    """Return the keys for the queries of one domain, all strata at once."""
    query, key = line.admissible.query, line.admissible.key
    groups = [
        torch.zeros_like(rows) if side.exact is None else side.exact[rows]
        for side, rows in ((query, query_rows), (key, key_rows))
    ]
    rows = [each.cpu().numpy() for each in (query_rows, key_rows, *groups)]
    return KeysOnLine(line.query, line.key, line.limit(int(query.domain[query_rows[0]])), *rows)


class _Chosen:
    """The keys chosen so far in one problem, as parallel lists: query, rank, key, distance."""

    def __init__(self, free: FreeKeys, count: Sequence[int], max_uses: int) -> None:
        self.free, self.count, self.max_uses = free, count, max_uses
        self.query: list[int] = []
        self.rank: list[int] = []
        self.key: list[int] = []
        self.distance: list[float] = []
        self._uses: dict[int, int] = defaultdict(int)
        self._own: dict[int, list[int]] = defaultdict(list)

    def match(self, turn: Sequence[int], *, closest_first: bool) -> None:
        """Match in rounds until no query that found a key in the last one may have another."""
        rank = 0
        while turn:
            start = len(self.query)
            if closest_first:
                self._closest_first(turn)
            else:
                self._in_turn(turn)
            self.rank += [rank] * (len(self.query) - start)
            rank += 1
            served = set(self.query[start:])
            turn = [query for query in turn if query in served and self.count[query] > rank]

    def _in_turn(self, turn: Sequence[int]) -> None:
        for query in turn:
            nearest = self.free.nearest(query, self._own.get(query, ()))
            if nearest is not None:
                self._take(query, nearest)

    def _closest_first(self, turn: Sequence[int]) -> None:
        """Let the closest pair of a query without a key and a free key go first; ties to the lower key, then query."""
        queues = [[query] for query in turn] if self._own else self.free.alike(turn)
        heap: list[tuple[Candidate, int, list[int]]] = []
        for queue in queues:
            queue.reverse()
            self._enter(heap, queue)
        while heap:
            nearest, query, queue = heapq.heappop(heap)
            if self._uses[nearest.key] < self.max_uses:
                self._take(query, nearest)
                queue.pop()
            self._enter(heap, queue)

    def _enter(self, heap: list[tuple[Candidate, int, list[int]]], queue: list[int]) -> None:
        """Put the next query of a queue, whose end comes first, with its nearest free key on the heap."""
        if queue and (nearest := self.free.nearest(queue[-1], self._own.get(queue[-1], ()))) is not None:
            heapq.heappush(heap, (nearest, queue[-1], queue))

    def _take(self, query: int, nearest: Candidate) -> None:
        self.query.append(query)
        self.key.append(nearest.key)
        self.distance.append(nearest.distance)
        self._uses[nearest.key] += 1
        if self._uses[nearest.key] == self.max_uses:
            self.free.remove(nearest.key)
        if self.max_uses > 1:
            self._own[query].append(nearest.key)


def variable_ratio(propensity: Array, ratio: float, fewest: int, most: int) -> Array:
    """Return how many keys each query is to have, shape (n,), for ``ratio`` of them on average.

    As many queries as possible have the most, all others but one the fewest: those with the largest propensities, which
    have the fewest keys around them (Ming and Rosenbaum, Biometrics 56, 2000).

    Parameters
    ----------
    propensity : array of shape (n,)
        Of the query's own domain.
    ratio : float
    fewest, most : int

    Examples
    --------
    >>> variable_ratio(np.array([0.9, 0.5, 0.7, 0.2]), ratio=2, fewest=1, most=4)
    array([1, 2, 1, 4])
    """
    if not 1 <= fewest < ratio < most:
        raise ValueError(f"ratio must lie between fewest and most, which is at least 1; got {ratio}, {fewest}, {most}")
    n = len(propensity)
    n_most, rest = divmod(round(ratio * n) - fewest * n, most - fewest)
    count = np.full(n, fewest)
    order = np.argsort(propensity, kind="stable")
    count[order[:n_most]] = most
    count[order[n_most : n_most + 1]] += rest
    return count
