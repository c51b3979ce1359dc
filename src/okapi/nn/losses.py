"""How far a query is from its match: on encodings, or on predicted probabilities."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, normalize

ON_ENCODINGS = ("squared_l2", "cosine")
ON_PREDICTIONS = ("jsd", "kl")


def squared_l2(query: Tensor, key: Tensor) -> Tensor:
    """Return ``|q - k|^2`` of normalised encodings (..., d), the paper's loss; shape (...)."""
    return (normalize(query, dim=-1) - normalize(key, dim=-1)).square().sum(-1)


def cosine(query: Tensor, key: Tensor) -> Tensor:
    """Return one minus the cosine of encodings (..., d): half the squared distance of the normalised ones."""
    return 1 - cosine_similarity(query, key, dim=-1)


def kl(query: Tensor, key: Tensor) -> Tensor:
    """Return the Kullback-Leibler divergence of the query's prediction from the key's, ``KL(key || query)``.

    Both are log-probabilities of classes (..., C); shape (...).
    """
    return (key.exp() * (key - query)).sum(-1)


def jsd(query: Tensor, key: Tensor) -> Tensor:
    """Return the Jensen-Shannon divergence of two predictions, log-probabilities of classes (..., C); shape (...).

    In nats: between 0 and log 2.
    """
    middle = torch.logaddexp(query, key) - torch.log(query.new_tensor(2.0))
    return (kl(middle, query) + kl(middle, key)) / 2


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "squared_l2": squared_l2,
    "cosine": cosine,
    "jsd": jsd,
    "kl": kl,
}


def consistency_loss(name: str) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the loss of a name: ``squared_l2`` or ``cosine`` of encodings, ``jsd`` or ``kl`` of predictions."""
    if name not in LOSSES:
        raise ValueError(f"loss must be one of {', '.join(LOSSES)}, got {name!r}")
    return LOSSES[name]
