"""From a user's table to vectors whose Euclidean distance is the distance asked for."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.linalg import cholesky, qr, solve_triangular

Array = NDArray[Any]

DISTANCES = ("euclidean", "cosine", "mahalanobis", "scaled_euclidean", "propensity")


class Covariates:
    """Numbers for the columns of a table: categories become one 0/1 column for each of their levels.

    Parameters
    ----------
    X : array of shape (n, d) or DataFrame
        The table whose levels are learned. Columns of text or categories are categorical.

    Attributes
    ----------
    names : list of str
        One per column of the encoded table; levels are called ``column_level``.
    category : array of shape (p,), int64
        Which categorical column an encoded column is a level of; -1 for numbers.
    """

    def __init__(self, X: Any) -> None:
        self.levels: dict[Any, Array] = {}
        if not isinstance(X, pd.DataFrame):
            self.names = [f"x{i}" for i in range(np.shape(X)[1])]
            self.category = np.full(len(self.names), -1)
            return
        self.names, category = [], []
        for name in X.columns:
            if _is_categorical(X[name]):
                self.levels[name] = np.sort(X[name].dropna().astype(str).unique())
                self.names += [f"{name}_{level}" for level in self.levels[name]]
                category += [len(self.levels) - 1] * len(self.levels[name])
            else:
                self.names.append(str(name))
                category.append(-1)
        self.category = np.array(category, dtype=np.int64)

    def encode(self, X: Any) -> Any:
        """Return the table as numbers; the same object where nothing is categorical."""
        if not self.levels:
            return X
        columns = []
        for name in X.columns:
            if name not in self.levels:
                columns.append(X[[name]].to_numpy(np.float64))
                continue
            values = X[name]
            if values.isna().any():
                raise ValueError(f"column {name!r} has a missing value in row {int(values.isna().argmax())}")
            unknown = ~values.astype(str).isin(self.levels[name])
            if unknown.any():
                row = int(unknown.argmax())
                raise ValueError(f"column {name!r} holds {values.iloc[row]!r} in row {row}, which was not there in fit")
            columns.append((values.astype(str).to_numpy()[:, None] == self.levels[name]).astype(np.float64))
        return np.hstack(columns)


def _is_categorical(column: "pd.Series[Any]") -> bool:
    if pd.api.types.is_numeric_dtype(column.dtype) or pd.api.types.is_bool_dtype(column.dtype):
        return False
    kind = pd.api.types.infer_dtype(column, skipna=True)
    if kind in ("datetime", "datetime64", "date", "time", "timedelta", "timedelta64", "period", "interval"):
        raise TypeError(f"column {column.name!r} holds {kind} values; make numbers or categories of them")
    return kind not in ("integer", "floating", "mixed-integer-float", "decimal", "boolean")


class Metric:
    """Maps covariates to vectors whose Euclidean distance is the distance asked for.

    Euclidean: two levels of a category are at distance 1. Mahalanobis and scaled Euclidean use the covariance within
    domains, pooled over them, so that a shift between domains does not count as spread. In both conventions, and in the
    variance of 0/1 columns (p (1 - p) for scaled Euclidean), these are the distances of R's MatchIt.

    Parameters
    ----------
    distance : {"euclidean", "cosine", "mahalanobis", "scaled_euclidean"}
    X : array of shape (n, p)
        Encoded covariates.
    group : array of shape (n,), int64
        The domain of each row.
    covariates : Covariates
    """

    def __init__(self, distance: str, X: Array, group: Array, covariates: Covariates) -> None:
        self.distance, self.names = distance, covariates.names
        if distance == "euclidean":
            self.weight = np.where(covariates.category >= 0, np.sqrt(0.5), 1.0)
        elif distance == "scaled_euclidean":
            self.weight = 1 / _pooled_deviation(X, group, covariates)
        elif distance == "mahalanobis":
            self.columns = _without_first_levels(covariates.category)
            covariance = _pooled_covariance(X[:, self.columns], group)
            _check_invertible(covariance, [self.names[i] for i in self.columns])
            self.factor = cholesky(covariance, lower=True)

    def vectors(self, X: Array) -> Array:
        """Return the vectors of encoded covariates (n, p)."""
        if self.distance == "cosine":
            norm = np.linalg.norm(X, axis=1, keepdims=True)
            if not norm.all():
                raise ValueError(f"cosine distance needs non-zero rows, row {int((norm == 0).argmax())} is all zero")
            return np.asarray(X / norm)
        if self.distance == "mahalanobis":
            return np.asarray(solve_triangular(self.factor, X[:, self.columns].T.astype(np.float64), lower=True).T)
        return X if (self.weight == 1).all() else np.asarray(X * self.weight)

    def report(self, distance: Array) -> Array:
        """Turn Euclidean distances of the vectors into the distance asked for."""
        return distance**2 / 2 if self.distance == "cosine" else distance


def _without_first_levels(category: Array) -> Array:
    """Return all columns but the first level of each category, which the others determine."""
    numbers = category < 0
    first = np.append(True, category[1:] != category[:-1])
    return np.flatnonzero(numbers | ~first)


def _within_groups(X: Array, group: Array) -> tuple[Array, int]:
    """Return X centred by the mean of each group, and the degrees of freedom left."""
    _, group = np.unique(group, return_inverse=True)
    n_groups = int(group.max()) + 1
    if len(X) <= n_groups:
        raise ValueError(f"domain must leave some domain with two samples, got {len(X)} samples of {n_groups} domains")
    mean = np.zeros((n_groups, X.shape[1]))
    np.add.at(mean, group, X.astype(np.float64, copy=False))
    mean /= np.bincount(group)[:, None]
    return X - mean[group], len(X) - n_groups


def _pooled_covariance(X: Array, group: Array) -> Array:
    centred, freedom = _within_groups(X, group)
    return np.asarray(centred.T @ centred / freedom)


def _pooled_deviation(X: Array, group: Array, covariates: Covariates) -> Array:
    centred, freedom = _within_groups(X, group)
    squares = (centred**2).sum(0)
    binary = ((X == 0) | (X == 1)).all(0) & (covariates.category < 0)
    variance = np.where(binary, squares / len(X), squares / freedom)
    scale = np.abs(X).max(0, initial=0)
    within = np.sqrt(variance) > 1e-9 * scale
    differs = np.ptp(X, axis=0) > 1e-9 * scale
    if (~within & differs).any():
        name = covariates.names[int((~within & differs).argmax())]
        raise ValueError(f"column {name!r} is constant within every domain but differs between them: it has no scale")
    return np.where(within, np.sqrt(variance), 1.0)  # a constant column never counts


def _check_invertible(covariance: Array, names: list[str]) -> None:
    deviation = np.sqrt(np.diag(covariance))
    constant = deviation <= 1e-12 * max(deviation.max(initial=0), 1e-300)
    if constant.any():
        name = names[int(constant.argmax())]
        raise ValueError(
            f"Mahalanobis distance needs columns that vary within a domain, {name!r} is constant; leave it out"
        )
    _, triangle, order = qr(covariance / np.outer(deviation, deviation), pivoting=True)
    dependent = np.abs(np.diag(triangle)) < 1e-10
    if dependent.any():
        left_out = ", ".join(repr(names[i]) for i in order[dependent][:5])
        raise ValueError(
            f"Mahalanobis distance needs linearly independent columns, leave out {left_out}, which the others determine"
        )
