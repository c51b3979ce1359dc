"""Whether a model that says 80 % is right in 80 % of the cases."""

from typing import Literal, TypeAlias, get_args

import numpy as np
import pandas as pd

from okapi.evaluation.values import Floats, Values, as_array

Binning: TypeAlias = Literal["equal_width", "equal_mass"]
BINS = 15


def reliability(
    probability: Values, target: Values, *, bins: int = BINS, binning: Binning = "equal_width"
) -> pd.DataFrame:
    """Return how often a classifier is right where it is so and so sure: what a reliability diagram shows.

    A sample's confidence is the greatest of its probabilities (top-label), and it counts as right if that class is its
    target; of equally likely classes the first.

    Parameters
    ----------
    probability : array (n, C)
        Of each class; rows sum to 1.
    target : array (n,), whole numbers
    bins : int
    binning : {"equal_width", "equal_mass"}
        ``equal_width``: bin ``b`` of ``1 .. bins`` is ``((b - 1) / bins, b / bins]``, as Guo et al. (2017) have it.
        ``equal_mass``, adaptive: bins end at quantiles of the confidences, so that they hold about as many samples each
        (Nixon et al., 2019); equal confidences are never parted.

    Returns
    -------
    DataFrame
        One row for each bin with samples: ``bin``, from 0; ``n``; ``confidence`` and ``accuracy``, means over them.
    """
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")
    if binning not in get_args(Binning):
        raise ValueError(f"binning must be one of {', '.join(get_args(Binning))}, got {binning!r}")
    sure, right = confidence(probability, target)
    if binning == "equal_width":
        edges = np.arange(1, bins) / bins
    else:
        edges = np.quantile(sure, np.arange(1, bins) / bins, method="inverted_cdf")
    number = np.searchsorted(edges, sure, side="left")  # what is at an edge belongs below it
    counts = np.bincount(number, minlength=bins)
    there = np.flatnonzero(counts)
    means = {
        name: np.bincount(number, values, minlength=bins)[there] / counts[there]
        for name, values in (("confidence", sure), ("accuracy", right))
    }
    return pd.DataFrame({"bin": there, "n": counts[there], **means})


def ece(probability: Values, target: Values, *, bins: int = BINS, binning: Binning = "equal_width") -> float:
    """Return the expected calibration error: ``sum_b n_b / n * |accuracy_b - confidence_b|``; 0 is perfect.

    Bins, confidences and parameters are those of ``reliability``.

    References
    ----------
    Guo, Pleiss, Sun & Weinberger (2017), On calibration of modern neural networks.

    Examples
    --------
    >>> round(ece([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]], [0, 1, 1]), 6)  # a third each: 0.1 + 0.8 + 0.3
    0.4
    """
    table = reliability(probability, target, bins=bins, binning=binning)
    return float(np.average((table.accuracy - table.confidence).abs(), weights=table.n))


def confidence(probability: Values, target: Values) -> tuple[Floats, Floats]:
    """Return the greatest probability of each sample, (n,), and 1 where its class is the target, else 0, (n,)."""
    values, truth = as_array(probability), as_array(target)
    if values.ndim != 2 or len(values) != len(truth) or truth.ndim != 1 or not len(truth):
        raise ValueError(f"probability must be (n, C) and target (n,), got {values.shape} and {truth.shape}")
    if not (np.abs(values.sum(axis=1) - 1) < 1e-4).all() or (values < 0).any():
        row = int((~(np.abs(values.sum(axis=1) - 1) < 1e-4) | (values < 0).any(axis=1)).argmax())
        raise ValueError(f"probability must be at least 0 and sum to 1, got {values[row].tolist()} in row {row}")
    return values.max(axis=1), (values.argmax(axis=1) == truth).astype(np.float64)
