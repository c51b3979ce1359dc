"""DANN: a discriminator learns to tell the domains of encodings, and the encoder learns to mislead it."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from okapi.algorithms.base import Algorithm, Metrics, Needs, unlabelled
from okapi.config import DANNSettings
from okapi.data.batches import Batch, join
from okapi.nn.distributed import average_gradient

WIDTH = 1024  # of the discriminator's two hidden layers, as in WILDS 2.0


class DANN(Algorithm):
    """Minimise the supervised loss and the discriminator's loss, whose gradient is reversed on its way to the encoder.

    Domains are the domain labels of the data, those of labelled and of unlabelled samples alike. The batch is one to
    layers of batch normalisation. Ganin et al. 2016; several domains and the discriminator as in WILDS 2.0, whose
    discriminator has a sigmoid before the softmax of its loss, which this one has not.

    Attributes
    ----------
    discriminator : Module
        Encodings (n, d) in, logits of domains (n, S) out.
    """

    Settings = DANNSettings

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        width, dtype = self.network.encoder.out_features, next(self.network.parameters()).dtype
        layers: list[nn.Module] = []
        for size in (width, WIDTH):
            layers += [nn.Linear(size, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU()]  # type: ignore[arg-type]
        self.discriminator = nn.Sequential(*layers, nn.Linear(WIDTH, self.domains)).to(dtype)
        for parameter in self.discriminator.parameters():
            parameter.register_hook(average_gradient)

    @property
    def needs(self) -> Needs:
        """What a batch must have."""
        return Needs(unlabelled=True)

    def training_step(self, batch: Batch, step: int) -> tuple[Tensor, Metrics]:
        """Return the loss of a batch and its metrics."""
        labelled, others = batch.labelled, unlabelled(batch)
        output = self.predict(join([labelled.inputs, others.inputs]))
        supervised = self.supervised(output.prediction[: len(labelled)], labelled)
        domain = torch.cat([labelled.domain, others.domain])
        logits = self.discriminator(reverse_gradient(output.encoding))
        if self.multi_label:
            adversarial, right = binary_cross_entropy_with_logits(logits, domain.to(logits)), (logits > 0) == domain
        else:
            adversarial, right = cross_entropy(logits, domain), logits.argmax(1) == domain
        loss = supervised + self.settings.weight * adversarial
        metrics = {"loss": loss, "supervised_loss": supervised, "domain_loss": adversarial}
        metrics["domain_accuracy"] = right.float().mean()
        return loss, {name: metric.detach() for name, metric in metrics.items()}

    def parameter_groups(self, learning_rate: float) -> list[dict[str, Any]]:
        """Return the network's parameters and the discriminator's."""
        return [
            *super().parameter_groups(learning_rate),
            {"params": list(self.discriminator.parameters()), "lr": learning_rate},
        ]


def reverse_gradient(encoding: Tensor) -> Tensor:
    """Return the same numbers, through which a gradient passes with the other sign."""
    return 2 * encoding.detach() - encoding
