"""The exact k nearest admissible keys of every query: the one hot loop.

Candidates are found by a matrix product in float32 on centred data, block by block, and ranked by
``|k|^2 / 2 - q.k``. They are then re-scored as summed squared differences in float64. A bound on the product's error
tells whether a key that was not fetched could belong to the result; for the few queries where it could, every key
within the bound is re-scored. So the result is exact and depends neither on block sizes nor on an offset of the data.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from okapi.matching.plans import FAR, Block, Plan, Tile, spread

MARGIN = 2  # candidates fetched beyond k, and one more
LONG = 512  # for each so many columns: the longer the sums, the larger their error
PRODUCT = 2048  # keys per matrix product
PANEL = 1 << 22  # scores of a block kept at a time: they stay in the cache until the best are selected
GROUP = 8  # scores of which the smallest is found before any are selected
NARROW = 64  # scores for each that is wanted up to which topk, which keeps a heap from here on, is quicker
SHORT = 1 << 16  # scores in all up to which it is, too
PIECE = 1 << 17  # numbers handled at a time in float64: they stay in the cache
FEW = 128  # queries up to which all scores are quicker to have than a sorted copy of the keys
EPSILON = torch.finfo(torch.float32).eps / 2


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
        self._memory: dict[str, Tensor] = {}
        self.empty = not len(plan.query_order) or not len(plan.key_order)
        if self.empty:
            return
        center, self.scale = _center_and_scale(queries, keys)
        self.q_sorted, q_norm = _prepare(queries, plan.query_order, center, self.scale)
        self.q_norm = q_norm.double()
        self.table: Tensor | None = None
        if len(plan.query_order) <= min(FEW, keys.shape[1]):  # and take no more memory
            self.table, k_norm = self._score_all(center)
        else:
            self.k_sorted, k_norm = _prepare(keys, plan.key_order, center, self.scale)
            self.half_norm = k_norm / 2
        self.error = self._error_bound(self.q_norm.sqrt(), k_norm.amax().double().sqrt())

    @torch.no_grad()
    def nearest(self, k: int, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return distances and key rows, each (r, k), of all queries or of those at positions ``rows``, ascending."""
        n_rows = len(self.plan.query_order) if rows is None else len(rows)
        if self.empty or not n_rows:
            distance = torch.full((n_rows, k), torch.inf, dtype=torch.float64, device=self.queries.device)
            return distance, torch.full((n_rows, k), -1, device=self.queries.device)
        with _full_precision(self.queries.device):
            score, position = self._candidates(k + MARGIN + self.keys.shape[1] // LONG, rows)
            return self._settle(k, score, position, rows)

    def remove(self, position: Tensor) -> None:
        """Leave the keys at these positions of the plan's order out from now on."""
        if self.table is None:
            self.half_norm[position] = torch.inf
        else:
            self.table[:, position] = torch.inf

    def _score_all(self, center: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scores of few queries with all keys in the plan's order, and the keys' squared norms.

        Fewer numbers than a sorted copy of the keys, and the keys are read once.
        """
        order, width = self.plan.key_order, self.keys.shape[1]
        table = torch.empty(len(self.q_sorted), len(order), device=self.keys.device)
        norm = torch.empty(len(order), device=self.keys.device)
        with _full_precision(self.keys.device):
            for start in range(0, len(order), PRODUCT):
                part = slice(start, min(start + PRODUCT, len(order)))
                piece = self._scratch("keys", part.stop - start, width)
                _prepare_piece(self.keys, order[part], center, self.scale, piece)
                norm[part] = _squared_norm(piece)
                torch.addmm(norm[part] / 2, self.q_sorted, piece.T, alpha=-1, out=table[:, part])
        return table, norm

    def _error_bound(self, q: Tensor, k: Tensor) -> Tensor:
        """Bound what rounding can do to the scores of queries of norm q (n,) with keys of norm at most k.

        Counts the rounding of the inputs, and of the product and the squared norms in any order of summation.
        """
        width = self.q_sorted.shape[1]
        return 1.01 * EPSILON * ((width + 8) * q * k + (width / 2 + 4) * (k.square() + q.square()))

    def _candidates(self, fetch: int, rows: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the ``fetch`` best scores of every query, ascending, and the positions of their keys."""
        n_rows = len(self.q_sorted) if rows is None else len(rows)
        best = torch.full((n_rows, fetch), torch.inf, device=self.q_sorted.device)
        where = torch.full((n_rows, fetch), -1, device=self.q_sorted.device)
        for block, at in self._blocks(rows):
            in_block = block.rows if rows is None else rows[at]
            for number, (panel, keys) in enumerate(self._panels(block, in_block)):
                score, position = _smallest(panel, fetch)
                position = keys[position]
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
        """Yield the blocks that hold queries looked for, with the place of these among all that are."""
        if rows is None:
            yield from ((block, block.rows) for block in self.plan.blocks)
            return
        ends = torch.tensor([(block.rows.start, block.rows.stop) for block in self.plan.blocks], device=rows.device)
        for block, (start, stop) in zip(self.plan.blocks, torch.searchsorted(rows, ends).tolist(), strict=True):
            if start < stop:
                yield block, slice(start, stop)

    def _panels(self, block: Block, rows: slice | Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield ``|k|^2 / 2 - q.k``, beyond `FAR` where a pair is inadmissible, and the positions of the keys.

        The scores are valid until the next are asked for.
        """
        fit = PANEL // (rows.stop - rows.start if isinstance(rows, slice) else len(rows))
        for columns in block.chunks(max(2 * PRODUCT, fit - fit % PRODUCT)):
            keys = torch.arange(columns.start, columns.stop, device=self.q_sorted.device)
            yield self._panel(block, rows, columns), keys
        if block.picked is not None:
            for keys in block.picked.split(max(PRODUCT, PANEL // self.q_sorted.shape[1])):
                yield self._picked_panel(block, rows, keys), keys

    def _picked_panel(self, block: Block, rows: slice | Tensor, picked: Tensor) -> Tensor:
        q = self.q_sorted[rows]
        panel = self._scratch("panel", len(q), len(picked))
        if self.table is None:
            keys = self._scratch("keys", len(picked), q.shape[1])
            torch.index_select(self.k_sorted, 0, picked, out=keys)
            torch.addmm(self.half_norm.index_select(0, picked), q, keys.T, alpha=-1, out=panel)
        else:
            torch.index_select(self.table[rows], 1, picked, out=panel)
        self.plan.exclude_picked_(panel, rows, picked, block)
        return panel

    def _panel(self, block: Block, rows: slice | Tensor, columns: slice) -> Tensor:
        n_rows = rows.stop - rows.start if isinstance(rows, slice) else len(rows)
        width = columns.stop - columns.start
        panel = self._scratch("panel", n_rows, spread(width))[:, :width]
        tiles = self.plan.tiles(block, columns) if isinstance(rows, slice) else None
        if tiles is not None and not self.plan.tiles_cover_all:
            self._fill_tiles(panel, block, columns, tiles)
            return panel
        for tile in tiles or ():  # pairs are excluded first, and the product is added to that
            self._start(tile, _within(panel, tile.columns, columns))
        q = self.q_sorted[rows]
        for start in range(columns.start, columns.stop, PRODUCT):
            part = slice(start, min(start + PRODUCT, columns.stop))
            out = _within(panel, part, columns)
            if self.table is not None:
                out.copy_(self.table[rows, part]) if tiles is None else out.add_(self.table[rows, part])
            elif tiles is None:
                torch.addmm(self.half_norm[part], q, self.k_sorted[part].T, alpha=-1, out=out)
            else:
                out.addmm_(q, self.k_sorted[part].T, alpha=-1)
            if tiles is None:
                self.plan.exclude_(out, rows, part, block)
        return panel

    def _fill_tiles(self, panel: Tensor, block: Block, columns: slice, tiles: Iterator[Tile]) -> None:
        panel.fill_(torch.inf)
        queries = self.q_sorted[block.rows]
        for tile in tiles:
            part = tile.columns
            out = self._scratch("tile", len(tile.rows), part.stop - part.start)
            self._start(tile, out)
            if self.table is None:
                q = self._scratch("queries", len(tile.rows), queries.shape[1])
                torch.index_select(queries, 0, tile.rows, out=q)
                out.addmm_(q, self.k_sorted[part].T, alpha=-1)
            else:
                out += self.table[block.rows, part][tile.rows]
            _within(panel, part, columns).index_copy_(0, tile.rows, out)

    def _start(self, tile: Tile, out: Tensor) -> None:
        """Write a tile's scores before its product: half the keys' squared norm and what excludes pairs."""
        outside = self.plan.outside(tile, self._scratch)
        if self.table is None:
            torch.maximum(self.half_norm[tile.columns], outside, out=out)
        else:
            torch.clamp(outside, min=0, out=out)

    def _scratch(self, name: str, n_rows: int, width: int) -> Tensor:
        """Return memory that is used again and again; what is not used of it costs nothing."""
        memory = self._memory.get(name)
        if memory is None or memory.numel() < n_rows * width:
            size = max(PANEL, n_rows * width * 5 // 4)
            memory = self._memory[name] = torch.empty(size, device=self.queries.device)
        return memory[: n_rows * width].view(n_rows, width)

    def _settle(self, k: int, score: Tensor, position: Tensor, rows: Tensor | None) -> tuple[Tensor, Tensor]:
        """Re-score candidates exactly, few at first, until no key left out can belong to the result."""
        fetch = position.shape[1]
        rows = torch.arange(len(position), device=position.device) if rows is None else rows
        admitted = self.plan.admits(rows[:, None].expand_as(position), position.clamp(min=0))
        position = position.masked_fill(~admitted, -1)
        distance = torch.full((len(position), k), torch.inf, dtype=torch.float64, device=position.device)
        index = torch.full_like(position[:, :k], -1)
        open_ = torch.arange(len(position), device=position.device)
        for width in (k, fetch):
            distance[open_], index[open_] = self._rescore(k, rows[open_], position[open_, :width])
            # The first candidate left out, or the last one fetched, bounds all that were not looked at.
            next_score = score[open_, min(width, fetch - 1)].double() - self.error[rows[open_]]
            bound = (self.q_norm[rows[open_]] + 2 * next_score) / self.scale**2
            open_ = open_[(distance[open_, -1] >= bound) & next_score.isfinite()]
            if not len(open_):
                break
        else:
            distance[open_], index[open_] = self._exhaust(rows[open_], distance[open_, -1], k)
        return distance.sqrt_(), index

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
        step = max(1, PIECE // (max(1, index.shape[1]) * max(1, self.keys.shape[1])))
        for start in range(0, len(index), step):
            part = slice(start, start + step)
            keys = self.keys.index_select(0, index[part].flatten()).double().unflatten(0, index[part].shape)
            queries = self.queries.index_select(0, query[part]).double()
            out[part] = keys.sub_(queries[:, None]).square_().sum(-1)
        return out

    def _exhaust(self, rows: Tensor, kth: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Re-score every key that the error bound lets be as near as the k-th found so far."""
        limit = ((kth * self.scale**2 - self.q_norm[rows]) / 2 + self.error[rows]).float()
        limit = torch.nextafter(limit, torch.full_like(limit, torch.inf)).clamp_(max=FAR / 2)
        found = _Nearest(len(rows), k, rows.device)
        for block, at in self._blocks(rows):
            for panel, keys in self._panels(block, rows[at]):
                row, column = (panel <= limit[at, None]).nonzero(as_tuple=True)
                position = keys[column]
                admitted = self.plan.admits(rows[at][row], position)
                row, index = row[admitted], self.plan.key_order[position[admitted]]
                distance = self._squared_distance(rows[at][row], index[:, None])[:, 0]
                found.add(row + at.start, distance, index)
        return found.table()


class _Nearest:
    """The k nearest of a growing list of pairs, per row; ties to the lower index."""

    def __init__(self, n_rows: int, k: int, device: torch.device) -> None:
        self.n_rows, self.k = n_rows, k
        self.row = torch.empty(0, dtype=torch.int64, device=device)
        self.distance = torch.empty(0, dtype=torch.float64, device=device)
        self.index = torch.empty(0, dtype=torch.int64, device=device)

    def add(self, row: Tensor, distance: Tensor, index: Tensor) -> None:
        row, distance, index = (
            torch.cat([self.row, row]),
            torch.cat([self.distance, distance]),
            torch.cat([self.index, index]),
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


def _within(panel: Tensor, part: slice, columns: slice) -> Tensor:
    """Return the part of a panel of the keys ``columns`` that holds some of them."""
    return panel[:, part.start - columns.start : part.stop - columns.start]


def _smallest(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the ``count`` smallest scores of every row, ascending, fewer in a narrower matrix, and their columns.

    The best columns lie in the groups with the best minima. Minima are quick to find, selecting is not: so groups are
    selected first, in the same way, then columns of these few.
    """
    width = scores.shape[1]
    if width <= NARROW * count or scores.numel() <= SHORT:
        value, column = scores.topk(min(count, width), dim=1, largest=False)
        return value, column
    n_groups = width // GROUP
    grouped = scores[:, : GROUP * n_groups].unflatten(1, (GROUP, n_groups))
    group = _smallest(grouped.amin(1), count)[1]
    members = grouped.gather(2, group[:, None].expand(-1, GROUP, -1)).flatten(1)
    members = torch.cat([members, scores[:, GROUP * n_groups :]], 1)  # and the columns that fill no group
    value, member = members.topk(count, dim=1, largest=False)
    column = group.gather(1, member % count) + member // count * n_groups
    return value, torch.where(member < GROUP * count, column, member + GROUP * (n_groups - count))


def _center_and_scale(queries: Tensor, keys: Tensor) -> tuple[Tensor, float]:
    """Return a centre of the data and a power of two that brings centred values near one, against overflow."""
    center = keys[:: max(1, len(keys) // 4096)].double().mean(0)
    reach = torch.stack([x.double() for side in (queries, keys) for x in side.aminmax()]).abs().amax()
    spread = float(reach + center.abs().amax())
    exponent = math.frexp(spread)[1] if spread else 0
    return center, 2.0 ** -max(-500, min(500, exponent))


def _prepare(vectors: Tensor, order: Tensor, center: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Return the rows in ``order``, centred, scaled, float32, and their squared norms, float32.

    Works in pieces that stay in the cache, so that no wider copy is made of the whole.
    """
    out = torch.empty(len(order), vectors.shape[1], device=vectors.device)
    norm = torch.empty(len(order), device=vectors.device)
    step = max(1, PIECE // max(1, vectors.shape[1]))
    for start in range(0, len(order), step):
        part = slice(start, start + step)
        _prepare_piece(vectors, order[part], center, scale, out[part])
        norm[part] = _squared_norm(out[part])
    return out, norm


def _prepare_piece(vectors: Tensor, rows: Tensor, center: Tensor, scale: float, out: Tensor) -> None:
    """Write the rows, centred and scaled, to ``out``, float32."""
    if vectors.dtype == torch.float32:
        torch.index_select(vectors, 0, rows, out=out)
        out.sub_(center.float()).mul_(scale)
    else:
        wide = vectors[rows]
        wide = wide if vectors.dtype == torch.float64 else wide.float()
        out.copy_(wide.sub_(center.to(wide.dtype)).mul_(scale))


def _squared_norm(vectors: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(vectors, dim=1)
    return norm.square_()


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
