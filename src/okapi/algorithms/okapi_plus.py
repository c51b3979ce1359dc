"""Okapi+: the paper's loop with centred matching, a prognostic caliper, and pseudo-labels with distribution alignment.

What a training step has beyond `okapi.algorithms.okapi`:

- Encodings are centred by domain mean before they are compared, so that what all samples of a domain share does not
  decide who is near.
- A pair has to agree in outcome, the label where it is known and elsewhere the momentum model's prediction: the
  prognostic caliper (Hansen, "The prognostic analogue of the propensity score", 2008).
- These predictions are aligned with the class prior; confident ones are pseudo-labels of the strong views.
- While the momentum model gets many labels wrong, an error gate keeps both weights small.

Labelled and unlabelled samples are one batch to batch normalisation.
"""

import torch
from torch import Tensor

from okapi.algorithms.base import Metrics, Needs, strong, unlabelled
from okapi.algorithms.cross_domain import LABELLED, UNLABELLED, CrossDomainAlgorithm, momentum_schedule
from okapi.config import OkapiPlusSettings
from okapi.data.batches import Batch, Samples, join
from okapi.data.task import Task
from okapi.models.network import Network
from okapi.nn import CrossDomainConsistency, Linear, MomentumEncoder
from okapi.nn.pseudo_labels import ErrorGate, known_outcome, predicted_outcome, pseudo_label_loss


class OkapiPlus(CrossDomainAlgorithm):
    """Minimise the supervised loss, the distance of matched encodings, and the pseudo-label loss of strong views.

    Parameters
    ----------
    network, task, steps, domains, multi_label
        As in `Algorithm`.
    settings : OkapiPlusSettings, optional
    """

    Settings = OkapiPlusSettings

    def __init__(
        self,
        network: Network,
        task: Task,
        settings: OkapiPlusSettings | None = None,
        *,
        steps: int,
        domains: int = 2,
        multi_label: bool = False,
    ) -> None:
        super().__init__(network, task, settings, steps=steps, domains=domains, multi_label=multi_label)
        own: OkapiPlusSettings = self.settings
        self.by_outcome = own.matching.prognostic_caliper is not None
        self.pseudo_labels = self.by_outcome and own.pseudo_labels.weight > 0 and task.kind != "regression"
        zeta, warm_up = momentum_schedule(own.momentum, steps), round(own.warm_up * steps)
        self.consistency = CrossDomainConsistency(
            network.encoder,
            matching=own.matching,
            task=task,
            temperature=own.scorer.temperature,
            bank=own.bank,
            momentum=zeta,
            weight=Linear(0.0, own.weight, warm_up),
            gate=ErrorGate(own.pseudo_labels.error_gate),
            **self.domain_arguments,
        )
        self.momentum_head = MomentumEncoder(network.head, zeta) if self.by_outcome else None
        self.pseudo_label_weight = Linear(0.0, own.pseudo_labels.weight, warm_up)

    @property
    def gate(self) -> ErrorGate:
        """What keeps both weights small while the momentum model gets many labels wrong."""
        assert self.consistency.gate is not None
        return self.consistency.gate

    @property
    def needs(self) -> Needs:
        """What a batch must have."""
        return Needs(unlabelled=True, strong="unlabelled" if self.pseudo_labels else "none", strong_if_any=True)

    def training_step(self, batch: Batch, step: int) -> tuple[Tensor, Metrics]:
        """Return the loss of a batch and its metrics."""
        labelled, others = batch.labelled, unlabelled(batch)
        inputs = join([labelled.inputs, others.inputs])
        momentum = self.consistency.encode(inputs, step)  # before the network's activations take their memory
        outcome, known = self._outcomes(momentum, labelled, step)
        pseudo_labels = self.pseudo_labels and others.strong is not None
        if pseudo_labels:  # weak and strong views are one batch to batch normalisation; else two calls are quicker
            apart = 0 if self.network.has_batch_norm else len(batch)
            encoding, prediction = self.predict(join([inputs, strong(others)]), apart)
        else:
            encoding, prediction = self.predict(inputs)

        supervised = self.supervised(prediction[: len(labelled)], labelled)
        domain = torch.cat([self.domain_of(labelled, LABELLED), self.domain_of(others, UNLABELLED)])
        matched = self.consistency(
            encoding[: len(batch)], inputs, domain, outcome=outcome, known=known, step=step, momentum=momentum
        )
        loss, metrics = supervised + matched.loss, matched.metrics
        if pseudo_labels and matched.outcome is not None:
            pseudo, rate = pseudo_label_loss(
                self.task,
                matched.outcome[len(labelled) :],
                prediction[len(batch) :],
                self.settings.pseudo_labels.confidence,
            )
            loss = loss + self.pseudo_label_weight(step) * self.gate() * pseudo
            metrics |= {"pseudo_label_loss": pseudo.detach(), "pseudo_label_rate": rate}
        return loss, {"loss": loss.detach(), "supervised_loss": supervised.detach(), **metrics}

    @torch.no_grad()
    def _outcomes(self, momentum: Tensor, labelled: Samples, step: int) -> tuple[Tensor | None, Tensor | None]:
        """Return the outcomes of a batch, targets where labelled and predictions elsewhere, and which are known.

        The labelled samples' predictions tell the error gate how good the momentum model is.
        """
        if self.momentum_head is None or labelled.target is None:
            return None, None
        if self.training:
            self.momentum_head.update(self.network.head, step)
        prediction = self.momentum_head(momentum)
        if self.training and self.task.kind == "classification":
            self.gate.update(prediction[: len(labelled)], labelled.target)
        outcome = predicted_outcome(prediction.to(self.consistency.encodings.slots.dtype), self.task.kind)
        outcome = torch.cat([known_outcome(self.task, labelled.target).to(outcome), outcome[len(labelled) :]])
        return outcome, torch.arange(len(outcome), device=outcome.device) < len(labelled)
