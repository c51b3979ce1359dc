"""Offline Okapi: matches are found once, from a trained encoder, and stay."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from okapi.algorithms.base import Algorithm, Figures, Needs, unlabelled
from okapi.algorithms.outcomes import OUTCOMES, known_outcome
from okapi.data.batches import Batch, Samples, join
from okapi.data.task import Task
from okapi.matching import Propensity, caliper_nn, centred
from okapi.nn import Linear, consistency_loss
from okapi.nn.outcome_bank import predicted_outcome


@dataclass(frozen=True, kw_only=True)
class OfflineOkapiSettings:
    """Settings of offline Okapi; the defaults are those of the paper's PovertyMap experiment.

    Parameters
    ----------
    erm_run : str, or null
        Run directory of the trained ERM model whose encodings are matched.
    fixed_caliper, std_caliper, caliper_scale, outcome_caliper, centred, temperature, domain
        As of Okapi; the propensities are those of a logistic regression, the predictions those of the trained model.
    weight : float
        Of the consistency in the loss.
    warm_up : float in [0, 1]
        Share of the training over which the weight rises from 0.
    loss : {"squared_l2", "cosine"}
        Distance of encodings in a pair.
    """

    erm_run: str | None = None
    fixed_caliper: float | None = 0.9
    std_caliper: float | None = 0.6
    caliper_scale: Literal["probability", "logit"] = "probability"
    outcome_caliper: float | Literal["auto"] | None = None
    centred: bool = False
    temperature: float = 0.7
    domain: Literal["binary", "label"] = "binary"
    weight: float = 1.0
    warm_up: float = 0.1
    loss: Literal["squared_l2", "cosine"] = "squared_l2"

    def __post_init__(self) -> None:
        if not 0 <= self.warm_up <= 1:
            raise ValueError(f"warm_up must be in [0, 1], got {self.warm_up}")


class OfflineOkapi(Algorithm):
    """Minimise the supervised loss and the distance of samples from matches that were found before the training.

    One encoder encodes a sample and its match, and the gradient reaches both. A sample without a match adds nothing.
    """

    Settings = OfflineOkapiSettings

    @property
    def needs(self) -> Needs:
        """What a batch must have."""
        return Needs(unlabelled=True, matches=True)

    def training_step(self, batch: Batch, step: int) -> tuple[Tensor, Figures]:
        """Return the loss of a batch and its figures."""
        pools = [batch.labelled, unlabelled(batch)]
        matched = torch.cat([_matched(pool) for pool in pools])
        paired = [pool.match for pool in pools if pool.match is not None]
        encoding, prediction = self.predict(join([*(pool.inputs for pool in pools), *paired]))
        supervised = self.supervised(prediction[: len(batch.labelled)], batch.labelled)
        # In float32 at least: encodings of a pair are close to one another.
        encoding = encoding.to(torch.promote_types(encoding.dtype, torch.float32))
        query, key = encoding[: len(batch)][matched], encoding[len(batch) :]
        pairs = consistency_loss(self.settings.loss)(query, key)
        match_rate = matched.to(encoding.dtype).mean()
        weight = Linear(0.0, self.settings.weight, round(self.settings.warm_up * self.steps))(step)
        loss = supervised + weight * pairs.sum() / len(batch)
        figures = {
            "loss": loss.detach(),
            "supervised_loss": supervised.detach(),
            "match_rate": match_rate,
            "consistency": pairs.detach().sum() / max(1, len(pairs)),
            "consistency_weight": match_rate.new_tensor(weight),
        }
        return loss, figures


def offline_matches(
    encodings: Tensor, domain: Tensor, settings: OfflineOkapiSettings, outcome: Tensor | None = None
) -> Tensor:
    """Return the row that each sample is matched to, shape (n,), int64; -1 where there is none.

    Parameters
    ----------
    encodings : tensor (n, d)
        Of labelled and unlabelled samples by a trained encoder; matched as unit vectors.
    domain : tensor (n,), int64; or (n, S), bool
    settings : OfflineOkapiSettings
    outcome : tensor (n, C), optional
        For the prognostic caliper, what is known or predicted of each sample.

    Examples
    --------
    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.9, 0.1]])
    >>> none = OfflineOkapiSettings(fixed_caliper=None, std_caliper=None)
    >>> offline_matches(x, torch.tensor([0, 0, 1]), none)
    tensor([2, 2, 0])
    """
    unit = normalize(encodings.float().cpu(), dim=-1).numpy()
    outcome = None if outcome is None else outcome.cpu()
    where = domain.cpu().numpy()
    score = None
    if settings.fixed_caliper is not None or settings.std_caliper is not None:
        score = Propensity(temperature=settings.temperature).fit(unit, where).scores(unit)
    searched = torch.from_numpy(unit)
    if settings.centred:
        _, searched = centred(searched[:0], searched, domain[:0].cpu(), domain.cpu())
    matches = caliper_nn(
        searched,
        searched,
        query_domain=where,
        key_domain=where,
        query_propensity=score,
        key_propensity=score,
        fixed_caliper=settings.fixed_caliper,
        std_caliper=settings.std_caliper,
        caliper_scale=settings.caliper_scale,
        query_outcome=outcome,
        key_outcome=outcome,
        outcome_caliper=settings.outcome_caliper,
    )
    rows = np.full(len(unit), -1, np.int64)
    rows[matches.query.numpy()] = matches.key[:, 0].numpy()
    return torch.from_numpy(rows)


def offline_outcomes(task: Task, prediction: Tensor, target: Tensor) -> Tensor:
    """Return what the prognostic caliper compares, (n, outputs): targets of the first samples, predictions of the rest.

    Parameters
    ----------
    task : Task
    prediction : tensor (n, outputs)
        Of labelled samples, which come first, and unlabelled ones by a trained model.
    target : tensor (m,) or (m, outputs)
        Of the labelled samples. Numbers are divided by their standard deviation.
    """
    known = known_outcome(task, target).to(prediction)
    outcome = torch.cat([known, predicted_outcome(prediction[len(known) :], OUTCOMES[task.kind])])
    return outcome / known.std(0).clamp(min=1e-12) if task.kind == "regression" else outcome


def _matched(samples: Samples) -> Tensor:
    if samples.matched is None:
        raise ValueError("matches are missing in the batch")
    return samples.matched
