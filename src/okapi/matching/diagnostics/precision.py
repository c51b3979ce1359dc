"""Match precision: how far the targets of matched samples agree, direction by direction, beside chance."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from torch import Tensor

from okapi.matching.checks import as_array
from okapi.matching.diagnostics.balance import name_domains
from okapi.matching.diagnostics.directions import Groups, Membership, memberships
from okapi.matching.diagnostics.weights import Floats, Integers, Pairs, flatten_pairs, sum_by
from okapi.matching.matches import Matches

TargetKind: TypeAlias = Literal["classes", "numbers", "labels"]


@dataclass(frozen=True, eq=False, repr=False)
class MatchPrecision:
    """How far the targets of matched samples agree.

    Parameters
    ----------
    kind : {"classes", "numbers", "labels"}
        What the targets are.
    table : DataFrame
        One row per direction that has pairs: ``query_domain``, ``key_domain``; ``pairs``, how many have both targets;
        ``unknown``, how many have not, and are left out; then of classes and labels ``precision`` and its ``chance``,
        of numbers ``difference`` and ``chance`` in the unit of the targets, ``difference_sd`` and ``chance_sd`` in
        their standard deviations.
    overall : dict
        The same figures over the pairs of all directions; NaN without pairs.
    """

    kind: TargetKind
    table: pd.DataFrame
    overall: dict[str, float]

    @property
    def figure(self) -> float:
        """The one number: the precision over all pairs; of numbers their mean difference in standard deviations."""
        return self.overall["difference_sd" if self.kind == "numbers" else "precision"]

    @property
    def chance(self) -> float:
        """What random pairs of the same domains would have for ``figure``."""
        return self.overall["chance_sd" if self.kind == "numbers" else "chance"]

    def __repr__(self) -> str:
        return f"{self._headline()}\n{self.table.head(10).to_string(index=False, float_format='{:.3f}'.format)}"

    def _repr_html_(self) -> str:
        table = self.table.to_html(index=False, border=0, float_format="{:.3f}".format, na_rep="–", max_rows=60)
        return f"<p>{self._headline()}</p>{table}"

    def _headline(self) -> str:
        names = {"classes": "of one class", "labels": "of labels equal", "numbers": "deviations apart"}
        text = (
            f"{self.figure:.3f} {names[self.kind]} in {self.overall['pairs']:,.0f} pairs, {self.chance:.3f} by chance"
        )
        return text + (f"; {self.overall['unknown']:,.0f} pairs left out" if self.overall["unknown"] else "") + "."


def match_precision(
    query_target: ArrayLike | Tensor,
    key_target: ArrayLike | Tensor,
    *,
    query_domain: ArrayLike | Tensor,
    key_domain: ArrayLike | Tensor,
    matches: Matches,
    kind: TargetKind = "classes",
    domain_names: Sequence[Any] | Mapping[int, Any] | None = None,
) -> MatchPrecision:
    """Compare the targets of queries with those of their keys, beside what random pairs would have.

    A direction is an ordered pair of domains, a to b. Its figure is the mean over its pairs, each of which weighs the
    same: whether the classes are equal, the share of labels that are, or ``|y_query - y_key|``. Chance is the mean of
    the same over all pairs of a query of a and a key of b, matched or not; over all directions they weigh as many pairs
    as were matched in them. A sample with a set of domain labels belongs to each of them.

    Parameters
    ----------
    query_target, key_target : array or tensor of shape (n,), (m,) or (n, d), (m, d)
        Classes, by any names or numbers; one number or several; or labels, 0 and 1. A sample of which one is missing
        (NaN or None) is left out. The same array twice if samples were matched among themselves.
    query_domain, key_domain : array or tensor of shape (n,), (m,) of integers or (n, S), (m, S) of booleans
        Domain of every sample, or its set of domains.
    matches : Matches
        Pairs of rows of the queries and the keys.
    kind : {"classes", "numbers", "labels"}
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
    if kind not in get_args(TargetKind):
        raise ValueError(f"kind must be one of {get_args(TargetKind)}, got {kind!r}")
    query, key = _codes(query_target, key_target) if kind == "classes" else _numbers(query_target, key_target, kind)
    sizes = len(query), len(key)
    of_query, of_key, labels = memberships(query_domain, key_domain, sizes)
    names = name_domains(labels, domain_names)
    directions = _Directions.find(query, key, of_query, of_key, len(labels), flatten_pairs(matches, *sizes))
    table = pd.DataFrame(
        {
            "query_domain": names[directions.source],
            "key_domain": names[directions.target],
            "pairs": directions.counts,
            "unknown": directions.unknown,
        }
    )
    overall = {"pairs": float(len(directions.query)), "unknown": float(directions.n_unknown)}
    for name, (of_pairs, chance) in _figures(directions, query, key, kind).items():
        column = "chance_sd" if name.endswith("_sd") else "chance"
        table[name], table[column] = directions.means(of_pairs), chance
        overall |= {name: float(of_pairs.mean()) if len(of_pairs) else np.nan, column: directions.average(chance)}
    return MatchPrecision(kind, table, overall)


