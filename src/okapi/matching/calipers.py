"""Which samples and which pairs are admissible."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from okapi.matching.checks import Side, check_choice, check_flag, is_number
from okapi.matching.search.domains import DomainPlan
from okapi.matching.search.multi_label import MultiLabelPlan
from okapi.matching.search.pair_values import PairFilter
from okapi.matching.search.plan import Plan
from okapi.matching.search.prognosis import FilteredPlan, PrognosticCaliper, PrognosticPlan
from okapi.matching.search.scores import ScoreCaliper, ScorePlan
from okapi.matching.search.windows import WindowPlan

LOGIT_CLIP = 1e-6
VARIANCE_ROWS = 512
SCALES, DEVIATIONS = ("probability", "logit"), ("pooled", "all")


@dataclass(frozen=True, kw_only=True)
class Calipers:
    """Settings of the calipers.

    Parameters
    ----------
    fixed : float in [0, 1], not 0.5, optional
        Samples with a propensity outside ``(1 - t, t)`` have no match and are no match. 0.9 and 0.1 say the same.
    std : float > 0, optional
        Greatest admissible difference of propensities within a pair, in standard deviations.
    scale : {"probability", "logit"}
        On which the std-caliper compares propensities.
    sd : {"pooled", "all"}
        The deviation that the std-caliper counts in: pooled over the admissible queries and keys of the two domains, or
        that of all keys.
    two_way : bool
        Whether the fixed caliper holds for keys as well as for queries.
    direction : (int, int), optional
        Only queries of the first domain with keys of the second.
    prognostic : float >= 0 or "auto", optional
        Greatest admissible distance of the outcomes within a pair; automatic: a third of their pooled standard
        deviation.
    """

    fixed: float | None = None
    std: float | None = None
    scale: str = "probability"
    sd: str = "pooled"
    two_way: bool = True
    direction: tuple[int, int] | None = None
    prognostic: float | Literal["auto"] | None = None

    def __post_init__(self) -> None:
        if self.fixed is not None and not (is_number(self.fixed) and 0 <= self.fixed <= 1 and self.fixed != 0.5):
            raise ValueError(f"fixed_caliper must be in [0, 1] and not 0.5, got {self.fixed!r}")
        if self.std is not None and not (is_number(self.std) and self.std > 0 and math.isfinite(self.std)):
            raise ValueError(f"std_caliper must be a positive number, got {self.std!r}")
        check_choice("caliper_scale", self.scale, SCALES)
        check_choice("caliper_sd", self.sd, DEVIATIONS)
        check_flag("two_way", self.two_way)
        pair = self.direction
        if pair is not None and not (isinstance(pair, tuple | list) and len(pair) == 2 and pair[0] != pair[1]):
            raise ValueError(f"direction must name two different domains, got {pair!r}")
        if isinstance(self.prognostic, str):
            if self.prognostic != "auto":
                raise ValueError(
                    f"prognostic_caliper must be a number of at least 0 or 'auto', got {self.prognostic!r}"
                )
        elif self.prognostic is not None and not (
            is_number(self.prognostic) and self.prognostic >= 0 and math.isfinite(self.prognostic)
        ):
            raise ValueError(f"prognostic_caliper must be a number of at least 0, got {self.prognostic!r}")

    def check(self, name: str, side: Side) -> None:
        """Reject queries or keys that lack what these calipers compare, or labels that the direction names."""
        if side.propensity is None and not self.off():
            raise ValueError(f"{name}_propensity is needed by fixed_caliper and std_caliper, got None")
        if side.prognosis is None and self.prognostic is not None:
            raise ValueError(f"{name}_prognosis is needed by prognostic_caliper, got None")
        if self.direction is not None and side.domain.ndim == 2:
            n_labels = side.domain.shape[1]
            if not all(0 <= label < n_labels for label in self.direction):
                raise ValueError(f"direction must name labels in [0, {n_labels - 1}], got {self.direction}")

    def admissible(self, query: Side, key: Side) -> "Admissible":
        """Apply the calipers to queries and keys."""
        return Admissible(self, query, key)

    def off(self) -> bool:
        """Whether no caliper needs propensities."""
        return self.fixed is None and self.std is None


class Admissible:
    """Admissible samples of a matching, and the thresholds for its pairs.

    Attributes
    ----------
    query_rows, key_rows : Tensor of shape (n,), int64
        Rows that pass the direction and the fixed caliper.
    """

    def __init__(self, calipers: Calipers, query: Side, key: Side) -> None:
        self.calipers, self.query, self.key = calipers, query, key
        self.multi_label = query.domain.ndim == 2
        wanted = calipers.direction or (None, None)
        self.query_rows = self._rows(query, wanted[0], calipers.fixed)
        self.key_rows = self._rows(key, wanted[1], calipers.fixed if calipers.two_way else None)
        if calipers.std is not None:
            self._set_thresholds(calipers.std)

    @cached_property
    def prognostic_threshold(self) -> float:
        """The prognostic caliper: as given, or a third of the pooled deviation of outcomes among admissible samples."""
        if isinstance(given := self.calipers.prognostic, float | int):
            return given
        assert self.query.prognosis is not None
        assert self.key.prognosis is not None
        sides = self.query.prognosis[self.query_rows], self.key.prognosis[self.key_rows]
        variances = [group_variance(side, torch.zeros_like(side[:, 0], dtype=torch.int64), 1).sum() for side in sides]
        return math.sqrt(float(variances[0] + variances[1]) / 2) / 3

    def _rows(self, side: Side, domain: int | None, fixed: float | None) -> Tensor:
        keep = torch.ones(len(side.domain), dtype=torch.bool, device=side.domain.device)
        if domain is not None:
            keep &= side.domain[:, domain] if self.multi_label else side.domain == domain
        if fixed is not None and side.propensity is not None:
            keep &= inside_fixed_caliper(side.propensity, fixed, multi_label=self.multi_label)
        return keep.nonzero()[:, 0]

    @cached_property
    def filter(self) -> PairFilter | None:
        """What calipers on covariates and values that must differ say of pairs."""
        query, key = self.query, self.key
        parts = []
        for one, other, kind in (
            (query.covariates, key.covariates, torch.float64),
            (query.anti_exact, key.anti_exact, torch.int64),
        ):
            device = query.domain.device
            none = [torch.zeros(len(side.domain), 0, dtype=kind, device=device) for side in (query, key)]
            parts += none if one is None or other is None else [one, other]
        return PairFilter(*parts) if any(part.shape[1] for part in parts) else None

    def strata(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the admissible rows of queries and of keys among which all agree in their exact codes."""
        if self.query.exact is None or self.key.exact is None or not len(self.query_rows):
            yield self.query_rows, self.key_rows
            return
        of_query, query_order = self.query.exact[self.query_rows].sort(stable=True)
        of_key, key_order = self.key.exact[self.key_rows].sort(stable=True)
        codes, counts = of_query.unique_consecutive(return_counts=True)
        first, last = torch.searchsorted(of_key, codes).tolist(), torch.searchsorted(of_key, codes, right=True).tolist()
        for queries, start, stop in zip(query_order.split(counts.tolist()), first, last, strict=True):
            yield self.query_rows[queries], self.key_rows[key_order[start:stop]]

    def by_domain(self, *, strata: bool = True) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield rows of queries of one domain with those of keys of others, by strata or all of these together.

        Only where there are both; multi-label domains are not told apart.
        """
        for query_rows, key_rows in self.strata() if strata else [(self.query_rows, self.key_rows)]:
            pairs = [(query_rows, key_rows)]
            if not self.multi_label:
                of_query, of_key = self.query.domain[query_rows], self.key.domain[key_rows]
                pairs = [(query_rows[of_query == one], key_rows[of_key != one]) for one in of_query.unique()]
            yield from (pair for pair in pairs if len(pair[0]) and len(pair[1]))

    def _set_thresholds(self, std: float) -> None:
        assert self.query.propensity is not None
        assert self.key.propensity is not None
        scale = self.calipers.scale
        self.query_score = on_scale(self.query.propensity, scale, multi_label=self.multi_label)
        self.key_score = on_scale(self.key.propensity, scale, multi_label=self.multi_label)
        variance = self.key_score.double().var(0) if self.calipers.sd == "all" else None
        if self.multi_label:
            self.multi_label_threshold = self._multi_label_limit(std, variance)
        elif self.query_score.ndim == 1:
            self.window_threshold = self._window_thresholds(std, variance)
        else:
            self.score_caliper = self._score_caliper(std, variance)

    def _multi_label_limit(self, std: float, variance: Tensor | None) -> Tensor:
        if variance is None:
            one = torch.zeros_like(self.query_rows), torch.zeros_like(self.key_rows)
            of_queries = group_variance(self.query_score[self.query_rows], one[0], 1)[0]
            of_keys = group_variance(self.key_score[self.key_rows], one[1], 1)[0]
            variance = (of_queries + of_keys) / 2
        return std * variance.mean().sqrt()

    def _window_thresholds(self, std: float, variance: Tensor | None) -> dict[tuple[int, int], Tensor]:
        if variance is not None:
            return dict.fromkeys(((0, 1), (1, 0)), std * variance.sqrt())
        of_queries = group_variance(self.query_score[self.query_rows], self.query.domain[self.query_rows], 2)
        of_keys = group_variance(self.key_score[self.key_rows], self.key.domain[self.key_rows], 2)
        return {(a, b): std * ((of_queries[a] + of_keys[b]) / 2).sqrt() for a, b in ((0, 1), (1, 0))}

    def _score_caliper(self, std: float, variance: Tensor | None) -> ScoreCaliper:
        """Return the thresholds by domains of query and key, for the scores of the one and of the other domain."""
        n_domains = self.query_score.shape[1]
        query_domain, key_domain = self.query.domain[self.query_rows], self.key.domain[self.key_rows]
        present, group = query_domain.unique(return_inverse=True)
        if variance is None:
            of_queries = group_variance(self.query_score[self.query_rows], group, len(present))
            of_keys = group_variance(self.key_score[self.key_rows][:, present], key_domain, n_domains).T
            of_key_domain = group_variance(self.key_score[self.key_rows, key_domain], key_domain, n_domains)
            of_query_score = (of_queries.gather(1, present[:, None]) + of_keys) / 2
            of_key_score = (of_queries + of_key_domain) / 2
        else:
            of_query_score, of_key_score = variance[present, None], variance
        of_query, of_key = std * of_query_score.sqrt(), std * of_key_score.sqrt()
        return ScoreCaliper(present, of_query.expand(-1, n_domains), of_key.expand(len(present), -1))

    def plan(self, width: int, query_rows: Tensor | None = None, key_rows: Tensor | None = None) -> Plan:
        """Arrange the search of vectors with ``width`` columns among the admissible rows, or among some of them."""
        rows = (
            self.query_rows if query_rows is None else query_rows,
            self.key_rows if key_rows is None else key_rows,
            self.query.domain,
            self.key.domain,
        )
        if self.filter is not None:
            return FilteredPlan(self._prognostic_plan(*rows, width), self.filter)
        return self._prognostic_plan(*rows, width)

    def _prognostic_plan(
        self, query_rows: Tensor, key_rows: Tensor, query_domain: Tensor, key_domain: Tensor, width: int
    ) -> Plan:
        """Arrange the search by domains, propensities and prognostic scores."""
        rows = query_rows, key_rows, query_domain, key_domain
        if self.calipers.prognostic is None:
            return self._plan(*rows, width)
        assert self.query.prognosis is not None
        assert self.key.prognosis is not None
        caliper = PrognosticCaliper(self.query.prognosis, self.key.prognosis, self.prognostic_threshold)
        if self.calipers.std is None and not self.multi_label:
            return PrognosticPlan(*rows, caliper)
        return FilteredPlan(self._plan(*rows, width), caliper)

    def _plan(self, query_rows: Tensor, key_rows: Tensor, query_domain: Tensor, key_domain: Tensor, width: int) -> Plan:
        """Arrange the search by domains and propensities alone."""
        rows = query_rows, key_rows, query_domain, key_domain
        if self.calipers.std is None:
            return MultiLabelPlan(*rows) if self.multi_label else DomainPlan(*rows)
        scores = self.query_score, self.key_score
        if self.multi_label:
            return MultiLabelPlan(*rows, *scores, self.multi_label_threshold)
        if self.query_score.ndim == 1:
            return WindowPlan(*rows, *scores, self.window_threshold, width)
        return ScorePlan(*rows, *scores, self.score_caliper, width)


def fixed_bounds(caliper: float) -> tuple[float, float]:
    """Return the propensities between which a fixed caliper keeps samples."""
    low, high = sorted((round(1.0 - caliper, 12), float(caliper)))  # rounded: 1 - 0.9 is to be 0.1
    return low, high


def inside_fixed_caliper(propensity: Tensor, caliper: float, *, multi_label: bool = False) -> Tensor:
    """Return which samples lie inside the fixed caliper, shape (n,). A caliper of 0 or 1 keeps every sample."""
    if caliper in (0, 1):
        return torch.ones(len(propensity), dtype=torch.bool, device=propensity.device)
    low, high = fixed_bounds(caliper)
    if propensity.ndim == 1 or multi_label:
        inside = (low < propensity.double()) & (propensity.double() < high)
        return inside if propensity.ndim == 1 else inside.all(1)
    return propensity.amax(1).double() < high


def on_scale(propensity: Tensor, scale: str, *, multi_label: bool = False) -> Tensor:
    """Return scores as the std-caliper compares them: as they are, logits, or for more than two domains logarithms."""
    if scale == "probability":
        return propensity.double() if propensity.ndim == 1 else propensity
    clipped = propensity.double().clamp(LOGIT_CLIP, 1.0 - LOGIT_CLIP)
    more_than_two = propensity.ndim == 2 and propensity.shape[1] > 2
    return clipped.log() if more_than_two and not multi_label else clipped.logit()


def group_variance(score: Tensor, group: Tensor, n_groups: int) -> Tensor:
    """Return the unbiased variance of every column within every group; 0 for a group of one or none.

    Parameters
    ----------
    score : Tensor of shape (n,) or (n, c)
    group : Tensor of shape (n,), values in [0, n_groups)

    Returns
    -------
    Tensor of shape (n_groups,) or (n_groups, c), float64
    """
    shape = (n_groups, *score.shape[1:])
    count = torch.bincount(group, minlength=n_groups).double().reshape(-1, *[1] * (score.ndim - 1))
    total = torch.zeros(shape, dtype=torch.float64, device=score.device)
    squares = torch.zeros_like(total)
    parts = list(zip(score.split(VARIANCE_ROWS), group.split(VARIANCE_ROWS), strict=True))  # no wide copy of the whole
    for values, of in parts:
        total.index_add_(0, of, values.double())
    mean = total / count.clamp(min=1)
    for values, of in parts:
        squares.index_add_(0, of, values.double().sub_(mean.index_select(0, of)).square_())
    return squares / (count - 1).clamp(min=1)
