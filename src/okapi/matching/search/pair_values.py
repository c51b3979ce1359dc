"""Filters of pairs by covariates: calipers in their own units, and values that must differ."""

import torch
from torch import Tensor


class PairFilter:
    """A pair is admissible only if some numbers are near, and some codes differ.

    Parameters
    ----------
    query, key : Tensor of shape (n, c) and (m, c), float64
        Covariates in units of their calipers: a pair may be at most 1 apart in each.
    query_codes, key_codes : Tensor of shape (n, a) and (m, a), int64
        None may be equal within a pair.
    """

    def __init__(self, query: Tensor, key: Tensor, query_codes: Tensor, key_codes: Tensor) -> None:
        self.query, self.key, self.query_codes, self.key_codes = query, key, query_codes, key_codes

    def admits(self, query: Tensor, key: Tensor) -> Tensor:
        """Return which pairs of rows, of one shape, are admissible."""
        near = ((self.query[query] - self.key[key]).abs() <= 1).all(-1)
        return near & (self.query_codes[query] != self.key_codes[key]).all(-1)

    def ordered(self, query_order: Tensor, key_order: Tensor) -> "PairFilter":
        """Return the filter for these orders of the rows."""
        orders = query_order, key_order, query_order, key_order
        parts = self.query, self.key, self.query_codes, self.key_codes
        return PairFilter(*(part[order] for part, order in zip(parts, orders, strict=True)))

    def exclude_(self, scores: Tensor, rows: slice | Tensor, keys: slice | Tensor) -> None:
        """Raise the scores (r, c) of inadmissible pairs at these places to infinity, in place."""
        for query, key in zip(self.query[rows].T, self.key[keys].T, strict=True):
            scores.masked_fill_((query[:, None] - key).abs_() > 1, torch.inf)
        for query, key in zip(self.query_codes[rows].T, self.key_codes[keys].T, strict=True):
            scores.masked_fill_(query[:, None] == key, torch.inf)
