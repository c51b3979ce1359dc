"""Okapi, the method of the paper: samples matched across domains are encoded alike.

A training step, as `okapi.nn.CrossDomainConsistency` and this page have it:

1. The momentum encoder moves towards the online encoder, and encodes both pools.
2. The online encoder encodes both pools; head and supervised loss on the labelled one.
3. Queries are the momentum encodings (or the online ones), keys the momentum encodings and the memory bank.
4. The propensity scorer learns to tell the domains of the keys apart, and gives their propensities.
5. CaliperNN matches queries to keys inside the calipers, in both directions.
6. The loss is the supervised loss, and the consistency of matched pairs times match rate times lambda.
7. The momentum encodings overwrite the oldest of the bank.
"""

import torch
from torch import Tensor

from okapi.algorithms.base import Metrics, Needs, unlabelled
from okapi.algorithms.cross_domain import LABELLED, UNLABELLED, CrossDomainAlgorithm, momentum_schedule
from okapi.config import OkapiSettings, PrognosticMatchingSettings
from okapi.data.batches import Batch, join
from okapi.data.task import Task
from okapi.models.network import Network
from okapi.nn import CrossDomainConsistency, Linear


class Okapi(CrossDomainAlgorithm):
    """Minimise the supervised loss and the distance of encodings matched across domains.

    Parameters
    ----------
    network, task, steps, domains, multi_label
        As in `Algorithm`.
    settings : OkapiSettings, optional
        By default `okapi.config.PAPER`.
    """

    Settings = OkapiSettings

    def __init__(
        self,
        network: Network,
        task: Task,
        settings: OkapiSettings | None = None,
        *,
        steps: int,
        domains: int = 2,
        multi_label: bool = False,
    ) -> None:
        super().__init__(network, task, settings, steps=steps, domains=domains, multi_label=multi_label)
        own: OkapiSettings = self.settings
        if isinstance(own.matching, PrognosticMatchingSettings):
            raise ValueError("matching must be MatchingSettings: centring and the prognostic caliper are OkapiPlus's")
        self.consistency = CrossDomainConsistency(
            network.encoder,
            matching=own.matching,
            temperature=own.scorer.temperature,
            queries=own.queries,
            bank=own.bank,
            momentum=momentum_schedule(own.momentum, steps),
            weight=Linear(0.0, own.weight, round(own.warm_up * steps)),
            **self.domain_arguments,
        )

    @property
    def needs(self) -> Needs:
        """What a batch must have."""
        return Needs(unlabelled=True)

    def training_step(self, batch: Batch, step: int) -> tuple[Tensor, Metrics]:
        """Return the loss of a batch and its metrics."""
        own: OkapiSettings = self.settings
        one_way = own.queries == "online" and own.domain == "binary" and own.matching.direction is not None
        supervised, unsupervised, metrics = (self._one_way if one_way else self._both_pools)(batch, step)
        loss = supervised + unsupervised
        return loss, {"loss": loss.detach(), "supervised_loss": supervised.detach(), **metrics}

    def _both_pools(self, batch: Batch, step: int) -> tuple[Tensor, Tensor, Metrics]:
        pools = [batch.labelled, unlabelled(batch)]
        inputs = join([pool.inputs for pool in pools])
        domain = torch.cat([self.domain_of(pool, number) for number, pool in enumerate(pools)])
        momentum = self.consistency.encode(inputs, step)  # before the network's activations take their memory
        encoding, prediction = self.predict(inputs, self._first_pool(batch))
        supervised = self.supervised(prediction[: len(batch.labelled)], batch.labelled)
        matched = self.consistency(encoding, inputs, domain, step=step, momentum=momentum)
        return supervised, matched.loss, matched.metrics

    def _one_way(self, batch: Batch, step: int) -> tuple[Tensor, Tensor, Metrics]:
        """Encode the queries' pool online and the keys' pool with momentum only; the labelled online in any case."""
        pools = [batch.labelled, unlabelled(batch)]
        query, key = self.settings.matching.direction
        encoded = pools[:1] if query == LABELLED else pools
        momentum = self.consistency.encode(pools[key].inputs, step)
        encoding, prediction = self.predict(
            join([pool.inputs for pool in encoded]), self._first_pool(batch) if query == UNLABELLED else 0
        )
        supervised = self.supervised(prediction[: len(batch.labelled)], batch.labelled)
        matched = self.consistency(
            encoding if query == LABELLED else encoding[len(batch.labelled) :],
            pools[key].inputs,
            self.domain_of(pools[query], query),
            key_domain=self.domain_of(pools[key], key),
            step=step,
            momentum=momentum,
        )
        return supervised, matched.loss, matched.metrics

    def _first_pool(self, batch: Batch) -> int:
        """Return how many samples are encoded apart from the rest, as a batch of their own to batch normalisation."""
        apart = self.settings.batch_norm == "by_pool" and self.network.has_batch_norm
        return len(batch.labelled) if apart else 0
