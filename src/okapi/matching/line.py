"""Matchings of one score: vectors of one column, and a std-caliper, if any, on that very column."""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from okapi.matching.calipers import Admissible

Array = NDArray[Any]


class Line(NamedTuple):
    """The numbers of all queries and keys, and which pairs are admissible."""

    query: Array
    key: Array
    admissible: Admissible

    @classmethod
    def of(cls, queries: Tensor, keys: Tensor, admissible: Admissible) -> "Line | None":
        """Return a line, if these vectors and calipers are one."""
        if queries.shape[1] > 1 or admissible.multi_label or admissible.calipers.prognostic is not None:
            return None
        if admissible.filter is not None:
            return None
        query, key = queries[:, 0].double(), keys[:, 0].double()
        if admissible.calipers.std is not None and not (
            torch.equal(query, admissible.query_score) and torch.equal(key, admissible.key_score)
        ):
            return None
        return cls(query.cpu().numpy(), key.cpu().numpy(), admissible)

    def limit(self, domain: int) -> float:
        """Return the greatest admissible distance from queries of this domain."""
        if self.admissible.calipers.std is None:
            return np.inf
        return float(self.admissible.window_threshold[domain, 1 - domain])
