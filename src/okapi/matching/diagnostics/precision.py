"""Match precision: how far the targets of matched samples agree, direction by direction, beside chance."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from torch import Tensor

from okapi.matching.checks import as_array, check_choice
from okapi.matching.diagnostics.directions import Groups, Membership, memberships, name_domains, pair_directions
from okapi.matching.diagnostics.weights import Floats, Integers, flatten_pairs, sum_by
from okapi.matching.matches import Matches

TargetKind: TypeAlias = Literal["classification", "regression", "multilabel"]
_UNITS = {"classification": "of one class", "multilabel": "of labels equal", "regression": "deviations apart"}


@dataclass(frozen=True, eq=False, repr=False)
class MatchPrecision:
    """How far the targets of matched samples agree.

    Parameters
    ----------
    kind : {"classification", "regression", "multilabel"}
        What the targets are.
    table : DataFrame
        One row per direction that has pairs: ``query_domain``, ``key_domain``; ``pairs``, how many have both targets;
        ``unknown``, how many have not, and are left out; then of classes and labels ``precision`` and its ``chance``,
        in regression ``difference`` and ``chance`` in the unit of the targets, ``difference_sd`` and ``chance_sd`` in
        their standard deviations.
    overall : dict
        The same metrics over the pairs of all directions; NaN without pairs.
    """

    kind: TargetKind
    table: pd.DataFrame
    overall: dict[str, float]

    @property
    def value(self) -> float:
        """The precision over all pairs; in regression the mean difference in standard deviations."""
        return self.overall["difference_sd" if self.kind == "regression" else "precision"]

    @property
    def chance(self) -> float:
        """What random pairs of the same domains would have for ``value``."""
        return self.overall["chance_sd" if self.kind == "regression" else "chance"]

    def __repr__(self) -> str:
        return f"{self._headline()}\n{self.table.head(10).to_string(index=False, float_format='{:.3f}'.format)}"

    def _repr_html_(self) -> str:
        table = self.table.to_html(index=False, border=0, float_format="{:.3f}".format, na_rep="–", max_rows=60)
        return f"<p>{self._headline()}</p>{table}"

    def _headline(self) -> str:
        pairs = f"{self.overall['pairs']:,.0f} pairs"
        text = f"{self.value:.3f} {_UNITS[self.kind]} in {pairs}, {self.chance:.3f} by chance"
        return text + (f"; {self.overall['unknown']:,.0f} pairs left out" if self.overall["unknown"] else "") + "."


def match_precision(
    query_target: ArrayLike | Tensor,
    key_target: ArrayLike | Tensor,
    *,
    query_domain: ArrayLike | Tensor,
    key_domain: ArrayLike | Tensor,
    matches: Matches,
    kind: TargetKind = "classification",
    domain_names: Sequence[Any] | Mapping[int, Any] | None = None,
) -> MatchPrecision:
    """Compare the targets of queries with those of their keys, beside what random pairs would have.

    A direction is an ordered pair of domains, a to b. Its metric is the mean over its pairs, each of which weighs the
    same: whether the classes are equal, the share of labels that are, or ``|y_query - y_key|``. Chance is the mean of
    the same over all pairs of a query of a and a key of b, matched or not; over all directions they weigh as many pairs
    as were matched in them. A sample with a set of domain labels belongs to each of them.

    Parameters
    ----------
    query_target, key_target : array or tensor of shape (n,), (m,) or (n, d), (m, d)
        Classes, by any names or numbers; one number or several; or labels, 0 and 1. A sample of which one is missing
        (NaN or None) is left out. The same array twice if samples were matched among themselves.
    query_domain, key_domain : array or tensor of shape (n,), (m,) of integers or (n, S), (m, S) of booleans
        Domain of every sample, or its several domains.
    matches : Matches
        Pairs of rows of the queries and the keys.
    kind : {"classification", "regression", "multilabel"}, default="classification"
        What the targets are. The differences of several numbers are averaged; their standard deviations are those of
        all known targets of queries and keys, 1 where they do not vary.
    domain_names : sequence or mapping, optional
        Name of each domain, by its number.

    Returns
    -------
    MatchPrecision

    Examples
    --------
    >>> import numpy as np
    >>> from okapi.matching import caliper_nn, match_precision
    >>> x, site = np.array([[0.0], [1.0], [5.0], [0.9], [4.0]]), np.array([0, 0, 0, 1, 1])
    >>> species = ["cat", "dog", "dog", "dog", "cat"]
    >>> matches = caliper_nn(x, x, query_domain=site, key_domain=site)
    >>> match_precision(species, species, query_domain=site, key_domain=site, matches=matches).overall
    {'pairs': 5.0, 'unknown': 0.0, 'precision': 0.4, 'chance': 0.5}
    """
    check_choice("kind", kind, get_args(TargetKind))
    query, key = _numbers(query_target, key_target, kind)
    sizes = len(query), len(key)
    of_query, of_key, labels = memberships(query_domain, key_domain, sizes)
    names = name_domains(labels, domain_names)
    pairs = flatten_pairs(matches, *sizes)
    pair, direction = pair_directions(of_query, of_key, sizes, len(labels), pairs)
    listed, direction = np.unique(direction, return_inverse=True)
    source, target = np.divmod(listed, max(len(labels), 1))

    known_query, known_key = _is_known(query), _is_known(key)
    known = known_query[pairs.query] & known_key[pairs.key]
    every = np.bincount(direction, minlength=len(listed))
    pair, direction = pair[known[pair]], direction[known[pair]]
    counts = np.bincount(direction, minlength=len(listed))
    table = pd.DataFrame(
        {"query_domain": names[source], "key_domain": names[target], "pairs": counts, "unknown": every - counts}
    )
    overall = {"pairs": float(known.sum()), "unknown": float((~known).sum())}
    groups = _of_domains(of_query, known_query, len(labels)), _of_domains(of_key, known_key, len(labels))
    for name, x_query, x_key in _compared(query, key, kind):
        apart = _apart(x_query[pairs.query], x_key[pairs.key], kind)
        by_chance = _chance_unequal if kind == "classification" else _chance_apart
        chance = by_chance(source, target, groups, x_query, x_key)
        if name == "precision":
            apart, chance = 1 - apart, 1 - chance
        column = "chance_sd" if name.endswith("_sd") else "chance"
        with np.errstate(invalid="ignore"):  # NaN in a direction without a pair that has both targets
            table[name], table[column] = sum_by(direction, apart[pair], len(listed)) / counts, chance
        filled = counts > 0
        overall[name] = float(apart[known].mean()) if known.any() else np.nan
        overall[column] = float(np.average(chance[filled], weights=counts[filled])) if filled.any() else np.nan
    return MatchPrecision(kind, table, overall)


def _is_known(target: Floats) -> NDArray[np.bool_]:
    return np.asarray(~np.isnan(target).any(axis=1))


def _of_domains(members: Membership, known: NDArray[np.bool_], n_domains: int) -> Groups:
    """Return the samples with a target, by domain."""
    row, domain = (part[known[members.row]] for part in members)
    return Groups.collect(domain, row, np.ones(len(row)), n_domains, len(known))


def _compared(query: Floats, key: Floats, kind: TargetKind) -> list[tuple[str, Floats, Floats]]:
    """Return each metric by name, with the targets that it compares."""
    if kind != "regression":
        return [("precision", query, key)]
    known = np.concatenate([side[_is_known(side)] for side in (query, key)])
    if not len(known):
        known = np.zeros((1, query.shape[1]))
    mean, deviation = known.mean(axis=0), known.std(axis=0)
    query, key = query - mean, key - mean  # sums of numbers far from 0 would lose their digits
    deviation[deviation == 0] = 1.0
    return [("difference", query, key), ("difference_sd", query / deviation, key / deviation)]


def _apart(query: Floats, key: Floats, kind: TargetKind) -> Floats:
    """Return how far the targets of pairs, both (p, d), are apart: the mean distance over their columns, (p,)."""
    if kind == "classification":
        return np.asarray(query != key)[:, 0].astype(float)
    return np.abs(query - key).mean(axis=1)  # type: ignore[no-any-return]


def _chance_unequal(
    source: Integers, target: Integers, groups: tuple[Groups, Groups], query: Floats, key: Floats
) -> Floats:
    """Return the share of unequal classes among all pairs of each direction; NaN where there are none."""
    n_classes = 1 + int(np.nanmax(np.concatenate([query, key]), initial=0))
    of_query, of_key = (
        csr_array((np.ones(len(side.rows)), codes[side.rows, 0].astype(np.int64), side.bounds), (len(side), n_classes))
        for side, codes in zip(groups, (query, key), strict=True)
    )
    equal = (of_query[source] * of_key[target]).sum(axis=1)
    count = groups[0].sizes[source] * groups[1].sizes[target]
    return np.where(count > 0, 1 - equal / np.maximum(count, 1), np.nan)


def _chance_apart(
    source: Integers, target: Integers, groups: tuple[Groups, Groups], query: Floats, key: Floats
) -> Floats:
    """Return the mean distance over columns of all pairs of each direction; NaN where there are none."""
    chance = np.full(len(source), np.nan)
    for domain in np.unique(target):
        values = np.sort(key[groups[1][domain][0]], axis=0)
        below = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)])
        for number in np.flatnonzero(target == domain):
            queries = query[groups[0][source[number]][0]]
            if len(values) and len(queries):
                columns = zip(queries.T, values.T, below.T, strict=True)
                chance[number] = np.mean([_mean_distance(*column) for column in columns])
    return chance


def _mean_distance(query: Floats, values: Floats, below: Floats) -> float:
    """Return the mean of |q - v| over all pairs of q, (n,), and v, (m,), sorted, with the sums ``below`` each place."""
    place = np.searchsorted(values, query)
    total = query * (2 * place - len(values)) + below[-1] - 2 * below[place]
    return float(total.mean() / len(values))


def _codes(query: ArrayLike | Tensor, key: ArrayLike | Tensor) -> tuple[Floats, Floats]:
    sides = [_classes(query, "query_target"), _classes(key, "key_target")]
    codes = pd.factorize(pd.concat(sides, ignore_index=True))[0].astype(np.float64)
    codes[codes < 0] = np.nan
    return codes[: len(sides[0]), None], codes[len(sides[0]) :, None]


def _classes(target: ArrayLike | Tensor, name: str) -> "pd.Series[Any]":
    values = target.detach().cpu().numpy() if isinstance(target, Tensor) else target
    if np.ndim(values) != 1:
        raise ValueError(f"{name} must be of shape (n,) for classification, got {np.shape(values)}")
    return pd.Series(np.asarray(values, dtype=object))


def _numbers(query: ArrayLike | Tensor, key: ArrayLike | Tensor, kind: TargetKind) -> tuple[Floats, Floats]:
    """Return targets as numbers, (n, d) and (m, d), NaN where they are missing; classes are numbered from 0, d = 1."""
    if kind == "classification":
        return _codes(query, key)
    sides = []
    for name, target in (("query_target", query), ("key_target", key)):
        values = as_array(target, name).astype(np.float64)
        if values.ndim not in (1, 2):
            raise ValueError(f"{name} must be of shape (n,) or (n, d), got {values.shape}")
        values = values.reshape(len(values), -1)
        wrong = np.isinf(values) if kind == "regression" else ~(np.isnan(values) | (values == 0) | (values == 1))
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            wanted = "finite, or NaN" if kind == "regression" else "0 or 1, or NaN"
            raise ValueError(f"{name} must be {wanted} where missing, got {values[row, column]} in row {row}")
        sides.append(values)
    if sides[0].shape[1] != sides[1].shape[1]:
        widths = f"{sides[0].shape[1]} and {sides[1].shape[1]}"
        raise ValueError(f"query_target and key_target must have the same columns, got {widths}")
    return sides[0], sides[1]
