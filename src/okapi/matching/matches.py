"""What a matching returns."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Strata:
    """Treated and controls in strata: what exact matching, CEM, subclassification and full matching return.

    Parameters
    ----------
    subclass : array of shape (n,), int64
        The stratum of each sample; -1 where it was not matched.
    weights : array of shape (n,)
        Matching weights, 0 where not matched, of mean one among the matched of a group.
    """

    subclass: NDArray[Any]
    weights: NDArray[Any]

    def __len__(self) -> int:
        return int((self.subclass >= 0).sum())

    def __repr__(self) -> str:
        return f"Strata({len(self)} samples in {len(np.unique(self.subclass[self.subclass >= 0]))} strata)"

    def to_frame(self, ids: ArrayLike | None = None) -> pd.DataFrame:
        """Return one row per matched sample: ``sample``, ``subclass``, ``weights``."""
        rows = np.flatnonzero(self.subclass >= 0)
        names = rows if ids is None else np.asarray(ids)[rows]
        return pd.DataFrame({"sample": names, "subclass": self.subclass[rows], "weights": self.weights[rows]})


@dataclass(frozen=True, eq=False)
class Matches:
    """Queries and the keys each of them was matched to.

    Parameters
    ----------
    query : Tensor of shape (m,), int64
        Row of each matched query, ascending.
    key : Tensor of shape (m, k), int64
        Rows of its keys, nearest first. -1 stands where a query was kept with fewer than k keys.
    distance : Tensor of shape (m, k), float64
        Distance to each key; infinite where ``key`` is -1.
    """

    query: Tensor
    key: Tensor
    distance: Tensor

    def __post_init__(self) -> None:
        if self.query.ndim != 1 or self.key.ndim != 2 or self.key.shape != self.distance.shape:
            raise ValueError(
                "query must have shape (m,), key and distance the same shape (m, k); got "
                f"{tuple(self.query.shape)}, {tuple(self.key.shape)}, {tuple(self.distance.shape)}"
            )
        if len(self.query) != len(self.key):
            raise ValueError(f"query has {len(self.query)} rows, key has {len(self.key)}")

    def __len__(self) -> int:
        return len(self.query)

    def __repr__(self) -> str:
        return f"Matches({len(self)} queries, k={self.k}, {self.key.device})"

    @property
    def k(self) -> int:
        """Number of keys per query."""
        return self.key.shape[1]

    def to(self, device: torch.device | str) -> "Matches":
        """Return the same matches on another device."""
        return replace(self, query=self.query.to(device), key=self.key.to(device), distance=self.distance.to(device))

    def to_frame(self, query_ids: ArrayLike | None = None, key_ids: ArrayLike | None = None) -> pd.DataFrame:
        """Return one row per pair: ``query``, ``rank`` (from 1), ``key``, ``distance``.

        Parameters
        ----------
        query_ids, key_ids : array of shape (n,) and (m,), optional
            Names of the query and key rows; row numbers by default.
        """
        present = (self.key >= 0).cpu().numpy()
        row, rank = np.nonzero(present)
        query = self.query.cpu().numpy()[row]
        key = self.key.cpu().numpy()[present]
        return pd.DataFrame(
            {
                "query": query if query_ids is None else np.asarray(query_ids)[query],
                "rank": rank + 1,
                "key": key if key_ids is None else np.asarray(key_ids)[key],
                "distance": self.distance.cpu().numpy()[present],
            }
        )
