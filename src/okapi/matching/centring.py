"""Vectors centred by domain mean: they are compared by their direction from the middle of their domain."""

from collections.abc import Sequence

import torch
from torch import Tensor

from okapi.matching.search.vectors import large_empty

PRIOR = 10  # of so many samples a domain has, in its mean, the mean of all
PIECE = 1 << 17  # numbers handled at a time
SHORTEST = 1e-12  # length by which a vector is divided at least


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
        A sample with several domain labels is centred by the mean over its labels.

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
    if not len(query) + len(keys):
        return query, keys
    means = domain_means((query, keys), (query_domain, key_domain))
    return centred_by(means, query, query_domain), centred_by(means, keys, key_domain)


def domain_means(vectors: Sequence[Tensor], domains: Sequence[Tensor]) -> Tensor:
    """Return the mean of each domain, (S, d), of vectors (n, d) in one or several parts, n > 0; see `centred`."""
    width = 1 + max(int(part.max()) for part in domains if len(part)) if domains[0].ndim == 1 else domains[0].shape[1]
    total = vectors[0].new_zeros(width, vectors[0].shape[1])
    count, everything = total.new_zeros(width), total.new_zeros(total.shape[1])
    for part, domain in zip(vectors, domains, strict=True):
        if domain.ndim == 2:
            member = domain.to(part.dtype)
            total += member.T @ part
            count += member.sum(0)
        else:  # there may be thousands: a product with rows of 0 and 1 would be wide
            total.index_add_(0, domain, part)
            count += torch.bincount(domain, minlength=width)
        everything += part.sum(0)
    overall = everything / sum(map(len, vectors))
    return (total + PRIOR * overall) / (count[:, None] + PRIOR)


def centred_by(means: Tensor, vectors: Tensor, domain: Tensor) -> Tensor:
    """Return the directions, (n, d), from the means (S, d) of their domains to vectors (n, d).

    Works in pieces that stay in the cache: vectors may be a memory bank.
    """
    out = large_empty(len(vectors), vectors.shape[1], vectors.device, vectors.dtype)
    step = max(1, PIECE // max(1, vectors.shape[1]))
    for start in range(0, len(vectors), step):
        rows = slice(start, start + step)
        if domain.ndim == 2:
            member = domain[rows].to(vectors.dtype)
            centre = member @ means / member.sum(1, keepdim=True).clamp(min=1)
        else:
            centre = means.index_select(0, domain[rows])
        piece = torch.sub(vectors[rows], centre, out=out[rows])
        piece.div_(torch.linalg.vector_norm(piece, dim=1, keepdim=True).clamp_(min=SHORTEST))
    return out
