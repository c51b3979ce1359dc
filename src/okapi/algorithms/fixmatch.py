"""FixMatch: confident predictions on weak views are the pseudo-labels of strong views of the same samples."""

import torch
from torch import Tensor

from okapi.algorithms.base import Algorithm, Metrics, Needs, strong, unlabelled
from okapi.config import FixMatchSettings
from okapi.data.batches import Batch, join
from okapi.nn.pseudo_labels import predicted_outcome, pseudo_label_loss


class FixMatch(Algorithm):
    """Minimise the supervised loss, and the distance of strong views' predictions from those of weak views.

    Classes and labels: where the weak view of an unlabelled sample is predicted with confidence, that prediction is the
    target of its strong view. Regression: the squared difference of both predictions, for all samples. No gradient
    passes through the weak view's prediction.
    """

    Settings = FixMatchSettings

    @property
    def needs(self) -> Needs:
        """What a batch must have."""
        return Needs(unlabelled=True, strong="all" if self.task.kind == "regression" else "unlabelled")

    def training_step(self, batch: Batch, step: int) -> tuple[Tensor, Metrics]:
        """Return the loss of a batch and its metrics."""
        labelled, others = batch.labelled, unlabelled(batch)
        with torch.no_grad():
            weak = self.predict(others.inputs).prediction
        strong_views = [strong(others)]
        if self.task.kind == "regression":
            strong_views.insert(0, strong(labelled))
        prediction = self.predict(join([labelled.inputs, *strong_views])).prediction
        supervised = self.supervised(prediction[: len(labelled)], labelled)
        if self.task.kind == "regression":
            weak = torch.cat([prediction[: len(labelled)].detach(), weak])
        outcome = predicted_outcome(weak, self.task.kind)
        unsupervised, rate = pseudo_label_loss(self.task, outcome, prediction[len(labelled) :], self.settings.threshold)
        loss = supervised + self.settings.weight * unsupervised
        metrics = {"loss": loss, "supervised_loss": supervised, "unsupervised_loss": unsupervised}
        return loss, {name: metric.detach() for name, metric in (metrics | {"pseudo_label_rate": rate}).items()}
