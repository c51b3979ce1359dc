"""CaliperNN: nearest neighbours across domains, kept honest by calipers on the propensity score."""

import warnings
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from okapi.matching.calipers import Calipers, Side
from okapi.matching.matches import Matches
from okapi.matching.search import nearest

ArrayLike: TypeAlias = Tensor | NDArray[Any]

WIDEST, WIDEST_SINGLE = 1e150, 1e37  # of values in float64, and in less: distances of such are finite


def caliper_nn(
    queries: ArrayLike,
    keys: ArrayLike,
    *,
    query_domain: ArrayLike,
    key_domain: ArrayLike,
    query_propensity: ArrayLike | None = None,
    key_propensity: ArrayLike | None = None,
    k: int = 1,
    fixed_caliper: float | None = None,
    std_caliper: float | None = None,
    caliper_scale: str = "probability",
    two_way: bool = True,
    direction: tuple[int, int] | None = None,
    query_outcome: ArrayLike | None = None,
    key_outcome: ArrayLike | None = None,
    outcome_caliper: float | Literal["auto"] | None = None,
) -> Matches:
    """Match every query to its k nearest keys of other domains.

    A query is matched only if k keys are admissible to it: keys of another domain, both samples inside the fixed
    caliper, their propensities within the std-caliper of each other, their outcomes within the prognostic caliper.
    Exact, ties to the lower row.

    Parameters
    ----------
    queries : tensor or array of shape (n, d)
    keys : tensor or array of shape (m, d)
        float16, float32 or float64, on any device.
    query_domain, key_domain : tensor or array of shape (n,), integers; or (n, S), booleans
        The domain of each sample, or the set of its domain labels. Pairs of one domain, or of sets that share a label,
        are not admissible.
    query_propensity, key_propensity : tensor or array of shape (n,) or (n, S), optional
        Two domains 0 and 1: the probability of domain 1, shape (n,). More: that of each domain, shape (n, S). Sets of
        labels: the score of each label, shape (n, S). Needed by the calipers only.
    k : int
        Keys per query.
    fixed_caliper : float in [0, 1], not 0.5, optional
        Leave out samples whose propensity is not inside ``(1 - t, t)``; with more than two domains, whose greatest
        propensity is not below ``max(t, 1 - t)``. 1.0 keeps all.
    std_caliper : float > 0, optional
        Greatest difference of the propensities in a pair, in standard deviations pooled over the admissible queries and
        keys of the two domains.
    caliper_scale : {"probability", "logit"}
        The scale on which the std-caliper compares propensities.
    two_way : bool
        Whether the fixed caliper leaves out keys as well as queries.
    direction : (int, int), optional
        Match only queries of the first domain with keys of the second.
    query_outcome, key_outcome : tensor or array of shape (n,) or (n, c), optional
        What is known or predicted of each sample's outcome: class probabilities, or one or several numbers, of a scale
        on which they can be compared. Needed by the prognostic caliper only.
    outcome_caliper : float >= 0 or "auto", optional
        The prognostic caliper: greatest Euclidean distance of the outcomes in a pair. Automatic: a third of their
        standard deviation, which is ``sqrt((v_q + v_k) / 2)`` of the sums v of the columns' variances among admissible
        queries and keys.

    Returns
    -------
    Matches
        By query row; keys of a query by distance, then row.

    Examples
    --------
    >>> import numpy as np
    >>> from okapi.matching import caliper_nn
    >>> x = np.array([[0.0], [1.0], [5.0], [0.9], [4.0]])
    >>> site = np.array([0, 0, 0, 1, 1])
    >>> caliper_nn(x, x, query_domain=site, key_domain=site).to_frame()
       query  rank  key  distance
    0      0     1    3       0.9
    1      1     1    3       0.1
    2      2     1    4       1.0
    3      3     1    1       0.1
    4      4     1    2       1.0
    """
    calipers = Calipers(
        fixed=fixed_caliper,
        std=std_caliper,
        scale=caliper_scale,
        two_way=two_way,
        direction=direction,
        outcome=outcome_caliper,
    )
    check_k(k)
    query_vectors = check_vectors(queries, "queries")
    device = query_vectors.device
    key_vectors = check_vectors(keys, "keys", device)
    if query_vectors.shape[1] != key_vectors.shape[1]:
        raise ValueError(f"queries have {query_vectors.shape[1]} columns, keys have {key_vectors.shape[1]}")
    query = check_side("query", len(query_vectors), query_domain, query_propensity, calipers, device)
    key = check_side("key", len(key_vectors), key_domain, key_propensity, calipers, device)
    _check_sides_agree(query, key)
    if calipers.outcome is not None:
        query = query._replace(outcome=check_outcome(query_outcome, "query_outcome", len(query_vectors), device))
        key = key._replace(outcome=check_outcome(key_outcome, "key_outcome", len(key_vectors), device))
        _check_outcomes_agree(query, key)

    if device.type == "mps":  # has no float64, in which distances are settled
        cpu = torch.device("cpu")
        return _match(query_vectors.cpu(), key_vectors.cpu(), query.to(cpu), key.to(cpu), calipers, k).to(device)
    return _match(query_vectors, key_vectors, query, key, calipers, k)


