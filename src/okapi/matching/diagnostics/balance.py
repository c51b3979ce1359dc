"""How alike two domains are before and after matching, covariate by covariate."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from okapi.matching.checks import as_array, check_choice
from okapi.matching.diagnostics.directions import Directions, column_blocks, memberships, name_domains, position_of
from okapi.matching.diagnostics.weights import Floats, Integers, effective_sample_size, flatten_pairs
from okapi.matching.matches import Matches

Denominator = Literal["pooled", "query", "key"]

SMD_LIMIT = 0.1
VARIANCE_RATIO_LIMITS = (4 / 5, 5 / 4)
ROUNDING = 1e-9  # what is at a limit is within it, in whatever order its sums were taken
OVERLAP_BINS = 10

DENOMINATORS = {
    "pooled": "pooled deviation before matching, sqrt((v_query + v_key) / 2)",
    "query": "deviation of the query domain before matching",
    "key": "deviation of the key domain before matching",
}


@dataclass(frozen=True, eq=False, repr=False)
class Balance:
    """Balance of the covariates, direction by direction.

    Parameters
    ----------
    table : DataFrame
        One row per direction and covariate, the worst direction first (largest ``|SMD|`` after matching) and in it the
        worst covariate first: ``query_domain``, ``key_domain``, ``covariate``, then ``mean_query``, ``mean_key``,
        ``smd``, ``variance_ratio``, ``ks`` and ``overlap``, each with ``_before`` and ``_after``, then ``denominator``.
        Only the worst ``max_pairs`` directions.
    pairs : DataFrame
        One row per direction, all of them, in the same order: ``query_domain``, ``key_domain``; ``queries`` and
        ``keys``, how many there are; ``matched_queries``, ``matched_keys`` (distinct), ``ess_keys`` (effective sample
        size of the matched keys); then over the covariates, each with ``_before`` and ``_after``, ``max_abs_smd``,
        ``mean_abs_smd``, ``smd_share`` (with ``|SMD| <= 0.1``) and ``variance_ratio_share`` (in [4/5, 5/4]).
    denominator : {"pooled", "query", "key"}
        What every SMD was divided by.
    unlisted : int
        Directions without a pair that were left out because there are too many of them.
    """

    table: pd.DataFrame
    pairs: pd.DataFrame
    denominator: Denominator
    unlisted: int = 0

    def summary(self) -> dict[str, float]:
        """Aggregate over directions: the largest ``max_abs_smd``, the mean of everything else.

        "before" is over all directions listed, "after" over those with pairs; NaN where there is none.
        """
        metrics = {
            "directions": float(len(self.pairs)),
            "matched_directions": float((self.pairs.matched_queries > 0).sum()),
        }
        for metric in _METRICS:
            for when in ("before", "after"):
                column = self.pairs[f"{metric}_{when}"]
                metrics[f"{metric}_{when}"] = float(column.max() if metric == "max_abs_smd" else column.mean())
        return metrics

    def __repr__(self) -> str:
        return f"{self._headline()}\n{self.pairs.head(10).to_string(index=False, float_format='{:.3f}'.format)}"

    def _repr_html_(self) -> str:
        pairs = self.pairs.head(10).to_html(index=False, border=0, float_format="{:.3f}".format)
        table = self.table.head(30).to_html(index=False, border=0, float_format="{:.3f}".format)
        return f"<p>{self._headline()}</p>{pairs}<details><summary>Covariates</summary>{table}</details>"

    def _headline(self) -> str:
        metrics = self.summary()
        text = (
            f"Balance in {len(self.pairs)} directions, {metrics['matched_directions']:.0f} of them with pairs: "
            f"max |SMD| {metrics['max_abs_smd_before']:.3f} before, {metrics['max_abs_smd_after']:.3f} after. "
            f"SMD denominator: {DENOMINATORS[self.denominator]}."
        )
        return text + (f" {self.unlisted} directions without pairs are not listed." if self.unlisted else "")


_METRICS = ("max_abs_smd", "mean_abs_smd", "smd_share", "variance_ratio_share")
_WHEN = ("before", "after")
_STATISTICS = ("mean_query", "mean_key", "smd", "variance_ratio", "ks", "overlap")


def balance(
    queries: ArrayLike | Tensor,
    keys: ArrayLike | Tensor,
    *,
    query_domain: ArrayLike | Tensor,
    key_domain: ArrayLike | Tensor,
    matches: Matches | None = None,
    weights: ArrayLike | None = None,
    names: Sequence[str] | None = None,
    denominator: Denominator = "pooled",
    domain_names: Sequence[Any] | Mapping[int, Any] | None = None,
    direction: tuple[int, int] | None = None,
    max_pairs: int = 100,
) -> Balance:
    r"""Compare the covariates of queries and keys, domain by domain, before and after matching.

    A direction is an ordered pair of domains, a to b. Before matching it compares all queries of a with all keys of b.
    After, it compares the queries and keys of its matched pairs; a pair weighs 1 / (keys of its query) and a
    sample what its pairs in this direction weigh. Every direction with samples on both sides is listed, without pairs
    too unless there are more than 100,000 directions; a to a only where it has pairs. A sample with a set of labels
    belongs to each of them.

    With weights :math:`w_i` that sum to one and means :math:`m = \sum w_i x_i`:

    - *SMD*: (query mean - key mean) / denominator, which is always a deviation before matching. Denominator zero: 0 if
      the means are equal, else infinite with the sign of the difference.
    - *variance ratio*: query variance / key variance, the variance being
      :math:`\sum w_i (x_i - m)^2 / (1 - \sum w_i^2)`, the unbiased one where all weigh the same, and 0 for a single
      sample. NaN where both are 0.
    - *KS*: the largest difference between the two weighted empirical distribution functions.
    - *overlap*: :math:`\sum_b \min(p_b, q_b)`, where p and q are the shares of the two weighted distributions in ten
      bins bounded by the deciles of the direction's samples before matching (a sample at a bound is in the lower bin).
      1: the same shares; 0: no bin in common.

    A covariate that is 0 or 1 in all queries and keys is binary: its variance is m(1 - m) and it has no variance
    ratio. All this agrees with MatchIt and, pooled, with cobalt.

    Parameters
    ----------
    queries, keys : array or tensor of shape (n, d), (m, d)
        Covariates; the same array twice if samples were matched among themselves.
    query_domain, key_domain : array or tensor of shape (n,), (m,) of integers or (n, S), (m, S) of booleans
        Domain of every sample, or its several domains.
    matches : Matches, optional
        Pairs of rows of ``queries`` and ``keys``.
    weights : array of shape (n,), optional
        In place of matches: matching weights of all samples, which are queries and keys alike, in one ``direction``.
    names : sequence of str, optional
        Names of the d covariates; ``x0``, ``x1``, ... by default.
    denominator : {"pooled", "query", "key"}, default="pooled"
        Deviation that an SMD is measured in: the root of the mean variance of both domains, the query domain's
        (MatchIt's choice for the effect on the treated), or the key domain's.
    domain_names : sequence or mapping, optional
        Name of each domain, by its number.
    direction : (int, int), optional
        Compare only queries of the first domain with keys of the second.
    max_pairs : int, default=100
        Directions in ``table``, the worst first.

    Returns
    -------
    Balance

    Examples
    --------
    >>> import numpy as np, torch
    >>> from okapi.matching import Matches
    >>> x = np.array([[0.0], [1.0], [1.0], [3.0], [5.0]])
    >>> pairs = Matches(torch.tensor([0, 1]), torch.tensor([[2], [2]]), torch.tensor([[1.0], [0.0]]))
    >>> result = balance(x[:2], x, query_domain=[0, 0], key_domain=[0, 0, 1, 1, 1], matches=pairs, names=["age"])
    >>> result.table[["covariate", "smd_before", "smd_after"]].round(2).values.tolist()
    [['age', -1.67, -0.33]]
    """
    x_query, x_key = _covariates(queries, "queries"), _covariates(keys, "keys")
    if x_query.shape[1] != x_key.shape[1]:
        raise ValueError(f"queries and keys must have the same covariates, got {x_query.shape[1]} and {x_key.shape[1]}")
    check_choice("denominator", denominator, get_args(Denominator))
    if max_pairs < 0:
        raise ValueError(f"max_pairs must not be negative, got {max_pairs}")
    covariates = _covariate_names(names, x_query.shape[1])
    sizes = len(x_query), len(x_key)
    of_query, of_key, labels = memberships(query_domain, key_domain, sizes)
    domains = name_domains(labels, domain_names)
    if direction is not None:
        source, target = (position_of(labels, domain) for domain in direction)
        of_query, of_key = of_query.only(source), of_key.only(target)
    if (matches is None) == (weights is None):
        raise ValueError("matches or weights must be given, one of them")
    if matches is not None:
        directions = Directions.find(of_query, of_key, sizes, len(labels), flatten_pairs(matches, *sizes))
    elif direction is None:
        raise ValueError("direction is needed with weights, got None")
    else:
        directions = Directions.weighted(of_query, of_key, len(labels), sizes[0], np.asarray(weights, np.float64))

    comparison = _Comparison(x_query, x_key, directions, denominator)
    pairs = _pairs_table(comparison, domains)
    order = np.lexsort(
        (directions.key_domain, directions.query_domain, -pairs.max_abs_smd_before, -pairs.max_abs_smd_after)
    )
    table = _covariate_table(comparison, order[:max_pairs], domains, covariates)
    return Balance(table, pairs.iloc[order].reset_index(drop=True), denominator, directions.unlisted)


class _Comparison:
    """Statistics of both sides of every direction; arrays have shape (n_directions, n_covariates)."""

    def __init__(self, queries: NDArray[Any], keys: NDArray[Any], directions: Directions, denominator: Denominator):
        self.queries, self.keys, self.directions, self.denominator = queries, keys, directions, denominator
        self.binary = _is_binary(queries) & _is_binary(keys)
        self.query_moments = directions.queries.moments(queries)
        self.key_moments = directions.keys.moments(keys)

    def statistics(self, columns: slice, chosen: Integers | None = None) -> dict[str, Floats]:
        """Return means, SMD and variance ratio of some covariates, in the chosen directions or in all."""
        d = self.directions
        every = np.arange(len(d.query_domain)) if chosen is None else chosen
        matched_queries = d.matched_queries if chosen is None else d.matched_queries.take(chosen)
        matched_keys = d.matched_keys if chosen is None else d.matched_keys.take(chosen)
        before_query = [moment[d.query_domain[every], columns] for moment in self.query_moments]
        before_key = [moment[d.key_domain[every], columns] for moment in self.key_moments]
        binary = self.binary[columns]
        variance_query, variance_key = (
            np.where(binary, mean * (1 - mean), variance) for mean, variance in (before_query, before_key)
        )
        pooled = (variance_query + variance_key) / 2
        scale = np.sqrt({"pooled": pooled, "query": variance_query, "key": variance_key}[self.denominator])
        after_query = matched_queries.moments(self.queries[:, columns])
        after_key = matched_keys.moments(self.keys[:, columns])

        metrics = {}
        sides = {"before": (before_query, before_key), "after": (after_query, after_key)}
        for when, ((mean_query, v_query), (mean_key, v_key)) in sides.items():
            metrics[f"mean_query_{when}"] = mean_query
            metrics[f"mean_key_{when}"] = mean_key
            difference = mean_query - mean_key
            with np.errstate(all="ignore"):
                smd = np.where((scale == 0) & (difference == 0), 0.0, difference / scale)
                ratio = np.where(binary, np.nan, v_query / v_key)
            metrics[f"smd_{when}"], metrics[f"variance_ratio_{when}"] = smd, ratio
        return metrics

    def distributions(self, direction: int) -> dict[str, Floats]:
        """Return KS and overlap of every covariate, shape (n_covariates,), in one direction."""
        d = self.directions
        before = d.queries[d.query_domain[direction]], d.keys[d.key_domain[direction]]
        after = d.matched_queries[direction], d.matched_keys[direction]
        n_columns = self.queries.shape[1]
        metrics = {f"{name}_{when}": np.full(n_columns, np.nan) for name in ("ks", "overlap") for when in _WHEN}
        for columns in column_blocks(n_columns, len(before[0][0]) + len(before[1][0])):
            edges = None
            for when, (query_side, key_side) in zip(_WHEN, (before, after), strict=True):
                if len(query_side[0]):
                    cdfs = _Cdfs.of(self.queries[:, columns], *query_side, self.keys[:, columns], *key_side)
                    edges = cdfs.quantiles(OVERLAP_BINS) if edges is None else edges
                    metrics[f"ks_{when}"][columns] = cdfs.largest_difference()
                    metrics[f"overlap_{when}"][columns] = cdfs.overlap(edges)
        return metrics


class _Cdfs(NamedTuple):
    """Weighted distribution functions of two samples at the sorted values of both; arrays of shape (d, n + m)."""

    values: Floats
    query: Floats
    key: Floats

    @classmethod
    def of(
        cls,
        queries: NDArray[Any],
        query_rows: Integers,
        query_weights: Floats,
        keys: NDArray[Any],
        key_rows: Integers,
        key_weights: Floats,
    ) -> "_Cdfs":
        values = np.concatenate([queries[query_rows].T, keys[key_rows].T], axis=1).astype(np.float64, order="C")
        order = np.argsort(values, axis=1)
        share = np.zeros((2, values.shape[1]))
        share[0, : len(query_rows)] = query_weights / query_weights.sum()
        share[1, len(query_rows) :] = key_weights / key_weights.sum()
        query, key = (np.cumsum(side[order], axis=1) for side in share)
        return cls(np.take_along_axis(values, order, axis=1), query, key)

    def largest_difference(self) -> Floats:
        """Return the Kolmogorov-Smirnov distance, shape (d,)."""
        difference = np.abs(self.query - self.key)[:, :-1]
        # Equal values step together, so only the last of them counts. At the last of all both functions are 1.
        difference[self.values[:, 1:] == self.values[:, :-1]] = 0.0
        return difference.max(axis=1)  # type: ignore[no-any-return]

    def quantiles(self, n_bins: int) -> Floats:
        """Return the values that bound bins of equal numbers of samples, shape (d, n_bins - 1)."""
        size = self.values.shape[1]
        return self.values[:, np.ceil(np.arange(1, n_bins) * size / n_bins).astype(int) - 1]

    def overlap(self, edges: Floats) -> Floats:
        """Return the common share in the bins that the edges bound, shape (d,)."""
        below = np.array([np.searchsorted(v, e, side="right") for v, e in zip(self.values, edges, strict=True)])
        shares = []
        for cdf in (self.query, self.key):
            at_edges = np.where(below > 0, np.take_along_axis(cdf, np.maximum(below - 1, 0), axis=1), 0.0)
            shares.append(np.diff(at_edges, axis=1, prepend=0.0, append=1.0))
        return np.minimum(*shares).sum(axis=1)  # type: ignore[no-any-return]


def _pairs_table(comparison: _Comparison, domains: NDArray[Any]) -> pd.DataFrame:
    """Return one row per direction; the covariates are aggregated block by block."""
    d = comparison.directions
    n_directions, n_columns = len(d.query_domain), comparison.queries.shape[1]
    largest, total, within, ratio_within, ratio_known = (
        {when: np.zeros(n_directions) for when in _WHEN} for _ in range(5)
    )
    height = max(n_directions, len(d.matched_queries.rows), len(d.matched_keys.rows))
    for columns in column_blocks(n_columns, height):
        metrics = comparison.statistics(columns)
        for when in _WHEN:
            smd, ratio = np.abs(metrics[f"smd_{when}"]), metrics[f"variance_ratio_{when}"]
            largest[when] = np.maximum(largest[when], smd.max(axis=1))
            total[when] += smd.sum(axis=1)
            within[when] += (smd <= SMD_LIMIT + ROUNDING).sum(axis=1)
            low, high = VARIANCE_RATIO_LIMITS
            ratio_within[when] += ((low - ROUNDING <= ratio) & (ratio <= high + ROUNDING)).sum(axis=1)
            ratio_known[when] += (~np.isnan(ratio)).sum(axis=1)
    columns_of = {
        "query_domain": domains[d.query_domain],
        "key_domain": domains[d.key_domain],
        "queries": d.queries.sizes[d.query_domain],
        "keys": d.keys.sizes[d.key_domain],
        "matched_queries": d.matched_queries.sizes,
        "matched_keys": d.matched_keys.sizes,
        "ess_keys": [effective_sample_size(d.matched_keys[g][1]) for g in range(n_directions)],
    }
    for when in _WHEN:
        columns_of[f"max_abs_smd_{when}"] = largest[when]
        columns_of[f"mean_abs_smd_{when}"] = total[when] / n_columns
        columns_of[f"smd_share_{when}"] = np.where(np.isnan(largest[when]), np.nan, within[when] / n_columns)
        with np.errstate(invalid="ignore"):
            columns_of[f"variance_ratio_share_{when}"] = ratio_within[when] / ratio_known[when]
    return pd.DataFrame(columns_of)


def _covariate_table(
    comparison: _Comparison, chosen: Integers, domains: NDArray[Any], covariates: NDArray[Any]
) -> pd.DataFrame:
    """Return one row per chosen direction and covariate, in the order of the directions, worst covariate first."""
    metrics = comparison.statistics(slice(None), chosen)
    distributions = [comparison.distributions(direction) for direction in chosen]
    for name in (f"{name}_{when}" for name in ("ks", "overlap") for when in _WHEN):
        metrics[name] = np.array([one[name] for one in distributions]).reshape(len(chosen), len(covariates))
    order = np.lexsort((-np.abs(metrics["smd_before"]), -np.abs(metrics["smd_after"])), axis=1)
    d = comparison.directions
    return pd.DataFrame(
        {
            "query_domain": np.repeat(domains[d.query_domain[chosen]], len(covariates)),
            "key_domain": np.repeat(domains[d.key_domain[chosen]], len(covariates)),
            "covariate": covariates[order].ravel(),
            **{
                f"{name}_{when}": np.take_along_axis(metrics[f"{name}_{when}"], order, axis=1).ravel()
                for name in _STATISTICS
                for when in _WHEN
            },
            "denominator": comparison.denominator,
        }
    )


def _covariates(x: ArrayLike | Tensor, name: str) -> NDArray[Any]:
    array = as_array(x, name, ndim=2)
    if array.shape[1] == 0:
        raise ValueError(f"{name} must have at least one covariate, got shape {array.shape}")
    if array.size and not (np.isfinite(array.min()) and np.isfinite(array.max())):
        raise ValueError(f"{name} must be finite, got NaN or infinite values")
    return array


def _is_binary(x: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which columns are 0 or 1 throughout."""
    blocks = (x[:, columns] for columns in column_blocks(x.shape[1], len(x)))
    return np.concatenate([((block == 0) | (block == 1)).all(axis=0) for block in blocks])


def _covariate_names(names: Sequence[str] | None, n_covariates: int) -> NDArray[Any]:
    chosen = [f"x{i}" for i in range(n_covariates)] if names is None else list(names)
    if len(chosen) != n_covariates:
        raise ValueError(f"names must name each of the {n_covariates} covariates, got {len(chosen)} names")
    return np.array(chosen, dtype=object)