class _Directions(NamedTuple):
    """Directions with pairs: ``source[g]`` to ``target[g]``.

    ``query`` and ``key`` are the rows of the pairs with both targets; entry i says that pair ``entry_pair[i]`` is in
    direction ``entry_direction[i]``. ``queries`` and ``keys`` are the samples of every domain that have a target.
    """

    source: Integers
    target: Integers
    query: Integers
    key: Integers
    entry_pair: Integers
    entry_direction: Integers
    unknown: Integers
    n_unknown: int
    queries: Groups
    keys: Groups

    @classmethod
    def find(
        cls, query: Floats, key: Floats, of_query: Membership, of_key: Membership, n_domains: int, pairs: Pairs
    ) -> "_Directions":
        known_query, known_key = (_is_known(side) for side in (query, key))
        known = known_query[pairs.query] & known_key[pairs.key]
        pair, source = of_query.expand(pairs.query, len(query))
        entry, target = of_key.expand(pairs.key[pair], len(key))
        pair = pair[entry]
        listed, direction = np.unique(source[entry] * n_domains + target, return_inverse=True)
        whole = known[pair]
        return cls(
            *np.divmod(listed, max(n_domains, 1)),
            pairs.query[known],
            pairs.key[known],
            (np.cumsum(known) - 1)[pair[whole]],
            direction[whole],
            np.bincount(direction[~whole], minlength=len(listed)),
            int((~known).sum()),
            _of_domains(of_query, known_query, n_domains),
            _of_domains(of_key, known_key, n_domains),
        )

    @property
    def counts(self) -> Integers:
        """Number of pairs in each direction."""
        return np.bincount(self.entry_direction, minlength=len(self.source))

    def means(self, of_pairs: Floats) -> Floats:
        """Return the mean over the pairs of each direction; NaN where there are none."""
        total = sum_by(self.entry_direction, of_pairs[self.entry_pair], len(self.source))
        return np.where(self.counts > 0, total / np.maximum(self.counts, 1), np.nan)

    def average(self, of_directions: Floats) -> float:
        """Return the mean over directions, weighed by their pairs."""
        filled = self.counts > 0
        return float(np.average(of_directions[filled], weights=self.counts[filled])) if filled.any() else np.nan


def _is_known(target: Floats) -> NDArray[np.bool_]:
    return np.asarray(~np.isnan(target).any(axis=1))


def _of_domains(members: Membership, known: NDArray[np.bool_], n_domains: int) -> Groups:
    row, domain = (part[known[members.row]] for part in members)
    return Groups.collect(domain, row, np.ones(len(row)), n_domains, len(known))


def _figures(directions: _Directions, query: Floats, key: Floats, kind: TargetKind) -> dict[str, tuple[Floats, Floats]]:
    """Return by name the figure of every pair and the chance level of every direction."""
    if kind == "classes":
        return {
            "precision": (
                (query[directions.query] == key[directions.key])[:, 0].astype(float),
                _chance_equal(directions, query, key),
            )
        }
    if kind == "labels":
        apart, chance = _apart(directions, query, key)
        return {"precision": (1 - apart, 1 - chance)}
    known = np.concatenate([side[_is_known(side)] for side in (query, key)])
    if not len(known):
        known = np.zeros((1, query.shape[1]))
    centre, deviation = known.mean(axis=0), known.std(axis=0)
    query, key = query - centre, key - centre  # sums of numbers far from 0 would lose their digits
    deviation[deviation == 0] = 1.0
    return {
        "difference": _apart(directions, query, key),
        "difference_sd": _apart(directions, query / deviation, key / deviation),
    }