def _match(queries: Tensor, keys: Tensor, query: Side, key: Side, calipers: Calipers, k: int) -> Matches:
    plan = calipers.admissible(query, key).plan(queries.shape[1])
    distance, index = nearest(queries, keys, plan, k)
    order = plan.query_order.argsort()
    order = order[index[order, -1] >= 0]
    return Matches(plan.query_order[order], index[order], distance[order])


def check_k(k: int) -> None:
    """Refuse anything but a whole number of at least one."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise ValueError(f"k must be a whole number of at least 1, got {k!r}")


def to_tensor(values: ArrayLike, name: str, device: torch.device | None = None) -> Tensor:
    """Return values as a detached tensor; arrays are moved to ``device``, tensors must already be there."""
    if isinstance(values, Tensor):
        if device is not None and values.device != device:
            raise ValueError(f"{name} is on {values.device}, queries are on {device}")
        return values.detach()
    array = np.asarray(values)
    if array.dtype == object or array.dtype.kind not in "biuf":
        raise TypeError(f"{name} must be numeric, got an array of {array.dtype}")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # we only read
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)


def check_vectors(values: ArrayLike, name: str, device: torch.device | None = None) -> Tensor:
    """Return finite floating vectors of shape (n, d)."""
    vectors = to_tensor(values, name, device)
    if vectors.ndim != 2:
        raise ValueError(f"{name} must have shape (n, d), got {tuple(vectors.shape)}")
    if not vectors.shape[1]:
        raise ValueError(f"{name} must have at least one column, got shape {tuple(vectors.shape)}")
    if not vectors.is_floating_point():
        vectors = vectors.double()
    limit = WIDEST if vectors.dtype == torch.float64 else WIDEST_SINGLE
    if vectors.numel() and not float(torch.stack(vectors.aminmax()).abs().amax()) <= limit:
        _check_finite(vectors, name)
        row = int((vectors.abs() > limit).any(1).nonzero()[0])
        raise ValueError(f"{name} must lie within {limit:g} of zero, for squares to be finite; row {row} does not")
    return vectors


def _check_finite(values: Tensor, name: str) -> None:
    if values.numel() and not torch.stack(values.aminmax()).isfinite().all():
        row = int((~values.isfinite()).reshape(len(values), -1).any(1).nonzero()[0])
        raise ValueError(f"{name} must be finite, row {row} holds NaN or infinity")


def check_side(
    name: str,
    n: int,
    domain: ArrayLike,
    propensity: ArrayLike | None,
    calipers: Calipers,
    device: torch.device,
) -> Side:
    """Return checked domains and propensities of the queries or of the keys."""
    domains = _check_domain(to_tensor(domain, f"{name}_domain", device), f"{name}_domain", n)
    sets = domains.ndim == 2
    if calipers.direction is not None:
        _check_direction(calipers.direction, domains)
    if propensity is None:
        if not calipers.off():
            raise ValueError(f"{name}_propensity is needed by fixed_caliper and std_caliper, got None")
        return Side(domains, None)
    scores = check_propensity(to_tensor(propensity, f"{name}_propensity", device), f"{name}_propensity", n)
    if sets and scores.shape != domains.shape:
        raise ValueError(
            f"{name}_propensity must have the shape of {name}_domain {tuple(domains.shape)} for sets of labels, "
            f"got {tuple(scores.shape)}"
        )
    if not sets and len(domains):
        n_domains = 2 if scores.ndim == 1 else scores.shape[1]
        low, high = int(domains.min()), int(domains.max())
        if low < 0 or high >= n_domains:
            raise ValueError(
                f"{name}_domain must lie in [0, {n_domains - 1}] for propensities of shape {tuple(scores.shape)}, "
                f"got values from {low} to {high}"
            )
    return Side(domains, scores)


def _check_domain(domain: Tensor, name: str, n: int) -> Tensor:
    if len(domain.shape) == 0 or len(domain) != n:
        raise ValueError(f"{name} must have {n} rows, got shape {tuple(domain.shape)}")
    if domain.ndim == 2 and domain.dtype == torch.bool:
        return domain
    if domain.ndim != 1 or domain.is_floating_point():
        raise ValueError(
            f"{name} must be integers of shape (n,) or booleans of shape (n, S), "
            f"got {domain.dtype} of shape {tuple(domain.shape)}"
        )
    return domain.long()


def check_propensity(propensity: Tensor, name: str, n: int) -> Tensor:
    """Return floating scores in [0, 1] of shape (n,) or (n, S)."""
    if propensity.ndim not in (1, 2) or len(propensity) != n:
        raise ValueError(f"{name} must have shape ({n},) or ({n}, S), got {tuple(propensity.shape)}")
    if not propensity.is_floating_point():
        propensity = propensity.double()
    _check_finite(propensity, name)
    if propensity.numel():
        low, high = (float(x) for x in propensity.aminmax())
        if low < 0 or high > 1:
            raise ValueError(f"{name} must lie in [0, 1], got values from {low:g} to {high:g}")
    return propensity


def check_outcome(outcome: ArrayLike | None, name: str, n: int, device: torch.device) -> Tensor:
    """Return finite outcomes of shape (n, c), float64."""
    if outcome is None:
        raise ValueError(f"{name} is needed by outcome_caliper, got None")
    values = to_tensor(outcome, name, device)
    if values.ndim not in (1, 2) or len(values) != n:
        raise ValueError(f"{name} must have shape ({n},) or ({n}, c), got {tuple(values.shape)}")
    values = values.double()
    _check_finite(values, name)
    return values.reshape(n, -1) if n else values.reshape(0, values.shape[1] if values.ndim == 2 else 1)


def _check_outcomes_agree(query: Side, key: Side) -> None:
    assert query.outcome is not None
    assert key.outcome is not None
    if query.outcome.shape[1] != key.outcome.shape[1]:
        raise ValueError(
            "query_outcome and key_outcome must have the same width, "
            f"got {query.outcome.shape[1]} and {key.outcome.shape[1]}"
        )


def _check_direction(direction: tuple[int, int], domains: Tensor) -> None:
    if not isinstance(direction, tuple | list) or len(direction) != 2 or direction[0] == direction[1]:
        raise ValueError(f"direction must name two different domains, got {direction!r}")
    if domains.ndim == 2 and not all(0 <= d < domains.shape[1] for d in direction):
        raise ValueError(f"direction must name labels in [0, {domains.shape[1] - 1}], got {direction}")


def _check_sides_agree(query: Side, key: Side) -> None:
    if query.domain.shape[1:] != key.domain.shape[1:]:
        raise ValueError(
            "query_domain and key_domain must be of one kind, "
            f"got shapes {tuple(query.domain.shape)} and {tuple(key.domain.shape)}"
        )
    if (query.propensity is None) != (key.propensity is None):
        raise ValueError("query_propensity and key_propensity must be given together")
    if query.propensity is None or key.propensity is None:
        return
    if query.propensity.shape[1:] != key.propensity.shape[1:]:
        raise ValueError(
            "query_propensity and key_propensity must have the same width, "
            f"got shapes {tuple(query.propensity.shape)} and {tuple(key.propensity.shape)}"
        )
