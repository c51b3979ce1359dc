"""Keys that are still free, and which of them is nearest to a query: by search, or on a line."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from okapi.matching.search import Search
from okapi.matching.search.plan import Plan

Array = NDArray[Any]

LIST = 16  # nearest free keys looked up at a time for a query
BATCH = 512  # queries looked up at a time


class Candidate(NamedTuple):
    """A key that a query may take, and its distance."""

    distance: float
    key: int


class FreeKeys(Protocol):
    """Keys that leave one by one. Queries and keys are rows."""

    def nearest(self, query: int, own: Collection[int]) -> Candidate | None:
        """Return the nearest admissible key that is free and not among the query's own, ties to the lower row."""

    def remove(self, key: int) -> None:
        """Take a key out."""

    def alike(self, queries: Sequence[int]) -> Iterable[list[int]]:
        """Return ascending queries in lists of those to which every key is equally far."""


class KeysOnLine:
    """Keys and queries that are numbers: the nearest free key is the next one to the left or to the right.

    Union-find over the sorted keys leads to the next free one in time that hardly grows with their number.

    Parameters
    ----------
    query, key : array of shape (n,) and (m,), float64
        Of all samples.
    limit : float
        Greatest admissible distance.
    query_rows, key_rows : array of shape (r,) and (s,), int64, ascending
        Rows that take part.
    query_group, key_group : array of shape (r,) and (s,), int64
        Must be equal within a pair.
    """

    def __init__(
        self,
        query: Array,
        key: Array,
        limit: float,
        query_rows: Array,
        key_rows: Array,
        query_group: Array,
        key_group: Array,
    ) -> None:
        r, s = len(query_rows), len(key_rows)
        score = np.concatenate([query[query_rows], key[key_rows]])
        group = np.concatenate([query_group, key_group])
        is_key = np.arange(r + s) >= r
        order = np.lexsort((is_key, score, group))
        new = np.ones(r + s + 1, bool)  # where a run of equal scores begins, in this order
        new[1:-1] = (np.diff(score[order]) != 0) | (np.diff(group[order]) != 0)
        run, keys_before = new.cumsum(), np.append(0, is_key[order].cumsum())
        of_query = np.flatnonzero(~is_key[order])
        rows = query_rows[order[of_query]]
        self._query, self._limit = query.tolist(), limit
        self._run = _at(rows, run[of_query], len(query))
        self._first = _at(rows, keys_before[of_query], len(query))  # position of the first key that is no lower
        ends = [np.searchsorted(np.sort(key_group), query_group, side) for side in ("left", "right")]
        self._low, self._high = (_at(query_rows, end, len(query)) for end in ends)

        of_key = np.flatnonzero(is_key[order])
        rows = key_rows[order[of_key] - r]
        run = run[of_key]
        # Among equal keys the lower row is to come first from either side: to the left they lie in mirrored positions.
        mirror = np.searchsorted(run, run) + np.searchsorted(run, run, "right") - 1 - np.arange(s)
        self._rows, self._score, self._mirror = rows.tolist(), key[rows].tolist(), mirror.tolist()
        self._position = _at(rows, np.arange(s), len(key))
        self._right = list(range(s + 1))  # the next free position or one on the way there; s: there is none
        self._left = [*range(s), -1]  # -1, which is the last place of this list: there is none

    def nearest(self, query: int, own: Collection[int]) -> Candidate | None:
        """See `FreeKeys`."""
        rows, mirror, first = self._rows, self._mirror, self._first[query]
        after = _follow(self._right, first)
        before = _follow(self._left, first - 1)
        while own and after < len(rows) and rows[after] in own:
            after = _follow(self._right, after + 1)
        while own and before >= 0 and rows[mirror[before]] in own:
            before = _follow(self._left, before - 1)
        best = None
        if after < self._high[query]:
            best = Candidate(self._score[after] - self._query[query], rows[after])
        if before >= self._low[query]:
            other = Candidate(self._query[query] - self._score[before], rows[mirror[before]])
            best = other if best is None or other < best else best
        return best if best is not None and best.distance <= self._limit else None

    def remove(self, key: int) -> None:
        """See `FreeKeys`."""
        position = self._position[key]
        self._right[position] = position + 1
        self._left[self._mirror[position]] = self._mirror[position] - 1

    def alike(self, queries: Sequence[int]) -> Iterable[list[int]]:
        """See `FreeKeys`."""
        runs: dict[int, list[int]] = {}
        for query in queries:
            runs.setdefault(self._run[query], []).append(query)
        return runs.values()


