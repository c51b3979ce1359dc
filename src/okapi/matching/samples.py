"""Samples as a matcher sees them, and matches of new ones."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from okapi.matching.checks import WIDEST, WIDEST_SINGLE, Side, to_tensor
from okapi.matching.matches import Matches

Array = NDArray[Any]

CHECKED = 2**23  # numbers checked at a time


class Samples(NamedTuple):
    """Samples as a matcher sees them.

    Covariates (n, p); domains (n,), or (n, S) if multi-label; the columns that must be equal within a pair; codes
    (n, a) of those that must differ; covariates (n, c) in units of their calipers; ids (n,); propensities and
    prognostic scores that the calipers compare.
    """

    covariates: Array
    domain: Array
    exact: pd.DataFrame | None
    anti_exact: Tensor | None
    limited: Tensor | None
    ids: Array | None
    propensity: Array | None = None
    prognosis: Tensor | None = None


@dataclass(frozen=True, eq=False)
class NewMatches(Matches):
    """Matches of new samples to those fitted. They know the new samples, which ``query`` counts."""

    queries: Samples


def sides_of(queries: Samples, keys: Samples) -> tuple[Side, Side]:
    """Return queries and keys as the calipers take them, with a code for each combination of exact values."""
    exact: tuple[Tensor | None, Tensor | None] = None, None
    if queries.exact is not None and keys.exact is not None:
        both = pd.concat([queries.exact, keys.exact], ignore_index=True)
        codes = torch.tensor(both.groupby(list(both.columns), dropna=False).ngroup().to_numpy())
        exact = codes[: len(queries.exact)], codes[len(queries.exact) :]
    query, key = (
        Side(
            torch.from_numpy(side.domain),
            None if side.propensity is None else to_tensor(side.propensity, "propensity_scores"),
            side.prognosis,
            code,
            side.limited,
            side.anti_exact,
        )
        for side, code in zip((queries, keys), exact, strict=True)
    )
    return query, key


def ids_of(X: Any) -> Array | None:
    """Return the index of a DataFrame; of an array there is none."""
    return X.index.to_numpy() if isinstance(X, pd.DataFrame) else None


def check_covariates(numbers: Array, names: list[str]) -> None:
    """Reject covariates (n, p) that are not finite, or too large for finite distances, by row and column."""
    limit = WIDEST if numbers.dtype == np.float64 else WIDEST_SINGLE
    step = max(1, CHECKED // numbers.shape[1])
    for start in range(0, len(numbers), step):
        within = np.abs(numbers[start : start + step]) <= limit
        if not within.all():
            row, column = np.argwhere(~within)[0]
            place = f"row {start + row}, column {names[column]!r}"
            if np.isfinite(numbers[start + row, column]):
                raise ValueError(f"X must lie within {limit:g} of zero, for squares to be finite; {place} does not")
            raise ValueError(f"X must be finite, {place} holds NaN or infinity")


def domains_of(domain: ArrayLike, n: int, treated: Any = None) -> tuple[Array, bool]:
    """Return the domains of n samples, and whether they are a control and a treated group, in this order.

    Two groups are a treatment if one is named as treated, or if they are called 0 and 1, or False and True; of other
    domains the order is sorted. Multi-label domains, (n, S) booleans, are called by their numbers.
    """
    labels = _labels(domain, n)
    if labels.ndim == 2:
        if treated is not None:
            raise ValueError(f"treated needs one domain a sample, domain has shape {labels.shape}")
        return np.arange(labels.shape[1]), False
    try:
        domains = np.unique(labels)
    except TypeError:
        kinds = sorted({type(label).__name__ for label in labels.tolist()})
        raise TypeError(f"domain must hold labels of one type, got {', '.join(kinds)}") from None
    if len(domains) < 2:
        raise ValueError(f"domain must hold at least two domains, got only {domains.tolist()[0]!r} (1 class)")
    if treated is None:
        return domains, len(domains) == 2 and domains.dtype.kind != "U" and domains.tolist() == [0, 1]
    if treated not in domains.tolist():
        raise ValueError(f"treated must be one of the groups {domains[:20].tolist()}, got {treated!r}")
    if len(domains) > 2:
        raise ValueError(
            f"treated needs two groups, got {len(domains)}: {domains[:20].tolist()}; leave out the rows of others, or "
            "compare the treatments two by two with effects_of_treatments"
        )
    return np.asarray(domains if domains[1] == treated else domains[::-1]), True


def domain_codes(domain: ArrayLike, domains: Array, n: int) -> Array:
    """Return the number of each sample's domain among ``domains``, (n,), or its labels, (n, S)."""
    labels = _labels(domain, n)
    if labels.ndim == 2:
        if labels.shape != (n, len(domains)):
            raise ValueError(f"domain must have shape ({n}, {len(domains)}), got {labels.shape}")
        return labels
    order = np.argsort(domains)
    codes: Array = order[np.searchsorted(domains, labels, sorter=order).clip(max=len(domains) - 1)]
    unknown = domains[codes] != labels
    if unknown.any():
        row = int(unknown.argmax())
        raise ValueError(f"domain holds {labels.tolist()[row]!r} in row {row}, which was not there in fit")
    return codes


def _labels(domain: ArrayLike, n: int) -> Array:
    """Return a label, or a row of booleans, for each of n samples."""
    labels = np.asarray(domain)
    if labels.ndim == 2 and labels.dtype == bool:
        return labels
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1 or len(labels) != n:
        raise ValueError(f"domain must have shape ({n},), or ({n}, S) for booleans, got {labels.shape}")
    missing = pd.isna(labels)
    if missing.any():
        raise ValueError(f"domain is missing in row {int(missing.argmax())}")
    return labels
