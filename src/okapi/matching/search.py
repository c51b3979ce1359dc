"""The exact k nearest admissible keys of every query: the one hot loop.

Candidates are found by a matrix product in float32 on centred data, block by block, and ranked by
``|k|^2 / 2 - q.k``. They are then re-scored as summed squared differences in float64. A bound on the product's error
tells whether a key that was not fetched could belong to the result; for the few queries where it could, every key
within the bound is re-scored. So the result is exact and depends neither on block sizes nor on an offset of the data.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from okapi.matching.plans import Block, Columns, Plan, column_chunks

MARGIN = 3  # candidates fetched beyond k
CHUNK = 8192  # keys per matrix product: its scores stay in the cache until the best are selected
RESCORE_ELEMENTS = 1 << 18
GROUPS = 16  # columns per group when the best groups are selected before the best columns
EPSILON = torch.finfo(torch.float32).eps / 2


@torch.no_grad()
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
    if not len(plan.query_order) or not len(plan.key_order):
        shape = len(plan.query_order), k
        return queries.new_full(shape, torch.inf, dtype=torch.float64), torch.full(shape, -1, device=queries.device)
    with _full_precision(queries.device):
        search = _Search(queries, keys, plan, k)
        score, position = search.candidates()
        return search.settle(score, position)


class _Search:
    def __init__(self, queries: Tensor, keys: Tensor, plan: Plan, k: int) -> None:
        self.queries, self.keys, self.plan, self.k = queries, keys, plan, k
        self.fetch = k + MARGIN
        center, self.scale = _center_and_scale(queries, keys)
        self.q = _prepare(queries, plan.query_order, center, self.scale)
        self.kt = _prepare(keys, plan.key_order, center, self.scale)
        self.half_norm = _squared_norm(self.kt).div_(2)
        self.q_norm = _squared_norm(self.q)
        self.error = self._error_bound()
        self.half_norm = self.half_norm.float()
        self._scores = torch.empty(0, device=queries.device)
        self._gathered = torch.empty(0, device=queries.device)

    def _error_bound(self) -> Tensor:
        """Bound what rounding can do to a query's scores: inputs, product, sum; in any order of summation."""
        q = self.q_norm.sqrt()
        k = (self.half_norm.amax() * 2).sqrt()
        width = self.q.shape[1]
        return 1.01 * EPSILON * ((width + 8) * q * k + 4 * k.square() + 4 * q.square())

    def candidates(self) -> tuple[Tensor, Tensor]:
        """Return the ``fetch`` best scores of every query, ascending, and the positions of their keys."""
        shape = len(self.q), self.fetch
        best = torch.full(shape, torch.inf, device=self.q.device)
        where = torch.full(shape, -1, device=self.q.device)
        for block in self.plan.blocks:
            first = True
            for columns in column_chunks(self.plan, block, CHUNK):
                score, position = _smallest(self.scores(block, block.rows, columns), self.fetch)
                if isinstance(columns, slice):
                    position += columns.start
                else:
                    position = columns[position.clamp_(max=len(columns) - 1)]  # beyond: padding, whose score is infinite
                if not first:
                    score = torch.cat([best[block.rows], score], 1)
                    position = torch.cat([where[block.rows], position], 1)
                    score, order = score.topk(self.fetch, dim=1, largest=False)
                    position = position.gather(1, order)
                best[block.rows, : score.shape[1]] = score
                where[block.rows, : score.shape[1]] = position
                first = False
        where.masked_fill_(best.isinf(), -1)
        return best, where

    def scores(self, block: Block, rows: slice | Tensor, columns: Columns) -> Tensor:
        """Return ``|k|^2 / 2 - q.k`` of queries and keys, infinite where inadmissible; valid until the next call."""
        q, half_norm = self.q[rows], self.half_norm[columns]
        keys = self.kt[columns] if isinstance(columns, slice) else self._gather(columns)
        width = -(-len(keys) // GROUPS) * GROUPS
        out = self._scratch(len(q), width)
        torch.addmm(half_norm, q, keys.T, alpha=-1, out=out[:, : len(keys)])
        out[:, len(keys) :] = torch.inf
        self.plan.exclude_(out[:, : len(keys)], rows, columns, block)
        return out

    def _scratch(self, n_rows: int, width: int) -> Tensor:
        if self._scores.numel() < n_rows * width:
            self._scores = torch.empty(n_rows * width, device=self.q.device)
        return self._scores[: n_rows * width].view(n_rows, width)

    def _gather(self, columns: Tensor) -> Tensor:
        if len(self._gathered) < len(columns):
            self._gathered = torch.empty(min(CHUNK, len(self.kt)), self.kt.shape[1], device=self.q.device)
        return torch.index_select(self.kt, 0, columns, out=self._gathered[: len(columns)])

    def settle(self, score: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
        """Re-score candidates exactly, few at first, until no key left out can belong to the result."""
        rows = torch.arange(len(position), device=position.device)
        distance = torch.full((len(position), self.k), torch.inf, dtype=torch.float64, device=position.device)
        index = torch.full_like(position[:, : self.k], -1)
        for width in (self.k, self.fetch):
            distance[rows], index[rows] = self._rescore(rows, position[rows, :width])
            # The first candidate left out (or the last fetched) bounds all that were not looked at.
            next_score = score[rows, min(width, self.fetch - 1)].double() - self.error[rows]
            bound = (self.q_norm[rows] + 2 * next_score) / self.scale**2
            rows = rows[(distance[rows, -1] >= bound) & next_score.isfinite()]
            if not len(rows):
                break
        else:
            distance[rows], index[rows] = self._exhaust(rows, distance[rows, -1])
        return distance.sqrt_(), index

    def _rescore(self, rows: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
        """Return squared distance and row of the k nearest of each query's candidates (r, c)."""
        index = self.plan.key_order[position.clamp(min=0)].masked_fill_(position < 0, torch.iinfo(torch.int64).max)
        index = index.sort(1).values  # so that a stable sort by distance leaves ties in order of their row
        missing = index == torch.iinfo(torch.int64).max
        index.masked_fill_(missing, 0)
        distance = self._squared_distance(rows, index).masked_fill_(missing, torch.inf)
        distance, order = distance.sort(dim=1, stable=True)
        index = index.masked_fill_(missing, -1).gather(1, order)
        return distance[:, : self.k], index[:, : self.k]

    def _squared_distance(self, rows: Tensor, index: Tensor) -> Tensor:
        """Return the sums of squared differences (r, c), float64, of queries (r,) and keys (r, c)."""
        query = self.plan.query_order[rows]
        out = torch.empty(index.shape, dtype=torch.float64, device=index.device)
        step = max(1, RESCORE_ELEMENTS // (max(1, index.shape[1]) * max(1, self.keys.shape[1])))
        for start in range(0, len(index), step):
            part = slice(start, start + step)
            keys = self.keys[index[part]].double()
            out[part] = keys.sub_(self.queries[query[part], None].double()).square_().sum(-1)
        return out

    def _exhaust(self, rows: Tensor, kth: Tensor) -> tuple[Tensor, Tensor]:
        """Re-score every key that the error bound lets be as near as the k-th found so far."""
        limit = ((kth * self.scale**2 - self.q_norm[rows]) / 2 + self.error[rows]).float()
        limit = torch.nextafter(limit, torch.full_like(limit, torch.inf))
        found = _Nearest(len(rows), self.k, rows.device)
        for block in self.plan.blocks:
            inside = ((rows >= block.rows.start) & (rows < block.rows.stop)).nonzero()[:, 0]
            if not len(inside):
                continue
            for columns in column_chunks(self.plan, block, CHUNK):
                near = self.scores(block, rows[inside], columns) <= limit[inside, None]
                row, column = near.nonzero(as_tuple=True)
                position = column + columns.start if isinstance(columns, slice) else columns[column]
                index = self.plan.key_order[position]
                distance = self._squared_distance(rows[inside][row], index[:, None])[:, 0]
                found.add(inside[row], distance, index)
        return found.table()


class _Nearest:
    """The k nearest of a growing list of pairs, per row; ties to the lower index."""

    def __init__(self, n_rows: int, k: int, device: torch.device) -> None:
        self.n_rows, self.k = n_rows, k
        self.row = torch.empty(0, dtype=torch.int64, device=device)
        self.distance = torch.empty(0, dtype=torch.float64, device=device)
        self.index = torch.empty(0, dtype=torch.int64, device=device)

    def add(self, row: Tensor, distance: Tensor, index: Tensor) -> None:
        row, distance, index = torch.cat([self.row, row]), torch.cat([self.distance, distance]), torch.cat(
            [self.index, index]
        )
        order = index.argsort(stable=True)
        order = order[distance[order].argsort(stable=True)]
        order = order[row[order].argsort(stable=True)]
        keep = order[self._rank(row[order]) < self.k]
        self.row, self.distance, self.index = row[keep], distance[keep], index[keep]

    def _rank(self, row: Tensor) -> Tensor:
        return torch.arange(len(row), device=row.device) - torch.searchsorted(row, row)

    def table(self) -> tuple[Tensor, Tensor]:
        distance = torch.full((self.n_rows, self.k), torch.inf, dtype=torch.float64, device=self.row.device)
        index = torch.full((self.n_rows, self.k), -1, device=self.row.device)
        rank = self._rank(self.row)
        distance[self.row, rank], index[self.row, rank] = self.distance, self.index
        return distance, index


def _smallest(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the ``count`` smallest scores of every row and their columns.

    The best columns lie in the groups with the best minima; minima are quick to find, so few scores need a selection.
    """
    n_rows, width = scores.shape
    n_groups = width // GROUPS
    if n_groups < 4 * count:
        value, column = scores.topk(min(count, width), dim=1, largest=False)
        return value, column
    grouped = scores.view(n_rows, GROUPS, n_groups)
    group = grouped.amin(1).topk(count, dim=1, largest=False, sorted=False).indices
    members = grouped.gather(2, group[:, None].expand(-1, GROUPS, -1)).flatten(1)
    value, member = members.topk(count, dim=1, largest=False)
    column = group.gather(1, member % count) + member // count * n_groups
    return value, column


def _center_and_scale(queries: Tensor, keys: Tensor) -> tuple[Tensor, float]:
    """Return a centre of the data and a power of two that brings centred values near one, against overflow."""
    center = keys[: 1 << 16].double().mean(0)
    reach = torch.stack([x.double() for side in (queries, keys) for x in side.aminmax()]).abs().amax()
    spread = float(reach + center.abs().amax())
    return center, 2.0 ** -torch.tensor(max(spread, 1e-300)).log2().ceil().item()


def _prepare(vectors: Tensor, order: Tensor, center: Tensor, scale: float) -> Tensor:
    """Return the rows in ``order``, centred and scaled, float32; in pieces, so that no wider copy is made of the whole."""
    out = torch.empty(len(order), vectors.shape[1], device=vectors.device)
    for start in range(0, len(order), CHUNK):
        part = slice(start, start + CHUNK)
        rows = vectors[order[part]]
        rows = rows if rows.dtype == torch.float64 else rows.float()
        out[part] = (rows - center.to(rows.dtype)).mul_(scale)
    return out


def _squared_norm(vectors: Tensor) -> Tensor:
    out = torch.empty(len(vectors), dtype=torch.float64, device=vectors.device)
    for start in range(0, len(vectors), CHUNK):
        out[start : start + CHUNK] = vectors[start : start + CHUNK].double().square_().sum(1)
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
