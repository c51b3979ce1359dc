"""Matching without replacement: queries choose in turn, and a key chosen is gone."""

import heapq
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from okapi.matching.calipers import Admissible
from okapi.matching.search import Search

ORDERS = ("largest", "closest", "data")
LIST = 16  # nearest free keys looked up at a time for a query
BATCH = 512  # queries looked up at a time


class Candidate(NamedTuple):
    """A key that a query may take, and its distance."""

    distance: float
    key: int


def match_without_replacement(
    queries: Tensor,
    keys: Tensor,
    admissible: Admissible,
    k: int,
    order: str,
    query_rows: Tensor,
    key_rows: Tensor,
) -> tuple[Tensor, Tensor]:
    """Match in k rounds; in each every query takes the nearest admissible key that is still free.

    Among the queries of one domain a key is used once; queries of different domains are matched apart. A query that
    finds no key in a round takes no part in the next.

    Parameters
    ----------
    queries, keys : Tensor of shape (n, d) and (m, d)
    admissible : Admissible
    k : int
    order : {"largest", "closest", "data"}
        Who chooses first: the query with the largest propensity of its domain, the query of the closest pair, or the
        first row.
    query_rows, key_rows : Tensor of shape (r,) and (s,)
        Admissible rows among which to match.

    Returns
    -------
    distance, index : Tensor of shape (r, k)
        As `okapi.matching.search.nearest` returns them, in the order of ``query_rows``.
    """
    device = queries.device
    distance = torch.full((len(query_rows), k), torch.inf, dtype=torch.float64, device=device)
    index = torch.full((len(query_rows), k), -1, device=device)
    place = torch.full((len(queries),), -1, device=device)
    place[query_rows] = torch.arange(len(query_rows), device=device)
    for rows in _by_domain(query_rows, admissible):
        plan = admissible.plan(keys.shape[1], rows, key_rows)
        turn = plan.query_order.argsort()
        if order == "largest":
            propensity = admissible.query.domain_propensity()[plan.query_order[turn]]
            turn = turn[propensity.argsort(descending=True, stable=True)]
        free = _FreeKeys(Search(queries, keys, plan))
        positions = turn.tolist()
        for rank in range(k):
            taken = free.take_closest_first(positions) if order == "closest" else free.take_in_turn(positions)
            positions = [position for position in positions if position in taken]
            at = place[plan.query_order[positions]]
            chosen = [taken[position] for position in positions]
            distance[at, rank] = torch.tensor([one.distance for one in chosen], dtype=torch.float64, device=device)
            index[at, rank] = torch.tensor([one.key for one in chosen], dtype=torch.int64, device=device)
    return distance, index


def _by_domain(query_rows: Tensor, admissible: Admissible) -> Iterator[Tensor]:
    """Yield the query rows of each domain; all at once where domains are multi-label."""
    if admissible.multi_label:
        yield query_rows
        return
    domain = admissible.query.domain[query_rows]
    for one in torch.unique(domain):
        yield query_rows[domain == one]


class _FreeKeys:
    """Keys that are still free, and who takes them. Queries are positions in the plan's order, keys are rows."""

    def __init__(self, search: Search) -> None:
        self.search = search
        self.position = {row: position for position, row in enumerate(search.plan.key_order.tolist())}
        self.taken: set[int] = set()
        self._not_yet_removed: list[int] = []

    def take_in_turn(self, positions: list[int]) -> dict[int, Candidate]:
        """Let the queries choose one after the other."""
        chosen: dict[int, Candidate] = {}
        start = 0
        while start < len(positions):
            for position, candidates in self._look_up(positions[start : start + BATCH]):
                nearest = next((one for one in candidates if one.key not in self.taken), None)
                if nearest is None and len(candidates) == LIST:
                    break  # all taken since they were looked up, and there may be more: look up again from here
                if nearest is not None:
                    chosen[position] = self._take(nearest)
                start += 1
        return chosen

    def take_closest_first(self, positions: list[int]) -> dict[int, Candidate]:
        """Let the closest pair of a query without a key and a free key go first; ties to the earlier row."""
        candidates: dict[int, list[Candidate]] = {}
        for start in range(0, len(positions), BATCH):
            candidates.update(self._look_up(positions[start : start + BATCH]))
        row = self.search.plan.query_order.tolist()
        heap = [(of_query[0], row[position], position) for position, of_query in candidates.items() if of_query]
        heapq.heapify(heap)
        chosen: dict[int, Candidate] = {}
        while heap:
            nearest, _, position = heapq.heappop(heap)
            if nearest.key not in self.taken:
                chosen[position] = self._take(nearest)
                continue
            free = [one for one in candidates[position] if one.key not in self.taken]
            if not free and len(candidates[position]) == LIST:
                _, free = next(self._look_up([position]))
                candidates[position] = free
            if free:
                heapq.heappush(heap, (free[0], row[position], position))
        return chosen

    def _take(self, candidate: Candidate) -> Candidate:
        self.taken.add(candidate.key)
        self._not_yet_removed.append(self.position[candidate.key])
        return candidate

    def _look_up(self, positions: list[int]) -> Iterator[tuple[int, list[Candidate]]]:
        """Yield each query with its nearest free keys, at most ``LIST``."""
        device = self.search.queries.device
        self.search.remove(torch.tensor(self._not_yet_removed, dtype=torch.int64, device=device))
        self._not_yet_removed.clear()
        ascending, order = torch.tensor(positions, dtype=torch.int64, device=device).sort()
        distance, index = self.search.nearest(LIST, ascending)
        back = order.argsort()
        for position, distances, keys in zip(positions, distance[back].tolist(), index[back].tolist(), strict=True):
            yield position, [Candidate(d, key) for d, key in zip(distances, keys, strict=True) if key >= 0]
