"""Vectors centred by domain mean: they are compared by their direction from the middle of their domain."""

import torch
from torch import Tensor
from torch.nn.functional import normalize

PRIOR = 10  # of so many samples a domain has, in its mean, the mean of all


def centred(query: Tensor, keys: Tensor, query_domain: Tensor, key_domain: Tensor) -> tuple[Tensor, Tensor]:
    """Return queries and keys centred by domain mean, as unit vectors.

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

    Returns
    -------
    query, keys : tensor (n, d) and (m, d)

    Examples
    --------
    >>> import torch
    >>> x = torch.tensor([[1.0, 9.0], [3.0, 9.0], [6.0, 2.0], [9.0, 2.0]])
    >>> site = torch.tensor([0, 0, 1, 1])
    >>> query, keys = centred(x[:2], x[2:], site[:2], site[2:])
    >>> (query @ keys.T).argmax(1)  # without it, the nearest to both would be the first
    tensor([0, 1])
    """
    domain = torch.cat([query_domain, key_domain])
    everything = torch.cat([query, keys])
    if not len(everything):
        return query, keys
    unit = centred_by(domain_means(everything, domain), everything, domain)
    return unit[: len(query)], unit[len(query) :]


def domain_means(vectors: Tensor, domain: Tensor) -> Tensor:
    """Return the mean of each domain, (S, d), of vectors (n, d), n > 0; see `centred`."""
    overall = vectors.mean(0)
    if domain.ndim == 2:
        member = domain.to(vectors.dtype)
        total, count = member.T @ vectors, member.sum(0)
    else:
        count = torch.bincount(domain)  # there may be thousands: a product with rows of 0 and 1 would be wide
        total = vectors.new_zeros(len(count), vectors.shape[1]).index_add_(0, domain, vectors)
    return (total + PRIOR * overall) / (count[:, None] + PRIOR)


def centred_by(means: Tensor, vectors: Tensor, domain: Tensor) -> Tensor:
    """Return the directions, (n, d), from the means (S, d) of their domains to vectors (n, d)."""
    if domain.ndim == 2:
        member = domain.to(vectors.dtype)
        centre = member @ means / member.sum(1, keepdim=True).clamp(min=1)
    else:
        centre = means[domain]
    return normalize(torch.sub(vectors, centre, out=centre), dim=-1)
