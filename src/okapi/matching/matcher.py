"""CaliperMatcher: matching across domains in scikit-learn's manner."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, check_is_fitted, validate_data
from torch import Tensor

from okapi.matching.caliper_nn import check_k, check_propensity, check_vectors, to_tensor
from okapi.matching.calipers import Admissible, Calipers, Side, on_scale
from okapi.matching.covariates import DISTANCES, Covariates, Metric
from okapi.matching.diagnostics.attrition import removed, strata
from okapi.matching.diagnostics.balance import Balance, balance
from okapi.matching.diagnostics.effect import Effect, effect
from okapi.matching.diagnostics.precision import MatchPrecision, TargetKind, match_precision
from okapi.matching.diagnostics.weights import as_array, effective_sample_size, matching_weights
from okapi.matching.greedy import ORDERS, match_without_replacement
from okapi.matching.matches import Matches
from okapi.matching.outcome_encoder import Outcomes
from okapi.matching.propensity import Propensity, at_temperature, check_classifier, check_temperature
from okapi.matching.samples import NewMatches, Samples, check_finite, check_labels, ids_of, side_of
from okapi.matching.search import nearest

Array = NDArray[Any]

ESTIMANDS = {"both": None, "att": (1, 0), "atc": (0, 1)}


class CaliperMatcher(BaseEstimator):  # type: ignore[misc]
    """Match samples to their nearest neighbours in other domains, inside calipers on propensity and prognostic scores.

    Parameters
    ----------
    k : int
        Keys per query.
    fixed_caliper, std_caliper, caliper_scale, two_way
        As in `caliper_nn`.
    caliper_sd : {"pooled", "all"}
        The deviation that ``std_caliper`` counts in: pooled over the admissible queries and keys of the two domains, or
        that of all samples fitted, as in MatchIt.
    temperature : float > 0
        Divides the logits of the propensities.
    propensity : scikit-learn classifier, optional
        Estimates the propensities; by default logistic regression with inverse-frequency weights, see `Propensity`.
    distance : {"euclidean", "cosine", "mahalanobis", "scaled_euclidean", "propensity"}
    replace : bool
        Whether a key may be matched to several queries. False: queries choose in turn, see ``order``, and no two of one
        domain share a key.
    order : {"largest", "closest", "data"}, optional
        Who chooses first without replacement: the largest propensity of its own domain, the closest pair, or the first
        row. By default "largest" where propensities are in use, else "data", as in MatchIt.
    exact : list of column names or numbers, optional
        Columns of X that must be equal within a pair. They are no covariates: no distance, propensity or balance.
    estimand : {"both", "att", "atc"}
        "att": queries are the samples of the second of two domains (the treated), keys those of the first; "atc" the
        reverse; "both": every domain is matched to all others.
    allow_fewer : bool
        Keep queries that have some keys but fewer than k; missing keys are -1 in `Matches`.
    outcome_caliper : float >= 0 or "auto", optional
        The prognostic caliper: greatest distance of the ``outcome`` in a pair, which `fit` then needs; automatic: a
        third of the pooled standard deviation, as in `caliper_nn`. An outcome that is predicted, rather than known, is
        a prognostic score (Hansen 2008).

    Attributes
    ----------
    domains_ : array of shape (S,)
        The domains, in order of their numbers.
    domain_ : array of shape (n,) or (n, S)
        The number, or set of labels, of each sample fitted.
    covariates_ : array of shape (n, p)
        The samples fitted as numbers, categories as one column for each level.
    covariate_names_ : list of str
    propensity_ : array of shape (n,) or (n, S)
        Propensities at the temperature; estimated in `fit` where the settings need them, else when first asked for.

    References
    ----------
    Hansen, The Prognostic Analogue of the Propensity Score, Biometrika 95 (2008).

    Examples
    --------
    >>> import numpy as np
    >>> from okapi.matching import CaliperMatcher
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(300, 4)) + np.repeat([[0.0], [0.5]], 150, axis=0)
    >>> site = np.repeat(["north", "south"], 150)
    >>> matcher = CaliperMatcher(k=2, std_caliper=0.2).fit(x, site)
    >>> matches = matcher.match()
    >>> matcher.balance(matches).summary()["max_abs_smd_after"] < 0.25
    True
    """

    def __init__(
        self,
        *,
        k: int = 1,
        fixed_caliper: float | None = None,
        std_caliper: float | None = None,
        caliper_scale: str = "probability",
        caliper_sd: str = "pooled",
        two_way: bool = True,
        temperature: float = 1.0,
        propensity: Any = None,
        distance: str = "euclidean",
        replace: bool = True,
        order: str | None = None,
        exact: Sequence[Any] | None = None,
        estimand: str = "both",
        allow_fewer: bool = False,
        outcome_caliper: float | Literal["auto"] | None = None,
    ) -> None:
        self.k = k
        self.fixed_caliper = fixed_caliper
        self.std_caliper = std_caliper
        self.caliper_scale = caliper_scale
        self.caliper_sd = caliper_sd
        self.two_way = two_way
        self.temperature = temperature
        self.propensity = propensity
        self.distance = distance
        self.replace = replace
        self.order = order
        self.exact = exact
        self.estimand = estimand
        self.allow_fewer = allow_fewer
        self.outcome_caliper = outcome_caliper

    def fit(
        self,
        X: Any,
        domain: ArrayLike,
        *,
        propensity_scores: ArrayLike | None = None,
        outcome: ArrayLike | Tensor | None = None,
    ) -> "CaliperMatcher":
        """Learn propensities and the scales of covariates and outcomes.

        Parameters
        ----------
        X : array of shape (n, d) or DataFrame
        domain : array of shape (n,), any labels; or (n, S), booleans
            The domain of each sample, or the set of its domain labels.
        propensity_scores : array of shape (n,) or (n, S), optional
            Given propensities, of the second of two domains or of each domain in sorted order; ``temperature`` applies.
        outcome : array of shape (n,) or (n, C), optional
            What is known or predicted of each sample's outcome, for ``outcome_caliper``. Numbers (n,) are compared in
            their standard deviations. Of classes (n,), which are strings, booleans or categories, those of one are 0
            apart and others √2. Columns (n, C), such as the probabilities of classes, are compared as they are, by
            Euclidean distance. None may be missing.
        """
        self._check_settings()
        self._settings = self.get_params(deep=False)
        self.covariates_, self._strata_values = self._columns(X, reset=True)
        self.covariate_names_ = self._covariates.names
        self._ids = ids_of(X)
        self._set_domains(domain, len(self.covariates_))
        self._outcomes, self._outcome = None, None
        if self.outcome_caliper is not None:
            self._outcomes = Outcomes(self._needed(outcome), len(self.covariates_))
            self._outcome = self._new_outcome(outcome, len(self.covariates_))
        self._matches: Matches | None = None
        self._model: Propensity | None = None
        self._scores: Array | None = None
        if propensity_scores is not None:
            self._scores = self._given_scores(propensity_scores, len(self.covariates_))
        elif self.needs_propensity():
            self._estimate_propensity()
        if self.distance != "propensity":
            group = np.unique(self.domain_, axis=0, return_inverse=True)[1].reshape(-1)
            self._metric = Metric(self.distance, self.covariates_, group, self._covariates)
        self._vectors = self._to_vectors(self.covariates_, self._scores)
        return self

    def match(
        self,
        X: Any = None,
        domain: ArrayLike | None = None,
        *,
        propensity_scores: ArrayLike | None = None,
        outcome: ArrayLike | Tensor | None = None,
    ) -> Matches:
        """Match the samples fitted among themselves, or new samples X as queries to the samples fitted as keys.

        Returns
        -------
        Matches
            Rows of the queries (fitted or new) and rows of the samples fitted as keys.
        """
        check_is_fitted(self)
        self._check_unchanged()
        if X is None:
            if self._matches is None:
                self._matches = self._match(self._vectors, self._fitted())
            return self._matches
        if domain is None:
            raise ValueError("domain is needed with X")
        numbers, exact = self._columns(X, reset=False)
        codes = self._codes(domain, len(numbers))
        scores = self._new_scores(numbers, propensity_scores)
        side = side_of(codes, scores, self._new_outcome(outcome, len(numbers)))
        queries = Samples(numbers, side, exact, ids_of(X))
        found = self._match(self._to_vectors(numbers, scores), queries)
        return NewMatches(found.query, found.key, found.distance, queries)

    def balance(
        self,
        matches: Matches | None = None,
        *,
        denominator: Literal["pooled", "query", "key"] = "pooled",
    ) -> Balance:
        """Compare the covariates of matched samples, before and after."""
        matches = self.match() if matches is None else matches
        queries = self._queries(matches)
        return balance(
            queries.covariates,
            self.covariates_,
            query_domain=queries.side.domain,
            key_domain=self.domain_,
            matches=matches,
            names=self.covariate_names_,
            denominator=denominator,
            domain_names=[str(name) for name in self.domains_],
            direction=self.direction,
        )

    def to_frame(self, matches: Matches | None = None) -> pd.DataFrame:
        """Return one row per pair, with the index of a DataFrame, fitted or matched, as ids."""
        matches = self.match() if matches is None else matches
        return matches.to_frame(self._queries(matches).ids, self._ids)

    def weights(self, matches: Matches | None = None) -> Array:
        """Return the matching weight of every sample fitted, shape (n,): as a query and as a key together.

        Where new samples were matched, as a key.
        """
        matches = self.match() if matches is None else matches
        as_query, as_key = self._weights(matches)
        return as_key if isinstance(matches, NewMatches) else as_query + as_key

    def effective_sample_size(self, matches: Matches | None = None) -> float:
        """Return the effective number of keys: far below their count where few keys serve many queries."""
        return effective_sample_size(self._weights(self.match() if matches is None else matches)[1])

    def _weights(self, matches: Matches) -> tuple[Array, Array]:
        return matching_weights(matches, len(self._queries(matches).covariates), len(self.covariates_))

    def effect(self, outcome: ArrayLike, matches: Matches | None = None) -> Effect:
        """Return the difference of the mean outcome between queries and their keys; needs one direction.

        Parameters
        ----------
        outcome : array of shape (n,)
            Of every sample fitted.
        """
        if self.estimand == "both":
            raise ValueError('effect needs estimand="att" or "atc", with "both" queries and keys are the same samples')
        if isinstance(matches, NewMatches):
            raise ValueError("matches must be of the samples fitted, whose outcome is given; got those of new samples")
        if len(np.asarray(outcome)) != len(self.covariates_):
            raise ValueError(
                f"outcome must have a value for each of the {len(self.covariates_)} samples fitted, "
                f"got {len(np.asarray(outcome))}"
            )
        return effect(outcome, matches=self.match() if matches is None else matches)

    def precision(
        self,
        target: ArrayLike | Tensor,
        matches: Matches | None = None,
        *,
        kind: TargetKind = "classes",
        query_target: ArrayLike | Tensor | None = None,
    ) -> MatchPrecision:
        """Return how far the targets of queries and their keys agree, direction by direction, beside chance.

        Parameters
        ----------
        target : array of shape (n,) or (n, d)
            Of every sample fitted; see `match_precision`.
        kind : {"classes", "numbers", "labels"}
            What the targets are.
        query_target : optional
            Targets of the queries, where new samples were matched.
        """
        matches = self.match() if matches is None else matches
        if query_target is None and isinstance(matches, NewMatches):
            raise ValueError("query_target is needed with matches of new samples")
        return match_precision(
            target if query_target is None else query_target,
            target,
            query_domain=self._queries(matches).side.domain,
            key_domain=self.domain_,
            matches=matches,
            kind=kind,
            domain_names=[str(name) for name in self.domains_],
        )

    def removed(self, matches: Matches | None = None) -> pd.DataFrame:
        """Return what each rule left: queries, keys and pairs, step by step, with the thresholds in use."""
        matches = self.match() if matches is None else matches
        queries, keys = self._queries(matches), self._fitted()
        return removed(
            self._calipers(),
            (queries.side, queries.exact),
            (keys.side, keys.exact),
            self._sample(),
            matches,
            list(self.domains_),
            "" if self._outcomes is None else self._outcomes.unit,
        )

    @property
    def direction(self) -> tuple[int, int] | None:
        """Numbers of the query and the key domain that the estimand names; None: all are matched to all others."""
        return ESTIMANDS[self.estimand]

    @property
    def propensity_(self) -> Array:
        """Propensities of the samples fitted."""
        check_is_fitted(self)
        if self._scores is None:
            self._estimate_propensity()
        assert self._scores is not None
        return self._scores

    def _check_settings(self) -> None:
        check_k(self.k)
        _check_choice("caliper_sd", self.caliper_sd, ("pooled", "all"))
        _check_choice("distance", self.distance, DISTANCES)
        _check_choice("estimand", self.estimand, tuple(ESTIMANDS))
        if self.order is not None:
            _check_choice("order", self.order, ORDERS)
        for name in ("replace", "two_way", "allow_fewer"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise TypeError(f"{name} must be True or False, got {getattr(self, name)!r}")
        if isinstance(self.exact, str):
            raise TypeError(f"exact must be a list of columns, got {self.exact!r}; did you mean [{self.exact!r}]?")
        check_temperature(self.temperature)
        check_classifier(self.propensity)
        self._calipers()

    def _check_unchanged(self) -> None:
        """Refuse settings other than those fitted with: half of them would be in force."""
        for name, value in self.get_params(deep=False).items():
            if value is not self._settings[name] and not np.array_equal(value, self._settings[name]):
                raise ValueError(f"{name} was {self._settings[name]!r} in fit and is {value!r} now: fit again")

    def _calipers(self) -> Calipers:
        return Calipers(
            fixed=self.fixed_caliper,
            std=self.std_caliper,
            scale=self.caliper_scale,
            two_way=self.two_way,
            direction=self.direction,
            outcome=self.outcome_caliper,
        )

    def needs_propensity(self) -> bool:
        """Return whether these settings use propensities."""
        ordered = not self.replace and self.order == "largest"
        return not self._calipers().off() or self.distance == "propensity" or ordered

    def _columns(self, X: Any, *, reset: bool) -> tuple[Array, pd.DataFrame | None]:
        """Return the covariates as finite numbers and the exact columns; sets and checks scikit-learn's attributes."""
        settings: dict[str, Any] = {"dtype": (np.float64, np.float32), "ensure_all_finite": False}
        if isinstance(X, pd.DataFrame):
            validate_data(self, X, reset=reset, skip_check_array=True)
        else:
            X = as_array(X, "X") if isinstance(X, Tensor) else X
            X = X.astype(np.float32) if getattr(X, "dtype", None) == np.float16 else X
            X = validate_data(self, X, reset=reset, **settings)
        X, exact = self._without_exact(X)
        if reset:
            self._covariates = Covariates(X)
        numbers = np.asarray(check_array(self._covariates.encode(X), input_name="X", **settings))
        check_finite(numbers, self._covariates.names)
        return numbers, exact

    def _without_exact(self, X: Any) -> tuple[Any, pd.DataFrame | None]:
        if self.exact is None:
            return X, None
        names = list(self.exact)
        columns = list(X.columns) if isinstance(X, pd.DataFrame) else list(range(X.shape[1]))
        missing = [name for name in names if name not in columns]
        if missing:
            raise ValueError(f"exact names columns that X does not have: {missing}; X has {columns[:20]}")
        if len(names) == len(columns):
            raise ValueError("exact names every column of X, at least one must be left to match on")
        if isinstance(X, pd.DataFrame):
            return X.drop(columns=names), X[names].reset_index(drop=True)
        return np.delete(X, names, axis=1), pd.DataFrame(X[:, names], columns=names)

    def _set_domains(self, domain: ArrayLike, n: int) -> None:
        labels = np.asarray(domain)
        if labels.ndim == 2 and labels.dtype == bool:
            self.domains_ = np.arange(labels.shape[1])
        else:
            labels = check_labels(labels, n)
            try:
                self.domains_ = np.unique(labels)
            except TypeError:
                kinds = sorted({type(label).__name__ for label in labels.tolist()})
                raise TypeError(f"domain must hold labels of one type, got {', '.join(kinds)}") from None
            if len(self.domains_) < 2:
                raise ValueError(
                    f"domain must hold at least two domains, got only {self.domains_.tolist()[0]!r} (1 class)"
                )
        if self.estimand != "both" and len(self.domains_) != 2:
            raise ValueError(f"estimand={self.estimand!r} needs two domains, got {len(self.domains_)}")
        self.domain_ = self._codes(labels, n)

    def _codes(self, domain: ArrayLike, n: int) -> Array:
        labels = np.asarray(domain)
        if labels.ndim == 2 and labels.dtype == bool:
            if labels.shape != (n, len(self.domains_)):
                raise ValueError(f"domain must have shape ({n}, {len(self.domains_)}), got {labels.shape}")
            return labels
        labels = check_labels(labels, n)
        codes = np.searchsorted(self.domains_, labels).clip(max=len(self.domains_) - 1)
        unknown = self.domains_[codes] != labels
        if unknown.any():
            row = int(unknown.argmax())
            raise ValueError(f"domain holds {labels.tolist()[row]!r} in row {row}, which was not there in fit")
        return codes

    def _given_scores(self, scores: ArrayLike, n: int) -> Array:
        array = check_propensity(to_tensor(np.asarray(scores), "propensity_scores"), "propensity_scores", n).numpy()
        width = len(self.domains_)
        if array.shape[1:] != (width,) and not (array.ndim == 1 and width == 2 and self.domain_.ndim == 1):
            raise ValueError(f"propensity_scores must have {width} columns for {width} domains, got {array.shape}")
        return at_temperature(array, self.temperature, sets=self.domain_.ndim == 2)

    def _new_scores(self, numbers: Array, given: ArrayLike | None) -> Array | None:
        if given is not None:
            return self._given_scores(given, len(numbers))
        if self._scores is None:
            return None
        if self._model is None:
            raise ValueError("propensity_scores is needed with X, because scores were given in fit")
        return self._model.scores(numbers)

    def _needed(self, outcome: ArrayLike | Tensor | None) -> ArrayLike | Tensor:
        if outcome is None:
            raise ValueError("outcome is needed by outcome_caliper, got None")
        return outcome

    def _new_outcome(self, outcome: ArrayLike | Tensor | None, n: int) -> Tensor | None:
        return None if self._outcomes is None else self._outcomes.values(self._needed(outcome), n)

    def _estimate_propensity(self) -> None:
        self._model = Propensity(self.propensity, temperature=self.temperature).fit(self.covariates_, self.domain_)
        self._scores = self._model.scores(self.covariates_)

    def _to_vectors(self, numbers: Array, scores: Array | None) -> Tensor:
        if self.distance != "propensity":
            return check_vectors(self._metric.vectors(numbers), "X")
        assert scores is not None
        scaled = on_scale(to_tensor(scores, "propensity_scores"), self.caliper_scale)
        return scaled.reshape(len(scores), -1)

    def _match(self, vectors: Tensor, queries: Samples) -> Matches:
        admissible = self._calipers().admissible(queries.side, self._fitted_side(), sample=self._sample())
        rows, distances, indices = [], [], []
        for query_rows, key_rows in strata(admissible, queries.exact, self._strata_values):
            found_rows, distance, index = self._match_stratum(vectors, admissible, query_rows, key_rows)
            rows.append(found_rows)
            distances.append(distance)
            indices.append(index)
        row, distance, index = torch.cat(rows), torch.cat(distances), torch.cat(indices)
        kept = index[:, 0 if self.allow_fewer else -1] >= 0
        order = row[kept].argsort()
        reported = self._metric.report(distance.numpy()) if self.distance != "propensity" else distance.numpy()
        return Matches(row[kept][order], index[kept][order], torch.from_numpy(reported)[kept][order])

    def _queries(self, matches: Matches) -> Samples:
        """Return the samples that were matched: the new ones, or those fitted."""
        return matches.queries if isinstance(matches, NewMatches) else self._fitted()

    def _fitted(self) -> Samples:
        return Samples(self.covariates_, self._fitted_side(), self._strata_values, self._ids)

    def _fitted_side(self) -> Side:
        return side_of(self.domain_, self._scores, self._outcome)

    def _sample(self) -> Tensor | None:
        return self._fitted_side().propensity if self.caliper_sd == "all" else None

    def _match_stratum(
        self, vectors: Tensor, admissible: Admissible, query_rows: Tensor, key_rows: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        if self.replace:
            plan = admissible.plan(vectors.shape[1], query_rows, key_rows)
            return plan.query_order, *nearest(vectors, self._vectors, plan, self.k)
        order = self.order or ("largest" if self.needs_propensity() else "data")
        rows = query_rows, key_rows
        return query_rows, *match_without_replacement(vectors, self._vectors, admissible, self.k, order, *rows)


def _check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {choices}, got {value!r}")
