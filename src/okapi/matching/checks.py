"""Checks of what a matching is given: settings, vectors, domains, propensities, outcomes."""

import warnings
from numbers import Real
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

ArrayLike: TypeAlias = Tensor | NDArray[Any]

WIDEST, WIDEST_SINGLE = 1e150, 1e37  # of values in float64, and in less: distances of such are finite


class Side(NamedTuple):
    """The queries or the keys.

    ``domain`` is (n,) int64 or (n, S) bool, ``propensity`` (n,) or (n, S), ``prognosis`` (n, c) float64, ``exact`` (n,)
    int64, ``covariates`` (n, c) float64 in units of their calipers, ``anti_exact`` (n, a) codes that must differ; all
    but the domain may be None.
    """

    domain: Tensor
    propensity: Tensor | None = None
    prognosis: Tensor | None = None
    exact: Tensor | None = None
    covariates: Tensor | None = None
    anti_exact: Tensor | None = None

    def to(self, device: torch.device) -> "Side":
        """Return the same side on another device."""
        return Side(*(None if part is None else part.to(device) for part in self))  # type: ignore[arg-type]

    def domain_propensity(self) -> Tensor:
        """Return the propensity of each sample's domain, shape (n,); for multi_label, the greatest among its labels."""
        assert self.propensity is not None
        if self.domain.ndim == 2:
            return torch.where(self.domain, self.propensity, 0).amax(1)
        if self.propensity.ndim == 1:
            return torch.where(self.domain == 1, self.propensity, 1 - self.propensity)
        return self.propensity.gather(1, self.domain[:, None])[:, 0]


def is_number(value: object) -> bool:
    """Return whether a setting is a real number; True and False are none."""
    return isinstance(value, Real) and not isinstance(value, bool)


def check_whole(name: str, value: Any) -> None:
    """Reject anything but a whole number of at least one."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")


def check_count(k: Any, n: int) -> Tensor:
    """Return how many keys each of ``n`` queries is to have, given one number or that of each."""
    count = torch.full((n,), int(k)) if np.ndim(k) == 0 else to_tensor(k, "k").cpu()
    if count.shape != (n,) or count.is_floating_point() or (n and int(count.min()) < 1):
        raise ValueError(f"k must be a whole number of at least 1, or {n} such, got shape {tuple(count.shape)}: {k!r}")
    return count.long()


def check_choice(name: str, value: Any, choices: tuple[str | None, ...]) -> None:
    """Reject anything but one of the choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {choices}, got {value!r}")


