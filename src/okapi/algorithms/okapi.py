"""Okapi: samples matched across domains are encoded alike."""

import warnings
from dataclasses import dataclass
from typing import Any, Literal, Self

import torch
from torch import Tensor
from torch.nn.functional import normalize

from okapi.algorithms.base import Algorithm, Figures, Matcher, Needs, Pool, strong, unlabelled
from okapi.algorithms.outcomes import OUTCOMES, known_outcome, teaching_loss
from okapi.data.batches import Batch, Samples, join
from okapi.data.task import Task
from okapi.matching import Matches, caliper_nn, centred
from okapi.models.network import Network
from okapi.nn import CrossDomainConsistency, Linear
from okapi.nn.outcome_bank import as_frequent, predicted_outcome

LABELLED, UNLABELLED = 0, 1
LAGS = 100  # of the momentum encoder that a training is long, by default


class SharedDomainsWarning(UserWarning):
    """Labelled and unlabelled samples share domains, although the pool stands in for the domain."""


@dataclass(frozen=True, kw_only=True)
class OkapiSettings:
    """Settings of Okapi; the defaults are what did best in the study, ``paper`` has those of the paper.

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
    outcome_caliper : float >= 0, "auto", or null
        The prognostic caliper: greatest distance of the outcomes in a pair, labels where they are known and the
        momentum model's predictions elsewhere. Of classes and labels the Euclidean distance of their probabilities; of
        numbers in standard deviations. Automatic: a third of the standard deviation of the outcomes. Of classes a pair
        then has to be of one class, of which a prediction is about as sure as ``confidence`` asks for.
    outcome_neighbours : int
        With a prognostic caliper: how many past unlabelled samples, the nearest ones, have a say in what is predicted
        of an unlabelled one.
    outcome_alignment : bool
        With a prognostic caliper: whether predicted classes are made as frequent as the labels. Of no effect on numbers
        and on several labels.
    outcome_clusters : float in [0, 1]
        With ``outcome_alignment``: how much a say the unlabelled samples have in how frequent classes are made, by the
        sizes of the clusters that they form. 0: none; 1: all, and how frequent labels are none.
    outcome_tolerance : float in (0, 1]
        With a prognostic caliper, of classes: share of the labels that the momentum model may predict wrong. While it
        errs more often, ``weight`` and ``self_training`` are multiplied by the square of the tolerance over that share,
        so that a model which has yet to learn the labels pulls and teaches little. 1: at any time in full.
    centred : bool
        Whether encodings look for matches less the mean of their domain, which all its samples share.
    temperature : float > 0, or "auto"
        Divides the logits of the propensities. Automatic: so much that the two domains furthest apart have mean
        propensities of 0.27 and 0.73, or 1 where that is more.
    adapt : {"match_rate", "balance"}, or null
        Make the calipers, from those given, wider or narrower during training: until ``target_match_rate`` of the
        queries are matched, or as wide as matched samples are balanced (SMD 0.1, variance ratio 2).
    target_match_rate : float in (0, 1)
        Share of the queries that are to be matched, with ``adapt: match_rate``.
    hubness : {"csls", "cap"}, or null
        Keep keys from serving a great many queries: by cross-domain similarity local scaling, or by a cap.
    cap : int
        How many queries of a step a key serves at most, with ``hubness: cap``.
    domain : {"binary", "label"}
        What a sample's domain is: which pool it is in, labelled or unlabelled, or its domain label.
    direction : (int, int), or null
        Match only queries of the first domain with keys of the second; with ``binary`` 0 is labelled, 1 unlabelled.
    queries : {"momentum", "online"}
        Which encoder's encodings look for matches.
    bank : int
        Number of past samples kept as keys.
    momentum : float in [0, 1], or "auto"
        zeta of the momentum encoder at the start. Automatic: 1 - 100 / steps, so that the copy lags by a hundredth of
        the training, as it does, about, in each experiment of the paper.
    final_momentum : float in [0, 1], or null
        zeta at the end; linear in between. Null: as at the start.
    weight : float
        lambda, of the consistency in the loss.
    warm_up : float in [0, 1]
        Share of the training over which the weight rises from 0.
    loss : {"squared_l2", "cosine", "jsd", "kl"}
        Distance in a pair: of encodings, or of predicted classes.
    self_training : float
        With a prognostic caliper: weight of a loss by which the classes or labels predicted of unlabelled samples teach
        the predictions of their strong views, as FixMatch does; it rises like ``weight``. Of no effect on numbers,
        which it would draw together, for online queries in one direction, and where the data have no strong views.
    confidence : float in [0, 1]
        Least probability of a class or label that teaches.
    batch_norm : {"joint", "by_pool"}
        Whether layers of batch normalisation, in a network that has some, take the labelled and the unlabelled samples
        of a step for one batch or for two.
    scorer_learning_rate : float, or null
        Learning rate of the propensity scorer; null: the encoder's, at which it hardly learns on unit vectors.
    """

    k: int = 5
    fixed_caliper: float | None = None
    std_caliper: float | None = None
    caliper_scale: Literal["probability", "logit"] = "probability"
    outcome_caliper: float | Literal["auto"] | None = "auto"
    outcome_neighbours: int = 0
    outcome_alignment: bool = True
    outcome_clusters: float = 0.5
    outcome_tolerance: float = 0.1
    centred: bool = True
    temperature: float | Literal["auto"] = 1.0
    adapt: Literal["match_rate", "balance"] | None = None
    target_match_rate: float = 0.5
    hubness: Literal["csls", "cap"] | None = None
    cap: int = 3
    domain: Literal["binary", "label"] = "binary"
    direction: tuple[int, int] | None = None
    queries: Literal["momentum", "online"] = "momentum"
    bank: int = 65_536
    momentum: float | Literal["auto"] = "auto"
    final_momentum: float | None = None
    weight: float = 2.0
    warm_up: float = 0.1
    loss: Literal["squared_l2", "cosine", "jsd", "kl"] = "squared_l2"
    self_training: float = 1.0
    confidence: float = 0.8
    batch_norm: Literal["joint", "by_pool"] = "joint"
    scorer_learning_rate: float | None = None

    def __post_init__(self) -> None:
        for name in ("outcome_clusters", "momentum", "final_momentum", "warm_up", "confidence"):
            value, other = getattr(self, name), {"momentum": "auto", "final_momentum": None}
            if not (name in other and value == other[name]) and not 0 <= value <= 1:
                raise ValueError(f"{name} must be in [0, 1], got {value}")
        if not 0 < self.outcome_tolerance <= 1:
            raise ValueError(f"outcome_tolerance must be in (0, 1], got {self.outcome_tolerance}")

    @classmethod
    def paper(cls, **settings: Any) -> Self:
        """Return the settings of the paper's PovertyMap experiment, but for those that are given.

        Examples
        --------
        >>> OkapiSettings.paper(k=1).std_caliper
        0.2
        """
        calipers = {"fixed_caliper": 0.9, "std_caliper": 0.2, "outcome_caliper": None}
        schedules = {"weight": 1.0, "warm_up": 0.1, "momentum": 0.996, "final_momentum": 1.0}
        off = {"outcome_alignment": False, "centred": False, "self_training": 0.0}
        return cls(**(calipers | schedules | off | settings))

    def decay(self, steps: int) -> Linear:
        """Return zeta of the momentum encoder over a training of so many steps.

        Examples
        --------
        >>> OkapiSettings().decay(steps=30_000)(0)
        0.9966666666666667
        """
        start = max(0.0, 1 - LAGS / steps) if self.momentum == "auto" else self.momentum
        return Linear(start, start if self.final_momentum is None else self.final_momentum, steps)

    @property
    def one_way(self) -> bool:
        """Whether each encoder sees its own pool only."""
        return self.queries == "online" and self.domain == "binary" and self.direction is not None


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
            outcome_alignment=own.outcome_alignment and task.kind == "classification",
            outcome_clusters=own.outcome_clusters,
            outcome_tolerance=own.outcome_tolerance,
            centred=own.centred,
            temperature=own.temperature,
            adapt=own.adapt,
            target_match_rate=own.target_match_rate,
            hubness=own.hubness,
            cap=own.cap,
            queries=own.queries,
            bank=own.bank,
            decay=own.decay(steps),
            weight=Linear(0.0, own.weight, round(own.warm_up * steps)),
            loss=own.loss,
        )
        self.self_training = Linear(0.0, own.self_training, round(own.warm_up * steps))
        self.teaches = own.self_training > 0 and own.outcome_caliper is not None and not own.one_way
        self.teaches &= task.kind != "regression"

    @property
    def needs(self) -> Needs:
        """What a batch must have."""
        return Needs(unlabelled=True, strong="unlabelled" if self.teaches else "none", strong_if_any=True)

    def training_step(self, batch: Batch, step: int) -> tuple[Tensor, Figures]:
        """Return the loss of a batch and its figures."""
        supervised, unsupervised, figures = (self._one_way if self.settings.one_way else self._all_ways)(batch, step)
        loss = supervised + unsupervised
        return loss, {"loss": loss.detach(), "supervised_loss": supervised.detach(), **figures}

    def _all_ways(self, batch: Batch, step: int) -> tuple[Tensor, Tensor, Figures]:
        labelled, others = batch.labelled, unlabelled(batch)
        inputs = join([labelled.inputs, others.inputs])
        momentum = self.consistency.encode(inputs, step)  # before the network's activations take their memory
        known = torch.cat([self._outcome(pool, number) for number, pool in enumerate((labelled, others))])
        views, teaches = [inputs], self.teaches and others.strong is not None
        if teaches:
            taught = self.consistency.prognosis(momentum, known)[len(labelled) :]
            views.append(strong(others))
        encoding, prediction = self.predict(join(views), self._apart(labelled))
        both = len(labelled) + len(others)
        supervised = self.supervised(prediction[: len(labelled)], labelled)
        domain = torch.cat([self._domain(labelled, LABELLED), self._domain(others, UNLABELLED)])
        matched = self.consistency(
            encoding[:both],
            inputs,
            domain,
            prediction=prediction[:both],
            outcome=known,
            step=step,
            momentum=momentum,
        )
        if not teaches:
            return supervised, matched.loss, matched.figures
        lesson, share = teaching_loss(self.task, taught, prediction[both:], self.settings.confidence)
        figures = {"self_training_loss": lesson.detach(), "taught": share}
        weight = self.self_training(step) * self.consistency.trusted()
        return supervised, matched.loss + weight * lesson, matched.figures | figures

    def _one_way(self, batch: Batch, step: int) -> tuple[Tensor, Tensor, Figures]:
        """Encode the queries' pool online and the keys' pool with momentum only; the labelled online in any case."""
        pools = [batch.labelled, unlabelled(batch)]
        domains = [self._domain(pool, number) for number, pool in enumerate(pools)]
        source, target = self.settings.direction
        seen = pools[:1] if source == LABELLED else pools
        momentum = self.consistency.encode(pools[target].inputs, step)
        apart = self._apart(batch.labelled) if len(seen) > 1 else 0
        encoding, prediction = self.predict(join([pool.inputs for pool in seen]), apart)
        supervised = self.supervised(prediction[: len(batch.labelled)], batch.labelled)
        queries = slice(None) if source == LABELLED else slice(len(batch.labelled), None)
        matched = self.consistency(
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
        return supervised, matched.loss, matched.figures

    def _apart(self, labelled: Samples) -> int:
        return len(labelled) if self.settings.batch_norm == "by_pool" else 0

    def _domain(self, samples: Samples, pool: int) -> Tensor:
        if self.settings.domain == "label":
            return samples.domain
        return torch.full_like(samples.id, pool)

    def _outcome(self, samples: Samples, pool: int) -> Tensor:
        """Return what is known of the outcomes, (n, outputs), NaN of those that are not."""
        if pool == UNLABELLED or samples.target is None:
            return torch.full((len(samples), self.task.outputs), torch.nan, device=samples.id.device)
        return known_outcome(self.task, samples.target)

    def matcher(self) -> Matcher:
        """Return what matches queries with keys inside the calipers of by now, in whatever direction.

        Encodings are compared as unit vectors, propensities are the scorer's, and an outcome is the target where it is
        known and else the prediction, aligned with the targets. The rules against hubs, and what else the bank is
        needed for, are left out.
        """
        return self._match_pools

    @torch.no_grad()
    def _match_pools(self, queries: Pool, keys: Pool) -> Matches:
        names = ("fixed_caliper", "std_caliper", "outcome_caliper")
        calipers: dict[str, Any] = {name: getattr(self.settings, name) for name in names}
        if self.consistency.adaptive is not None:
            calipers |= self.consistency.adaptive.calipers()
        sides: dict[str, Any] = {}
        for name, pool in (("query", queries), ("key", keys)):
            sides |= {f"{name}_{part}": value for part, value in self._side(pool, calipers).items()}
        if calipers["outcome_caliper"] is not None:
            sides |= self._compared(sides, queries, keys)
        query, key = (normalize(pool.encoding, dim=-1) for pool in (queries, keys))
        if self.settings.centred:
            query, key = centred(query, key, sides["query_domain"], sides["key_domain"])
        calipers |= {"k": self.settings.k, "caliper_scale": self.settings.caliper_scale}
        return caliper_nn(query, key, **sides, **calipers)

    def _compared(self, sides: dict[str, Any], queries: Pool, keys: Pool) -> dict[str, Tensor]:
        """Return the outcomes of both sides as they are compared: numbers scaled, predicted classes aligned."""
        pools = {"query_outcome": queries, "key_outcome": keys}
        known = torch.cat([sides[name] for name, pool in pools.items() if pool.target is not None])
        if self.task.kind == "regression":
            scale = known.double().std(0)
            scale = torch.where(scale > 0, scale, 1.0)  # of one sample it is NaN
            return {name: sides[name] / scale for name in pools}
        if self.task.kind != "classification" or not self.settings.outcome_alignment:
            return {}
        said = {name: sides[name] for name, pool in pools.items() if pool.target is None}
        return {name: as_frequent(values, known.mean(0), values.mean(0)) for name, values in said.items()}

    def _side(self, pool: Pool, calipers: dict[str, Any]) -> dict[str, Tensor]:
        """Return the domain, and what the calipers need, of the samples of a pool."""
        side = {"domain": pool.domain}
        if self.settings.domain == "binary":
            number = UNLABELLED if pool.target is None else LABELLED
            side["domain"] = torch.full((len(pool.encoding),), number)
        if calipers["fixed_caliper"] is not None or calipers["std_caliper"] is not None:
            scorer = self.consistency.scorer
            unit = normalize(pool.encoding, dim=-1).to(scorer.linear.weight.device)
            side["propensity"] = scorer.scores(scorer(unit)).cpu()
        if calipers["outcome_caliper"] is not None:
            known = None if pool.target is None else known_outcome(self.task, pool.target)
            side["outcome"] = predicted_outcome(pool.prediction, OUTCOMES[self.task.kind]) if known is None else known
        return side

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
