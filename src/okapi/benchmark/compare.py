"""Means, deviations and paired differences of runs that differ in their seeds and targets.

Runs of a method are a mapping of (target, seed) to a value. Differences are taken within pairs, of the same target and
seed, so that what both methods share, such as a hard target, does not count as noise.

The interval of a difference is the percentile bootstrap: targets are drawn with replacement, then seeds within each
drawn target; the interval holds the middle 95 % of the means. It is simple and makes no assumption on the shape of the
differences, but with few seeds it is too narrow: with five it holds the truth in about 84 % of cases instead of 95 %.
"""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite, nan
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from okapi.benchmark.grid import Grid
from okapi.benchmark.records import Results

Floats: TypeAlias = NDArray[np.float64]
Key: TypeAlias = tuple[str, Hashable]
Values: TypeAlias = Mapping[Key, float]
"""Values by (target, seed)."""

RESAMPLES, CONFIDENCE = 10_000, 0.95
AVERAGE = "average"
SPLITS = ("ood_test", "unlabelled_test", "id_test", "ood_val", "id_val")
"""In the order in which a table prefers them."""


class Spread(NamedTuple):
    """Mean and standard deviation (n - 1 in the denominator; NaN for one value) of ``n`` values."""

    mean: float
    deviation: float
    n: int


class Difference(NamedTuple):
    """Mean of paired differences and the ends of its interval, NaN where one pair leaves none."""

    mean: float
    low: float
    high: float


_NONE = Difference(nan, nan, nan)


def spread(values: ArrayLike) -> Spread:
    """Return mean and standard deviation of values (n,).

    Examples
    --------
    >>> spread([1.0, 2.0, 3.0])
    Spread(mean=2.0, deviation=1.0, n=3)
    """
    array = np.asarray(values, dtype=np.float64)
    n = len(array)
    return Spread(float(array.mean()) if n else nan, float(array.std(ddof=1)) if n > 1 else nan, n)


def average(values: Values, over: str = "target") -> Spread:
    """Return mean and deviation, over seeds, of the averages over targets; only seeds that every target has count.

    Parameters
    ----------
    values : mapping of (target, seed) to float
    over : {"target", "seed"}
        What is averaged first. "seed": the deviation is over targets, as where folds of one data set are replicates.
    """
    if not values:
        return spread([])
    table = pd.Series(dict(values)).unstack(0 if over == "target" else 1)
    return spread(table.dropna().mean(axis=1))


