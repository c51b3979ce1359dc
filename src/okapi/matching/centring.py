"""Encodings compared where their domain's own centre is the origin."""

import torch
from torch import Tensor
from torch.nn.functional import normalize

PRIOR = 10  # of so many samples a domain has, in its mean, the mean of all


def centred(query: Tensor, keys: Tensor, query_domain: Tensor, key_domain: Tensor) -> tuple[Tensor, Tensor]:
    """Return queries and keys less the mean of their domain, as unit vectors.

    What all samples of a domain have in common says nothing about which of them are alike, but it decides which of
    another domain's samples are nearest: those few that happen to lie towards it. Without it directions are compared,
    from the middle of one domain and of the other. It takes the domains to have their classes in similar shares.

    The mean of a domain is that of its queries and keys, and of a few samples at the mean of all, so that a domain with
    one sample does not lose it.

    Parameters
    ----------
    query : tensor (n, d)
    keys : tensor (m, d)
    query_domain, key_domain : tensor (n,) and (m,), int64; or (n, S) and (m, S), bool
        A sample with a set of domain labels is centred by the mean over its labels.
    """
    domain = torch.cat([query_domain, key_domain])
    everything = torch.cat([query, keys])
    if not len(everything):
        return query, keys
    overall = everything.mean(0)
    if domain.ndim == 2:
        member = domain.to(everything.dtype)
        mean = _shrunk(member.T @ everything, member.sum(0), overall)
        centre = member @ mean / member.sum(1, keepdim=True).clamp(min=1)
    else:
        count = torch.bincount(domain)  # there may be thousands: a product with rows of 0 and 1 would be wide
        total = everything.new_zeros(len(count), everything.shape[1]).index_add_(0, domain, everything)
        centre = _shrunk(total, count, overall)[domain]
    unit = normalize(everything.sub_(centre), dim=-1)
    return unit[: len(query)], unit[len(query) :]


def _shrunk(total: Tensor, count: Tensor, overall: Tensor) -> Tensor:
    """Return the means (S, d) of domains with the sums ``total`` over ``count`` samples."""
    return (total + PRIOR * overall) / (count[:, None] + PRIOR)
