"""How a batch, a validation split, a report or a diagnosis is matched: settings and two pools in, matches out."""

from typing import NamedTuple

import torch
from torch import Tensor

from okapi.config import Kind, MatchingSettings, PrognosticMatchingSettings
from okapi.matching import Matches, caliper_nn, centred
from okapi.nn.pseudo_labels import align, class_frequencies


class Pool(NamedTuple):
    """Samples that look for matches, or that may be matched to.

    Parameters
    ----------
    encoding : tensor (n, d)
        Of unit length.
    domain : tensor (n,), int64; or (n, S), bool
    propensity : tensor (n,) or (n, S), optional
        For the fixed and the std-caliper, as `okapi.matching.caliper_nn` takes it.
    outcome : tensor (n, C), optional
        For the prognostic caliper: the target where it is known (a class as a row of 0 and 1), elsewhere the prediction
        (probabilities, or numbers), neither aligned nor scaled.
    known : tensor (n,), bool, optional
        Which outcomes are known.
    """

    encoding: Tensor
    domain: Tensor
    propensity: Tensor | None = None
    outcome: Tensor | None = None
    known: Tensor | None = None

    def first(self, count: int) -> "Pool":
        """Return the first so many samples."""
        return Pool(*(None if part is None else part[:count] for part in self))  # type: ignore[arg-type]


def match(queries: Pool | int, keys: Pool, settings: MatchingSettings, kind: Kind | None = None) -> Matches:
    """Match queries to keys as the settings say.

    Parameters
    ----------
    queries : Pool, or int
        A number: the first so many of the keys are the queries.
    keys : Pool
    settings : MatchingSettings
    kind : {"classification", "regression", "multilabel"}, optional
        What the outcomes are; for the prognostic caliper.

    Returns
    -------
    Matches
        See `okapi.matching.caliper_nn`.

    Examples
    --------
    >>> x, site = torch.tensor([[0.0, 1.0], [0.6, 0.8], [1.0, 0.0]]), torch.tensor([0, 0, 1])
    >>> nearest = MatchingSettings(k=1, fixed_caliper=None, std_caliper=None)
    >>> match(3, Pool(x, site), nearest).key.flatten()
    tensor([2, 2, 1])
    """
    return match_prepared(*prepare(queries, keys, settings, kind), settings)


@torch.no_grad()
def prepare(queries: Pool | int, keys: Pool, settings: MatchingSettings, kind: Kind | None = None) -> tuple[Pool, Pool]:
    """Return the pools as they are compared: encodings centred by domain mean, outcomes aligned or scaled.

    In classification predictions are aligned with the class prior; in regression outcomes are divided by the standard
    deviation of the known ones. Means, frequencies and deviations are those of queries and keys together, each sample
    counted once.
    """
    if isinstance(queries, int):
        _, keys = prepare(keys.first(0), keys, settings, kind)
        return keys.first(queries), keys
    if not isinstance(settings, PrognosticMatchingSettings):
        return queries, keys
    if settings.prognostic_caliper is not None:
        if kind == "classification" and settings.class_prior is not None:
            queries, keys = _aligned(queries, keys, settings.class_prior)
        elif kind == "regression":
            queries, keys = _scaled(queries, keys)
    if settings.centre:
        encodings = centred(queries.encoding, keys.encoding, queries.domain, keys.domain)
        queries, keys = queries._replace(encoding=encodings[0]), keys._replace(encoding=encodings[1])
    return queries, keys


def match_prepared(queries: Pool, keys: Pool, settings: MatchingSettings) -> Matches:
    """Match pools that `prepare` returned."""
    return caliper_nn(
        queries.encoding,
        keys.encoding,
        query_domain=queries.domain,
        key_domain=keys.domain,
        query_propensity=queries.propensity,
        key_propensity=keys.propensity,
        k=settings.k,
        fixed_caliper=settings.fixed_caliper,
        std_caliper=settings.std_caliper,
        caliper_scale=settings.caliper_scale,
        direction=settings.direction,
        query_prognosis=queries.outcome,
        key_prognosis=keys.outcome,
        prognostic_caliper=settings.prognostic_caliper if isinstance(settings, PrognosticMatchingSettings) else None,
    )


def _aligned(queries: Pool, keys: Pool, class_prior: float) -> tuple[Pool, Pool]:
    outcome, known = _outcomes(queries, keys)
    if not known.any() or known.all():
        return queries, keys
    p_target, p_model = class_frequencies(outcome, known, (queries.encoding, keys.encoding), class_prior)
    return _with_outcomes(queries, keys, torch.where(known[:, None], outcome, align(outcome, p_target, p_model)))


def _scaled(queries: Pool, keys: Pool) -> tuple[Pool, Pool]:
    outcome, known = _outcomes(queries, keys)
    if known.sum() < 2:
        return queries, keys
    deviation = outcome[known].std(0)
    return _with_outcomes(queries, keys, outcome / torch.where(deviation > 0, deviation, 1.0))


def _outcomes(queries: Pool, keys: Pool) -> tuple[Tensor, Tensor]:
    """Return the outcomes of both pools, and which are known."""
    if queries.outcome is None or queries.known is None or keys.outcome is None or keys.known is None:
        raise ValueError("outcome and known are needed in both pools by prognostic_caliper")
    return torch.cat([queries.outcome, keys.outcome]), torch.cat([queries.known, keys.known])


def _with_outcomes(queries: Pool, keys: Pool, outcome: Tensor) -> tuple[Pool, Pool]:
    n = len(queries.domain)
    return queries._replace(outcome=outcome[:n]), keys._replace(outcome=outcome[n:])