def check_flag(name: str, value: Any) -> None:
    """Reject anything but True and False."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {value!r}")


def as_array(values: Any, name: str, ndim: int | None = None) -> NDArray[Any]:
    """Return numbers as an array, of ``ndim`` dimensions if given, without a copy where that is possible."""
    if isinstance(values, Tensor):
        tensor = values.detach().cpu()
        values = tensor.float().numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} must be numbers, got dtype {array.dtype}")
    if ndim is not None and array.ndim != ndim:
        raise ValueError(f"{name} must be {ndim}-dimensional, got shape {array.shape}")
    return array


def to_tensor(values: ArrayLike, name: str, device: torch.device | None = None) -> Tensor:
    """Return values as a detached tensor; arrays are moved to ``device``, tensors must already be on it."""
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


def check_side(
    name: str,
    n: int,
    device: torch.device,
    domain: ArrayLike,
    propensity: ArrayLike | None,
    prognosis: ArrayLike | None,
    exact: ArrayLike | None,
    covariates: ArrayLike | None = None,
    anti_exact: ArrayLike | None = None,
) -> Side:
    """Return what is known of the ``n`` queries or keys, checked; ``name`` is "query" or "key"."""
    return Side(
        check_domain(domain, f"{name}_domain", n, device),
        None if propensity is None else check_propensity(propensity, f"{name}_propensity", n, device),
        None if prognosis is None else check_prognosis(prognosis, f"{name}_prognosis", n, device),
        None if exact is None else _check_exact(exact, f"{name}_exact", n, device),
        None if covariates is None else check_prognosis(covariates, f"{name}_covariates", n, device),
        None
        if anti_exact is None
        else _of_samples(anti_exact, f"{name}_anti_exact", n, "a", device).long().reshape(n, -1),
    )


def check_domain(values: Any, name: str, n: int, device: torch.device | None = None) -> Tensor:
    """Return domains of shape (n,), int64, or bool of shape (n, S) if multi-label."""
    domain = to_tensor(values, name, device)
    if domain.ndim == 0 or len(domain) != n:
        raise ValueError(f"{name} must have {n} rows, got shape {tuple(domain.shape)}")
    if domain.ndim == 2 and domain.dtype == torch.bool:
        return domain
    if domain.ndim != 1 or (domain.is_floating_point() and n):
        raise ValueError(
            f"{name} must be integers of shape (n,) or booleans of shape (n, S), "
            f"got {domain.dtype} of shape {tuple(domain.shape)}"
        )
    return domain.long()


def check_propensity(propensity: ArrayLike, name: str, n: int, device: torch.device | None = None) -> Tensor:
    """Return floating scores in [0, 1] of shape (n,) or (n, S)."""
    scores = _of_samples(propensity, name, n, "S", device)
    if not scores.is_floating_point():
        scores = scores.double()
    _check_finite(scores, name)
    if scores.numel():
        low, high = (float(x) for x in scores.aminmax())
        if low < 0 or high > 1:
            raise ValueError(f"{name} must lie in [0, 1], got values from {low:g} to {high:g}")
    return scores


def check_prognosis(prognosis: ArrayLike, name: str, n: int, device: torch.device | None = None) -> Tensor:
    """Return finite outcomes of shape (n, c), float64."""
    values = _of_samples(prognosis, name, n, "c", device).double()
    _check_finite(values, name)
    return values[:, None] if values.ndim == 1 else values


def check_sides_agree(query: Side, key: Side) -> None:
    """Reject domains that propensities do not have, and what the two sides have in different kinds or widths."""
    for name, side in (("query", query), ("key", key)):
        if side.propensity is not None:
            _check_domain_has_propensity(name, side.domain, side.propensity)
    if query.domain.shape[1:] != key.domain.shape[1:]:
        raise ValueError(
            "query_domain and key_domain must be of one kind, "
            f"got shapes {tuple(query.domain.shape)} and {tuple(key.domain.shape)}"
        )
    for name in ("propensity", "prognosis", "exact", "covariates", "anti_exact"):
        of_query, of_key = getattr(query, name), getattr(key, name)
        if (of_query is None) != (of_key is None):
            raise ValueError(f"query_{name} and key_{name} must be given together")
        if of_query is not None and of_query.shape[1:] != of_key.shape[1:]:
            widths = " and ".join(str(part.shape[1]) if part.ndim == 2 else "no columns" for part in (of_query, of_key))
            raise ValueError(f"query_{name} and key_{name} must have the same width, got {widths}")


def _check_domain_has_propensity(name: str, domain: Tensor, propensity: Tensor) -> None:
    if domain.ndim == 2 and propensity.shape != domain.shape:
        raise ValueError(
            f"{name}_propensity must have the shape of {name}_domain {tuple(domain.shape)} for multi-label domains, "
            f"got {tuple(propensity.shape)}"
        )
    if domain.ndim == 1 and len(domain):
        n_domains = 2 if propensity.ndim == 1 else propensity.shape[1]
        low, high = int(domain.min()), int(domain.max())
        if low < 0 or high >= n_domains:
            raise ValueError(
                f"{name}_domain must lie in [0, {n_domains - 1}] for propensities of shape {tuple(propensity.shape)}, "
                f"got values from {low} to {high}"
            )


def _check_exact(values: ArrayLike, name: str, n: int, device: torch.device) -> Tensor:
    exact = to_tensor(values, name, device)
    if exact.shape != (n,) or exact.is_floating_point():
        raise ValueError(f"{name} must be integers of shape ({n},), got {exact.dtype} of shape {tuple(exact.shape)}")
    return exact.long()


def _of_samples(values: ArrayLike, name: str, n: int, width: str, device: torch.device | None) -> Tensor:
    tensor = to_tensor(values, name, device)
    if tensor.ndim not in (1, 2) or len(tensor) != n:
        raise ValueError(f"{name} must have shape ({n},) or ({n}, {width}), got {tuple(tensor.shape)}")
    return tensor


def _check_finite(values: Tensor, name: str) -> None:
    if values.numel() and not torch.stack(values.aminmax()).isfinite().all():
        row = int((~values.isfinite()).reshape(len(values), -1).any(1).nonzero()[0])
        raise ValueError(f"{name} must be finite, row {row} holds NaN or infinity")
