"""Limits on hubs, keys that are near to a great many queries: by a penalty on their distance, or by counting."""

import torch
from torch import Tensor

from okapi.matching import Matches, caliper_nn

NEIGHBOURS = 10  # as Conneau et al. take


def penalised(
    query: Tensor, keys: Tensor, query_domain: Tensor, key_domain: Tensor, direction: tuple[int, int] | None = None
) -> tuple[Tensor, Tensor]:
    """Return queries and keys, unit vectors, with one more column, whose nearest neighbours are those by CSLS.

    Cross-domain similarity local scaling (Conneau et al., "Word translation without parallel data", 2018) ranks the
    keys of a query by ``2 cos(q, k) - r(k)``, where r(k) is the mean cosine of the key with its 10 nearest queries of
    other domains: a key in the midst of many queries is no longer the nearest of them all. (That of the query, which
    CSLS also takes off, is the same for all its keys.) Of unit vectors ``|q - k|^2 = 2 - 2 cos(q, k)``, so this is the
    order by ``|q - k|^2 + r(k)``: a column of ``sqrt(r(k) - least r)`` on keys and of 0 on queries adds just that.

    r is taken from the queries at hand and not kept: queries and the encoder change from step to step.

    Parameters
    ----------
    query : tensor (n, d)
    keys : tensor (m, d)
    query_domain, key_domain : tensor (n,) and (m,), int64; or (n, S) and (m, S), bool
    direction : (int, int), optional
        Of the domain whose queries look for matches, and that of their keys.

    Returns
    -------
    query : tensor (n, d + 1)
    keys : tensor (m, d + 1)
    """
    asking = looking(query_domain, direction)
    closeness = _closeness(query[asking], keys, query_domain[asking], key_domain)
    column = (closeness - closeness.min()).sqrt() if len(closeness) else closeness
    return torch.cat([query, query.new_zeros(len(query), 1)], 1), torch.cat([keys, column[:, None]], 1)


def _closeness(query: Tensor, keys: Tensor, query_domain: Tensor, key_domain: Tensor) -> Tensor:
    """Return r(k), shape (m,): -1, the least cosine, of keys that no query may be matched to."""
    least = keys.new_full((len(keys),), -1.0)
    others = _others(query_domain, key_domain)
    others = others[others > 0]
    if not len(others):
        return least
    near = caliper_nn(
        keys,
        query,
        query_domain=key_domain,
        key_domain=query_domain,
        k=min(NEIGHBOURS, int(others.min())),
    )
    least[near.query] = (1 - near.distance.square().mean(1) / 2).to(least.dtype)
    return least


def _others(query_domain: Tensor, key_domain: Tensor) -> Tensor:
    """Return how many queries are of other domains than a key, for each domain, or set of labels, that keys have."""
    present: Tensor = key_domain.unique(dim=0)
    if key_domain.ndim == 1:
        return (present[:, None] != query_domain).sum(1)
    return (present.float() @ query_domain.float().T == 0).sum(1)


def looking(query_domain: Tensor, direction: tuple[int, int] | None) -> Tensor:
    """Return which queries look for matches, shape (n,): all, or those of the direction's first domain."""
    if direction is None:
        return torch.ones(len(query_domain), dtype=torch.bool, device=query_domain.device)
    return query_domain == direction[0] if query_domain.ndim == 1 else query_domain[:, direction[0]]


def capped(matches: Matches, cap: int) -> Matches:
    """Return matches in which no key serves more than ``cap`` queries.

    Queries take their turn by the distance of their furthest key, the nearest first, ties to the lower row. One whose k
    keys have room takes them all; one that finds a key full has no match, for a match is exactly k keys.

    Parameters
    ----------
    matches : Matches
    cap : int

    Examples
    --------
    >>> from okapi.matching import Matches
    >>> hub = Matches(torch.arange(3), torch.tensor([[7], [7], [7]]), torch.tensor([[0.3], [0.1], [0.2]]))
    >>> capped(hub, 2).query
    tensor([1, 2])
    """
    served: dict[int, int] = {}
    kept = []
    keys = matches.key.tolist()
    for row in matches.distance[:, -1].argsort(stable=True).tolist():
        if all(served.get(key, 0) < cap for key in keys[row]):
            kept.append(row)
            for key in keys[row]:
                served[key] = served.get(key, 0) + 1
    rows = torch.tensor(sorted(kept), dtype=torch.int64, device=matches.query.device)
    return Matches(matches.query[rows], matches.key[rows], matches.distance[rows])
