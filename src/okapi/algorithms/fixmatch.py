"""FixMatch: predictions on a weak view teach predictions on a strong view of the same sample."""

from dataclasses import dataclass

import torch
from torch import Tensor

from okapi.algorithms.base import Algorithm, Figures, Needs, strong, unlabelled
from okapi.algorithms.outcomes import OUTCOMES, teaching_loss
from okapi.data.batches import Batch, join
from okapi.nn.outcome_bank import predicted_outcome


@dataclass(frozen=True, kw_only=True)
class FixMatchSettings:
    """Settings of FixMatch (Sohn et al. 2020).

    Parameters
    ----------
    threshold : float in [0, 1]
        Least confidence of a weak prediction that teaches; of classes and labels only. 0 lets all of them teach.
    weight : float
        Of the unsupervised loss.
    """

    threshold: float = 0.95
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.threshold <= 1:
            raise ValueError(f"threshold must be in [0, 1], got {self.threshold}")


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

    def training_step(self, batch: Batch, step: int) -> tuple[Tensor, Figures]:
        """Return the loss of a batch and its figures."""
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
        said = predicted_outcome(weak, OUTCOMES[self.task.kind])
        unsupervised, taught = teaching_loss(self.task, said, prediction[len(labelled) :], self.settings.threshold)
        loss = supervised + self.settings.weight * unsupervised
        figures = {"loss": loss, "supervised_loss": supervised, "unsupervised_loss": unsupervised, "taught": taught}
        return loss, {name: figure.detach() for name, figure in figures.items()}
