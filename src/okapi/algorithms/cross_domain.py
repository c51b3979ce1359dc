"""What Okapi and Okapi+ share: whose domain is whose, and samples as they are matched outside of training."""

import warnings
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from okapi.algorithms.base import Algorithm
from okapi.config import MatchingSettings, MomentumSettings
from okapi.data.batches import Samples
from okapi.nn import CrossDomainConsistency, Linear, Pool
from okapi.nn.pseudo_labels import known_outcome, predicted_outcome

LABELLED, UNLABELLED = 0, 1
LAG = 100  # the share of the training, one in so many steps, by which an automatic momentum encoder lags


class SharedDomainsWarning(UserWarning):
    """Labelled and unlabelled samples share domains, although the pool stands in for the domain."""


class CrossDomainAlgorithm(Algorithm):
    """An algorithm with a `CrossDomainConsistency`."""

    consistency: CrossDomainConsistency

    @property
    def matching(self) -> MatchingSettings:
        """How samples are matched."""
        settings: MatchingSettings = self.settings.matching
        return settings

    @property
    def domain_arguments(self) -> dict[str, Any]:
        """The domains as `CrossDomainConsistency` takes them: two pools, or the domain labels of the data."""
        if self.settings.domain == "binary":
            return {"domains": 2, "multi_label": False}
        return {"domains": self.domains, "multi_label": self.multi_label}

    def domain_of(self, samples: Samples, pool: int) -> Tensor:
        """Return the domain of each sample of a pool of the batch."""
        return samples.domain if self.settings.domain == "label" else torch.full_like(samples.id, pool)

    def parameter_groups(self, learning_rate: float) -> list[dict[str, Any]]:
        """Return the network's parameters and, with a learning rate that may be its own, the scorer's."""
        groups = super().parameter_groups(learning_rate)
        if self.consistency.scorer is not None:
            rate = self.settings.scorer.learning_rate
            parameters = list(self.consistency.scorer.parameters())
            groups.append({"params": parameters, "lr": learning_rate if rate is None else rate})
        return groups

    @torch.no_grad()
    def pool(self, encoding: Tensor, prediction: Tensor, domain: Tensor, target: Tensor | None) -> Pool:
        """Return samples as training matches them: propensities by the scorer, targets where known."""
        unit = normalize(encoding, dim=-1)
        if self.settings.domain == "binary":
            domain = torch.full((len(unit),), UNLABELLED if target is None else LABELLED)
        pool = Pool(unit, domain)
        if (scorer := self.consistency.scorer) is not None:
            pool = pool._replace(propensity=scorer.scores(scorer(unit.to(scorer.linear.weight.device))).cpu())
        if self.consistency.task is not None:
            outcome = predicted_outcome(prediction, self.task.kind)
            if target is not None:
                outcome = known_outcome(self.task, target).to(outcome)
            pool = pool._replace(outcome=outcome, known=torch.full((len(unit),), target is not None))
        return pool

    def check_pools(self, labelled: Tensor, unlabelled: Tensor, names: tuple[str, ...]) -> None:
        """Warn where the pool stands in for the domain but both pools have samples of the same domains.

        Parameters
        ----------
        labelled, unlabelled : tensor (n,), int64; or (n, S), bool
            Domains of the labelled and of the unlabelled samples.
        names : tuple of str
            Of the domains.
        """
        if self.settings.domain != "binary":
            return
        if labelled.ndim == 2:
            shared = torch.nonzero(labelled.any(0) & unlabelled.any(0)).flatten().tolist()
        else:
            shared = sorted(set(labelled.tolist()) & set(unlabelled.tolist()))
        if shared:
            some = ", ".join(names[number] for number in shared[:5]) + (", ..." if len(shared) > 5 else "")
            warnings.warn(
                f"{len(shared)} domains have labelled and unlabelled samples ({some}): with domain 'binary' samples of "
                "the same domain are matched. Set domain to 'label' to match across domain labels",
                SharedDomainsWarning,
                stacklevel=2,
            )


def momentum_schedule(settings: MomentumSettings, steps: int) -> Linear:
    """Return zeta of the momentum encoder over a training of so many steps.

    Examples
    --------
    >>> momentum_schedule(MomentumSettings(start="auto"), steps=30_000)(0)
    0.9966666666666667
    """
    start = max(0.0, 1 - LAG / steps) if settings.start == "auto" else settings.start
    return Linear(start, start if settings.end is None else settings.end, steps)