def paired_difference(
    values: Values,
    reference: Values,
    *,
    names: tuple[str, str] = ("the first", "the second"),
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Difference:
    """Return how much values are above those of a reference, on average over targets, with a bootstrap interval.

    Parameters
    ----------
    values, reference : mappings of (target, seed) to float
        Of the same targets and seeds.
    names : tuple of str
        Of the two methods, for errors.
    confidence : float
        Share of the resampled means that the interval holds.
    resamples : int
    seed : int
        Of the resampling.

    Raises
    ------
    ValueError
        Where targets or seeds differ: such runs are no pairs.

    Examples
    --------
    >>> paired_difference({("a", 0): 0.7, ("a", 1): 0.8}, {("a", 0): 0.5, ("a", 1): 0.6})
    Difference(mean=0.2, low=0.2, high=0.2)
    """
    _check_pairs(values, reference, names)
    by_target: dict[str, list[float]] = {}
    for key in values:
        by_target.setdefault(key[0], []).append(values[key] - reference[key])
    mean = np.mean([np.mean(differences) for differences in by_target.values()])
    if len(values) == 1:
        return Difference(_rounded(mean), nan, nan)
    means = bootstrap_means([*by_target.values()], resamples, seed)
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Difference(_rounded(mean), _rounded(low), _rounded(high))


def bootstrap_means(by_target: list[list[float]], resamples: int = RESAMPLES, seed: int = 0) -> Floats:
    """Return means (resamples,) over targets drawn with replacement, and within each over seeds drawn alike.

    Parameters
    ----------
    by_target : list of lists
        The values of each target; targets may have different numbers of them.
    """
    counts = np.array([len(values) for values in by_target])
    padded = np.zeros((len(by_target), counts.max()))
    for row, values in zip(padded, by_target, strict=True):
        row[: len(values)] = values
    generator = np.random.default_rng(seed)
    target = generator.integers(len(by_target), size=(resamples, len(by_target)))
    count = counts[target][..., None]
    drawn = (generator.random((*target.shape, counts.max())) * count).astype(np.int64)
    counted = np.arange(counts.max()) < count  # a target with fewer seeds has its own number of draws
    within = np.where(counted, padded[target[..., None], drawn], 0.0).sum(axis=-1) / count[..., 0]
    return np.asarray(within.mean(axis=1))


def _check_pairs(values: Values, reference: Values, names: tuple[str, str]) -> None:
    """Reject runs of other targets or seeds, naming the method, the target and the seeds."""
    targets = dict.fromkeys(target for target, _ in [*values, *reference])
    for target in targets:
        seeds = [sorted({key[1] for key in runs if key[0] == target}, key=str) for runs in (values, reference)]
        if seeds[0] != seeds[1]:
            of = f" of {target}" if len(targets) > 1 else ""
            first, second = (", ".join(map(str, each)) or "none" for each in seeds)
            raise ValueError(
                f"{names[0]} and {names[1]} must have the same seeds to be compared in pairs:{of} {names[0]} has "
                f"{first}, {names[1]} has {second}"
            )
    if not values:
        raise ValueError(f"{names[0]} and {names[1]} have no runs to compare")


def _rounded(value: Any) -> float:
    """Return the value without what subtraction of nearly equal numbers adds beyond the 12th decimal."""
    return round(float(value), 12)


@dataclass(frozen=True, eq=False)
class Comparison:
    """One metric on one split, of all methods.

    Parameters
    ----------
    split, metric : str
    higher_is_better : bool
    frame : DataFrame
        One row for each method and each target, and for the average over targets: ``method``, ``target``, ``split``,
        ``metric``, ``mean``, ``standard_deviation``, ``n``, ``failed``, ``best``, ``not_significantly_worse``,
        ``difference_to_`` the reference, ``low``, ``high``, ``selector``, ``okapi``.
    details : list of str
        What could not be computed, and why.
    """

    split: str
    metric: str
    higher_is_better: bool
    frame: pd.DataFrame
    details: list[str] = field(default_factory=list)


def compare(results: Results, split: str | None = None, metric: str | None = None) -> Comparison:
    """Return methods against targets: mean, deviation, paired differences to the reference.

    Parameters
    ----------
    results : Results
    split : str, optional
        By default the first of ``SPLITS`` that runs have metrics of.
    metric : str, optional
        By default the one that the config names, or the task's main one.
    """
    from okapi.evaluation import higher_is_better  # imports torch

    split, metric = _choose(results, split, metric)
    grid, higher, details = results.grid, higher_is_better(metric), []
    values: dict[str, dict[Key, float]] = {method: {} for method in grid.methods}
    for record in results.frame[results.frame["split"] == split].to_dict("records"):
        method, target, seed, value = (record[name] for name in ("method", "target", "seed", metric))
        if isfinite(value):
            values[method][target, seed] = value
        else:
            details.append(f"{method}, {target}, seed {seed}: {metric} on {split} is undefined.")
    for method in [name for name in grid.methods if values[name] and grid.reference in values]:
        try:
            _check_pairs(values[method], values[grid.reference], (method, grid.reference))
        except ValueError as error:
            details.append(f"No difference: {error}.")
    columns = [*grid.groups, AVERAGE] if grid.axis == "target" and len(grid.groups) > 1 else [AVERAGE]
    rows = [row for column in columns for row in _column(grid, values, column, higher)]
    for row in rows:
        row |= {"split": split, "metric": metric, **_about(results.frame, row["method"], row["target"])}
    order = ["method", "target", "split", "metric", "mean", "standard_deviation", "n", "failed", "best"]
    order += ["not_significantly_worse", f"difference_to_{grid.reference}", "low", "high", "selector", "okapi"]
    return Comparison(split, metric, higher, pd.DataFrame(rows)[order], details)


def _choose(results: Results, split: str | None, metric: str | None) -> tuple[str, str]:
    """Return the split and the metric of a table, by default the main ones of those that there are."""
    splits = [name for name in SPLITS if name in set(results.frame["split"])]
    if split is None:
        split = splits[0] if splits else SPLITS[0]
    elif split not in splits:
        raise ValueError(f"split must be one of {', '.join(splits) or 'none: no run is finished'}, got {split!r}")
    metrics = results.metrics(split)
    if metric is None:
        wanted = next(iter(results.grid.methods.values())).training.metric
        metric = wanted if wanted in metrics or not metrics else metrics[0]
    elif metric not in metrics:
        raise ValueError(f"metric must be one of {', '.join(metrics)}, got {metric!r}")
    return split, metric or "accuracy"


def _column(grid: Grid, values: Mapping[str, Values], column: str, higher: bool) -> Iterator[dict[str, Any]]:
    """Yield what a target, or the average over targets, says of each method.

    Only methods that have all runs of the column can be the best: the mean of those that did not fail flatters.
    """
    picked = {
        method: {key: value for key, value in runs.items() if column in (AVERAGE, key[0])}
        for method, runs in values.items()
    }
    cells = {(cell.group, cell.seed) for cell in grid.cells() if column in (AVERAGE, cell.group)}
    spreads = {method: _spread(grid, runs, column) for method, runs in picked.items()}
    whole = [method for method, runs in picked.items() if runs.keys() == cells]
    best = max(whole, key=lambda method: spreads[method].mean if higher else -spreads[method].mean) if whole else ""
    for method, runs in picked.items():
        mean, deviation, n = spreads[method]
        compared = len(whole) > 1 and method in whole
        is_best = compared and mean == spreads[best].mean
        below = _difference(grid, runs, picked[best]) if compared else _NONE
        gain = _difference(grid, runs, picked.get(grid.reference, {}))
        yield {
            "method": method,
            "target": column,
            "mean": mean,
            "standard_deviation": deviation,
            "n": n,
            "best": is_best,
            "not_significantly_worse": is_best or (below.high >= 0 if higher else below.low <= 0),
            f"difference_to_{grid.reference}": nan if method == grid.reference else gain.mean,
            "low": nan if method == grid.reference else gain.low,
            "high": nan if method == grid.reference else gain.high,
        }


def _spread(grid: Grid, values: Values, column: str) -> Spread:
    if column != AVERAGE:
        return spread([*values.values()])
    if grid.axis != "fold" and {key[0] for key in values} != set(grid.groups):
        return Spread(nan, nan, 0)  # an average without a target is one of something else
    return average(values, over="seed" if grid.axis == "fold" else "target")


def _difference(grid: Grid, values: Values, reference: Values) -> Difference:
    """Return the paired difference: NaN where there are no pairs, without interval where there is one replicate."""
    if not values or values.keys() != reference.keys():
        return _NONE
    difference = paired_difference(values, reference)
    replicates = {key[0 if grid.axis == "fold" else 1] for key in values}
    return difference if len(replicates) > 1 else Difference(difference.mean, nan, nan)


def _about(frame: pd.DataFrame, method: str, column: str) -> dict[str, Any]:
    """Return how many runs of a method have failed, what selected its weights, and by which versions."""
    rows = frame[frame["method"] == method]
    failed = rows[(rows["state"] == "failed") & ((rows["target"] == column) | (column == AVERAGE))]
    named = {name: ", ".join(sorted(map(str, rows[name].dropna().unique()))) for name in ("selector", "okapi")}
    return {"failed": len(failed.drop_duplicates(["target", "seed"])), **named}
