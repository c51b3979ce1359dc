"""What a fitted matcher says of its matches: balance, weights, effects, what each rule left."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from okapi.matching.calipers import Calipers
from okapi.matching.diagnostics.attrition import removed, removed_by_strata
from okapi.matching.diagnostics.balance import ROUNDING, SMD_LIMIT, Balance, Denominator, balance
from okapi.matching.diagnostics.effect import Effect, effect, effect_of_strata
from okapi.matching.diagnostics.precision import MatchPrecision, TargetKind, match_precision
from okapi.matching.diagnostics.sensitivity import rosenbaum_bounds
from okapi.matching.diagnostics.table_one import table_one
from okapi.matching.diagnostics.weights import effective_sample_size, flatten_pairs, matching_weights
from okapi.matching.matches import Matches, Strata
from okapi.matching.prognosis_encoder import PrognosisEncoder
from okapi.matching.propensity import MatchingWarning
from okapi.matching.samples import NewMatches, Samples, sides_of

Array = NDArray[Any]


ESTIMANDS: dict[str, tuple[int, int] | None] = {"both": None, "att": (1, 0), "atc": (0, 1), "ate": None}


class Matched:
    """The diagnostics of `CaliperMatcher`, which fits and matches; each is of its own matches if none are given."""

    method: str
    exact: Any
    domains_: Array
    domain_: Array
    treatment_: bool
    estimand_: str
    covariates_: Array
    covariate_names_: list[str]
    _samples: Samples
    _data: pd.DataFrame | None
    _encoder: PrognosisEncoder | None

    def match(self) -> Any:
        """Match the samples fitted."""
        raise NotImplementedError

    def _calipers(self) -> Calipers:
        raise NotImplementedError

    def balance(
        self,
        matches: Matches | Strata | None = None,
        *,
        denominator: Denominator = "pooled",
        max_pairs: int = 100,
    ) -> Balance:
        """Compare the covariates of matched samples, before and after; the settings are those of `balance`.

        Of strata and of the ATE the treated are compared with the controls, by their matching weights.
        """
        matches, queries = self._matched(matches)
        by_weights = isinstance(matches, Strata) or (self.treatment_ and self.direction is None)
        result = balance(
            queries.covariates,
            self.covariates_,
            query_domain=queries.domain,
            key_domain=self.domain_,
            matches=matches if isinstance(matches, Matches) and not by_weights else None,
            weights=self.weights(matches) if by_weights else None,
            names=self.covariate_names_,
            denominator=denominator,
            domain_names=[str(name) for name in self.domains_],
            direction=(1, 0) if by_weights else self.direction,
            max_pairs=max_pairs,
        )
        metrics = result.summary()
        before, after = metrics["mean_abs_smd_before"], metrics["mean_abs_smd_after"]
        if after > before + ROUNDING and after > SMD_LIMIT:
            warnings.warn(
                f"the groups are less alike after matching than before: the mean |SMD| is {after:.3f}, it was "
                f"{before:.3f}. Try a narrower caliper, another distance, or fewer keys",
                MatchingWarning,
                stacklevel=2,
            )
        return result

    def to_frame(self, matches: Matches | Strata | None = None) -> pd.DataFrame:
        """Return one row per pair, or per sample in a stratum, with the index of a DataFrame as ids."""
        matches, queries = self._matched(matches)
        if isinstance(matches, Strata):
            return matches.to_frame(self._samples.ids)
        return matches.to_frame(queries.ids, self._samples.ids)

    def table_one(self, matches: Matches | Strata | None = None) -> pd.DataFrame:
        """Return Table 1: means and deviations of the covariates of treated and controls, before and after matching."""
        self._check_treatment("table_one")
        return table_one(self.covariates_, self.covariate_names_, self.domain_ == 1, self.weights(matches))

    def get_matched_data(
        self, data: pd.DataFrame | None = None, matches: Matches | Strata | None = None
    ) -> pd.DataFrame:
        """Return the matched samples with ``weights`` of mean one in a group and, where it has one, its ``subclass``.

        As MatchIt's ``match.data``: a subclass is a stratum or, without replacement, a query with its keys.

        Parameters
        ----------
        data : DataFrame of n rows, optional
            What the columns are taken from, such as one with the outcome; by default the X of `fit`.
        """
        matches, _ = self._matched(matches)
        if isinstance(matches, NewMatches):
            raise ValueError("matches must be of the samples fitted, got those of new samples")
        n = len(self.domain_)
        if data is None:
            data = (
                self._data if self._data is not None else pd.DataFrame(self.covariates_, columns=self.covariate_names_)
            )
        if len(data) != n:
            raise ValueError(f"data must have a row for each of the {n} samples fitted, got {len(data)}")
        weights = self.weights(matches).copy()
        subclass = matches.subclass if isinstance(matches, Strata) else self._subclass(matches)
        for group in np.unique(self.domain_, axis=0):
            of = (self.domain_ == group).reshape(n, -1).all(1) & (weights > 0)
            weights[of] /= weights[of].mean() if of.any() else 1.0
        added = {"weights": weights} | ({} if subclass is None else {"subclass": subclass})
        return data.assign(**added)[weights > 0]

    def _subclass(self, matches: Matches) -> Array | None:
        """Return the number of each sample's match; None where some are in several."""
        pairs = flatten_pairs(matches, len(self.domain_), len(self.domain_))
        rows = np.concatenate([matches.query.numpy(), pairs.key])
        if len(np.unique(rows)) < len(rows):
            return None
        subclass = np.full(len(self.domain_), -1)
        subclass[rows] = np.concatenate([np.arange(len(matches)), pairs.match])
        return subclass

    def weights(self, matches: Matches | Strata | None = None) -> Array:
        """Return the matching weight of every sample fitted, shape (n,): as a query and as a key together.

        Where new samples were matched, as a key.
        """
        matches, queries = self._matched(matches)
        if isinstance(matches, Strata):
            return matches.weights
        as_query, as_key = matching_weights(matches, len(queries.covariates), len(self.covariates_))
        return as_key if isinstance(matches, NewMatches) else as_query + as_key

    def n_matched(self, matches: Matches | Strata | None = None) -> int:
        """Return how many of the queries were matched."""
        matches, _ = self._matched(matches)
        return int((matches.subclass[self._focal()] >= 0).sum()) if isinstance(matches, Strata) else len(matches)

    def effective_sample_size(self, matches: Matches | Strata | None = None) -> float:
        """Return the effective number of keys: far below their count where few keys serve many queries."""
        matches, queries = self._matched(matches)
        if isinstance(matches, Strata):
            others = self.domain_ != (0 if self.direction is None else self.direction[0])
            return effective_sample_size(matches.weights[others])
        return effective_sample_size(matching_weights(matches, len(queries.covariates), len(self.covariates_))[1])

    def _focal(self) -> Array:
        """Return which samples were to be matched, (n,)."""
        return np.ones(len(self.domain_), bool) if self.direction is None else self.domain_ == self.direction[0]

    def effect(self, outcome: ArrayLike, matches: Matches | Strata | None = None) -> Effect:
        """Return the effect of the treatment on an outcome, treated minus control; see `okapi.matching.effect`.

        Parameters
        ----------
        outcome : array of shape (n,)
            Of every sample fitted: numbers, counts, or yes and no; NaN where it is missing.
        """
        self._check_treatment("effect")
        if isinstance(matches, NewMatches):
            raise ValueError("matches must be of the samples fitted, whose outcome is given; got those of new samples")
        n, n_fitted = len(np.asarray(outcome)), len(self.covariates_)
        if n != n_fitted:
            raise ValueError(f"outcome must have a value for each of the {n_fitted} samples fitted, got {n}")
        matches = self._matched(matches)[0]
        if isinstance(matches, Strata):
            return effect_of_strata(outcome, self.domain_ == 1, matches, focal=self._focal())
        return effect(outcome, self.domain_ == 1, matches, n=self.n_queries_)

    def rosenbaum_bounds(self, outcome: ArrayLike, matches: Matches | None = None, **settings: Any) -> pd.DataFrame:
        """Return how strong hidden bias would have to be to explain the effect; see `rosenbaum_bounds`."""
        self._check_treatment("rosenbaum_bounds")
        return rosenbaum_bounds(outcome, self.domain_ == 1, self._matched(matches)[0], **settings)

    def precision(
        self,
        target: ArrayLike | Tensor,
        matches: Matches | None = None,
        *,
        kind: TargetKind = "classification",
        query_target: ArrayLike | Tensor | None = None,
    ) -> MatchPrecision:
        """Return how far the targets of queries and their keys agree, direction by direction, beside chance.

        Parameters
        ----------
        target : array of shape (n,) or (n, d)
            Of every sample fitted; see `match_precision`.
        kind : {"classification", "regression", "multilabel"}
            What the targets are.
        query_target : optional
            Targets of the queries, where new samples were matched.
        """
        matches, queries = self._matched(matches)
        if isinstance(matches, Strata):
            raise ValueError(f"precision is of pairs, method={self.method!r} makes strata")
        if query_target is None and isinstance(matches, NewMatches):
            raise ValueError("query_target is needed with matches of new samples")
        return match_precision(
            target if query_target is None else query_target,
            target,
            query_domain=queries.domain,
            key_domain=self.domain_,
            matches=matches,
            kind=kind,
            domain_names=[str(name) for name in self.domains_],
        )

    def removed(self, matches: Matches | Strata | None = None) -> pd.DataFrame:
        """Return what each rule left: queries, keys and pairs, step by step, with the thresholds in use."""
        matches, queries = self._matched(matches)
        if isinstance(matches, Strata):
            return removed_by_strata(self.method, matches, self._focal(), self.estimand_ == "ate")
        query, key = sides_of(queries, self._samples)
        unit = "" if self._encoder is None else self._encoder.unit
        return removed(self._calipers(), query, key, matches, list(self.domains_), self.exact or (), unit)

    @property
    def direction(self) -> tuple[int, int] | None:
        """Numbers of the query and the key domain that the estimand names; None: all are matched to all others."""
        return ESTIMANDS[self.estimand_]

    @property
    def n_queries_(self) -> int:
        """Number of samples fitted that were to be matched."""
        return int(self._focal().sum())

    def _check_treatment(self, name: str) -> None:
        check_is_fitted(self)
        if not self.treatment_:
            groups = self.domains_[:20].tolist()
            raise ValueError(f"treated must be given to fit, for {name}: which of the groups {groups} is it?")

    def _matched(self, matches: Matches | Strata | None) -> tuple[Any, Samples]:
        """Return the matches, by default those of the samples fitted, and the samples that were their queries."""
        matches = self.match() if matches is None else matches
        return matches, matches.queries if isinstance(matches, NewMatches) else self._samples
