"""Okapi: samples matched across domains are encoded alike."""

import warnings
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from okapi.algorithms.base import Algorithm, Figures, Needs, unlabelled
from okapi.data.batches import Batch, Samples, join
from okapi.data.task import Task
from okapi.models.network import Network
from okapi.nn import CrossDomainConsistency, Linear
from okapi.nn.outcome_bank import OutcomeKind

LABELLED, UNLABELLED = 0, 1
OUTCOMES: dict[str, OutcomeKind] = {"classification": "classes", "regression": "numbers", "multilabel": "labels"}


class SharedDomainsWarning(UserWarning):
    """Labelled and unlabelled samples share domains, although the pool stands in for the domain."""


@dataclass(frozen=True, kw_only=True)
class OkapiSettings:
    """Settings of Okapi; the defaults are those of the paper's PovertyMap experiment.

    Parameters
    ----------
    k : int
        Keys per query.
    fixed_caliper : float in [0, 1], not 0.5, or null
        Leave out samples whose propensity is not inside (1 - t, t).
    std_caliper : float > 0, or null
        Greatest difference of propensities in a pair, in standard deviations.
    caliper_scale : {"probability", "logit"}
        Scale on which the std-caliper compares.
    outcome_caliper : float >= 0, or null
        The prognostic caliper: greatest distance of the outcomes in a pair, labels where they are known and the
        momentum model's predictions elsewhere. Of classes and labels the Euclidean distance of their probabilities; of
        numbers in standard deviations.
    outcome_neighbours : int
        With a prognostic caliper: how many past unlabelled samples, the nearest ones, have a say in what is predicted
        of an unlabelled one.
    outcome_alignment : bool
        With a prognostic caliper: whether predicted classes are made as frequent as the labels.
    temperature : float > 0
        Divides the logits of the propensities.
    domain : {"binary", "label"}
        What a sample's domain is: which pool it is in, labelled or unlabelled, or its domain label.
    direction : (int, int), or null
        Match only queries of the first domain with keys of the second; with ``binary`` 0 is labelled, 1 unlabelled.
    queries : {"momentum", "online"}
        Which encoder's encodings look for matches.
    bank : int
        Number of past samples kept as keys.
    momentum : float in [0, 1]
        zeta of the momentum encoder at the start.
    final_momentum : float in [0, 1]
        zeta at the end; linear in between.
    weight : float
        lambda, of the consistency in the loss.
    warm_up : float in [0, 1]
        Share of the training over which the weight rises from 0.
    loss : {"squared_l2", "cosine", "jsd", "kl"}
        Distance in a pair: of encodings, or of predicted classes.
    scorer_learning_rate : float, or null
        Learning rate of the propensity scorer; null: the encoder's, at which it hardly learns on unit vectors.
    """

    k: int = 5
    fixed_caliper: float | None = 0.9
    std_caliper: float | None = 0.2
    caliper_scale: Literal["probability", "logit"] = "probability"
    outcome_caliper: float | None = None
    outcome_neighbours: int = 0
    outcome_alignment: bool = False
    temperature: float = 1.0
    domain: Literal["binary", "label"] = "binary"
    direction: tuple[int, int] | None = None
    queries: Literal["momentum", "online"] = "momentum"
    bank: int = 65_536
    momentum: float = 0.996
    final_momentum: float = 1.0
    weight: float = 1.0
    warm_up: float = 0.1
    loss: Literal["squared_l2", "cosine", "jsd", "kl"] = "squared_l2"
    scorer_learning_rate: float | None = None

    def __post_init__(self) -> None:
        for name in ("momentum", "final_momentum", "warm_up"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be in [0, 1], got {getattr(self, name)}")


class Okapi(Algorithm):
    """Minimise the supervised loss and the distance of encodings matched across domains."""

    Settings = OkapiSettings

    def __init__(
        self,
        network: Network,
        task: Task,
        settings: OkapiSettings | None = None,
        *,
        steps: int,
        domains: int = 2,
        sets: bool = False,
    ) -> None:
        super().__init__(network, task, settings, steps=steps, domains=domains, sets=sets)
        own: OkapiSettings = self.settings
        by_prediction = own.loss in ("jsd", "kl")
        if by_prediction and task.kind != "classification":
            raise ValueError(f"loss {own.loss!r} compares predicted classes, the task is {task.kind}")
        binary = own.domain == "binary"
        self.consistency = CrossDomainConsistency(
            network.encoder,
            head=network.head if by_prediction or own.outcome_caliper is not None else None,
            domains=2 if binary else domains,
            sets=False if binary else sets,
            k=own.k,
            fixed_caliper=own.fixed_caliper,
            std_caliper=own.std_caliper,
            caliper_scale=own.caliper_scale,
            direction=own.direction,
            outcome_caliper=own.outcome_caliper,
            outcomes=OUTCOMES[task.kind],
            outcome_neighbours=own.outcome_neighbours,
            outcome_alignment=own.outcome_alignment,
            temperature=own.temperature,
            queries=own.queries,
            bank=own.bank,
            decay=Linear(own.momentum, own.final_momentum, steps),
            weight=Linear(0.0, own.weight, round(own.warm_up * steps)),
            loss=own.loss,
        )

    @property
    def needs(self) -> Needs:
        """What a batch must have."""
        return Needs(unlabelled=True)

    def training_step(self, batch: Batch, step: int) -> tuple[Tensor, Figures]:
        """Return the loss of a batch and its figures."""
        if self.settings.queries == "online" and self.settings.domain == "binary" and self.settings.direction:
            supervised, matched = self._one_way(batch, step)
        else:
            supervised, matched = self._all_ways(batch, step)
        loss = supervised + matched.loss
        return loss, {"loss": loss.detach(), "supervised_loss": supervised.detach(), **matched.figures}

    def _all_ways(self, batch: Batch, step: int) -> tuple[Tensor, Any]:
        labelled, others = batch.labelled, unlabelled(batch)
        inputs = join([labelled.inputs, others.inputs])
        momentum = self.consistency.encode(inputs, step)  # before the network's activations take their memory
        encoding, prediction = self.predict(inputs)
        supervised = self.supervised(prediction[: len(labelled)], labelled)
        domain = torch.cat([self._domain(labelled, LABELLED), self._domain(others, UNLABELLED)])
        known = [self._outcome(pool, number) for number, pool in enumerate((labelled, others))]
        return supervised, self.consistency(
            encoding,
            inputs,
            domain,
            prediction=prediction,
            outcome=torch.cat(known),
            step=step,
            momentum=momentum,
        )

    def _one_way(self, batch: Batch, step: int) -> tuple[Tensor, Any]:
        """Encode the queries' pool online and the keys' pool with momentum only; the labelled online in any case."""
        pools = [batch.labelled, unlabelled(batch)]
        domains = [self._domain(pool, number) for number, pool in enumerate(pools)]
        source, target = self.settings.direction
        seen = pools[:1] if source == LABELLED else pools
        momentum = self.consistency.encode(pools[target].inputs, step)
        encoding, prediction = self.predict(join([pool.inputs for pool in seen]))
        supervised = self.supervised(prediction[: len(batch.labelled)], batch.labelled)
        queries = slice(None) if source == LABELLED else slice(len(batch.labelled), None)
        return supervised, self.consistency(
            encoding[queries],
            pools[target].inputs,
            domains[source],
            key_domain=domains[target],
            prediction=prediction[queries],
            outcome=self._outcome(pools[source], source),
            key_outcome=self._outcome(pools[target], target),
            step=step,
            momentum=momentum,
        )

    def _domain(self, samples: Samples, pool: int) -> Tensor:
        if self.settings.domain == "label":
            return samples.domain
        return torch.full_like(samples.id, pool)

    def _outcome(self, samples: Samples, pool: int) -> Tensor:
        """Return what is known of the outcomes, (n, outputs), NaN of those that are not."""
        if pool == UNLABELLED or samples.target is None:
            return torch.full((len(samples), self.task.outputs), torch.nan, device=samples.id.device)
        return known_outcome(self.task, samples.target)

    def parameter_groups(self, learning_rate: float) -> list[dict[str, Any]]:
        """Return the network's parameters and, with a learning rate that may be its own, the scorer's."""
        own = self.settings.scorer_learning_rate
        scorer = {
            "params": list(self.consistency.scorer.parameters()),
            "lr": learning_rate if own is None else own,
        }
        return [*super().parameter_groups(learning_rate), scorer]

    def check_pools(self, labelled: Tensor, others: Tensor, names: tuple[str, ...]) -> None:
        """Warn where the pool stands in for the domain but both pools have samples of the same domains.

        Parameters
        ----------
        labelled, others : tensor (n,), int64; or (n, S), bool
            Domains of the labelled and of the unlabelled samples.
        names : tuple of str
            Of the domains.
        """
        if self.settings.domain != "binary":
            return
        if labelled.ndim == 2:
            shared = torch.nonzero(labelled.any(0) & others.any(0)).flatten().tolist()
        else:
            shared = sorted(set(labelled.tolist()) & set(others.tolist()))
        if shared:
            some = ", ".join(names[number] for number in shared[:5]) + (", ..." if len(shared) > 5 else "")
            warnings.warn(
                f"{len(shared)} domains have labelled and unlabelled samples ({some}): with domain 'binary' samples of "
                "the same domain are matched. Set domain to 'label' to match across domain labels",
                SharedDomainsWarning,
                stacklevel=2,
            )


def known_outcome(task: Task, target: Tensor) -> Tensor:
    """Return targets as the prognostic caliper compares them, (n, outputs): classes as rows of 0 and 1."""
    if task.kind == "classification":
        return one_hot(target, task.outputs).to(torch.get_default_dtype())
    return target.reshape(len(target), task.outputs)
