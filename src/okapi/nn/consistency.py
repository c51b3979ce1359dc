"""The paper's unsupervised loss: encodings of samples matched across domains are pulled together."""

from functools import partial
from typing import Any, Literal, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import normalize

from okapi.config import PAPER, MatchingSettings, PrognosticMatchingSettings
from okapi.data.task import Task
from okapi.matching import Matches
from okapi.matching.search.vectors import large_empty
from okapi.nn.distributed import gather, rows_before, world_size
from okapi.nn.match_metrics import hubness, matched_smd
from okapi.nn.matching import Pool, match_prepared, prepare
from okapi.nn.memory_bank import MemoryBank
from okapi.nn.momentum import MomentumEncoder
from okapi.nn.propensity_scorer import PropensityScorer, check_domain
from okapi.nn.pseudo_labels import ErrorGate
from okapi.nn.schedules import Schedule, as_schedule


class Consistency(NamedTuple):
    """What a step of CrossDomainConsistency returns.

    Parameters
    ----------
    loss : tensor ()
        To be added to the task's loss.
    match_rate : tensor ()
    metrics : dict of str to tensor ()
    outcome : tensor (n, C), optional
        Of the samples of this call, as the prognostic caliper compared them: in classification, predictions aligned.
    """

    loss: Tensor
    match_rate: Tensor
    metrics: dict[str, Tensor]
    outcome: Tensor | None = None


