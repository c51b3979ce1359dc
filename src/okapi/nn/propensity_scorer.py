"""The propensity scorer: a linear classifier of domains that learns beside the encoder."""

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy


class PropensityScorer(nn.Module):
    """The probability of each domain given the encoding.

    Parameters
    ----------
    in_features : int
        Width of an encoding.
    domains : int
        Number of domains; with two there is one score, the probability of domain 1.
    multi_label : bool
        Whether a sample has several domain labels, a boolean row over domains, each with a score.
    temperature : float > 0
        Divides the logits of the scores, not those of the loss.

    Examples
    --------
    >>> scorer = PropensityScorer(8, domains=3)
    >>> scorer.scores(scorer(torch.zeros(4, 8))).shape
    torch.Size([4, 3])
    """

    def __init__(
        self, in_features: int, domains: int = 2, *, multi_label: bool = False, temperature: float = 1.0
    ) -> None:
        super().__init__()
        if domains < 2:
            raise ValueError(f"domains must be at least 2, got {domains}")
        if not (isinstance(temperature, float | int) and temperature > 0):
            raise ValueError(f"temperature must be a positive number, got {temperature!r}")
        self.domains, self.multi_label, self.temperature = domains, multi_label, temperature
        self.linear = nn.Linear(in_features, 1 if self.binary else domains)

    @property
    def binary(self) -> bool:
        """Whether one number says it all."""
        return self.domains == 2 and not self.multi_label

    def forward(self, encodings: Tensor) -> Tensor:
        """Return logits, shape (n,) or (n, S), of encodings (n, d), to which no gradient passes."""
        # In full precision whatever autocast says: calipers compare scores that are close to one another.
        with torch.autocast(encodings.device.type, enabled=False):
            logits: Tensor = self.linear(encodings.detach().to(self.linear.weight.dtype))
        return logits[:, 0] if self.binary else logits

    @torch.no_grad()
    def scores(self, logits: Tensor) -> Tensor:
        """Return the propensities at the scorer's temperature: (n,) of two domains, (n, S) of more or of labels."""
        tempered = logits / self.temperature
        return tempered.sigmoid() if self.binary or self.multi_label else tempered.softmax(-1)

    def loss(self, logits: Tensor, domain: Tensor) -> Tensor:
        """Return the cross-entropy weighted by inverse domain frequency, ``w(s) = N / (S_present n_s)``.

        Parameters
        ----------
        logits : tensor (n,) or (n, S)
        domain : tensor (n,), integers; or (n, S), booleans
            Of labels, having one and not having it are weighed against each other, label by label.
        """
        check_domain(domain, self.domains, self.multi_label)
        if self.multi_label:
            has = domain.to(logits.dtype)
            weight = torch.where(domain, _balance(has.sum(0), len(has)), _balance((1 - has).sum(0), len(has)))
            both = (has.sum(0) > 0) & (has.sum(0) < len(has))
            weight = torch.where(both, weight / 2, 1.0)
            return binary_cross_entropy_with_logits(logits, has, weight=weight)
        counts = torch.bincount(domain, minlength=self.domains).to(logits.dtype)
        weight = _balance(counts, len(domain)) / (counts > 0).sum()
        if self.binary:
            return binary_cross_entropy_with_logits(logits, domain.to(logits.dtype), weight=weight[domain])
        return cross_entropy(logits, domain, weight=weight, reduction="sum") / len(domain)

    @torch.no_grad()
    def accuracy(self, logits: Tensor, domain: Tensor) -> Tensor:
        """Return the accuracy averaged over the domains present (over labels, of sets): 1/2 of two is guessing."""
        if self.multi_label:
            return ((logits > 0) == domain).to(logits.dtype).mean()
        right = (logits > 0).long() == domain if self.binary else logits.argmax(1) == domain
        counts = torch.bincount(domain, minlength=self.domains)
        hits = torch.bincount(domain, weights=right.to(logits.dtype), minlength=self.domains)
        return (hits / counts.clamp(min=1)).sum() / (counts > 0).sum()


def check_domain(domain: Tensor, domains: int, multi_label: bool) -> None:
    """Reject domains that are not integers (n,) below ``domains``, or booleans (n, domains) if multi-label."""
    if multi_label:
        if domain.ndim != 2 or domain.dtype != torch.bool or domain.shape[1] != domains:
            raise ValueError(
                f"domain must be booleans of shape (n, {domains}), got {tuple(domain.shape)} of {domain.dtype}"
            )
        return
    if domain.ndim != 1 or domain.is_floating_point() or domain.dtype == torch.bool:
        raise ValueError(f"domain must be integers of shape (n,), got {tuple(domain.shape)} of {domain.dtype}")
    if len(domain) and not 0 <= int(domain.min()) <= int(domain.max()) < domains:
        unknown = domain[(domain < 0) | (domain >= domains)].unique().tolist()
        raise ValueError(f"domain must be between 0 and {domains - 1}, got {unknown}")


def _balance(counts: Tensor, total: int) -> Tensor:
    """Return total / counts; an absent domain has no samples to weigh."""
    return total / counts.clamp(min=1)
