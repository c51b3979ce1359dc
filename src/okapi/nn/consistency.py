"""The paper's unsupervised loss: encodings of samples matched across domains are pulled together."""

from typing import Any, Literal, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import log_softmax, normalize

from okapi.matching import Matches, caliper_nn
from okapi.matching import centred as from_centres
from okapi.nn.adaptive_calipers import Adapt, AdaptiveCalipers
from okapi.nn.distributed import gather, rank, world_size
from okapi.nn.hubs import capped, looking, penalised
from okapi.nn.losses import ON_PREDICTIONS, consistency_loss
from okapi.nn.match_figures import hubness, matched_smd
from okapi.nn.memory_bank import MemoryBank
from okapi.nn.momentum import MomentumEncoder
from okapi.nn.outcome_bank import Outcome, OutcomeBank, OutcomeKind
from okapi.nn.propensity_scorer import PropensityScorer, with_gradient_taken
from okapi.nn.schedules import Schedule, as_schedule


class Consistency(NamedTuple):
    """What a step of CrossDomainConsistency gives: the loss to add, the share of queries matched, named figures."""

    loss: Tensor
    match_rate: Tensor
    figures: dict[str, Tensor]


class CrossDomainConsistency(nn.Module):
    """Match the samples of a batch across domains and measure how far their encodings are from their matches'.

    Each step: the momentum encoder follows the encoder and encodes the inputs; a linear scorer learns to tell the
    domains of the keys apart and gives their propensities; every query is matched to its k nearest keys, from the batch
    and the memory bank, inside the calipers; the loss is the mean distance of the online encodings from their matches,
    times the share of queries matched, times ``weight``, plus the scorer's own loss, whose gradient reaches only the
    scorer. Then the momentum encodings go to the bank.

    Under torch.distributed all ranks match together, as one process with their batches joined would.

    The defaults are those of Okapi as far as outcomes have no say; the paper has ``fixed_caliper=0.9``,
    ``std_caliper=0.2`` and ``centred=False``.

    Parameters
    ----------
    encoder : nn.Module
        Takes inputs, gives encodings (n, d). Followed, never changed.
    features : int, optional
        Width d of an encoding; by default the encoder's ``out_features``, or that of its last layer.
    head : nn.Module, optional
        Takes encodings, gives predictions (n, C). Needed by the losses on predictions and by ``outcome_caliper`` only.
    domains : int
        Number of domains.
    sets : bool
        Whether ``domain`` is a boolean row over domains instead of a number.
    k, fixed_caliper, std_caliper, caliper_scale, two_way, direction, outcome_caliper
        As `okapi.matching.caliper_nn` takes them.
    outcomes : {"classes", "numbers", "labels"}
        What ``head`` predicts, and ``outcome_caliper`` compares: probabilities of classes; numbers, in standard
        deviations of those that are known; probabilities of labels.
    outcome_neighbours : int
        How many past samples have a say in what is predicted of a new one, for ``outcome_caliper`` only.
    outcome_alignment : bool
        Whether predicted classes are made as frequent as those known, for ``outcome_caliper`` only.
    outcome_clusters : float in [0, 1]
        How much a say the sizes of clusters have in how frequent predicted classes are made, as
        `okapi.nn.outcome_bank.OutcomeBank` says.
    outcome_tolerance : float in (0, 1]
        With ``outcome_caliper`` on classes: share of the known ones that the momentum encoder may predict wrong. While
        it errs more often, the weight is multiplied by the square of the tolerance over that share.
    centred : bool
        Whether encodings are centred by domain mean before they are compared, see `okapi.matching.centred`. It takes a
        copy of the keys.
    temperature : float > 0, or "auto"
        Divides the logits of the propensities; automatic as `okapi.nn.PropensityScorer` says.
    adapt : {"match_rate", "balance"}, optional
        Rule by which the calipers, from those given, are made wider or narrower during training, as
        `okapi.nn.AdaptiveCalipers` says.
    target_match_rate : float in (0, 1)
        Share of the queries that are to be matched, for ``adapt="match_rate"``.
    hubness : {"csls", "cap"}, optional
        How keys are kept from serving a great many queries: by a distance that counts how near a key is to its nearest
        queries (CSLS, which takes a copy of the keys), or by a cap on the queries of a step that a key serves.
    cap : int
        How many queries those are at most, for ``hubness="cap"``.
    queries : {"momentum", "online"}
        Which encodings look for matches. The bank stores momentum encodings either way.
    bank : int
        Number of past samples kept as keys.
    decay : float or schedule
        zeta of the momentum encoder.
    weight : float or schedule
        lambda, the weight of the consistency in the loss.
    loss : {"squared_l2", "cosine", "jsd", "kl"}
        Distance of a query from its match: of encodings, or of predictions.

    Examples
    --------
    >>> encoder = nn.Linear(3, 8)
    >>> consistency = CrossDomainConsistency(encoder, k=1)
    >>> x, site = torch.randn(10, 3), torch.tensor([0, 1] * 5)
    >>> loss, match_rate, figures = consistency(encoder(x), x, site)
    >>> match_rate.item()
    1.0
    """

    step: Tensor
    updated_at: Tensor

    def __init__(
        self,
        encoder: nn.Module,
        features: int | None = None,
        *,
        head: nn.Module | None = None,
        domains: int = 2,
        sets: bool = False,
        k: int = 5,
        fixed_caliper: float | None = None,
        std_caliper: float | None = None,
        caliper_scale: str = "probability",
        two_way: bool = True,
        direction: tuple[int, int] | None = None,
        outcome_caliper: float | Literal["auto"] | None = None,
        outcomes: OutcomeKind = "classes",
        outcome_neighbours: int = 0,
        outcome_alignment: bool = False,
        outcome_clusters: float = 0.0,
        outcome_tolerance: float = 1.0,
        centred: bool = True,
        temperature: float | Literal["auto"] = 1.0,
        adapt: Adapt | None = None,
        target_match_rate: float = 0.5,
        hubness: Literal["csls", "cap"] | None = None,
        cap: int = 3,
        queries: Literal["momentum", "online"] = "momentum",
        bank: int = 16_384,
        decay: float | Schedule = 0.996,
        weight: float | Schedule = 1.0,
        loss: str = "squared_l2",
    ) -> None:
        super().__init__()
        if queries not in ("momentum", "online"):
            raise ValueError(f"queries must be 'momentum' or 'online', got {queries!r}")
        if hubness not in (None, "csls", "cap"):
            raise ValueError(f"hubness must be 'csls', 'cap' or None, got {hubness!r}")
        if cap < 1:
            raise ValueError(f"cap must be at least 1, got {cap}")
        self._settings: dict[str, Any] = {
            "k": k,
            "fixed_caliper": fixed_caliper,
            "std_caliper": std_caliper,
            "caliper_scale": caliper_scale,
            "two_way": two_way,
            "direction": direction,
            "outcome_caliper": outcome_caliper,
        }
        width = features or _width(encoder, "features")
        self._check_calipers(width, domains, sets)
        self._loss = consistency_loss(loss)
        self._online = (encoder,)  # in a tuple: the encoder belongs to its model, not to this module
        self.queries, self.hubness, self.cap, self.centred = queries, hubness, cap, centred
        self.weight = as_schedule(weight)
        self.momentum = MomentumEncoder(encoder, decay)
        self.scorer = PropensityScorer(width, domains, sets=sets, temperature=temperature)
        dtype = _dtype(encoder)
        self.scorer.to(dtype)
        self.adaptive: AdaptiveCalipers | None = None
        if adapt is not None:
            if outcome_caliper == "auto":
                raise ValueError("adapt needs an outcome_caliper to start from, got 'auto', which adapts itself")
            calipers = {name: self._settings[name] for name in ("fixed_caliper", "std_caliper", "outcome_caliper")}
            sums: dict[str, Any] = {"groups": 1 if sets else domains, "features": width, "dtype": dtype}
            self.adaptive = AdaptiveCalipers(adapt, calipers, target_match_rate=target_match_rate, **sums)
        self.encodings = MemoryBank(bank, (width,), dtype)
        self.domains = MemoryBank(bank, (domains,), torch.bool) if sets else MemoryBank(bank, dtype=torch.int64)
        self.on_predictions = loss in ON_PREDICTIONS
        self.by_outcome = outcome_caliper is not None
        if self.on_predictions or self.by_outcome:
            if head is None:
                what = f"loss {loss!r}" if self.on_predictions else "outcome_caliper"
                raise ValueError(f"head is needed by {what}, which compares predictions")
            self._head = (head,)
            self.momentum_head = MomentumEncoder(head, decay)
        if self.on_predictions and head is not None:
            self.predictions = MemoryBank(bank, (_width(head, "head"),), dtype)
        if self.by_outcome and head is not None:
            refining: dict[str, Any] = {
                "neighbours": outcome_neighbours,
                "aligned": outcome_alignment,
                "clusters": outcome_clusters,
                "tolerance": outcome_tolerance,
            }
            self.outcomes = OutcomeBank(bank, _width(head, "head"), outcomes, dtype, **refining)
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))
        self.register_buffer("updated_at", torch.full((), -1, dtype=torch.int64))

    def forward(
        self,
        z: Tensor,
        x: Any,
        domain: Tensor,
        *,
        key_domain: Tensor | None = None,
        prediction: Tensor | None = None,
        outcome: Tensor | None = None,
        key_outcome: Tensor | None = None,
        step: int | None = None,
        momentum: Tensor | None = None,
    ) -> Consistency:
        """Return the loss of a batch, and take its encodings into the bank.

        In evaluation mode bank, momentum encoder and step stay as they are.

        Parameters
        ----------
        z : tensor (n, d)
            Online encodings of the samples, with their gradient.
        x : inputs of the same samples, as the encoder takes them
        domain : tensor (n,), int64; or (n, S), bool
        key_domain : like domain, optional
            Say that ``x`` are other samples than ``z``, and what their domains are. For online queries in one
            direction, where each encoder needs to see its own pool only.
        prediction : tensor (n, C), optional
            What the head says of ``z``; for the losses on predictions, and for ``outcome_caliper`` if there is a
            ``key_domain``.
        outcome : tensor (n, C), optional
            For ``outcome_caliper``, what is known of the samples: the class as a row of 0 and 1, numbers, or labels. A
            row of NaN is not known: the momentum encoder's prediction stands in for it. By default none is known.
        key_outcome : tensor (m, C), optional
            The same of ``x``, if there is a ``key_domain``.
        step : int, optional
            Of the schedules; by default one more than the last time. Calls with the same step, as in an accumulation of
            gradients, move the momentum encoder once.
        momentum : tensor (m, d), optional
            What ``encode`` gave for ``x``, if it was called before.

        Returns
        -------
        Consistency
        """
        self._check(z, domain, key_domain, prediction)
        if self.by_outcome:
            self.outcomes.check(outcome, len(z), "outcome")
            self.outcomes.check(key_outcome, len(z if key_domain is None else key_domain), "key_outcome")
        step = int(self.step) if step is None else step
        raw = self.encode(x, step) if momentum is None else momentum
        if self.training:
            self.step.fill_(step + 1)
        new = normalize(raw.to(self.encodings.slots.dtype), dim=-1)
        new_domain = domain if key_domain is None else key_domain
        if len(new) != len(new_domain):
            raise ValueError(f"x must have as many rows as its domains, got {len(new)} and {len(new_domain)}")
        query = new if self.queries == "momentum" else normalize(z.detach().to(new.dtype), dim=-1)

        queries = gather(query)  # of each rank
        query, query_domain = torch.cat(queries), torch.cat(gather(domain))
        new, new_domain = torch.cat(gather(new)), torch.cat(gather(new_domain))
        keys = self.encodings.after(new)
        keys_domain = torch.cat([new_domain, self.domains.rows()])
        query_score, key_score, scorer_figures, scorer_loss = self._score(
            query, query_domain, keys, keys_domain, apart=key_domain is not None
        )
        outcomes: dict[str, Any] = {}
        if self.by_outcome:
            new_outcome = self._prognosis(raw, outcome if key_domain is None else key_outcome, new)
            query_outcome = new_outcome if key_domain is None else self.outcomes.of(_present(prediction), outcome)
            outcomes = self.outcomes.compared(query_outcome, new_outcome)
        matches, caliper_figures = self._match(
            query,
            keys,
            query_domain=query_domain,
            key_domain=keys_domain,
            query_propensity=query_score,
            key_propensity=key_score,
            **outcomes,
        )

        online, target = z.to(new.dtype), keys
        if self.on_predictions and prediction is not None:
            new_prediction = torch.cat(gather(log_softmax(self.momentum_head(raw).to(new.dtype), dim=-1)))
            online = log_softmax(prediction.to(new.dtype), dim=-1)
            target = self.predictions.after(new_prediction)
        asked = len(query) + (0 if key_domain is None else len(new))
        pulled, mean = self._pull(online, target, matches, [len(part) for part in queries], asked)
        # Before the bank, which holds the keys, changes.
        match_figures = hubness(matches) | {"matched_smd": matched_smd(query, keys, matches, query_domain)}
        if self.training:
            self.encodings.push(new)
            self.domains.push(new_domain)
            if self.on_predictions:
                self.predictions.push(new_prediction)
            if self.by_outcome:
                self.outcomes.push(new_outcome)

        weight = new.new_tensor(self.weight(step)) * self.trusted()
        match_rate = new.new_tensor(len(matches.query) / max(1, asked))
        figures = {"match_rate": match_rate, "consistency": mean, "consistency_weight": weight}
        figures |= scorer_figures | match_figures | caliper_figures
        return Consistency(weight * pulled + scorer_loss, match_rate, figures)

    def encode(self, x: Any, step: int) -> Tensor:
        """Return momentum encodings (m, d) of inputs, having moved the momentum encoder one step towards the encoder.

        ``forward`` does it. Call it before the online encoder runs, and hand the result to ``forward``, where that
        encoder changes its buffers, as batch normalisation does in training mode; and for less memory, since the online
        encoder's activations are not there yet.
        """
        if self.training:
            self._follow(step)
        encoding: Tensor = self.momentum(x)
        return encoding

    def prognosis(self, momentum: Tensor, outcome: Tensor | None = None) -> Tensor:
        """Return the outcomes (m, C) of new samples as ``outcome_caliper`` compares them: known, or else predicted.

        Call it before ``forward``, which takes the samples into the bank.

        Parameters
        ----------
        momentum : tensor (m, d)
            What ``encode`` gave.
        outcome : tensor (m, C), optional
            What is known of the samples, as ``forward`` takes it.
        """
        units = gather(normalize(momentum.to(self.encodings.slots.dtype), dim=-1))  # of each rank
        first = sum(len(part) for part in units[: rank()])
        return self._prognosis(momentum, outcome, torch.cat(units)).values[first : first + len(momentum)]

    def trusted(self) -> Tensor:
        """Return by what ``outcome_tolerance`` multiplies the weight at present, (), in [0, 1]."""
        return self.outcomes.trusted() if self.by_outcome else self.encodings.slots.new_ones(())

    def _prognosis(self, raw: Tensor, outcome: Tensor | None, new: Tensor) -> Outcome:
        """Return the outcomes of the samples of all ranks, whose unit encodings are ``new``."""
        said = self.outcomes.of(self.momentum_head(raw), outcome)
        return self.outcomes.refined(said, new, self.encodings.rows())

    def _follow(self, step: int) -> None:
        """Move the momentum encoder one step towards the encoder, unless that was done at this step."""
        if step == int(self.updated_at):
            return
        self.updated_at.fill_(step)
        self.momentum.update(self._online[0], step)
        if self.on_predictions or self.by_outcome:
            self.momentum_head.update(self._head[0], step)

    def _score(
        self, query: Tensor, query_domain: Tensor, keys: Tensor, key_domain: Tensor, *, apart: bool
    ) -> tuple[Tensor, Tensor, dict[str, Tensor], Tensor]:
        """Return propensities of queries and keys, figures of the scorer and its loss on all keys.

        Where the queries are another pool than the keys (``apart``) the scorer learns from both: from the keys alone it
        would know one domain only.
        """
        logits = self.scorer(keys)
        # Momentum queries are the first keys.
        query_logits = logits[: len(query)] if self.queries == "momentum" else self.scorer(query)
        seen, seen_domain = logits, key_domain
        if apart:
            seen, seen_domain = torch.cat([query_logits, logits]), torch.cat([query_domain, key_domain])
        if self.training:
            self.scorer.follow(seen.detach(), seen_domain)
        loss = self.scorer.loss(seen, seen_domain)
        loss = with_gradient_taken(loss, self.scorer)  # before the bank, which holds the keys, changes
        figures = {
            "propensity_loss": loss.detach(),
            "propensity_accuracy": self.scorer.accuracy(seen.detach(), seen_domain),
        }
        if self.scorer.automatic:
            figures["temperature"] = loss.new_tensor(self.scorer.temperature)
        return self.scorer.scores(query_logits), self.scorer.scores(logits), figures, loss

    def _match(self, query: Tensor, keys: Tensor, **sides: Any) -> tuple[Matches, dict[str, Tensor]]:
        """Return the matches of the samples of all ranks, and figures of calipers that adapt, which learn from them."""
        domains = sides["query_domain"], sides["key_domain"]
        settings = dict(self._settings)
        if self.adaptive is not None:
            settings |= self.adaptive.calipers()
        searched = from_centres(query, keys, *domains) if self.centred else (query, keys)
        if self.hubness == "csls":
            searched = penalised(*searched, *domains, settings["direction"])
        matches = caliper_nn(searched[0], searched[1], **sides, **settings)
        if self.hubness == "cap":
            matches = capped(matches, self.cap)
        if self.adaptive is None:
            return matches, {}
        figures = {name: query.new_tensor(settings[name]) for name in self.adaptive.given}
        if self.training:
            asked = int(looking(domains[0], settings["direction"]).sum())
            figures |= self.adaptive.update(query, keys, matches, domains[0], asked)
        return matches, figures

    def _pull(
        self, online: Tensor, keys: Tensor, matches: Matches, sizes: list[int], asked: int
    ) -> tuple[Tensor, Tensor]:
        """Return the mean distance in matched pairs times the match rate, with the gradient of this rank; and the mean.

        ``mean over pairs * matched / asked`` is ``sum over pairs / (k asked)``, a sum over ranks, of whose gradients
        DistributedDataParallel takes the mean: hence times the number of ranks.
        """
        first = sum(sizes[: rank()])
        mine = (matches.query >= first) & (matches.query < first + sizes[rank()])
        with torch.autocast(online.device.type, enabled=False):
            pairs = self._loss(online[matches.query[mine] - first, None], keys[matches.key[mine]])  # keys are copied
            total = pairs.sum()
        everywhere = total.detach().clone()
        if world_size() > 1:
            dist.all_reduce(everywhere)
        k = self._settings["k"]
        mean = everywhere / max(1, k * len(matches.query))
        return total * world_size() / (k * max(1, asked)), mean

    def _check(self, z: Tensor, domain: Tensor, key_domain: Tensor | None, prediction: Tensor | None) -> None:
        width = self.encodings.slots.shape[1]
        if z.ndim != 2 or z.shape[1] != width:
            raise ValueError(f"z must be encodings of shape (n, {width}), got {tuple(z.shape)}")
        if len(z) != len(domain):
            raise ValueError(f"z and domain must have as many rows, got {len(z)} and {len(domain)}")
        self.scorer.check_domain(domain)
        if key_domain is not None:
            if self.queries != "online":
                raise ValueError("key_domain is for queries='online': momentum queries are the encoded x themselves")
            self.scorer.check_domain(key_domain)
        if self.on_predictions and prediction is None:
            raise ValueError("prediction is needed by a loss that compares predictions")
        if self.by_outcome and key_domain is not None and prediction is None:
            raise ValueError("prediction is needed by outcome_caliper where the keys are other samples")

    def _check_calipers(self, width: int, domains: int, sets: bool) -> None:
        """Match nothing with nothing, so that bad settings are refused now and not in the first step."""
        none = torch.zeros(0, width)
        domain = torch.zeros((0, domains), dtype=torch.bool) if sets else torch.zeros(0, dtype=torch.int64)
        score = torch.zeros(0) if domains == 2 and not sets else torch.zeros(0, domains)
        sides: dict[str, Any] = {"query_domain": domain, "key_domain": domain}
        sides |= {"query_propensity": score, "key_propensity": score, "query_outcome": score, "key_outcome": score}
        caliper_nn(none, none, **sides, **self._settings)


def _present(prediction: Tensor | None) -> Tensor:
    assert prediction is not None  # checked before anything changed
    return prediction.detach()


def _width(module: nn.Module, argument: str) -> int:
    """Return the width of what a module gives, as it or its last layer says."""
    if isinstance(width := getattr(module, "out_features", None), int):
        return width
    if isinstance(module, nn.Sequential):
        for layer in reversed(module):
            if isinstance(width := getattr(layer, "out_features", None), int):
                return width
    if argument == "features":
        raise ValueError(f"features must be given: {type(module).__name__} has no out_features to tell it")
    raise ValueError(f"{argument} must have out_features, {type(module).__name__} has not")


def _dtype(module: nn.Module) -> torch.dtype:
    """Return the type of a module's parameters, but float32 for half precisions, in which distances are too coarse."""
    dtypes = {parameter.dtype for parameter in module.parameters()}
    return torch.float64 if torch.float64 in dtypes else torch.float32
