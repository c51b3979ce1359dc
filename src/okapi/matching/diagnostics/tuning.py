"""Grid search over the calipers: how well the domains are balanced, and how many queries are left."""

import itertools
import signal
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from okapi.matching.calipers import fixed_bounds
from okapi.matching.diagnostics.balance import ROUNDING, SMD_LIMIT
from okapi.matching.diagnostics.weights import effective_sample_size, matching_weights
from okapi.matching.matcher import PAIRED, CaliperMatcher
from okapi.matching.propensity import MatchingWarning

Array: TypeAlias = NDArray[Any]
Settings: TypeAlias = dict[str, Any]

CALIPERS = ("fixed_caliper", "std_caliper", "prognostic_caliper")
SETTINGS = ("fixed_caliper", "std_caliper", "temperature", "caliper_scale", "k", "prognostic_caliper")


@dataclass(frozen=True, eq=False, repr=False)
class Tuning:
    """The result of a grid search over the calipers.

    Parameters
    ----------
    table : DataFrame
        One row per combination, the best first:

        - ``fixed_caliper``, ``std_caliper`` (NaN: none), ``temperature``, ``caliper_scale``, ``k`` and
          ``prognostic_caliper`` (NaN: none);
        - ``retained``, the share of queries that were matched, and ``matched_queries``, their number;
        - ``matched_keys``, the number of distinct keys, and ``key_share``, their share of all keys; ``ess_share``,
          the effective sample size of the keys as a share of all keys;
        - ``matched_directions``, in how many directions between two domains there are pairs;
        - ``max_abs_smd`` and ``mean_abs_smd``, largest and mean ``|SMD|`` after matching, and
          ``variance_ratio_share``, the share of covariates with a variance ratio in [4/5, 5/4], all as in
          `Balance.summary`, and the same with ``_before``;
        - ``pareto``, whether the combination is on the Pareto front.

        Where nothing was matched ``retained`` is 0 and the balance NaN. First come the combinations with
        ``max_abs_smd`` of at most 0.1, those that retain most queries first; then the others, lowest ``mean_abs_smd``
        first; then those that matched nothing. Equals stand in the order of the grid.
    """

    table: pd.DataFrame

    @property
    def pareto(self) -> pd.DataFrame:
        """The rows that no other row beats in both ``retained`` and ``mean_abs_smd``.

        A row beats another if it retains no fewer queries at no larger mean ``|SMD|`` and is better in one of the
        two. The largest ``|SMD|`` has no say: with many covariates it is the noise of one of them.
        """
        return self.table[self.table.pareto]

    @property
    def best(self) -> Settings:
        """Settings of the first row, for ``CaliperMatcher(**tuning.best)``.

        Of the combinations with every ``|SMD|`` at most 0.1 it retains most queries; where there is none, it is the
        one with the lowest mean ``|SMD|``, whatever it retains: look at the Pareto front too.
        """
        if self.table.empty or not self.table.retained.iloc[0]:
            raise ValueError("no combination of the grid matched a query, so none is best: widen the calipers")
        return settings_of(self.table.iloc[0])

    def __repr__(self) -> str:
        return f"{self._headline()}\n{self.table.head(10).to_string(index=False, float_format='{:.3f}'.format)}"

    def _repr_html_(self) -> str:
        table = self.table.to_html(index=False, border=0, float_format="{:.3f}".format, na_rep="–", max_rows=60)
        return f"<p>{escape(self._headline())}</p>{table}"

    def _headline(self) -> str:
        matched = int((self.table.retained > 0).sum())
        text = f"{len(self.table)} combinations, {matched} of them with pairs, {int(self.table.pareto.sum())} on the "
        return text + "Pareto front of retained queries and mean |SMD|; the best first."


def settings_of(row: "pd.Series[Any]") -> Settings:
    """Return the settings in a row of `Tuning.table`, as `CaliperMatcher` takes them."""
    return {
        "fixed_caliper": None if pd.isna(row.fixed_caliper) else float(row.fixed_caliper),
        "std_caliper": None if pd.isna(row.std_caliper) else float(row.std_caliper),
        "temperature": float(row.temperature),
        "caliper_scale": str(row.caliper_scale),
        "k": int(row.k),
        "prognostic_caliper": None if pd.isna(row.prognostic_caliper) else float(row.prognostic_caliper),
    }


