"""Plan of the std-caliper between any number of domains."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from okapi.matching.search.plan import FAR, Block, Plan, Tile, cut

ROWS = 4096  # queries per block where key domains are searched one by one, by tiles
MIXED_ROWS = 128  # where they are searched together
# What a tile costs beside its pairs, and what a pair costs beside its product, in flops of a matrix product.
TILE_FLOPS, PAIR_FLOPS = 2e7, 200
FEWEST_TILES, MOST_TILES = 4, 32  # per key domain
PICKING_ROWS = 10  # queries that pick keys together: of more, the keys together are too many
PICKED = 0.4  # share of the keys near their score of their own domain up to which queries pick
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
    """Any number of domains, std-caliper: ``|e_q[d] - e_k[d]| <= c sigma`` for the query's and for the key's domain d.

    Keys lie by domain b and in order of ``e[b]``. The condition on the key's domain then is a window: queries in order
    of their ``e[b]`` and the keys of b make a band along a diagonal, which tiles cover. Where domains have few keys,
    all are searched together instead. Queries that few keys are near in the score of their own domain come last, in
    small blocks of one domain, for which the keys admissible to any of them are picked one by one.

    Pairs are excluded in float32, by squares, with thresholds so wide that no admissible pair is lost; `admits` is
    exact. Scores are kept times a power of two, so that what a square exceeds its limit by needs no factor to outdo
    every distance.

    Parameters
    ----------
    query_rows, key_rows : Tensor of shape (n,), int64
        The admissible rows.
    query_domain, key_domain : Tensor, int64, of all samples
    query_score, key_score : Tensor of shape (n, S), of all samples
        Propensities on the caliper's scale.
    caliper : ScoreCaliper
    width : int
        Columns of the vectors searched, which determine what a pair costs.
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
        scale = _scale(query_score, key_score)
        self._set_limits(scale)

        domain = key_domain[key_rows]
        own = key_score[key_rows, domain]
        order = own.argsort(stable=True)
        order = order[domain[order].argsort(stable=True)]
        self.key_order, self.key_domain, self.key_own = key_rows[order], domain[order], (own[order] * scale).float()
        self.key_cross = _columns(key_score, self.key_order, caliper.present, scale)

        domains, counts = torch.unique_consecutive(self.key_domain, return_counts=True)
        self.n_tiles = _tiles_per_domain(min(ROWS, len(query_rows)), len(self.key_order) / max(1, len(domains)), width)
        ends = counts.cumsum(0).tolist()
        spans = tuple(slice(*ends_of) for ends_of in zip([0, *ends], ends, strict=False))
        if not self.n_tiles:
            spans = (slice(0, len(self.key_order)),)

        own = query_score[query_rows, query_domain[query_rows]]
        order = own.argsort(descending=True)
        order = order[query_domain[query_rows][order].argsort(stable=True)]
        self._set_queries(query_rows[order], query_domain, scale)
        picking = list(self._pick())
        last = torch.zeros_like(order)
        for rows, _ in picking:
            last[rows] = 1
        self._set_queries(self.query_order[last.argsort(stable=True)], query_domain, scale)

        start = len(order) - sum(rows.stop - rows.start for rows, _ in picking)
        self.blocks = [Block(rows, spans) for rows in cut(0, start, ROWS if self.n_tiles else MIXED_ROWS)]
        if self.n_tiles:
            self._set_tiles(domains)
        for rows, keys in picking:
            stop = start + rows.stop - rows.start
            self.blocks.append(Block(slice(start, stop), (slice(0, len(keys)),), picked=keys))
            start = stop

    def _set_queries(self, rows: Tensor, domain: Tensor, scale: float) -> None:
        self.query_order, self.query_domain = rows, domain[rows]
        self.query_group = torch.searchsorted(self.caliper.present, self.query_domain)
        self.query_score = (self.all_query_score.index_select(0, rows) * scale).float()
        self.query_own = self.query_score.gather(1, self.query_domain[:, None])[:, 0]
        self.position = torch.arange(len(rows), device=rows.device)

    def _pick(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield queries that few keys are near, and the keys admissible to any of them.

        A query's score of its own domain can be so high that few keys come near. Queries are in order of that score
        within their domain, highest first: those that come near the lowest of some are the only ones for all of them.
        """
        groups, counts = torch.unique_consecutive(self.query_group, return_counts=True)
        start = 0
        for group, count in zip(groups.tolist(), counts.tolist(), strict=True):
            highest = self.key_cross[group] + self.of_query[group].index_select(0, self.key_domain)
            for rows in cut(start, start + count, PICKING_ROWS):
                near = highest >= self.query_own[rows.stop - 1]
                if int(near.count_nonzero()) > PICKED * len(near):
                    break
                keys = near.nonzero()[:, 0]
                scores = torch.zeros(rows.stop - rows.start, len(keys), device=keys.device)
                self.exclude_(scores, rows, keys)
                yield rows, keys[scores.amin(0) < FAR]
            start += count

    def _set_limits(self, scale: float) -> None:
        """Widen the thresholds by what rounding to float32 can do; none within a domain.

        ``less_query`` and ``less_key`` are to be added to squared differences: what is above zero then is outside.
        """
        slack = 4 * torch.finfo(torch.float32).eps * LARGEST
        of_query, of_key = (limit * scale + slack for limit in (self.caliper.of_query, self.caliper.of_key))
        own = self.caliper.present[:, None]
        self.less_query, self.less_key = of_query.square().neg_().float(), of_key.square().neg_().float()
        self.less_key.scatter_(1, own, torch.inf)
        self.of_query = of_query.float()
        self.reach = of_key.scatter(1, own, -LARGEST).float()

    def _set_tiles(self, domains: Tensor) -> None:
        """Order each block's queries by the middle of their windows among the keys of each domain, and cut the orders.

        ``orders[start]`` (domains, rows) is of the block that starts there; ``edges[start][tile][domain]`` are the ends
        of a tile's windows together. One transfer to the host serves all of them.
        """
        self.orders: dict[int, Tensor] = {}
        ends = []
        for block in self.blocks:
            windows = [self._windows(block, span, domain) for span, domain in zip(block.spans, domains, strict=True)]
            order, first, last = (torch.stack(each) for each in zip(*windows, strict=True))
            self.orders[block.rows.start] = order.int()
            ends += [torch.stack([first[:, r].amin(1), last[:, r].amax(1)], 1) for r in self._tile_rows(block)]
        edges = iter(torch.stack(ends).tolist() if ends else [])
        self.edges = {block.rows.start: [next(edges) for _ in self._tile_rows(block)] for block in self.blocks}

    def _windows(self, block: Block, span: slice, domain: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return an order of the block's queries, and in it the ends of their windows among the keys of a domain."""
        score = self.query_score[block.rows].index_select(1, domain[None])[:, 0]
        reach = self.reach.index_select(1, domain[None])[:, 0][self.query_group[block.rows]]
        keys = self.key_own[span]
        first = torch.searchsorted(keys, score - reach)
        last = torch.searchsorted(keys, score + reach, right=True)
        order = (first + last).argsort()
        return order, first[order] + span.start, last[order] + span.start

    def _tile_rows(self, block: Block) -> list[slice]:
        """Return the parts of an order of the block's queries that make a tile each."""
        n_rows = block.rows.stop - block.rows.start
        return list(cut(0, n_rows, -(-n_rows // self.n_tiles)))

    def strips(self, block: Block) -> Iterator[list[Tile]]:
        """See `Plan`. A strip is a domain of keys, a tile some queries with their windows."""
        if not self.n_tiles or block.picked is not None:
            yield from block.strips()
            return
        rows, start = self._tile_rows(block), block.rows.start
        for place, (span, order) in enumerate(zip(block.spans, self.orders[start], strict=True)):
            keys = [_rounded(ends[place], span) for ends in self.edges[start]]
            if any(part.start < part.stop for part in keys):
                yield [Tile(order[some].long(), part) for some, part in zip(rows, keys, strict=True)]

    def exclude_(self, scores: Tensor, rows: slice | Tensor, keys: slice | Tensor) -> None:
        """See `Plan`. The larger excess of the two squared differences is quicker than a mask."""
        group = self.query_group[rows]
        if isinstance(keys, Tensor):  # queries that pick are of one domain
            group = group[:1]
            cross = self.key_cross.take(len(self.key_order) * group + keys) - self.query_own[rows, None]
        else:
            cross = self.key_cross[:, keys].index_select(0, group).sub_(self.query_own[rows, None])
        domain = self.key_domain[keys]
        if self.n_tiles and isinstance(keys, slice):  # of one domain
            apart = self.query_score[self.position[rows], domain[:1]][:, None] - self.key_own[keys]
            less_query, less_key = (less[group, domain[:1]][:, None] for less in (self.less_query, self.less_key))
        else:
            apart = self.query_score[rows].index_select(1, domain).sub_(self.key_own[keys])
            less_query, less_key = (less[group].index_select(1, domain) for less in (self.less_query, self.less_key))
        torch.addcmul(less_query, cross, cross, out=cross)
        torch.addcmul(less_key, apart, apart, out=apart)
        torch.maximum(scores, torch.maximum(cross, apart, out=cross), out=scores)

    def admits(self, rows: Tensor, keys: Tensor) -> Tensor:
        """See `Plan`."""
        query, key = self.query_order[rows], self.key_order[keys]
        group, a, b = self.query_group[rows], self.query_domain[rows], self.key_domain[keys]
        of_query = (self.all_query_score[query, a].double() - self.all_key_score[key, a].double()).abs_()
        of_key = (self.all_query_score[query, b].double() - self.all_key_score[key, b].double()).abs_()
        return (of_query <= self.caliper.of_query[group, b]) & (of_key <= self.caliper.of_key[group, b]) & (a != b)


def _scale(query_score: Tensor, key_score: Tensor) -> float:
    """Return the power of two that brings the largest of some scores near `LARGEST`, or to less if all are tiny."""
    ends = [torch.stack(x.aminmax()).double() for x in (query_score, key_score) if x.numel()]
    largest = float(torch.cat(ends).abs().amax()) if ends else 0.0
    return LARGEST * 2.0 ** -max(-44, math.frexp(largest)[1])  # which float32 can hold


def _columns(score: Tensor, rows: Tensor, chosen: Tensor, scale: float) -> Tensor:
    """Return the chosen columns of the scores of some rows, scaled, as rows (A, n), float32."""
    out = torch.empty(len(chosen), len(rows), device=score.device)
    for part in cut(0, len(rows), 1024):  # few enough to stay in the cache while they are transposed
        out[:, part] = (score.index_select(0, rows[part])[:, chosen] * scale).T
    return out


def _tiles_per_domain(n_queries: int, n_keys: float, width: int) -> int:
    """Return how many tiles cover the keys of a domain best; 0: so few that domains are better searched together.

    Of a domain's pairs t tiles look at a share of about 1/t plus that of the window, at the cost of t tiles.
    """
    tiles = (n_queries * n_keys * (2 * width + PAIR_FLOPS) / TILE_FLOPS) ** 0.5
    return min(MOST_TILES, round(tiles)) if tiles >= FEWEST_TILES else 0


def _rounded(window: list[int], span: slice) -> slice:
    """Return a window of the keys of a span, widened to a round width as far as the span allows."""
    first, last = window
    if first >= last:
        return slice(span.start, span.start)
    width = -(-(last - first) // ROUND) * ROUND
    last = min(first + width, span.stop)
    return slice(max(last - width, span.start), last)
