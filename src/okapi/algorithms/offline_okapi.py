"""Offline Okapi: matches are computed once, from a trained encoder, and stay."""

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from okapi.algorithms.base import Algorithm, Metrics, Needs, unlabelled
from okapi.config import OfflineOkapiSettings
from okapi.data.batches import Batch, Samples, join
from okapi.matching import Propensity
from okapi.nn import Linear, Pool, match


class OfflineOkapi(Algorithm):
    """Minimise the supervised loss and the distance of samples from matches that were found before the training.

    One encoder encodes a sample and its match, and the gradient reaches both. A sample without a match adds nothing.
    """

    Settings = OfflineOkapiSettings

    @property
    def needs(self) -> Needs:
        """What a batch must have."""
        return Needs(unlabelled=True, matches=True)

    def training_step(self, batch: Batch, step: int) -> tuple[Tensor, Metrics]:
        """Return the loss of a batch and its metrics."""
        pools = [batch.labelled, unlabelled(batch)]
        matched = torch.cat([_matched(pool) for pool in pools])
        paired = [pool.match for pool in pools if pool.match is not None]
        encoding, prediction = self.predict(join([*(pool.inputs for pool in pools), *paired]))
        supervised = self.supervised(prediction[: len(batch.labelled)], batch.labelled)
        # In float32 at least: encodings of a pair are close to one another.
        encoding = encoding.to(torch.promote_types(encoding.dtype, torch.float32))
        query, key = encoding[: len(batch)][matched], encoding[len(batch) :]
        pairs = (normalize(query, dim=-1) - normalize(key, dim=-1)).square().sum(-1)
        match_rate = matched.to(encoding.dtype).mean()
        weight = Linear(0.0, self.settings.weight, round(self.settings.warm_up * self.steps))(step)
        loss = supervised + weight * pairs.sum() / len(batch)
        metrics = {
            "loss": loss.detach(),
            "supervised_loss": supervised.detach(),
            "match_rate": match_rate,
            "consistency": pairs.detach().sum() / max(1, len(pairs)),
            "consistency_weight": match_rate.new_tensor(weight),
        }
        return loss, metrics


def offline_matches(encodings: Tensor, domain: Tensor, settings: OfflineOkapiSettings) -> Tensor:
    """Return the row that each sample is matched to, shape (n,), int64; -1 where there is none.

    Parameters
    ----------
    encodings : tensor (n, d)
        Of labelled and unlabelled samples by a trained encoder; matched as unit vectors.
    domain : tensor (n,), int64; or (n, S), bool
    settings : OfflineOkapiSettings

    Examples
    --------
    >>> from okapi.config import MatchingSettings
    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.9, 0.1]])
    >>> nearest = MatchingSettings(k=1, fixed_caliper=None, std_caliper=None)
    >>> offline_matches(x, torch.tensor([0, 0, 1]), OfflineOkapiSettings(matching=nearest))
    tensor([2, 2, 0])
    """
    pool = Pool(normalize(encodings.float().cpu(), dim=-1), domain.cpu())
    if settings.matching.needs_propensity:
        unit, labels = pool.encoding.numpy(), pool.domain.numpy()
        scores = Propensity(temperature=settings.temperature).fit(unit, labels).scores(unit)
        pool = pool._replace(propensity=torch.from_numpy(np.ascontiguousarray(scores)))
    matches = match(len(pool.domain), pool, settings.matching)
    rows = torch.full((len(pool.encoding),), -1, dtype=torch.int64)
    rows[matches.query] = matches.key[:, 0]
    return rows


def _matched(samples: Samples) -> Tensor:
    if samples.matched is None:
        raise ValueError("matches are missing in the batch")
    return samples.matched