def tune(
    X: Any,
    domain: ArrayLike,
    *,
    treated: Any = None,
    fixed_caliper: Sequence[float | None] = (None, 0.95, 0.9, 0.8),
    std_caliper: Sequence[float | None] = (None, 0.1, 0.2, 0.5, 1.0),
    temperature: Sequence[float] = (1.0, 2.0),
    caliper_scale: Sequence[str] = ("probability", "logit"),
    k: Sequence[int] = (1, 5),
    prognostic_caliper: Sequence[float | None] = (None,),
    matcher: CaliperMatcher | None = None,
    propensity_scores: ArrayLike | None = None,
    prognosis: ArrayLike | None = None,
    n_jobs: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Tuning:
    """Match with every combination of the settings, and compare balance and retained queries.

    Combinations that say the same are run once, under the first of their names: the scale has a meaning only with a
    std-caliper (or propensities as the distance), the temperature only where propensities are in use, and fixed
    calipers of 0.9 and 0.1 are one. Propensities are estimated once.

    Parameters
    ----------
    X, domain, treated, propensity_scores, prognosis
        As in `CaliperMatcher.fit`.
    fixed_caliper, std_caliper, temperature, caliper_scale, k, prognostic_caliper : sequence
        Values to try; None for no caliper.
    matcher : CaliperMatcher, optional
        Has all other settings; not changed.
    n_jobs : int
        Worker processes; -1 is one per processor. The result does not depend on their number.
    progress : callable, optional
        Called as ``progress(done, total)`` whenever a combination is done.

    Returns
    -------
    Tuning

    Examples
    --------
    >>> import numpy as np
    >>> from okapi.matching import CaliperMatcher
    >>> from okapi.matching import tune
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(300, 4)) + np.repeat([[0.0], [0.5]], 150, axis=0)
    >>> site = np.repeat(["north", "south"], 150)
    >>> tuning = tune(x, site, fixed_caliper=[None, 0.8], std_caliper=[None, 0.2], temperature=[1.0], k=[1])
    >>> tuning.table[["fixed_caliper", "std_caliper", "caliper_scale", "retained"]].shape
    (6, 4)
    >>> matcher = CaliperMatcher(**tuning.best).fit(x, site)
    """
    values = fixed_caliper, std_caliper, temperature, caliper_scale, k, prognostic_caliper
    grid = dict(zip(SETTINGS, values, strict=True))
    check_grid(grid)
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, int) or n_jobs == 0:
        raise ValueError(f"n_jobs must be a whole number other than 0, got {n_jobs!r}")
    base = clone(CaliperMatcher() if matcher is None else matcher)
    if base.method not in PAIRED:
        raise ValueError(f"method must be one of {PAIRED} to choose calipers, got {base.method!r}")
    plain = clone(base).set_params(**dict.fromkeys(CALIPERS), temperature=1.0, order=None)
    plain.fit(X, domain, treated=treated, propensity_scores=propensity_scores)
    base.set_params(distance=plain.distance_)
    combinations = _combinations(grid, base)
    matchers = [clone(base).set_params(**settings) for settings in combinations]
    scores = _scores(plain, propensity_scores, [m.temperature for m in matchers if m.needs_propensity()])
    if propensity_scores is None:
        matchers = [m.set_params(temperature=1.0) for m in matchers]  # the scores are at their temperature already

    rows: list[dict[str, float]] = [{} for _ in matchers]
    tasks = (
        delayed(_run)(number, one, X, domain, treated, scores.get(combinations[number]["temperature"]), prognosis)
        for number, one in enumerate(matchers)
    )
    results = Parallel(n_jobs=n_jobs, return_as="generator_unordered", initializer=_leave_interrupts_alone)(tasks)
    with _stopping(results):
        for done, (number, row) in enumerate(results, 1):
            rows[number] = row
            if progress is not None:
                progress(done, len(rows))
    return Tuning(_ranked(pd.DataFrame([{**chosen, **row} for chosen, row in zip(combinations, rows, strict=True)])))


def check_grid(grid: Mapping[str, Sequence[Any]]) -> None:
    """Reject values that could not be tried, naming the setting."""
    for name, values in grid.items():
        if isinstance(values, str) or not np.iterable(values):
            raise TypeError(f"{name} must be a sequence of values to try, got {values!r}")
        if not len(values):
            raise ValueError(f"{name} must hold at least one value to try, got none")
        for value in values:
            optional = name.endswith("caliper") and value is None
            if name != "caliper_scale" and not optional and (isinstance(value, bool) or not isinstance(value, Real)):
                raise TypeError(f"{name} must hold numbers{' or None' * name.endswith('caliper')}, got {value!r}")
            CaliperMatcher(**{name: value}).check_settings()


