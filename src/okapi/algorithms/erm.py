"""Empirical risk minimisation: the supervised loss and nothing else."""

from dataclasses import dataclass

from torch import Tensor

from okapi.algorithms.base import Algorithm, Figures
from okapi.data.batches import Batch


@dataclass(frozen=True, kw_only=True)
class ERMSettings:
    """Empirical risk minimisation has nothing to set."""


class ERM(Algorithm):
    """Minimise the supervised loss on the labelled samples."""

    Settings = ERMSettings

    def training_step(self, batch: Batch, step: int) -> tuple[Tensor, Figures]:
        """Return the loss of a batch and its figures."""
        loss = self.supervised(self.predict(batch.labelled.inputs).prediction, batch.labelled)
        return loss, {"loss": loss.detach(), "supervised_loss": loss.detach()}
