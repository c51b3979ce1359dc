"""The exact k nearest admissible keys of every query: the one hot loop.

Candidates are found by a matrix product on centred data, block by block, and ranked by ``|k|^2 / 2 - q.k``. They are
then re-scored as summed squared differences in float64. A bound on the product's error tells whether a key that was not
fetched could belong to the result; for the few queries where it could, every key within the bound is re-scored. So the
result is exact and depends neither on block sizes nor on an offset of the data, nor on the precision of the product:
half where the processor is quicker with it and a few queries show that it settles nearly all, single else.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial

import torch
from torch import Tensor

from okapi.matching.plans import FAR, Band, Block, Plan, Tile, spread
from okapi.matching.selection import Nearest, smallest
from okapi.matching.vectors import PIECE, center_and_scale, prepare, prepare_piece, roomy_empty, squared_norm

MARGIN = 2  # candidates fetched beyond k, and one more
LONG = 512  # for each so many columns: the longer the sums, the larger their error
PRODUCT = 2048  # keys per matrix product
PANEL = 1 << 22  # scores of a block kept at a time: they stay in the cache until the best are selected
FEW = 128  # queries up to which all scores are quicker to have than a sorted copy of the keys
HALF_FLOPS, HALF_WIDTH = 4e9, 256  # of the products, and columns, from which on half precision is worth a try
HALF_MARGIN = 12  # candidates that are fetched in addition then, and half as many as are wanted
CLUMPS, CLUMP = 8, 8  # queries by which it is tried, in so many places
UNSETTLED = 1 / 8  # share of them that may need more precision
EPSILON = torch.finfo(torch.float32).eps / 2
EPSILON_HALF = torch.finfo(torch.bfloat16).eps / 2

Locate = Callable[[Tensor, Tensor], Tensor]  # rows and columns of a panel to positions of keys


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
    if not _half_precision_pays(queries, keys, plan):
        return Search(queries, keys, plan).nearest(k)
    search = Search(queries, keys, plan, torch.bfloat16)
    if not search.settles(k):
        del search  # its copy of the keys, before another is made
        return Search(queries, keys, plan).nearest(k)
    # To re-score as many pairs as there are keys costs as much as to prepare the keys once more.
    distance, index, left = search.nearest_or_left(k, most=len(keys))
    del search
    if len(left):
        distance[left], index[left] = Search(queries, keys, plan).nearest(k, left)
    return distance, index


class Search:
    """Searches among keys prepared once: for all queries, or again for some after keys were removed.

    Parameters
    ----------
    queries : Tensor of shape (n, d)
    keys : Tensor of shape (m, d)
    plan : Plan
    dtype : torch.float32 or torch.bfloat16
        Of the vectors in the product by which candidates are found.
    """

    @torch.no_grad()
    def __init__(self, queries: Tensor, keys: Tensor, plan: Plan, dtype: torch.dtype = torch.float32) -> None:
        self.queries, self.keys, self.plan, self.dtype = queries, keys, plan, dtype
        self._memory: dict[str, Tensor] = {}
        self.empty = not len(plan.query_order) or not len(plan.key_order)
        if self.empty:
            return
        center, self.scale = center_and_scale(queries, keys)
        self.q_sorted, q_norm, q_lost = prepare(queries, plan.query_order, center, self.scale, dtype)
        self.q_norm = q_norm.double()
        self.table: Tensor | None = None
        k_lost = torch.zeros((), device=keys.device)
        if len(plan.query_order) <= min(FEW, keys.shape[1]):  # and take no more memory
            self.table, k_norm = self._score_all(center)
        else:
            self.k_sorted, k_norm, k_lost = prepare(keys, plan.key_order, center, self.scale, dtype)
            self.half_norm = k_norm / 2
        self.largest = k_norm.amax().double() / 2
        norms = self.q_norm.sqrt(), (2 * self.largest).sqrt()
        self.error = self._error_bound(*norms, q_lost.double(), k_lost.amax().double())

    @torch.no_grad()
    def nearest(self, k: int, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return distances and key rows, each (r, k), of all queries or of those at positions ``rows``, ascending."""
        distance, index, _ = self.nearest_or_left(k, rows)
        return distance, index

    @torch.no_grad()
    def nearest_or_left(
        self, k: int, rows: Tensor | None = None, most: float = math.inf
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Do the same, and return the places of the queries whose keys are not settled, so that another search may.

        There are none unless more than ``most`` pairs would have to be re-scored.
        """
        n_rows = len(self.plan.query_order) if rows is None else len(rows)
        if self.empty or not n_rows:
            distance = torch.full((n_rows, k), torch.inf, dtype=torch.float64, device=self.queries.device)
            index = torch.full((n_rows, k), -1, device=self.queries.device)
            return distance, index, torch.arange(0, device=self.queries.device)
        with _full_precision(self.queries.device):
            score, position = self._candidates(self._fetch(k), rows)
            rows = torch.arange(n_rows, device=self.queries.device) if rows is None else rows
            distance, index, left = self._settle(k, score, position, rows)
            if len(left):
                found = self._exhaust(rows[left], distance[left, -1], k, most)
                if found is not None:
                    distance[left], index[left] = found
                    left = left[:0]
        return distance.sqrt_(), index, left

    @torch.no_grad()
    def settles(self, k: int) -> bool:
        """Try a few of the queries: whether the product is precise enough to settle nearly all."""
        if self.empty:
            return True
        n_rows = len(self.q_sorted)
        step = max(1, n_rows // CLUMPS)
        rows = torch.arange(n_rows, device=self.q_sorted.device)
        rows = rows[rows % step < CLUMP]
        with _full_precision(self.queries.device):
            open_ = self._settle(k, *self._candidates(self._fetch(k), rows), rows)[2]
        return len(open_) <= UNSETTLED * len(rows)

    def _fetch(self, k: int) -> int:
        """Return how many candidates are looked at: the less precise their scores, the more."""
        margin = MARGIN + self.keys.shape[1] // LONG
        return k + margin + (HALF_MARGIN + k // 2 if self.dtype == torch.bfloat16 else 0)

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
                prepare_piece(self.keys, order[part], center, self.scale, piece)
                norm[part] = squared_norm(piece)
                torch.addmm(norm[part] / 2, self.q_sorted, piece.T, alpha=-1, out=table[:, part])
        return table, norm

    def _error_bound(self, q: Tensor, k: Tensor, q_lost: Tensor, k_lost: Tensor) -> Tensor:
        """Bound what rounding can do to the scores of queries of norm q (n,) with keys of norm at most k.

        Counts the rounding of the inputs, and of the product and the squared norms in any order of summation. In half
        precision the inputs lost vectors of norm ``q_lost`` (n,) and at most ``k_lost``; `_rounding` is counted apart.
        """
        width = self.q_sorted.shape[1]
        single = 1.01 * EPSILON * ((width + 8) * q * k + (width / 2 + 4) * (k.square() + q.square()))
        if self.dtype == torch.float32:
            return single
        return 2 * single + 1.01 * (q_lost * k + (q + q_lost) * k_lost)

    def _rounding(self, score: Tensor) -> Tensor:
        """Bound what rounding the product to half precision does to a score: the product is ``|k|^2 / 2`` less it."""
        if self.dtype == torch.float32:
            return torch.zeros_like(score)
        return 1.01 * EPSILON_HALF * torch.maximum((self.largest - score).abs(), score.abs())

    def _candidates(self, fetch: int, rows: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the ``fetch`` best scores of every query, ascending, and the positions of their keys."""
        n_rows = len(self.q_sorted) if rows is None else len(rows)
        best = torch.full((n_rows, fetch), torch.inf, device=self.q_sorted.device)
        where = torch.full((n_rows, fetch), -1, device=self.q_sorted.device)
        for block, at in self._blocks(rows):
            in_block = block.rows if rows is None else rows[at]
            place = torch.arange(at.stop - at.start, device=best.device)[:, None]
            for number, (panel, locate) in enumerate(self._panels(block, in_block)):
                score, column = smallest(panel, fetch)
                position = locate(place, column)
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

    def _panels(self, block: Block, rows: slice | Tensor) -> Iterator[tuple[Tensor, Locate]]:
        """Yield ``|k|^2 / 2 - q.k``, beyond `FAR` where a pair is inadmissible, and where the keys are.

        The scores are valid until the next are asked for.
        """
        fit = PANEL // (rows.stop - rows.start if isinstance(rows, slice) else len(rows))
        size = max(2 * PRODUCT, fit - fit % PRODUCT)
        bands = self.plan.bands(block, size) if isinstance(rows, slice) else None
        if bands is not None:
            yield from (self._banded_panel(block, some) for some in _fitting(bands, size))
            return
        for columns in block.chunks(size):
            keys = torch.arange(columns.start, columns.stop, device=self.q_sorted.device)
            yield self._panel(block, rows, columns), partial(_locate, keys)
        if block.picked is not None:
            for keys in block.picked.split(max(PRODUCT, PANEL // self.q_sorted.shape[1])):
                yield self._picked_panel(block, rows, keys), partial(_locate, keys)

    def _picked_panel(self, block: Block, rows: slice | Tensor, picked: Tensor) -> Tensor:
        q = self.q_sorted[rows]
        panel = self._scratch("panel", len(q), len(picked))
        if self.table is None:
            keys = self._scratch("keys", len(picked), q.shape[1], self.dtype)
            torch.index_select(self.k_sorted, 0, picked, out=keys)
            self._subtract_product(self.half_norm.index_select(0, picked), q, keys, panel)
        else:
            torch.index_select(self.table[rows], 1, picked, out=panel)
        self.plan.exclude_picked_(panel, rows, picked, block)
        return panel

    def _panel(self, block: Block, rows: slice | Tensor, columns: slice) -> Tensor:
        n_rows = rows.stop - rows.start if isinstance(rows, slice) else len(rows)
        width = columns.stop - columns.start
        panel = self._scratch("panel", n_rows, spread(width))[:, :width]
        tiles = self.plan.tiles(block, columns) if isinstance(rows, slice) else None
        for tile in tiles or ():  # pairs are excluded first, and the product is added to that
            self._start(tile, _within(panel, tile.columns, columns))
        q = self.q_sorted[rows]
        for start in range(columns.start, columns.stop, PRODUCT):
            part = slice(start, min(start + PRODUCT, columns.stop))
            out = _within(panel, part, columns)
            if self.table is not None:
                out.copy_(self.table[rows, part]) if tiles is None else out.add_(self.table[rows, part])
            else:
                self._subtract_product(self.half_norm[part] if tiles is None else out, q, self.k_sorted[part], out)
            if tiles is None:
                self.plan.exclude_(out, rows, part, block)
        return panel

    def _banded_panel(self, block: Block, bands: list[Band]) -> tuple[Tensor, Locate]:
        """Return bands side by side: of each band every query has the scores of its own tile."""
        n_rows, width = block.rows.stop - block.rows.start, sum(band.width for band in bands)
        panel = self._scratch("panel", n_rows, spread(width))[:, :width]
        first = torch.empty(n_rows, len(bands), dtype=torch.int64, device=panel.device)
        strips = panel.split([band.width for band in bands], 1)
        for band, strip, start in zip(bands, strips, first.T, strict=True):
            for tile in band.tiles:
                scores = self._scratch("tile", len(tile.rows), band.width)
                n_keys = tile.columns.stop - tile.columns.start
                scores[:, n_keys:] = torch.inf
                if n_keys:
                    self._fill_tile(tile, block, scores[:, :n_keys])
                strip.index_copy_(0, tile.rows, scores)
                start.index_fill_(0, tile.rows, tile.columns.start)
        return panel, partial(_locate_in_bands, first, [band.width for band in bands])

    def _fill_tile(self, tile: Tile, block: Block, out: Tensor) -> None:
        self._start(tile, out)
        if self.table is None:
            q = self._scratch("queries", len(tile.rows), self.q_sorted.shape[1], self.dtype)
            torch.index_select(self.q_sorted[block.rows], 0, tile.rows, out=q)
            self._subtract_product(out, q, self.k_sorted[tile.columns], out)
        else:
            out += self.table[block.rows, tile.columns][tile.rows]

    def _start(self, tile: Tile, out: Tensor) -> None:
        """Write a tile's scores before its product: half the keys' squared norm and what excludes pairs."""
        outside = self.plan.outside(tile, self._scratch)
        if self.table is None:
            torch.maximum(self.half_norm[tile.columns], outside, out=out)
        else:
            torch.clamp(outside, min=0, out=out)

    def _subtract_product(self, start: Tensor, q: Tensor, keys: Tensor, out: Tensor) -> None:
        """Write ``start - q.k`` to ``out``, which may be ``start`` itself."""
        if self.dtype == torch.float32:
            torch.addmm(start, q, keys.T, alpha=-1, out=out)
        else:
            product = torch.mm(q, keys.T, out=self._scratch("product", len(q), len(keys), self.dtype))
            wide = self._scratch("wide", len(q), len(keys))  # or sub would make a new one
            torch.sub(start, wide.copy_(product), out=out)

    def _scratch(self, name: str, n_rows: int, width: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return memory that is used again and again; what is not used of it costs nothing."""
        memory = self._memory.get(name)
        if memory is None or memory.numel() < n_rows * width:
            size = max(PANEL, n_rows * width * 5 // 4)
            memory = self._memory[name] = roomy_empty(1, size, dtype, self.queries.device)[0]
        return memory[: n_rows * width].view(n_rows, width)

    def _settle(self, k: int, score: Tensor, position: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Re-score candidates exactly, few at first, until no key left out can belong to the result.

        Returns squared distances and rows of the keys, and the places of the queries for which one still can.
        """
        fetch = position.shape[1]
        admitted = self.plan.admits(rows[:, None].expand_as(position), position.clamp(min=0))
        position = position.masked_fill(~admitted, -1)
        distance = torch.full((len(position), k), torch.inf, dtype=torch.float64, device=position.device)
        index = torch.full_like(position[:, :k], -1)
        open_ = torch.arange(len(position), device=position.device)
        for width in (k if self.dtype == torch.float32 else (k + fetch) // 2, fetch):
            distance[open_], index[open_] = self._rescore(k, rows[open_], position[open_, :width])
            # The first candidate left out, or the last one fetched, bounds all that were not looked at.
            next_score = score[open_, min(width, fetch - 1)].double()
            next_score -= self.error[rows[open_]] + self._rounding(next_score)
            bound = (self.q_norm[rows[open_]] + 2 * next_score) / self.scale**2
            open_ = open_[(distance[open_, -1] >= bound) & next_score.isfinite()]
            if not len(open_):
                break
        return distance, index, open_

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

    def _exhaust(self, rows: Tensor, kth: Tensor, k: int, most: float) -> tuple[Tensor, Tensor] | None:
        """Re-score every key that the error bound lets be as near as the k-th found so far.

        None if these are more than ``most`` pairs.
        """
        limit = (kth * self.scale**2 - self.q_norm[rows]) / 2 + self.error[rows]
        limit = (limit + self._rounding(limit)).float()
        limit = torch.nextafter(limit, torch.full_like(limit, torch.inf)).clamp_(max=FAR / 2)
        found, n_pairs = Nearest(len(rows), k, rows.device), 0
        for block, at in self._blocks(rows):
            for panel, locate in self._panels(block, rows[at]):
                row, column = (panel <= limit[at, None]).nonzero(as_tuple=True)
                n_pairs += len(row)
                if n_pairs > most:
                    return None
                position = locate(row, column)
                admitted = self.plan.admits(rows[at][row], position)
                row, index = row[admitted], self.plan.key_order[position[admitted]]
                distance = self._squared_distance(rows[at][row], index[:, None])[:, 0]
                found.add(row + at.start, distance, index)
        return found.table()


def _fitting(bands: Iterator[Band], size: int) -> Iterator[list[Band]]:
    """Yield as many bands at a time as are at most ``size`` wide together."""
    some: list[Band] = []
    for band in bands:
        if some and sum(other.width for other in some) + band.width > size:
            yield some
            some = []
        some.append(band)
    if some:
        yield some


def _locate(keys: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """Return the positions of the keys in some columns, the same in every row."""
    return keys[column]


def _locate_in_bands(first: Tensor, widths: list[int], row: Tensor, column: Tensor) -> Tensor:
    """Return the positions of the keys in some columns of bands whose first key is that of the row and the band."""
    width = torch.tensor(widths, device=first.device)
    start = width.cumsum(0) - width
    band = torch.searchsorted(start, column, right=True) - 1
    return first[row, band] + column - start[band]


def _within(panel: Tensor, part: slice, columns: slice) -> Tensor:
    """Return the part of a panel of the keys ``columns`` that holds some of them."""
    return panel[:, part.start - columns.start : part.stop - columns.start]


def _half_precision_pays(queries: Tensor, keys: Tensor, plan: Plan) -> bool:
    """Return whether products of bfloat16 are likely to be quicker: for large problems, where the processor has them.

    Sums are of single precision there, which the bound on the error relies on.
    """
    width = queries.shape[1]
    if len(plan.query_order) <= FEW or width < HALF_WIDTH or queries.device.type != "cpu":
        return False
    pairs = sum(
        (block.rows.stop - block.rows.start) * sum(span.stop - span.start for span in block.spans)
        for block in plan.blocks
    )
    return 2 * pairs * width >= HALF_FLOPS and _has_bfloat16_products()


@cache
def _has_bfloat16_products() -> bool:
    if not hasattr(torch.cpu, "get_capabilities") or not torch.backends.mkldnn.is_available():
        return False
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name, False) for name in ("avx512_bf16", "amx_bf16"))


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
