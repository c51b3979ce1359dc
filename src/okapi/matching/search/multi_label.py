"""Plan of multi-label domains: a pair is admissible iff it shares no label and its score vectors are near."""

import torch
from torch import Tensor

from okapi.matching.search.plan import Block, Plan, at, cut
from okapi.matching.search.windows import windows

ROWS, ROWS_OF_WINDOWS = 256, 64  # queries per block where all keys are searched, and where windows are


class MultiLabelPlan(Plan):
    """Keys are sorted by the label whose scores vary most: two vectors are at least as far apart as in one coordinate.

    Parameters
    ----------
    query_rows, key_rows : Tensor of shape (n,), int64
        The admissible rows.
    query_domain, key_domain : Tensor of shape (n, S), bool, of all samples
    query_score, key_score : Tensor of shape (n, S), of all samples, optional
        Propensities on the caliper's scale; with the threshold only.
    threshold : Tensor, optional
        Greatest admissible distance of the scores; None: no caliper.
    """

    def __init__(
        self,
        query_rows: Tensor,
        key_rows: Tensor,
        query_domain: Tensor,
        key_domain: Tensor,
        query_score: Tensor | None = None,
        key_score: Tensor | None = None,
        threshold: Tensor | None = None,
    ) -> None:
        self.query_order, self.key_order, self.threshold = query_rows, key_rows, threshold
        n_keys = len(key_rows)
        rows = list(cut(0, len(query_rows), ROWS if threshold is None else ROWS_OF_WINDOWS))
        spans = [(0, n_keys)] * len(rows)
        if threshold is not None and query_score is not None and key_score is not None and rows:
            label = int(key_score[key_rows].double().var(0, correction=0).argmax()) if n_keys else 0
            query_sorted, order = query_score[query_rows, label].double().sort(stable=True)
            self.query_order = query_rows[order]
            key_sorted, order = key_score[key_rows, label].double().sort(stable=True)
            self.key_order = key_rows[order]
            first, last = windows(query_sorted, key_sorted, threshold)
            ends = at(first, [block.start for block in rows]), at(last, [block.stop - 1 for block in rows])
            spans = torch.stack(ends, 1).tolist()
            self.query_score = query_score[self.query_order].double()
            self.key_score = key_score[self.key_order].double()
        self.query_set = query_domain[self.query_order].float()
        self.key_set = key_domain[self.key_order].float()
        self.blocks = [Block(block, (slice(*span),)) for block, span in zip(rows, spans, strict=True)]

    def exclude_(self, scores: Tensor, rows: slice | Tensor, keys: slice | Tensor) -> None:
        """See `Plan`."""
        scores.masked_fill_(self.query_set[rows] @ self.key_set[keys].T > 0, torch.inf)
        if self.threshold is not None:
            query, key = self.query_score[rows], self.key_score[keys]
            apart = torch.cdist(query, key, compute_mode="donot_use_mm_for_euclid_dist")
            scores.masked_fill_(apart > self.threshold, torch.inf)