def _at(rows: Array, values: Array, n: int) -> list[int]:
    """Return a list of ``n`` that holds the values at these rows."""
    out = np.zeros(n, np.int64)
    out[rows] = values
    return out.tolist()


def _follow(parent: list[int], position: int) -> int:
    """Return where the parents lead to, and halve the way."""
    while (above := parent[position]) != position:
        parent[position] = parent[above]
        position = parent[position]
    return position


class KeysBySearch:
    """Keys among which the nearest ones of many queries are searched at a time.

    Parameters
    ----------
    queries, keys : Tensor of shape (n, d) and (m, d)
    plan : Plan
    turn : list of int
        The queries in the order in which they will ask.
    in_turn : bool
        Whether each is served before the next one asks: then they run out of keys looked up at about the same time.
    n_own : int
        The most keys of its own that a query may have to pass over.
    """

    def __init__(
        self, queries: Tensor, keys: Tensor, plan: Plan, turn: Sequence[int], *, in_turn: bool, n_own: int
    ) -> None:
        self._search, self._in_turn = Search(queries, keys, plan), in_turn
        self._place = {query: place for place, query in enumerate(turn)}
        position = {row: position for position, row in enumerate(plan.query_order.tolist())}
        self._turn = torch.tensor([position[query] for query in turn], dtype=torch.int64, device=queries.device)
        self._position = {row: position for position, row in enumerate(plan.key_order.tolist())}
        self._distance = np.empty((len(turn), LIST + n_own))
        self._key = np.empty((len(turn), LIST + n_own), np.int64)
        self._known = np.zeros(len(turn), bool)
        self._removed: set[int] = set()
        self._to_remove: list[int] = []

    def nearest(self, query: int, own: Collection[int]) -> Candidate | None:
        """See `FreeKeys`."""
        place = self._place[query]
        if not self._known[place]:
            self._look_up(place, BATCH)
        best = self._first_free(place, own)
        if best is None and self._key[place, -1] >= 0:  # all taken since they were looked up, and there may be more
            self._look_up(place, BATCH if self._in_turn else 1)
            best = self._first_free(place, own)
        return best

    def remove(self, key: int) -> None:
        """See `FreeKeys`."""
        self._removed.add(key)
        self._to_remove.append(self._position[key])

    def alike(self, queries: Sequence[int]) -> Iterable[list[int]]:
        """See `FreeKeys`: whether vectors are equal is not looked at."""
        return [[query] for query in queries]

    def _first_free(self, place: int, own: Collection[int]) -> Candidate | None:
        for distance, key in zip(self._distance[place].tolist(), self._key[place].tolist(), strict=True):
            if key < 0:
                return None
            if key not in self._removed and key not in own:
                return Candidate(distance, key)
        return None

    def _look_up(self, place: int, count: int) -> None:
        """Look up the nearest free keys of the query at this place of the turn and of those that follow."""
        self._search.remove(torch.tensor(self._to_remove, dtype=torch.int64, device=self._turn.device))
        self._to_remove.clear()
        some = slice(place, place + count)
        ascending, order = self._turn[some].sort()
        distance, key = (found.cpu().numpy() for found in self._search.nearest(self._key.shape[1], ascending))
        at = place + order.cpu().numpy()
        self._distance[at], self._key[at], self._known[some] = distance, key, True
