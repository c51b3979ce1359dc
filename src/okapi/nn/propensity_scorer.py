"""The propensity scorer: a linear classifier of domains that learns beside the encoder."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from okapi.nn.groups import sums_by_group

APART = 2.0  # log-odds between the means of two domains at an automatic temperature
MEMORY = 0.9  # share of the past that a step leaves in the running mean


class PropensityScorer(nn.Module):
    """The probability of each domain given the encoding.

    Parameters
    ----------
    in_features : int
        Width of an encoding.
    domains : int
        Number of domains; with two there is one score, the probability of domain 1.
    sets : bool
        Whether a sample has a set of domain labels, a boolean row over domains; each label then has a score of its own.
    temperature : float > 0, or "auto"
        Divides the logits of the scores, not those of the loss. Automatic: ``max(1, D / 2)``, where D is how far apart
        the mean log-odds of the two domains are that are furthest apart, as a running mean over the steps. An average
        sample of either is then at odds of e to 1 for its own domain against the other: with two domains the mean
        propensities are 0.27 and 0.73. That is where the sigmoid is still nearly straight (its slope is 0.2 there and
        0.25 at most): a scorer that tells the domains apart without error, whose scores would all be 0 or 1, still says
        which samples are nearer to the other domain, and scores that are not far apart stay as they are.

    Examples
    --------
    >>> scorer = PropensityScorer(8, domains=3)
    >>> scorer.scores(scorer(torch.zeros(4, 8))).shape
    torch.Size([4, 3])
    """

    spread: Tensor

    def __init__(
        self, in_features: int, domains: int = 2, *, sets: bool = False, temperature: float | Literal["auto"] = 1.0
    ) -> None:
        super().__init__()
        if domains < 2:
            raise ValueError(f"domains must be at least 2, got {domains}")
        if temperature != "auto" and not (isinstance(temperature, float | int) and temperature > 0):
            raise ValueError(f"temperature must be positive or 'auto', got {temperature!r}")
        self.domains, self.sets, self._temperature = domains, sets, temperature
        self.linear = nn.Linear(in_features, 1 if self.binary else domains)
        if temperature == "auto":
            self.register_buffer("spread", torch.zeros(()))  # a scorer that has learnt nothing has none

    @property
    def automatic(self) -> bool:
        """Whether the temperature follows the logits."""
        return self._temperature == "auto"

    @property
    def temperature(self) -> float:
        """What divides the logits of the scores, now."""
        return max(1.0, float(self.spread) / APART) if self._temperature == "auto" else self._temperature

    @property
    def binary(self) -> bool:
        """Whether one number says it all."""
        return self.domains == 2 and not self.sets

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
        return tempered.sigmoid() if self.binary or self.sets else tempered.softmax(-1)

    @torch.no_grad()
    def follow(self, logits: Tensor, domain: Tensor) -> None:
        """Let an automatic temperature follow the logits (n,) or (n, S) of samples of domains (n,) or (n, S)."""
        if self.automatic and len(logits):
            self.spread.lerp_(self._apart(logits, domain).to(self.spread.dtype), 1 - MEMORY)

    def _apart(self, logits: Tensor, domain: Tensor) -> Tensor:
        """Return how far apart the mean log-odds are, of the two domains, or with and without the label, furthest so.

        The log-odds of a against b are the difference of their logits; absent domains do not count.
        """
        if self.sets:
            has = domain.to(logits.dtype)
            mean = [(logits * side).sum(0) / side.sum(0).clamp(min=1) for side in (has, 1 - has)]
            both = (has.sum(0) > 0) & (has.sum(0) < len(has))
            return torch.where(both, mean[0] - mean[1], 0.0).max()
        rows = torch.stack([-logits, logits], 1) / 2 if self.binary else logits
        counts = torch.bincount(domain, minlength=self.domains)
        means = sums_by_group(rows, domain, self.domains) / counts.clamp(min=1)[:, None]
        for_own = means.diagonal()[:, None] - means  # of the samples of a domain, their mean log-odds against another
        present = counts > 0
        return torch.where(present[:, None] & present, for_own + for_own.T, 0.0).max()

    def loss(self, logits: Tensor, domain: Tensor) -> Tensor:
        """Return the cross-entropy weighted by inverse domain frequency, ``w(s) = N / (S_present n_s)``.

        Parameters
        ----------
        logits : tensor (n,) or (n, S)
        domain : tensor (n,), integers; or (n, S), booleans
            Of labels, having one and not having it are weighed against each other, label by label.
        """
        self.check_domain(domain)
        if self.sets:
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
        if self.sets:
            return ((logits > 0) == domain).to(logits.dtype).mean()
        right = (logits > 0).long() == domain if self.binary else logits.argmax(1) == domain
        counts = torch.bincount(domain, minlength=self.domains)
        hits = torch.bincount(domain, weights=right.to(logits.dtype), minlength=self.domains)
        return (hits / counts.clamp(min=1)).sum() / (counts > 0).sum()

    def check_domain(self, domain: Tensor) -> None:
        """Refuse domains that the scorer does not know."""
        if self.sets:
            if domain.ndim != 2 or domain.dtype != torch.bool or domain.shape[1] != self.domains:
                raise ValueError(
                    f"domain must be booleans of shape (n, {self.domains}), got {tuple(domain.shape)} of {domain.dtype}"
                )
            return
        if domain.ndim != 1 or domain.is_floating_point() or domain.dtype == torch.bool:
            raise ValueError(f"domain must be integers of shape (n,), got {tuple(domain.shape)} of {domain.dtype}")
        if len(domain) and not 0 <= int(domain.min()) <= int(domain.max()) < self.domains:
            unknown = domain[(domain < 0) | (domain >= self.domains)].unique().tolist()
            raise ValueError(f"domain must be between 0 and {self.domains - 1}, the scorer has never seen {unknown}")


def with_gradient_taken(loss: Tensor, module: nn.Module) -> Tensor:
    """Return a loss of the same value and the same gradient to a module's parameters, which no longer needs its inputs.

    The gradient is taken now; ``backward`` then only hands it on. What the loss was computed from may change meanwhile.
    """
    if not loss.requires_grad:
        return loss
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    gradients = torch.autograd.grad(loss, parameters)
    linear = [((p - p.detach()) * g).sum() for p, g in zip(parameters, gradients, strict=True)]
    return loss.detach() + torch.stack(linear).sum()


def _balance(counts: Tensor, total: int) -> Tensor:
    """Return total / counts; an absent domain has no samples to weigh."""
    return total / counts.clamp(min=1)
