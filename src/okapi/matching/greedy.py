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


class Offer(NamedTuple):
    """A key and its distance from the query it is offered to."""

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
        Who chooses first: the query with the largest propensity of its own domain, the query of the closest pair, or
        the first row.
    query_rows, key_rows : Tensor of shape (r,) and (s,)
        Admissible rows among which to match.

    Returns
    -------
    distance, index : Tensor of shape (r, k)
        As `okapi.matching.search.nearest` returns them, in the order of ``query_rows``.
    """
    distance = torch.full((len(query_rows), k), torch.inf, dtype=torch.float64)
    index = torch.full((len(query_rows), k), -1)
    place = torch.full((len(queries),), -1)
    place[query_rows] = torch.arange(len(query_rows))
    for rows in _by_domain(query_rows, admissible):
        plan = admissible.plan(keys.shape[1], rows, key_rows)
        turn = plan.query_order.argsort()
        if order == "largest":
            own = admissible.query.own_propensity()[plan.query_order[turn]]
            turn = turn[own.argsort(descending=True, stable=True)]
        market = _Market(Search(queries, keys, plan))
        positions = turn.tolist()
        for rank in range(k):
            chosen = market.closest_first(positions) if order == "closest" else market.in_turn(positions)
            positions = [position for position in positions if position in chosen]
            at = place[plan.query_order[positions]]
            distance[at, rank] = torch.tensor([chosen[p].distance for p in positions], dtype=torch.float64)
            index[at, rank] = torch.tensor([chosen[p].key for p in positions], dtype=torch.int64)
    return distance, index


def _by_domain(query_rows: Tensor, admissible: Admissible) -> Iterator[Tensor]:
    """Yield the query rows of each domain; all at once where domains are sets."""
    if admissible.sets:
        yield query_rows
        return
    domain = admissible.query.domain[query_rows]
    for one in torch.unique(domain):
        yield query_rows[domain == one]


class _Market:
    """Keys that are still free, and who takes them. Queries are positions in the plan's order, keys are rows."""

    def __init__(self, search: Search) -> None:
        self.search = search
        self.position = {row: position for position, row in enumerate(search.plan.key_order.tolist())}
        self.taken: set[int] = set()
        self._not_yet_removed: list[int] = []

    def in_turn(self, positions: list[int]) -> dict[int, Offer]:
        """Let the queries choose one after the other."""
        chosen: dict[int, Offer] = {}
        start = 0
        while start < len(positions):
            for position, offers in self._look_up(positions[start : start + BATCH]):
                offer = next((offer for offer in offers if offer.key not in self.taken), None)
                if offer is None and len(offers) == LIST:
                    break  # all taken since they were looked up, and there may be more: look up again from here
                if offer is not None:
                    chosen[position] = self._take(offer)
                start += 1
        return chosen

    def closest_first(self, positions: list[int]) -> dict[int, Offer]:
        """Let the closest pair of a query without a key and a free key go first; ties to the earlier row."""
        offers: dict[int, list[Offer]] = {}
        for start in range(0, len(positions), BATCH):
            offers.update(self._look_up(positions[start : start + BATCH]))
        row = self.search.plan.query_order.tolist()
        heap = [(of[0], row[position], position) for position, of in offers.items() if of]
        heapq.heapify(heap)
        chosen: dict[int, Offer] = {}
        while heap:
            offer, _, position = heapq.heappop(heap)
            if offer.key not in self.taken:
                chosen[position] = self._take(offer)
                continue
            free = [offer for offer in offers[position] if offer.key not in self.taken]
            if not free and len(offers[position]) == LIST:
                _, free = next(self._look_up([position]))
                offers[position] = free
            if free:
                heapq.heappush(heap, (free[0], row[position], position))
        return chosen

    def _take(self, offer: Offer) -> Offer:
        self.taken.add(offer.key)
        self._not_yet_removed.append(self.position[offer.key])
        return offer

    def _look_up(self, positions: list[int]) -> Iterator[tuple[int, list[Offer]]]:
        """Yield each query with its nearest free keys, at most ``LIST``."""
        self.search.remove(torch.tensor(self._not_yet_removed, dtype=torch.int64))
        self._not_yet_removed.clear()
        ascending, order = torch.tensor(positions, dtype=torch.int64).sort()
        distance, index = self.search.nearest(LIST, ascending)
        back = order.argsort()
        for position, distances, keys in zip(positions, distance[back].tolist(), index[back].tolist(), strict=True):
            yield position, [Offer(d, key) for d, key in zip(distances, keys, strict=True) if key >= 0]
