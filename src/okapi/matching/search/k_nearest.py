"""The search itself: candidates by a matrix product, exact distances, and whether these settle the result."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from okapi.matching.search.panels import PANEL, Panels
from okapi.matching.search.plan import FAR, Block, Plan
from okapi.matching.search.vectors import AT_ONCE, center_and_scale, error_bound, prepare

LONG = 512  # columns for each of which a candidate is fetched beyond k + 1: the longer the sums, the larger their error
MORE = 8  # times as many are fetched for the queries that these do not settle


def nearest(queries: Tensor, keys: Tensor, plan: Plan, k: int) -> tuple[Tensor, Tensor]:
    """Find the k nearest admissible keys of every query of the plan.

    Parameters
    ----------
    queries : Tensor of shape (n, d)
    keys : Tensor of shape (m, d)
    plan : Plan
        Which pairs are admissible.
    k : int

    Returns
    -------
    distance : Tensor of shape (len(plan.query_order), k), float64
        Euclidean; infinite where there is no k-th admissible key.
    index : Tensor of the same shape, int64
        Rows of ``keys``, nearest first, ties to the lower row; -1 where there is none.
    """
    return Search(queries, keys, plan).nearest(k)


class Search:
    """Searches among keys prepared once: for all queries, or again for some after keys were removed.

    Parameters
    ----------
    queries : Tensor of shape (n, d)
    keys : Tensor of shape (m, d)
    plan : Plan
    """

    @torch.no_grad()
    def __init__(self, queries: Tensor, keys: Tensor, plan: Plan) -> None:
        self.queries, self.keys, self.plan = queries, keys, plan
        if self._is_empty():
            return
        center, self.scale = center_and_scale(queries, keys)
        q_sorted, q_norm = prepare(queries, plan.query_order, center, self.scale)
        k_sorted, k_norm = prepare(keys, plan.key_order, center, self.scale)
        self.q_norm = q_norm.double()
        self.error = error_bound(queries.shape[1], self.q_norm.sqrt(), k_norm.amax().double().sqrt())
        self.half_norm = k_norm / 2
        self.panels = Panels(plan, q_sorted, k_sorted, self.half_norm)

    @torch.no_grad()
    def nearest(self, k: int, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return distances and key rows, each (r, k), of all queries or of those at positions ``rows``, ascending."""
        device, n_keys = self.queries.device, len(self.plan.key_order)
        n_rows = len(self.plan.query_order) if rows is None else len(rows)
        if self._is_empty() or not n_rows:
            distance = torch.full((n_rows, k), torch.inf, dtype=torch.float64, device=device)
            return distance, torch.full((n_rows, k), -1, device=device)
        with _full_precision(device):
            fetch = k + 1 + self.keys.shape[1] // LONG
            distance, index, unsettled = self._attempt(k, fetch, rows)
            while len(unsettled):
                fetch = min(MORE * fetch, n_keys + k)  # with all keys fetched, nothing is left unsettled
                some_left = []
                for some in unsettled.split(max(1, PANEL // fetch)):
                    distance[some], index[some], left = self._attempt(k, fetch, some if rows is None else rows[some])
                    some_left.append(some[left])
                unsettled = torch.cat(some_left)
        return distance.sqrt_(), index

    def remove(self, position: Tensor) -> None:
        """Leave the keys at these positions of the plan's order out from now on."""
        self.half_norm[position] = torch.inf

    def _is_empty(self) -> bool:
        return not len(self.plan.query_order) or not len(self.plan.key_order)

    def _attempt(self, k: int, fetch: int, rows: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return squared distances and rows of the k nearest among the ``fetch`` best candidates of each query.

        The third are the places of the queries to which another key may be nearer.
        """
        score, position = self._candidates(fetch, rows)
        if rows is None:
            rows = torch.arange(len(score), device=score.device)
        admitted = self.plan.admits(rows[:, None].expand_as(position), position.clamp(min=0))
        distance, index = self._rescore(k, rows, position.masked_fill_(~admitted, -1))
        last = score[:, -1].double()  # which bounds those of all keys that were not fetched
        bound = (self.q_norm[rows] + 2 * (last - self.error[rows])) / self.scale**2
        return distance, index, ((distance[:, -1] >= bound) & last.isfinite()).nonzero()[:, 0]

    def _candidates(self, fetch: int, rows: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the ``fetch`` best scores of every query, ascending, and the positions of their keys.

        Infinite and -1 where there are fewer.
        """
        n_rows = len(self.q_norm) if rows is None else len(rows)
        best = torch.full((n_rows, fetch), torch.inf, device=self.q_norm.device)
        where = torch.full((n_rows, fetch), -1, device=self.q_norm.device)
        for block, at in self._blocks(rows):
            for number, panel in enumerate(self.panels.of_block(block, None if rows is None else rows[at])):
                score, place = panel.smallest(fetch)
                position = block.keys(place)
                if number:
                    score = torch.cat([best[at], score], 1)
                    position = torch.cat([where[at], position], 1)
                    score, order = score.topk(fetch, dim=1, largest=False)
                    position = position.gather(1, order)
                best[at, : score.shape[1]] = score
                where[at, : score.shape[1]] = position
        far = best >= FAR
        return best.masked_fill_(far, torch.inf), where.masked_fill_(far, -1)

    def _blocks(self, rows: Tensor | None) -> Iterator[tuple[Block, slice]]:
        """Yield the blocks that hold queries to search for, with the places of these among all that are."""
        if rows is None:
            yield from ((block, block.rows) for block in self.plan.blocks)
            return
        ends = torch.tensor([(block.rows.start, block.rows.stop) for block in self.plan.blocks], device=rows.device)
        for block, (start, stop) in zip(self.plan.blocks, torch.searchsorted(rows, ends).tolist(), strict=True):
            if start < stop:
                yield block, slice(start, stop)

    def _rescore(self, k: int, rows: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
        """Return squared distance and row of the k nearest of each query's candidates (r, c)."""
        last = torch.iinfo(torch.int64).max
        index = self.plan.key_order[position.clamp(min=0)].masked_fill_(position < 0, last)
        index = index.sort(1).values  # so that a stable sort by distance leaves ties in order of their row
        missing = index == last
        distance = self._squared_distance(rows, index.masked_fill_(missing, 0)).masked_fill_(missing, torch.inf)
        distance, order = distance.sort(dim=1, stable=True)
        index = index.masked_fill_(missing, -1).gather(1, order)
        return distance[:, :k], index[:, :k]

    def _squared_distance(self, rows: Tensor, index: Tensor) -> Tensor:
        """Return the sums of squared differences (r, c), float64, of queries (r,) and keys (r, c)."""
        query = self.plan.query_order[rows]
        out = torch.empty(index.shape, dtype=torch.float64, device=index.device)
        step = max(1, AT_ONCE // (index.shape[1] * self.keys.shape[1]))
        for start in range(0, len(index), step):
            part = slice(start, start + step)
            keys = self.keys.index_select(0, index[part].flatten()).double().unflatten(0, index[part].shape)
            queries = self.queries.index_select(0, query[part]).double()
            out[part] = keys.sub_(queries[:, None]).square_().sum(-1)
        return out


@contextmanager
def _full_precision(device: torch.device) -> Iterator[None]:
    """Keep autocast and reduced-precision products out of the search: its error bound is that of float32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)
