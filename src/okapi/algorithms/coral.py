"""Deep CORAL: encodings of all domains are to have the same mean and the same covariance."""

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from okapi.algorithms.base import Algorithm, Metrics, Needs, unlabelled
from okapi.config import CORALSettings
from okapi.data.batches import Batch, join


class CORAL(Algorithm):
    """Minimise the supervised loss, and the differences between domains of the encodings' means and covariances.

    Domains are the domain labels of the data, those of labelled and of unlabelled samples alike. The batch is one to
    layers of batch normalisation. Sun and Saenko 2016; means and several domains as in DomainBed and WILDS 2.0.
    """

    Settings = CORALSettings

    @property
    def needs(self) -> Needs:
        """What a batch must have."""
        return Needs(unlabelled=True)

    def training_step(self, batch: Batch, step: int) -> tuple[Tensor, Metrics]:
        """Return the loss of a batch and its metrics."""
        labelled, others = batch.labelled, unlabelled(batch)
        output = self.predict(join([labelled.inputs, others.inputs]))
        supervised = self.supervised(output.prediction[: len(labelled)], labelled)
        penalty = coral_penalty(output.encoding, torch.cat([labelled.domain, others.domain]))
        loss = supervised + self.settings.weight * penalty
        metrics = {"loss": loss, "supervised_loss": supervised, "coral_penalty": penalty}
        return loss, {name: metric.detach() for name, metric in metrics.items()}


def coral_penalty(encoding: Tensor, domain: Tensor) -> Tensor:
    """Return the mean, over pairs of domains, of the mean squared differences of means and of covariances.

    Over all pairs of values the mean squared difference is twice their variance, so that no pair is looked at.

    Parameters
    ----------
    encoding : tensor (n, d)
    domain : tensor (n,), int64; or (n, S), bool
        A domain with fewer than two samples, which has no covariance, is left out. With fewer than two domains: 0.
    """
    member = domain if domain.ndim == 2 else one_hot(domain).bool()
    with torch.autocast(encoding.device.type, enabled=False):
        encoding = encoding.float() if encoding.dtype in (torch.bfloat16, torch.float16) else encoding
        parts = [encoding[rows] for rows in member.T if rows.sum() > 1]
        if len(parts) < 2:
            return encoding.new_zeros(())
        means = torch.stack([part.mean(0) for part in parts])
        covariances = torch.stack([torch.cov(part.T) for part in parts])
        return 2 * (means.var(0).mean() + covariances.var(0).mean())