def _chance_equal(directions: _Directions, query: Floats, key: Floats) -> Floats:
    """Return the share of equal classes among all pairs of each direction; NaN where there are none."""
    n_classes = 1 + int(np.nanmax(np.concatenate([query, key]), initial=0))
    of_query, of_key = (
        csr_array((np.ones(len(side.rows)), codes[side.rows, 0].astype(np.int64), side.bounds), (len(side), n_classes))
        for side, codes in ((directions.queries, query), (directions.keys, key))
    )
    equal = (of_query[directions.source] * of_key[directions.target]).sum(axis=1)
    count = directions.queries.sizes[directions.source] * directions.keys.sizes[directions.target]
    return np.where(count > 0, equal / np.maximum(count, 1), np.nan)


def _apart(directions: _Directions, query: Floats, key: Floats) -> tuple[Floats, Floats]:
    """Return the mean distance over columns of every pair, and over all pairs of each direction."""
    of_pairs = np.abs(query[directions.query] - key[directions.key]).mean(axis=1)
    chance = np.full(len(directions.source), np.nan)
    for target in np.unique(directions.target):
        values = np.sort(key[directions.keys[target][0]], axis=0)
        below = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)])
        for number in np.flatnonzero(directions.target == target):
            asked = query[directions.queries[directions.source[number]][0]]
            if len(values) and len(asked):
                columns = zip(asked.T, values.T, below.T, strict=True)
                chance[number] = np.mean([_mean_distance(*column) for column in columns])
    return of_pairs, chance


def _mean_distance(asked: Floats, values: Floats, below: Floats) -> float:
    """Return the mean of |a - v| over all pairs of a, (n,), and v, (m,), sorted, with the sums ``below`` each place."""
    place = np.searchsorted(values, asked)
    total = asked * (2 * place - len(values)) + below[-1] - 2 * below[place]
    return float(total.mean() / len(values))


def _codes(query: ArrayLike | Tensor, key: ArrayLike | Tensor) -> tuple[Floats, Floats]:
    """Return classes as numbers from 0, (n, 1) and (m, 1), NaN where they are missing."""
    sides = [_classes(query, "query_target"), _classes(key, "key_target")]
    codes = pd.factorize(pd.concat(sides, ignore_index=True))[0].astype(np.float64)
    codes[codes < 0] = np.nan
    return codes[: len(sides[0]), None], codes[len(sides[0]) :, None]


def _classes(target: ArrayLike | Tensor, name: str) -> "pd.Series[Any]":
    values = target.detach().cpu().numpy() if isinstance(target, Tensor) else target
    if np.ndim(values) != 1:
        raise ValueError(f"{name} must be of shape (n,) for classes, got {np.shape(values)}")
    return pd.Series(np.asarray(values, dtype=object))


def _numbers(query: ArrayLike | Tensor, key: ArrayLike | Tensor, kind: TargetKind) -> tuple[Floats, Floats]:
    """Return numbers or labels, (n, d) and (m, d), NaN where they are missing."""
    sides = []
    for name, target in (("query_target", query), ("key_target", key)):
        values = as_array(target, name).astype(np.float64)
        if values.ndim not in (1, 2):
            raise ValueError(f"{name} must be of shape (n,) or (n, d), got {values.shape}")
        values = values.reshape(len(values), -1)
        wrong = np.isinf(values) if kind == "numbers" else ~(np.isnan(values) | (values == 0) | (values == 1))
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            wanted = "finite, or NaN" if kind == "numbers" else "0 or 1, or NaN"
            raise ValueError(f"{name} must be {wanted} where missing, got {values[row, column]} in row {row}")
        sides.append(values)
    if sides[0].shape[1] != sides[1].shape[1]:
        widths = f"{sides[0].shape[1]} and {sides[1].shape[1]}"
        raise ValueError(f"query_target and key_target must have the same columns, got {widths}")
    return sides[0], sides[1]
