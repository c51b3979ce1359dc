"""Empirical risk minimisation: the supervised loss and nothing else."""

from torch import Tensor

from okapi.algorithms.base import Algorithm, Metrics
from okapi.config import ERMSettings
from okapi.data.batches import Batch


class ERM(Algorithm):
    """Minimise the supervised loss on the labelled samples."""

    Settings = ERMSettings

    def training_step(self, batch: Batch, step: int) -> tuple[Tensor, Metrics]:
        """Return the loss of a batch and its metrics."""
        loss = self.supervised(self.predict(batch.labelled.inputs).prediction, batch.labelled)
        return loss, {"loss": loss.detach(), "supervised_loss": loss.detach()}
