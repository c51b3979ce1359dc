"""Calipers that follow the matches: wider or narrower from step to step, by what the last matches were like."""

from collections.abc import Mapping
from math import exp, log
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from okapi.matching import Matches
from okapi.nn.groups import sums_by_group
from okapi.nn.match_figures import standardised

Adapt: TypeAlias = Literal["match_rate", "balance"]
GAIN = 0.1  # greatest change, in a step, of the logarithm of the width
WIDEST = 100.0  # times the widths given; the narrowest is a hundredth of them
MEMORY = 0.95  # share of the past that a step leaves in the balance: about twenty steps count
SMD, VARIANCE_RATIO = 0.1, 2.0  # the balance wanted
ROUNDING = 1e-5  # of squares: a variance that is less is none


class AdaptiveCalipers(nn.Module):
    """Calipers whose width a rule changes during training.

    All calipers are scaled by one factor w, since one figure cannot tell which of several is at fault: their
    proportions stay as given. The std-caliper and the prognostic caliper are widths and are multiplied by w. The fixed
    caliper keeps samples with ``|logit(e)| < logit(t)``: its width is logit(t), and ``sigmoid(w logit(t))`` goes
    towards 1, which keeps all, as w grows, and towards 1/2, which keeps none, as it shrinks. Calipers that have no
    width, a fixed one of 1 and a prognostic one of 0, stay as they are.

    Each step is one of stochastic approximation (Robbins & Monro, "A stochastic approximation method", 1951):
    ``log w <- log w + gain * error``, the error between -1 and 1, log w kept between -log 100 and log 100. The gain
    stays the same instead of falling, for what is aimed at moves as the encoder learns.

    - ``match_rate``: the error is the target less the share of the queries that were matched. So the share of queries
      matched over T steps is the target but for ``(log w_T - log w_0) / (gain T)``, whatever the queries were, unless w
      met its bounds.
    - ``balance``: the error is ``-max(log(SMD / 0.1), |log VR| - log 2)``: narrower while the standardised mean
      difference of matched samples is above 0.1 or their variance ratio outside [1/2, 2] (Austin, "Balance diagnostics
      for comparing the distribution of baseline covariates", 2009), else wider. Both are means over the columns of the
      encodings, of sums over about the last twenty steps: the few pairs of one step differ by chance, the more the
      fewer they are, and calipers that answered to that would close. A step without matches widens.

    The width is a buffer, and so are the sums: they are saved with the model. They depend on nothing but what is given
    to ``update``, so they are the same on all ranks if that is.

    Parameters
    ----------
    rule : {"match_rate", "balance"}
    calipers : mapping
        ``fixed_caliper``, ``std_caliper`` and ``outcome_caliper`` at the start, None where there is none.
    target_match_rate : float in (0, 1)
        For ``match_rate``: the share of queries that are to find k keys.
    groups : int
        Number of domains; 1 where domains are sets. For ``balance``.
    features : int
        Width of an encoding, for ``balance``.
    dtype : torch.dtype
        Of the sums.

    Examples
    --------
    >>> adaptive = AdaptiveCalipers("match_rate", {"fixed_caliper": 0.9, "std_caliper": 0.2}, target_match_rate=0.5)
    >>> adaptive.follow(0.5 - 0.1)  # a tenth was matched, too few
    >>> {name: round(value, 3) for name, value in adaptive.calipers().items()}
    {'fixed_caliper': 0.908, 'std_caliper': 0.208}
    """

    log_width: Tensor
    matched: Tensor
    sums: Tensor

    def __init__(
        self,
        rule: Adapt,
        calipers: Mapping[str, float | None],
        *,
        target_match_rate: float = 0.5,
        groups: int = 2,
        features: int = 1,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        if rule not in ("match_rate", "balance"):
            raise ValueError(f"adapt must be 'match_rate' or 'balance', got {rule!r}")
        if not 0 < target_match_rate < 1:
            raise ValueError(f"target_match_rate must be between 0 and 1, got {target_match_rate}")
        self.given = {name: value for name, value in calipers.items() if value is not None and _has_width(name, value)}
        if not self.given:
            raise ValueError(
                "adapt needs a caliper to start from: fixed_caliper below 1, std_caliper or outcome_caliper"
            )
        self.rule, self.target = rule, target_match_rate
        self.register_buffer("log_width", torch.zeros(()))
        if rule == "balance":
            self.register_buffer("matched", torch.zeros(groups, dtype=dtype))
            self.register_buffer("sums", torch.zeros(4, groups, features, dtype=dtype))

    def calipers(self) -> dict[str, float]:
        """Return the calipers that have a width, as they are now."""
        width = exp(float(self.log_width))
        return {name: _scaled(name, value, width) for name, value in self.given.items()}

    @torch.no_grad()
    def update(
        self, query: Tensor, keys: Tensor, matches: Matches, query_domain: Tensor, asked: int
    ) -> dict[str, Tensor]:
        """Change the width by what a step's matches were like, and return figures of what was gone by.

        Parameters
        ----------
        query : tensor (n, d)
        keys : tensor (m, d)
        matches : Matches
        query_domain : tensor (n,), int64; or (n, S), bool
        asked : int
            How many queries looked for a match. If none did, nothing is learnt.
        """
        if not asked:
            return {}
        if self.rule == "match_rate":
            self.follow(self.target - len(matches) / asked)
            return {}
        if not len(matches):
            self.follow(1.0)
            return {}
        smd, ratio = self._balance(query, keys, matches, query_domain)
        figures = {"running_smd": smd, "running_variance_ratio": ratio}
        if smd.isfinite() and ratio.isfinite():
            self.follow(-max(log(max(float(smd), 1e-9) / SMD), log(float(ratio) / VARIANCE_RATIO)))
        return figures

    def follow(self, error: float) -> None:
        """Widen by an error above 0, narrow by one below."""
        bound = log(WIDEST)
        self.log_width.add_(GAIN * min(1.0, max(-1.0, error))).clamp_(-bound, bound)

    def _balance(self, query: Tensor, keys: Tensor, matches: Matches, query_domain: Tensor) -> tuple[Tensor, Tensor]:
        """Return SMD and variance ratio of the matches of the last steps, having added those of this one.

        The ratio is the larger variance over the smaller one, as a geometric mean over columns and groups of queries.
        """
        ours, theirs = query[matches.query], keys[matches.key]
        group = query_domain[matches.query] if query_domain.ndim == 1 else torch.zeros_like(matches.query)
        self.matched.mul_(MEMORY).add_(torch.bincount(group, minlength=len(self.matched)))
        self.sums.mul_(MEMORY)
        for held, new in zip(self.sums, (ours, ours.square(), theirs.mean(1), theirs.square().mean(1)), strict=True):
            held.add_(sums_by_group(new, group, len(self.matched)))
        smd = standardised(self.sums[0] - self.sums[2], self.matched.sum(), query)
        count = torch.where(self.matched > 0, self.matched, 1.0)
        ours, our_squares, theirs, their_squares = self.sums / count[:, None]
        our_variance, their_variance = our_squares - ours.square(), their_squares - theirs.square()
        varying = (our_variance > ROUNDING * our_squares) & (their_variance > ROUNDING * their_squares)
        share = self.matched[:, None].expand_as(varying)[varying]
        ratio = (our_variance[varying] / their_variance[varying]).log().abs()
        return smd, ((ratio * share).sum() / share.sum()).exp()


def _has_width(name: str, value: float) -> bool:
    return not (value in (0, 1) if name == "fixed_caliper" else value == 0)


def _scaled(name: str, value: float, width: float) -> float:
    if name != "fixed_caliper":
        return value * width
    high = max(value, 1 - value)
    return 1 / (1 + exp(-width * log(high / (1 - high))))