def _combinations(grid: dict[str, Sequence[Any]], base: CaliperMatcher) -> list[Settings]:
    """Return the settings to run: of those that say the same, the first."""
    distinct: dict[tuple[Any, ...], Settings] = {}
    for values in itertools.product(*grid.values()):
        settings = dict(zip(SETTINGS, values, strict=True))
        one = clone(base).set_params(**settings)
        fixed = settings["fixed_caliper"]
        meaning = (
            None if fixed is None else fixed_bounds(fixed),
            settings["std_caliper"],
            settings["temperature"] if one.needs_propensity() else None,
            settings["caliper_scale"] if one.std_caliper is not None or one.distance == "propensity" else None,
            settings["k"],
            settings["prognostic_caliper"],
        )
        distinct.setdefault(meaning, settings)
    return list(distinct.values())


def _scores(plain: CaliperMatcher, given: ArrayLike | None, temperatures: Sequence[float]) -> dict[float, Any]:
    """Return propensities by temperature, estimated once and exact at each; those given stay as they are."""
    if given is not None:
        return dict.fromkeys(temperatures, given)
    if not temperatures:
        return {}
    model = plain.propensity_model_
    scores = {}
    for temperature in sorted(set(temperatures)):
        for part in model.of_label_ or [model]:
            part.set_params(temperature=temperature)
        scores[temperature] = model.scores(plain.covariates_)
    return scores


def _run(
    number: int, matcher: CaliperMatcher, X: Any, domain: ArrayLike, treated: Any, scores: Any, prognosis: Any
) -> tuple[int, dict[str, float]]:
    """Match once; return the number of the run and its metrics."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MatchingWarning)  # of one combination, which the table shows
        matcher = clone(matcher).fit(X, domain, treated=treated, propensity_scores=scores, prognosis=prognosis)
        matches = matcher.match()
        metrics = matcher.balance(matches, max_pairs=0).summary()
    n_samples = len(matcher.domain_)
    n_queries, n_keys = (_size(matcher.domain_, side) for side in matcher.direction or (None, None))
    key_weight = matching_weights(matches, n_samples, n_samples)[1]
    matched_keys = int(np.count_nonzero(key_weight))
    row = {
        "retained": len(matches) / n_queries,
        "matched_queries": len(matches),
        "matched_keys": matched_keys,
        "key_share": matched_keys / n_keys,
        "ess_share": effective_sample_size(key_weight) / n_keys,
        "matched_directions": int(metrics["matched_directions"]),
    }
    names = ("max_abs_smd", "mean_abs_smd", "variance_ratio_share")
    after = {name: metrics[f"{name}_after"] for name in names}
    return number, row | after | {f"{name}_before": metrics[f"{name}_before"] for name in names}


def _size(domains: Array, side: int | None) -> int:
    if side is None:
        return len(domains)
    return int(np.count_nonzero(domains[:, side] if domains.ndim == 2 else domains == side))


def _ranked(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with its Pareto front marked, the best row first."""
    calipers = table[list(CALIPERS)].astype(float)
    table = table.assign(**calipers, pareto=pareto_front(table.retained, table.mean_abs_smd))
    balanced = table.max_abs_smd <= SMD_LIMIT + ROUNDING
    order = np.lexsort(
        (
            np.where(balanced, table.mean_abs_smd, -table.retained),
            np.where(balanced, -table.retained, table.mean_abs_smd),  # NaN, where nothing was matched, comes last
            ~balanced,
        )
    )
    return table.iloc[order].reset_index(drop=True)


def pareto_front(retained: ArrayLike, imbalance: ArrayLike) -> Array:
    """Return which of n points no other beats: retains no less at no larger imbalance, and is better in one.

    Parameters
    ----------
    retained, imbalance : array of shape (n,)
        The more retained the better, the less imbalance the better; a NaN is never on the front.

    Returns
    -------
    array of shape (n,), bool

    Examples
    --------
    >>> pareto_front([0.9, 0.5, 0.4, 0.0], [0.3, 0.1, 0.2, float("nan")]).tolist()
    [True, True, False, False]
    """
    retained, imbalance = np.asarray(retained, float), np.asarray(imbalance, float)
    # Row i, column j: how point i compares with point j.
    no_worse = (retained[:, None] >= retained) & (imbalance[:, None] <= imbalance)
    better = (retained[:, None] > retained) | (imbalance[:, None] < imbalance)
    known = ~np.isnan(retained) & ~np.isnan(imbalance)
    return np.asarray(known & ~(no_worse & better & known[:, None]).any(axis=0))


def _leave_interrupts_alone() -> None:
    """Let Ctrl-C reach the main process only, which then stops the workers; run at the start of a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _stopping(results: Any) -> Iterator[None]:
    """Stop the workers where the loop over their results is left before its end."""
    try:
        yield
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # joblib warns of results that nobody waited for
            results.close()
