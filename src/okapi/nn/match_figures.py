"""Figures of the matches of a step: how balanced they are, and how few keys serve how many queries."""

import torch
from torch import Tensor

from okapi.matching import Matches
from okapi.nn.groups import sums_by_group


def hubness(matches: Matches) -> dict[str, Tensor]:
    """Return how few keys serve how many queries: the share of distinct keys, and how often the busiest one serves.

    The share is of the pairs: 1 if every pair has a key of its own. Without pairs both are 0.
    """
    keys = matches.key.flatten()
    served = keys.unique(return_counts=True)[1]
    most = served.max() if len(served) else served.sum()
    distinct = torch.tensor(len(served) / max(1, len(keys)), device=keys.device)
    return {"distinct_keys": distinct, "busiest_key": most.to(distinct.dtype)}


def matched_smd(query: Tensor, keys: Tensor, matches: Matches, query_domain: Tensor) -> Tensor:
    """Return how unbalanced matched samples are: the standardised mean difference, in size, averaged over columns.

    It is taken apart for the queries of each domain, since the differences of the two directions would cancel, and
    averaged by how many these are; of sets of labels all queries are one group. It is divided by the deviation of all
    queries, matched or not: that of all keys would cost as much as the matching. NaN without matches.

    Parameters
    ----------
    query : tensor (n, d)
    keys : tensor (m, d)
    matches : Matches
    query_domain : tensor (n,), int64; or (n, S), bool
    """
    if not len(matches.query):
        return query.new_tensor(torch.nan)
    apart = query[matches.query] - keys[matches.key].mean(1)
    group = query_domain[matches.query] if query_domain.ndim == 1 else torch.zeros_like(matches.query)
    total = sums_by_group(apart, group, int(group.max()) + 1)
    return standardised(total, len(group), query)


def standardised(apart: Tensor, matched: Tensor | int, query: Tensor) -> Tensor:
    """Return the mean difference of matched samples in deviations of all queries, in size, averaged over columns.

    Parameters
    ----------
    apart : tensor (groups, d)
        Sum of the differences in each group.
    matched : tensor () or int
        Number of differences in all groups.
    query : tensor (n, d)
    """
    deviation = query.std(0, correction=0)
    varying = deviation > 0
    # A group's mean, times its share of the queries, is its sum over all of them.
    return (apart.abs().sum(0) / matched)[varying].div(deviation[varying]).mean()
