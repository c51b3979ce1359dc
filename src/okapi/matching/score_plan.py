"""The std-caliper between any number of domains, arranged for a blocked search."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from okapi.matching.plans import Band, Block, Plan, Scratch, Tile, at, cut, spread
from okapi.matching.vectors import roomy_empty

ROWS = 4096  # at most 2**15 queries per block where key domains are searched one by one
MIXED_ROWS = 128  # where they are searched together
# What a tile costs beside its pairs, and what a pair costs beside its product, in flops of a matrix product.
TILE_FLOPS = 1.5e7
PAIR_FLOPS = 200
FEWEST_TILES, MOST_TILES = 4, 32
TILED_SHARE = 0.4  # of the pairs, which several tiles of a domain look at, about
PICK_FLOPS = 40  # what a number of a picked key costs
PICKING_ROWS = 64  # queries that pick their keys together
PICKED = 1 << 20  # scores compared at a time to pick keys
SAMPLED = 256  # keys by which the number that would be picked is judged
COUNTED = 4096  # keys counted at a time
GATHERED = 1024  # keys whose scores are rearranged at a time
ROUND = 16  # widths of tiles are multiples of this: the product is faster
LARGEST = 2.0**56  # what scores are scaled to: the least excess of squares is beyond `FAR`, the greatest a float


@dataclass(frozen=True)
class ScoreCaliper:
    """The std-caliper between any two domains.

    Parameters
    ----------
    present : Tensor of shape (A,), int64
        The domains that have queries, ascending.
    of_query, of_key : Tensor of shape (A, S), float64
        Greatest admissible difference of the scores of the query's domain, and of the key's, by query and key domain.
    """

    present: Tensor
    of_query: Tensor
    of_key: Tensor


class ScorePlan(Plan):
    """Any number of domains, std-caliper: ``|e_q[d] - e_k[d]| <= c sigma`` for the query's and for the key's domain.

    Keys lie by domain b and in order of ``e[b]``. The condition on the key's domain then is a window: queries in order
    of their ``e[b]`` and the keys of b make a band, which tiles cover. Where that saves little, a domain's keys are one
    tile; where domains have very few keys, they are searched together. Queries to which the condition on their own
    domain leaves few keys pick these instead.

    Pairs are excluded in float32, by squares, with thresholds so wide that no admissible pair is lost; `admits` is
    exact. Scores are kept times a power of two, so that what a square exceeds its limit by needs no factor to outdo
    every distance.

    Parameters
    ----------
    query_score, key_score : Tensor of shape (n, S)
        Propensities on the caliper's scale.
    caliper : ScoreCaliper
    width : int
        Columns of the vectors searched, which tell what a pair costs.
    """

    def __init__(
        self,
        query_rows: Tensor,
        key_rows: Tensor,
        query_domain: Tensor,
        key_domain: Tensor,
        query_score: Tensor,
        key_score: Tensor,
        caliper: ScoreCaliper,
        width: int,
    ) -> None:
        query_score, key_score = (  # half precision does not hold what they are scaled to
            score if score.dtype == torch.float64 else score.float() for score in (query_score, key_score)
        )
        self.all_query_score, self.all_key_score, self.caliper = query_score, key_score, caliper
        self.scale = _scale(query_score, key_score)
        own = key_score[key_rows, key_domain[key_rows]]
        order = own.argsort(stable=True)
        order = order[key_domain[key_rows][order].argsort(stable=True)]
        self.key_order, self.key_own = key_rows[order], (own[order] * self.scale).float()
        self.key_domain = key_domain[self.key_order]
        # (A, n): the keys' score of each query domain
        n_keys = len(self.key_order)
        self.key_cross = roomy_empty(len(caliper.present), spread(n_keys), torch.float32, key_score.device)[:, :n_keys]
        for part in cut(0, len(self.key_order), GATHERED):
            scores = columns(key_score.index_select(0, self.key_order[part]), caliper.present)
            self.key_cross[:, part] = (scores * self.scale).T
        self._set_limits()

        self.n_tiles = self._tiles_per_domain(len(query_rows), width)
        own = query_score[query_rows, query_domain[query_rows]]
        group = torch.searchsorted(caliper.present, query_domain[query_rows])
        order, picky = self._picky_last((own * self.scale).float(), group, width)
        self.query_order, self.query_group = query_rows[order], group[order]
        self.query_domain = query_domain[self.query_order]
        self.query_score = (query_score.index_select(0, self.query_order) * self.scale).float()
        self.query_own = self.query_score.gather(1, self.query_domain[:, None])[:, 0]

        everything = (slice(0, len(self.key_order)),)
        size = ROWS if self.n_tiles else MIXED_ROWS
        n_others = len(order) - sum(picky)
        self.tiled = [Block(rows, everything) for rows in cut(0, n_others, size)]
        self.blocks = self.tiled + self._picking_blocks(n_others, picky)
        if self.n_tiles:
            self.score_by_key = self.query_score[:n_others].T.contiguous()
            self._set_windows()

    def _set_limits(self) -> None:
        """Widen the thresholds by what rounding to float32 can do; none within a domain.

        ``less_query`` and ``less_key`` are to be added to squared differences: what is above zero then is outside.
        """
        self.slack = 4 * torch.finfo(torch.float32).eps * LARGEST
        of_query, of_key = (limit * self.scale + self.slack for limit in (self.caliper.of_query, self.caliper.of_key))
        own = self.caliper.present[:, None]
        self.widest = (of_query.amax(1) + self.slack).float()
        self.less_query, self.less_key = of_query.square().neg_().float(), of_key.square().neg_().float()
        self.less_key.scatter_(1, own, torch.inf)
        self.of_key_by_key = of_key.scatter(1, own, -LARGEST).float().T.contiguous()
        self.less_query_by_key, self.less_key_by_key = self.less_query.T.contiguous(), self.less_key.T.contiguous()
        widest = max(float(limit.amax()) if limit.numel() else 0.0 for limit in (of_query, of_key))
        self.doubt = -8 * self.slack * min(widest, 2 * LARGEST)  # an excess above is settled by `admits`

    def _picky_last(self, own: Tensor, group: Tensor, width: int) -> tuple[Tensor, list[int]]:
        """Return an order of the queries, and how many of each group, at its end, pick their keys.

        A query's score of its own domain can be so high that few keys come near. The highest of a domain then share the
        keys that reach the lowest of them, as many queries as saves most. How many keys that are is judged by a sample.
        """
        n_groups = len(self.caliper.present)
        if not self.n_tiles:
            return torch.arange(len(own), device=own.device), [0] * n_groups
        lowest = own - self.widest.index_select(0, group)
        order = lowest.argsort(descending=True)
        order = order[group[order].argsort(stable=True)]
        lowest, group = lowest[order], group[order]
        sample = self.key_cross[:, :: max(1, len(self.key_order) // SAMPLED)]
        reached = (sample.index_select(0, group[i]) >= lowest[i, None] for i in cut(0, len(order), ROWS))
        share = torch.cat([some.float().mean(1) for some in reached])
        rank = torch.arange(1, len(order) + 1, device=own.device) - torch.searchsorted(group, group)

        pair = 2 * width + PAIR_FLOPS
        tiled = rank * pair * (1 if self.n_tiles == 1 else TILED_SHARE)
        picked = share * (rank * pair + width * PICK_FLOPS) + TILE_FLOPS / max(1, len(self.key_order))
        best = own.new_zeros(n_groups).scatter_reduce(0, group, tiled - picked, "amax")
        most = torch.where((tiled - picked == best[group]) & (tiled > picked), rank, 0)
        count = rank.new_zeros(n_groups).scatter_reduce(0, group, most, "amax")
        picks = rank <= count[group]
        last = picks.int().argsort(stable=True)
        self.lowest = lowest[last]
        return order[last], count.tolist()

    def _picking_blocks(self, start: int, counts: list[int]) -> list[Block]:
        """Return blocks of the queries from ``start`` on, so many of each group, with the keys that they pick."""
        rows: list[slice] = []
        groups: list[int] = []
        for group, count in enumerate(counts):
            rows += cut(start, start + count, PICKING_ROWS)
            groups += [group] * (len(rows) - len(groups))
            start += count
        self.picking_group = {block.start: group for block, group in zip(rows, groups, strict=True)}
        if not rows:
            return []
        lowest = at(self.lowest, [block.stop - 1 for block in rows])
        low, high = (
            torch.stack([edge(self.query_score[block], 0) for block in rows]) for edge in (torch.amin, torch.amax)
        )
        of_block = torch.tensor(groups, device=lowest.device)
        reach = self.of_key_by_key.T.index_select(0, of_block)  # none of the own domain
        low, high = (low - reach).flatten(), (high + reach).flatten()
        n_keys, n_domains = len(self.key_order), reach.shape[1]
        picked: list[Tensor] = []
        for part in cut(0, len(rows), max(1, PICKED // n_keys)):  # indices are flat: quicker than pairs of them
            near = self.key_cross.index_select(0, of_block[part]) >= lowest[part, None]
            place = near.flatten().nonzero()[:, 0]
            block = place.div(n_keys, rounding_mode="floor")
            key = place - n_keys * block
            domain, own = self.key_domain.index_select(0, key), self.key_own.index_select(0, key)
            cell = n_domains * (block + part.start) + domain
            inside = (low.index_select(0, cell) <= own) & (own <= high.index_select(0, cell))
            chosen = inside.nonzero()[:, 0]
            n_picked = block.index_select(0, chosen).bincount(minlength=part.stop - part.start)
            picked += key.index_select(0, chosen).split(n_picked.tolist())
        return [Block(block, picked=keys) for block, keys in zip(rows, picked, strict=True)]

    def _tiles_per_domain(self, n_queries: int, width: int) -> int:
        """Return how many tiles cover a key domain best; 0: domains are so small that they are searched together.

        Of a domain's pairs t tiles look at a share of about 1/t plus that of the window, at the cost of t tiles.
        """
        n_domains = max(1, len(torch.unique(self.key_domain)))
        pairs = min(ROWS, n_queries) * len(self.key_order) / n_domains
        tiles = (pairs * (2 * width + PAIR_FLOPS) / TILE_FLOPS) ** 0.5
        return min(MOST_TILES, round(tiles)) if tiles >= FEWEST_TILES else int(tiles >= 1)

    def _set_windows(self) -> None:
        """Find the window of keys of every tile, with one transfer to the host for all of them.

        Queries are put in order of the middle of their own windows, by key domain.
        """
        domains, counts = torch.unique_consecutive(self.key_domain, return_counts=True)
        stop = counts.cumsum(0)
        self.domain_spans = torch.stack([domains, stop - counts, stop], 1).tolist()
        self.orders: list[Tensor] = []
        self.tile_rows: list[list[slice]] = []
        if self.n_tiles == 1 or not self.tiled:
            return
        bounds = []
        for block in self.tiled:
            order, first, last = (torch.stack(x) for x in zip(*self._windows(block), strict=True))
            tile_rows = list(cut(0, order.shape[1], -(-order.shape[1] // self.n_tiles)))
            bounds += [torch.stack([first[:, rows].amin(1), last[:, rows].amax(1)], 1) for rows in tile_rows]
            self.orders.append(order.to(torch.int16))  # places within a block
            self.tile_rows.append(tile_rows)
        each = iter(torch.stack(bounds).tolist())
        self.windows = [list(islice(each, len(tile_rows))) for tile_rows in self.tile_rows]

    def _windows(self, block: Block) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield for every key domain the block's queries in order, and their windows."""
        group = self.query_group[block.rows]
        for domain, start, stop in self.domain_spans:
            score, limit = self.score_by_key[domain, block.rows], self.of_key_by_key[domain].index_select(0, group)
            keys = self.key_own[start:stop]
            first = torch.searchsorted(keys, score - limit)
            last = torch.searchsorted(keys, score + limit, right=True)
            order = (first + last).argsort()
            yield order, first.index_select(0, order) + start, last.index_select(0, order) + start

    def tiles(self, block: Block, columns: slice) -> Iterator[Tile] | None:
        """See `Plan`."""
        return self._whole_domains(block, columns) if self.n_tiles == 1 else None

    def _whole_domains(self, block: Block, columns: slice) -> Iterator[Tile]:
        everyone = torch.arange(block.rows.stop - block.rows.start, device=self.query_own.device)
        for domain, start, stop in self.domain_spans:
            part = slice(max(start, columns.start), min(stop, columns.stop))
            if part.start < part.stop:
                yield Tile(everyone, part, *self._of_queries(block, domain))

    def bands(self, block: Block, size: int) -> Iterator[Band] | None:
        """See `Plan`."""
        return self._bands(block, size) if self.n_tiles > 1 and block.picked is None else None

    def _bands(self, block: Block, size: int) -> Iterator[Band]:
        number = self.tiled.index(block)
        for place, (_, start, stop) in enumerate(self.domain_spans):
            for piece in cut(start, stop, size):
                windows = (window[place] for window in self.windows[number])
                columns = [_rounded(first, last, piece) for first, last in windows]
                width = max(part.stop - part.start for part in columns)
                if width:
                    yield Band(width, self._band_tiles(block, number, place, columns))

    def _band_tiles(self, block: Block, number: int, place: int, columns: list[slice]) -> Iterator[Tile]:
        order = self.orders[number][place].long()
        values = [value.index_select(0, order) for value in self._of_queries(block, self.domain_spans[place][0])]
        for rows, part in zip(self.tile_rows[number], columns, strict=True):
            yield Tile(order[rows], part, *(value[rows] for value in values))

    def _of_queries(self, block: Block, domain: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return what a tile of a block's queries and a key domain needs to know of the queries."""
        group = self.query_group[block.rows]
        limits = self.less_query_by_key[domain], self.less_key_by_key[domain]
        less_query, less_key = (limit.index_select(0, group) for limit in limits)  # quicker than by brackets
        return group, self.query_own[block.rows], self.score_by_key[domain, block.rows], less_query, less_key

    def outside(self, tile: Tile, scratch: Scratch) -> Tensor:
        """See `Plan`."""
        shape = len(tile.rows), tile.columns.stop - tile.columns.start
        cross = scratch("cross", *shape)
        torch.index_select(self.key_cross[:, tile.columns], 0, tile.group, out=cross)
        apart = torch.sub(tile.score[:, None], self.key_own[tile.columns], out=scratch("apart", *shape))
        return _larger_excess(cross.sub_(tile.own[:, None]), tile.less_query[:, None], apart, tile.less_key[:, None])

    def exclude_(self, scores: Tensor, rows: slice | Tensor, columns: slice, block: Block) -> None:
        """See `Plan`. An excess is quicker than a mask."""
        torch.maximum(scores, self._excess(rows, columns), out=scores)

    def exclude_picked_(self, scores: Tensor, rows: slice | Tensor, picked: Tensor, block: Block) -> None:
        """See `Plan`. Queries that pick are of one domain."""
        group, key_domain = self.picking_group[block.rows.start], self.key_domain.index_select(0, picked)
        excess = _larger_excess(
            self.key_cross[group].index_select(0, picked) - self.query_own[rows, None],
            self.less_query[group].index_select(0, key_domain),
            self.query_score[rows].index_select(1, key_domain).sub_(self.key_own.index_select(0, picked)),
            self.less_key[group].index_select(0, key_domain),
        )
        torch.maximum(scores, excess, out=scores)

    def _excess(self, rows: slice | Tensor, columns: slice) -> Tensor:
        """Return by how much the larger of a pair's two squared differences exceeds its limit, shape (r, c)."""
        group = self.query_group[rows]
        key_domain = self.key_domain[columns]
        cross = self.key_cross[:, columns].index_select(0, group)
        apart = self.query_score[rows].index_select(1, key_domain)
        return _larger_excess(
            cross.sub_(self.query_own[rows, None]),
            self.less_query[group].index_select(1, key_domain),
            apart.sub_(self.key_own[columns]),
            self.less_key[group].index_select(1, key_domain),
        )

    def admits(self, rows: Tensor, columns: Tensor) -> Tensor:
        """See `Plan`."""
        query, key = self.query_order[rows], self.key_order[columns]
        group, a, b = self.query_group[rows], self.query_domain[rows], self.key_domain[columns]
        of_query = (self.all_query_score[query, a].double() - self.all_key_score[key, a].double()).abs_()
        of_key = (self.all_query_score[query, b].double() - self.all_key_score[key, b].double()).abs_()
        return (of_query <= self.caliper.of_query[group, b]) & (of_key <= self.caliper.of_key[group, b]) & (a != b)

    def count_pairs(self) -> int:
        """See `Plan`. Only pairs near a threshold need an exact look."""
        total = 0
        for rows in cut(0, len(self.query_order), MIXED_ROWS):
            for part in cut(0, len(self.key_order), COUNTED):
                excess = self._excess(rows, part)
                row, column = ((excess <= 0) & (excess >= self.doubt)).nonzero(as_tuple=True)
                refused = ~self.admits(row + rows.start, column + part.start)
                total += int((excess <= 0).sum() - refused.sum())
        return total


def _scale(query_score: Tensor, key_score: Tensor) -> float:
    """Return the power of two that brings the largest of some scores near `LARGEST`, or to less if all are tiny."""
    ends = [torch.stack(x.aminmax()).double() for x in (query_score, key_score) if x.numel()]
    largest = float(torch.cat(ends).abs().amax()) if ends else 0.0
    return LARGEST * 2.0 ** -max(-44, math.frexp(largest)[1])  # which float32 can hold


def _larger_excess(first: Tensor, less_first: Tensor, second: Tensor, less_second: Tensor) -> Tensor:
    """Return the larger of two squares, each with what is to be added to it; in place of the first number."""
    torch.addcmul(less_first, first, first, out=first)
    torch.addcmul(less_second, second, second, out=second)
    return torch.maximum(first, second, out=first)


def columns(score: Tensor, chosen: Tensor) -> Tensor:
    """Return the chosen columns, ascending, of a matrix; the matrix itself where these are all."""
    return score if len(chosen) == score.shape[1] else score.index_select(1, chosen)


def _rounded(first: int, last: int, piece: slice) -> slice:
    """Return what of a window lies in a piece of the keys, widened to a round width as far as the piece allows."""
    first, last = max(first, piece.start), min(last, piece.stop)
    if first >= last:
        return slice(piece.start, piece.start)
    width = -(-(last - first) // ROUND) * ROUND
    last = min(first + width, piece.stop)
    return slice(max(last - width, piece.start), last)