class CrossDomainConsistency(nn.Module):
    """Match the samples of a batch across domains and pull their encodings towards their matches'.

    Each step: (1) the momentum encoder follows the encoder and encodes the inputs; (2) queries are its encodings, keys
    are the queries and the memory bank; (3) a linear scorer learns to tell the domains of the keys apart and gives
    their propensities; (4) every query is matched to its k nearest keys inside the calipers; (5) the loss is the mean
    squared distance of the online encodings from their matches, times the match rate, times ``weight``, plus the
    scorer's own loss, whose gradient reaches only the scorer; (6) the momentum encodings go to the bank.

    Under torch.distributed all ranks match together, as one process with their batches joined would.

    The defaults are the paper's. Without a fixed and a std-caliper there is no scorer.

    Parameters
    ----------
    encoder : nn.Module
        Takes inputs, returns encodings (n, d). Followed, never changed.
    features : int, optional
        Width d of an encoding; by default the encoder's ``out_features``, or that of its last layer.
    matching : MatchingSettings
        How queries are matched.
    task : Task, optional
        What the outcomes are, for `PrognosticMatchingSettings` with an ``prognostic_caliper`` only.
    domains : int
        Number of domains.
    multi_label : bool
        Whether ``domain`` is a boolean row over domains instead of a number.
    temperature : float > 0
        Divides the logits of the propensities.
    queries : {"momentum", "online"}
        Which encodings look for matches. The bank stores momentum encodings either way.
    bank : int
        Number of past samples kept as keys.
    momentum : float or schedule
        zeta of the momentum encoder.
    weight : float or schedule
        lambda, the weight of the consistency in the loss.
    gate : ErrorGate, optional
        Multiplies the weight.

    Examples
    --------
    >>> encoder = nn.Linear(3, 8)
    >>> nearest = MatchingSettings(k=1, fixed_caliper=None, std_caliper=None)
    >>> consistency = CrossDomainConsistency(encoder, matching=nearest)
    >>> x, site = torch.randn(10, 3), torch.tensor([0, 1] * 5)
    >>> loss, match_rate, metrics, _ = consistency(encoder(x), x, site)
    >>> match_rate.item()
    1.0
    """

    step: Tensor

    def __init__(
        self,
        encoder: nn.Module,
        features: int | None = None,
        *,
        matching: MatchingSettings = PAPER.matching,
        task: Task | None = None,
        domains: int = 2,
        multi_label: bool = False,
        temperature: float = PAPER.scorer.temperature,
        queries: Literal["momentum", "online"] = PAPER.queries,
        bank: int = PAPER.bank,
        momentum: float | Schedule = 0.996,
        weight: float | Schedule = PAPER.weight,
        gate: ErrorGate | None = None,
    ) -> None:
        super().__init__()
        if queries not in ("momentum", "online"):
            raise ValueError(f"queries must be 'momentum' or 'online', got {queries!r}")
        if bank < 1:
            raise ValueError(f"bank must be at least 1, got {bank}")
        by_outcome = isinstance(matching, PrognosticMatchingSettings) and matching.prognostic_caliper is not None
        if by_outcome and (task is None or queries == "online"):
            raise ValueError("prognostic_caliper needs a task, which says what outcomes are, and momentum queries")
        width, dtype = features or _width(encoder), _dtype(encoder)
        self.matching, self.queries, self.weight = matching, queries, as_schedule(weight)
        self.task = task if by_outcome else None
        self._online = (encoder,)  # in a tuple: the encoder belongs to its model, not to this module
        self.momentum = MomentumEncoder(encoder, momentum)
        self.gate = None if gate is None else gate.to(dtype)
        self.scorer: PropensityScorer | None = None
        if matching.needs_propensity:
            self.scorer = PropensityScorer(width, domains, multi_label=multi_label, temperature=temperature).to(dtype)
        self.encodings = MemoryBank(bank, (width,), dtype)
        self.domains = MemoryBank(bank, (domains,), torch.bool) if multi_label else MemoryBank(bank, dtype=torch.int64)
        self._check_domain = partial(check_domain, domains=domains, multi_label=multi_label)
        if self.task is not None:
            self.outcomes = MemoryBank(bank, (self.task.outputs,), dtype)
            self.known = MemoryBank(bank, dtype=torch.bool)
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    def forward(
        self,
        z: Tensor,
        x: Any,
        domain: Tensor,
        *,
        key_domain: Tensor | None = None,
        outcome: Tensor | None = None,
        known: Tensor | None = None,
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
            The domains of ``x`` where they are other samples than ``z``: for online queries in one direction, where
            each encoder needs to see its own pool only.
        outcome : tensor (n, C), optional
            For ``prognostic_caliper``: targets (classes as rows of 0 and 1) where known, elsewhere predictions of the
            momentum model (probabilities, or numbers).
        known : tensor (n,), bool, optional
            Which outcomes are known.
        step : int, optional
            Of the schedules; by default one more than the last time. Calls with the same step, as in an accumulation of
            gradients, move the momentum encoder once.
        momentum : tensor (m, d), optional
            What ``encode`` returned for ``x``, if it was called before.

        Returns
        -------
        Consistency
        """
        self._check(z, domain, key_domain, outcome, known)
        step = int(self.step) if step is None else step
        encoded = self.encode(x, step) if momentum is None else momentum
        queries, keys, new = self._sides(z, encoded, domain, key_domain, outcome, known)
        scorer_loss, metrics = z.new_zeros(()), dict[str, Tensor]()
        if self.scorer is not None:
            queries, keys, scorer_loss, metrics = self._scored(self.scorer, queries, keys, apart=key_domain is not None)
        among_keys, kind = self.queries == "momentum", self.task.kind if self.task else None
        compared = prepare(len(queries.domain) if among_keys else queries, keys, self.matching, kind)
        matches = match_prepared(*compared, self.matching)

        first = rows_before(len(z), z.device)
        mine = slice(first, first + len(z))
        asked = len(queries.domain) + (0 if key_domain is None else len(new.domain))
        pulled, mean = self._pull(z, keys.encoding, matches, mine, asked)
        weight = keys.encoding.new_tensor(self.weight(step)) * (1 if self.gate is None else self.gate())
        match_rate = weight.new_tensor(len(matches.query) / max(1, asked))
        metrics |= {"match_rate": match_rate, "consistency": mean, "consistency_weight": weight} | hubness(matches)
        metrics["matched_smd"] = matched_smd(queries.encoding, keys.encoding, matches, queries.domain)
        if self.training:
            self.step.fill_(step + 1)
            self._push(new)
        aligned = compared[0].outcome
        return Consistency(
            weight * pulled + scorer_loss, match_rate, metrics, None if aligned is None else aligned[mine]
        )

    def encode(self, x: Any, step: int) -> Tensor:
        """Return momentum encodings (m, d) of inputs, having moved the momentum encoder one step towards the encoder.

        ``forward`` does it. Call it before the online encoder runs, and hand the result to ``forward``, where that
        encoder changes its buffers, as batch normalisation does in training mode; and for less memory, since the online
        encoder's activations are not there yet.
        """
        if self.training:
            self.momentum.update(self._online[0], step)
        encoding: Tensor = self.momentum(x)
        return encoding

    def _sides(
        self,
        z: Tensor,
        encoded: Tensor,
        domain: Tensor,
        key_domain: Tensor | None,
        outcome: Tensor | None,
        known: Tensor | None,
    ) -> tuple[Pool, Pool, Pool]:
        """Return queries, keys and the samples that go to the bank, of all ranks."""
        encoded_domain = domain if key_domain is None else key_domain
        if len(encoded) != len(encoded_domain):
            raise ValueError(f"x must have as many rows as its domains, got {len(encoded)} and {len(encoded_domain)}")
        unit = normalize(encoded.detach().to(self.encodings.slots.dtype), dim=-1)
        new = queries = Pool(_everyone(unit), _everyone(encoded_domain))
        if self.task is not None and outcome is not None and known is not None:
            new = queries = new._replace(outcome=_everyone(outcome.to(unit)), known=_everyone(known))
        keys = self._after(new)
        if self.queries == "online":
            online = normalize(z.detach().to(unit.dtype), dim=-1)
            queries = Pool(_everyone(online), _everyone(domain))
        return queries, keys, new

    def _after(self, new: Pool) -> Pool:
        """Return new samples followed by those of the bank."""
        past = self.encodings.rows()
        encoding = large_empty(len(new.encoding) + len(past), past.shape[1], past.device, past.dtype)
        torch.cat([new.encoding, past], out=encoding)
        keys = Pool(encoding, torch.cat([new.domain, self.domains.rows()]))
        if new.outcome is None or new.known is None:
            return keys
        return keys._replace(
            outcome=torch.cat([new.outcome, self.outcomes.rows()]), known=torch.cat([new.known, self.known.rows()])
        )

    def _push(self, new: Pool) -> None:
        self.encodings.push(new.encoding)
        self.domains.push(new.domain)
        if new.outcome is not None and new.known is not None:
            self.outcomes.push(new.outcome)
            self.known.push(new.known)

    def _scored(
        self, scorer: PropensityScorer, queries: Pool, keys: Pool, *, apart: bool
    ) -> tuple[Pool, Pool, Tensor, dict[str, Tensor]]:
        """Return queries and keys with their propensities, the scorer's loss on all keys, and metrics of the scorer.

        Where the queries are another pool than the keys (``apart``) the scorer learns from both: from the keys alone it
        would know one domain only.
        """
        logits = scorer(keys.encoding)
        # Momentum queries are the first keys.
        query_logits = logits[: len(queries.domain)] if self.queries == "momentum" else scorer(queries.encoding)
        seen, domain = logits, keys.domain
        if apart:
            seen, domain = torch.cat([query_logits, logits]), torch.cat([queries.domain, keys.domain])
        loss = scorer.loss(seen, domain)
        metrics = {"propensity_loss": loss.detach(), "propensity_accuracy": scorer.accuracy(seen.detach(), domain)}
        queries = queries._replace(propensity=scorer.scores(query_logits))
        return queries, keys._replace(propensity=scorer.scores(logits)), loss, metrics

    def _pull(self, z: Tensor, keys: Tensor, matches: Matches, mine: slice, asked: int) -> tuple[Tensor, Tensor]:
        """Return the mean squared distance in pairs times the match rate, with this rank's gradient; and the mean.

        ``mean over pairs * matched / asked`` is ``sum over pairs / (k asked)``, a sum over ranks, of whose gradients
        DistributedDataParallel takes the mean: hence times the number of ranks.
        """
        rows = (matches.query >= mine.start) & (matches.query < mine.stop)
        with torch.autocast(z.device.type, enabled=False):
            query = normalize(z.to(keys.dtype)[matches.query[rows] - mine.start, None], dim=-1)
            total = (query - normalize(keys[matches.key[rows]], dim=-1)).square().sum(-1).sum()
        everywhere = total.detach().clone()
        if world_size() > 1:
            dist.all_reduce(everywhere)
        mean = everywhere / max(1, matches.k * len(matches.query))
        return total * world_size() / (matches.k * max(1, asked)), mean

    def _check(
        self, z: Tensor, domain: Tensor, key_domain: Tensor | None, outcome: Tensor | None, known: Tensor | None
    ) -> None:
        width = self.encodings.slots.shape[1]
        if z.ndim != 2 or z.shape[1] != width:
            raise ValueError(f"z must be encodings of shape (n, {width}), got {tuple(z.shape)}")
        if len(z) != len(domain):
            raise ValueError(f"z and domain must have as many rows, got {len(z)} and {len(domain)}")
        self._check_domain(domain)
        if key_domain is not None:
            self._check_domain(key_domain)
        if key_domain is not None and self.queries != "online":
            raise ValueError("key_domain is for queries='online': momentum queries are the encoded x themselves")
        if self.task is not None:
            for name, value, shape in (("outcome", outcome, (len(z), self.task.outputs)), ("known", known, (len(z),))):
                if value is None or value.shape != shape:
                    got = "None" if value is None else tuple(value.shape)
                    raise ValueError(f"{name} must be of shape {shape} for prognostic_caliper, got {got}")


def _everyone(rows: Tensor) -> Tensor:
    """Return the rows of all ranks."""
    return torch.cat(gather(rows))


def _width(encoder: nn.Module) -> int:
    """Return the width of an encoding, as the encoder or its last layer has it."""
    if isinstance(width := getattr(encoder, "out_features", None), int):
        return width
    for layer in reversed(encoder) if isinstance(encoder, nn.Sequential) else ():
        if isinstance(width := getattr(layer, "out_features", None), int):
            return width
    raise ValueError(f"features must be given: {type(encoder).__name__} has no out_features")


def _dtype(module: nn.Module) -> torch.dtype:
    """Return the type of a module's parameters, but float32 for half precisions, in which distances are too coarse."""
    dtypes = {parameter.dtype for parameter in module.parameters()}
    return torch.float64 if torch.float64 in dtypes else torch.float32
