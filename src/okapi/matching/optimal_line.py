"""Optimal pairs and full matching of numbers, within a greatest distance: dynamic programs over sorted keys.

A distance that may not exceed a limit is a convex function of the difference. So in some optimal matching of sorted
numbers no pairs cross, and a program that goes through both sides in order finds it. It looks at the pairs that the
limit admits and at no others, row by row, and keeps two bits of each to trace the way back.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from okapi.matching.search.windows import windows

Array = NDArray[Any]

REWARD = 64.0  # of a pair at first, in greatest distances


class Windows(NamedTuple):
    """Sorted numbers that can be matched at all, and which they can be matched to.

    Parameters
    ----------
    query, key : array of shape (n,) and (m,), ascending
    first, last : array of shape (n,), int64
        Position of the first key within the limit of each query, and of the last one plus one; both ascend.
    query_row, key_row : array of shape (n,) and (m,), int64
        Where they come from.
    limit : float
        The limit, at most the greatest distance.
    """

    query: Array
    key: Array
    first: Array
    last: Array
    query_row: Array
    key_row: Array
    limit: float

    @classmethod
    def of(cls, query: Array, key: Array, limit: float) -> "Windows":
        """Sort two sides, and leave those out that are within the limit of none."""
        both = np.concatenate([query, key])
        limit = min(limit, float(np.ptp(both)) if len(both) else 0.0)
        query_row, key_row = np.argsort(query, kind="stable"), np.argsort(key, kind="stable")
        query_row = query_row[_reach(query[query_row], key[key_row], limit)[2]]
        key_row = key_row[_reach(key[key_row], query[query_row], limit)[2]]
        first, last, _ = _reach(query[query_row], key[key_row], limit)
        return cls(query[query_row], key[key_row], first, last, query_row, key_row, limit)

    def distances(self, row: int) -> Array:
        """Return the distances of a query to the keys in its window."""
        distances: Array = np.abs(self.key[self.first[row] : self.last[row]] - self.query[row])
        return distances


def _reach(query: Array, key: Array, limit: float) -> tuple[Array, Array, Array]:
    """Return the ends of the windows of sorted queries, and which are not empty."""
    ends = windows(torch.from_numpy(query), torch.from_numpy(key), torch.tensor(limit, dtype=torch.float64))
    first, last = (end.numpy() for end in ends)
    return first, last, first < last


def optimal_pairs(query: Array, key: Array, limit: float) -> tuple[Array, Array]:
    """Return queries and keys of the most pairs within the limit and, among such, of the least total distance.

    Parameters
    ----------
    query, key : array of shape (n,) and (m,), float64
    limit : float

    Examples
    --------
    >>> optimal_pairs(np.array([0.0, 1.0]), np.array([0.9, 2.5]), limit=2)
    (array([0, 1]), array([0, 1]))
    """
    line = Windows.of(query, key, limit)
    if not len(line.query):
        return line.query_row, line.key_row
    most = _greatest_number(line)
    reward = REWARD * line.limit or 1.0
    while True:
        queries, keys = _rewarded_pairs(line, reward)
        if len(queries) == most:  # so no reward would make other pairs better
            return line.query_row[queries], line.key_row[keys]
        reward *= REWARD


def _greatest_number(line: Windows) -> int:
    """Return the greatest number of pairs: each query in order takes the first key left in its window."""
    place = count = 0
    for first, last in zip(line.first.tolist(), line.last.tolist(), strict=True):
        place = max(place, first)
        if place < last:
            place += 1
            count += 1
    return count


def _rewarded_pairs(line: Windows, reward: float) -> tuple[list[int], list[int]]:
    """Return the pairs of least total distance when every pair earns a reward."""
    value = np.zeros(1)  # best for the queries so far and the first ``start``, ``start`` + 1, ... keys
    start, bits = 0, []
    for row, (first, last) in enumerate(zip(line.first.tolist(), line.last.tolist(), strict=True)):
        value = value[min(first - start, len(value) - 1) :]
        value = np.append(value, np.full(last - first + 1 - len(value), value[-1])) - value[0]
        paired = value[:-1] + (line.distances(row) - reward)
        takes = paired < value[1:]
        np.minimum(value[1:], paired, out=value[1:])
        best = np.minimum.accumulate(value)
        bits.append((np.packbits(takes), np.packbits(best[1:] < value[1:])))
        value, start = best, first
    return _trace_pairs(line, bits)


def _trace_pairs(line: Windows, bits: list[tuple[Array, Array]]) -> tuple[list[int], list[int]]:
    queries, keys = [], []
    first, last = line.first.tolist(), line.last.tolist()
    place = len(line.key)  # keys that are left
    for row in reversed(range(len(bits))):
        place = min(place, last[row])
        takes, carries = bits[row]
        while place > first[row] and _bit(carries, place - 1 - first[row]):
            place -= 1
        if place > first[row] and _bit(takes, place - 1 - first[row]):
            place -= 1
            queries.append(row)
            keys.append(place)
    return queries[::-1], keys[::-1]


def full_matching(query: Array, key: Array, limit: float) -> tuple[Array, Array]:
    """Return queries and keys of the pairs of least total distance that hold every one within the limit of another.

    Parameters
    ----------
    query, key : array of shape (n,) and (m,), float64
    limit : float

    Examples
    --------
    >>> full_matching(np.array([0.0, 1.0]), np.array([0.9, 1.3, 9]), limit=2)
    (array([0, 1]), array([0, 1]))
    """
    line = Windows.of(query, key, limit)
    value, start, bits = np.zeros(1), 0, []  # least total up to the pair of the query before and these keys
    for row, (first, last) in enumerate(zip(line.first.tolist(), line.last.tolist(), strict=True)):
        distances = line.distances(row)
        before = np.full(last - first + 1, np.inf)  # the same, from the key before the window
        if row:
            overlap = value[max(first - 1 - start, 0) :]
            offset = start - (first - 1) if start > first - 1 else 0
            before[offset : offset + len(overlap)] = overlap
        else:
            before[0] = 0
        diagonal = before[:-1] <= before[1:]
        total = distances.cumsum()
        ways = np.minimum(before[:-1], before[1:]) - (total - distances)
        best = np.minimum.accumulate(ways)
        bits.append((np.packbits(diagonal), np.packbits(best < ways)))
        value, start = total + best, first
    queries, keys = _trace_full(line, bits)
    return line.query_row[queries], line.key_row[keys]


def _trace_full(line: Windows, bits: list[tuple[Array, Array]]) -> tuple[list[int], list[int]]:
    queries, keys = [], []
    first = line.first.tolist()
    row, place = len(line.query) - 1, len(line.key) - 1
    while row >= 0:
        queries.append(row)
        keys.append(place)
        diagonal, carries = bits[row]
        if _bit(carries, place - first[row]):
            place -= 1
        else:
            place -= _bit(diagonal, place - first[row])
            row -= 1
    return queries[::-1], keys[::-1]


def _bit(packed: Array, place: int) -> int:
    return int(packed[place >> 3]) >> (7 - (place & 7)) & 1
