"""Metrics of the matches of a step: how balanced they are, and how few keys serve how many queries."""

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from okapi.matching import Matches


def hubness(matches: Matches) -> dict[str, Tensor]:
    """Return ``distinct_keys``, the share of pairs with a key of their own, and ``busiest_key``, the most pairs of one.

    Without pairs both are 0.
    """
    keys = matches.key.flatten()
    counts = keys.unique(return_counts=True)[1]
    most = counts.max() if len(counts) else counts.sum()
    distinct = torch.tensor(len(counts) / max(1, len(keys)), device=keys.device)
    return {"distinct_keys": distinct, "busiest_key": most.to(distinct.dtype)}


def matched_smd(query: Tensor, keys: Tensor, matches: Matches, query_domain: Tensor) -> Tensor:
    """Return the absolute standardised mean difference of matched samples, averaged over columns.

    It is computed for the queries of each domain, since the differences of the two directions would cancel, and
    averaged by their number; with multi-label domains all queries are one group. The denominator is the deviation of
    all queries, matched or not: that of all keys would cost as much as the matching. NaN without matches.

    Parameters
    ----------
    query : tensor (n, d)
    keys : tensor (m, d)
    matches : Matches
    query_domain : tensor (n,), int64; or (n, S), bool
    """
    if not len(matches.query):
        return query.new_tensor(torch.nan)
    difference = query[matches.query] - keys[matches.key].mean(1)
    group = query_domain[matches.query] if query_domain.ndim == 1 else torch.zeros_like(matches.query)
    # A matrix product: a GPU scatters additions in any order, and ranks that sum the same rows must agree to the bit.
    with torch.autocast(query.device.type, enabled=False):
        total = one_hot(group, int(group.max()) + 1).to(query.dtype).T @ difference
    deviation = query.std(0, correction=0)
    varying = deviation > 0
    # A group's mean, times its share of the queries, is its sum over all of them.
    return (total.abs().sum(0) / len(group))[varying].div(deviation[varying]).mean()
