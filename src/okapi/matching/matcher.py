"""CaliperMatcher: matching across domains in scikit-learn's manner."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, check_is_fitted, validate_data
from torch import Tensor

from okapi.matching.caliper_nn import caliper_nn, check_choosing
from okapi.matching.calipers import DEVIATIONS, Calipers, on_scale
from okapi.matching.centring import centred_by, domain_means
from okapi.matching.checks import as_array, check_choice, check_flag, check_propensity, to_tensor
from okapi.matching.covariates import DISTANCES, Covariates, Metric
from okapi.matching.diagnostics.attrition import removed
from okapi.matching.diagnostics.balance import ROUNDING, SMD_LIMIT, Balance, Denominator, balance
from okapi.matching.diagnostics.effect import Effect, effect
from okapi.matching.diagnostics.precision import MatchPrecision, TargetKind, match_precision
from okapi.matching.diagnostics.weights import effective_sample_size, matching_weights
from okapi.matching.matches import Matches
from okapi.matching.prognosis_encoder import PrognosisEncoder
from okapi.matching.propensity import MatchingWarning, Propensity, at_temperature, check_classifier, check_temperature
from okapi.matching.samples import (
    NewMatches,
    Samples,
    check_covariates,
    domain_codes,
    domains_of,
    ids_of,
    sides_of,
)

Array = NDArray[Any]

FEW_MATCHED = 0.1  # share of the queries below which a matching warns
LEAST_SHARED = 10  # queries from which on a key that serves most of them is a warning
ESTIMANDS: dict[str, tuple[int, int] | None] = {"both": None, "att": (1, 0), "atc": (0, 1), "ate": None}
CENTRED_DISTANCES = ("euclidean", "cosine")
_OF_CALIPER_NN = (
    *("k", "fixed_caliper", "std_caliper", "caliper_scale", "two_way", "prognostic_caliper", "direction"),
    *("replace", "allow_fewer"),
)


class CaliperMatcher(BaseEstimator):  # type: ignore[misc]
    """Match samples to their nearest neighbours in other domains, inside calipers on propensity and prognostic scores.

    Two domains that are called 0 and 1, or False and True, or of which `fit` names one as treated, are a control and a
    treated group: the effect of the treatment can be estimated. Other domains are groups to be compared.

    Parameters
    ----------
    k : int, default=1
        Keys per query.
    fixed_caliper, std_caliper, caliper_scale, two_way, prognostic_caliper, replace, order, allow_fewer
        As in `caliper_nn`. Propensities are in use where a caliper, the distance or the order needs them.
    caliper_sd : {"pooled", "all"}, optional
        As in `caliper_nn`, where "all" is the deviation of all samples fitted: the default for a treatment, as in
        MatchIt; otherwise "pooled".
    temperature : float > 0, default=1.0
        Divides the logits of the propensities.
    propensity : scikit-learn classifier, optional
        Estimates the propensities; by default logistic regression: of a treatment by maximum likelihood, of domains
        with inverse-frequency weights, see `Propensity`.
    distance : {"euclidean", "cosine", "mahalanobis", "scaled_euclidean", "propensity"}, optional
        By default "propensity" for a treatment and "mahalanobis" for domains, but "euclidean" with ``centre`` and for
        ``embeddings``, which a single column of lists is.
    embeddings : bool, default=False
        Whether the columns are an embedding, of one unit, and not covariates of different units.
    centre : bool, default=False
        Whether vectors are centred by the mean of their domain and scaled to unit length before the distance, euclidean
        or cosine, is taken: for embeddings, see `centred`. New samples are centred by the means of the samples fitted.
        Balance is that of the covariates as they are.
    exact : list of column names or numbers, optional
        Columns of X that must be equal within a pair. They are no covariates: no distance, propensity or balance.
    estimand : {"att", "atc", "ate", "both"}, optional
        Of a treatment: "att", the default, matches the treated to controls, "atc" controls to the treated, "ate" each
        to the other. "both", the only one for other domains, matches every domain to all others.

    Attributes
    ----------
    domains_ : array of shape (S,)
        The domains, in order of their numbers; of a treatment, control and treated.
    treatment_ : bool
        Whether the domains are a control and a treated group.
    distance_, caliper_sd_, estimand_ : str
        The settings in force.
    domain_ : array of shape (n,) or (n, S)
        The number, or set of labels, of each sample fitted.
    covariates_ : array of shape (n, p)
        The samples fitted as numbers, categories as one column for each level.
    covariate_names_ : list of str
    propensity_ : array of shape (n,) or (n, S)
        Propensities at the temperature; estimated in `fit` where the settings need them, else when first asked for.

    See Also
    --------
    caliper_nn : The function underneath, for tensors.
    tune : Compares settings of the calipers.

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
        caliper_sd: str | None = None,
        two_way: bool = True,
        temperature: float = 1.0,
        propensity: Any = None,
        distance: str | None = None,
        embeddings: bool = False,
        centre: bool = False,
        replace: bool = True,
        order: str | None = None,
        exact: Sequence[Any] | None = None,
        estimand: str | None = None,
        allow_fewer: bool = False,
        prognostic_caliper: float | Literal["auto"] | None = None,
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
        self.embeddings = embeddings
        self.centre = centre
        self.replace = replace
        self.order = order
        self.exact = exact
        self.estimand = estimand
        self.allow_fewer = allow_fewer
        self.prognostic_caliper = prognostic_caliper

    def fit(
        self,
        X: Any,
        domain: ArrayLike,
        *,
        treated: Any = None,
        propensity_scores: ArrayLike | None = None,
        prognosis: ArrayLike | Tensor | None = None,
    ) -> "CaliperMatcher":
        """Learn propensities and the scales of covariates and outcomes.

        Parameters
        ----------
        X : array of shape (n, d) or DataFrame
            The covariates. An outcome does not belong here.
        domain : array of shape (n,), any labels; or (n, S), booleans
            The domain of each sample, its several domain labels, or its treatment.
        treated : label, optional
            Which of two groups is the treated one. Not needed for 0 and 1, False and True.
        propensity_scores : array of shape (n,) or (n, S), optional
            Given propensities: of the treated, of the second of two domains or of each domain in sorted order;
            ``temperature`` applies.
        prognosis : array of shape (n,) or (n, C), optional
            A prognostic score: what is known or predicted of each sample's outcome, for ``prognostic_caliper``. Numbers
            (n,) are compared in their standard deviations. Of classes (n,), which are strings, booleans or categories,
            those of one are 0 apart and others √2. Columns (n, C), such as the probabilities of classes, are compared
            as they are, by Euclidean distance. None may be missing. The outcome of `effect` itself is no such score.
        """
        self.check_settings()
        self._settings = self.get_params(deep=False)
        ids = ids_of(X)
        X, lists = _expanded(X)
        self.covariates_, exact = self._columns(X, reset=True)
        self.covariate_names_ = self._covariates.names
        n = len(self.covariates_)
        self.domains_, self.treatment_ = domains_of(domain, n, treated)
        self.domain_ = domain_codes(domain, self.domains_, n)
        self._choose(embeddings=lists or self.embeddings or self.centre)
        self._check_k()
        self._encoder = None if self.prognostic_caliper is None else PrognosisEncoder(prognosis, n)
        self._matches: Matches | None = None
        self._model: Propensity | None = None
        self._samples = self._with_prognosis(Samples(self.covariates_, self.domain_, exact, ids), prognosis)
        if propensity_scores is not None:
            self._samples = self._samples._replace(propensity=self._given_scores(propensity_scores, n))
        elif self.needs_propensity():
            self._estimate_propensity()
        if self.distance_ != "propensity":
            group = np.unique(self.domain_, axis=0, return_inverse=True)[1].reshape(-1)
            self._metric = Metric(self.distance_, self.covariates_, group, self._covariates)
        self._means: Tensor | None = None
        self._vectors = self._to_vectors(self._samples)
        return self

    def match(
        self,
        X: Any = None,
        domain: ArrayLike | None = None,
        *,
        propensity_scores: ArrayLike | None = None,
        prognosis: ArrayLike | Tensor | None = None,
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
                self._matches = self._match(self._vectors, self._samples)
                self._warn(self._matches)
            return self._matches
        if domain is None:
            raise ValueError("domain is needed with X")
        covariates, exact = self._columns(_expanded(X)[0], reset=False)
        codes = domain_codes(domain, self.domains_, len(covariates))
        queries = self._with_prognosis(Samples(covariates, codes, exact, ids_of(X)), prognosis)
        queries = queries._replace(propensity=self._new_scores(covariates, propensity_scores))
        matches = self._match(self._to_vectors(queries), queries)
        return NewMatches(matches.query, matches.key, matches.distance, queries)

    def balance(
        self,
        matches: Matches | None = None,
        *,
        denominator: Denominator = "pooled",
        max_pairs: int = 100,
    ) -> Balance:
        """Compare the covariates of matched samples, before and after; the settings are those of `balance`."""
        matches, queries = self._matched(matches)
        result = balance(
            queries.covariates,
            self.covariates_,
            query_domain=queries.domain,
            key_domain=self.domain_,
            matches=matches,
            names=self.covariate_names_,
            denominator=denominator,
            domain_names=[str(name) for name in self.domains_],
            direction=self.direction,
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

    def to_frame(self, matches: Matches | None = None) -> pd.DataFrame:
        """Return one row per pair, with the index of a DataFrame, fitted or matched, as ids."""
        matches, queries = self._matched(matches)
        return matches.to_frame(queries.ids, self._samples.ids)

    def weights(self, matches: Matches | None = None) -> Array:
        """Return the matching weight of every sample fitted, shape (n,): as a query and as a key together.

        Where new samples were matched, as a key.
        """
        matches, queries = self._matched(matches)
        as_query, as_key = matching_weights(matches, len(queries.covariates), len(self.covariates_))
        return as_key if isinstance(matches, NewMatches) else as_query + as_key

    def effective_sample_size(self, matches: Matches | None = None) -> float:
        """Return the effective number of keys: far below their count where few keys serve many queries."""
        matches, queries = self._matched(matches)
        return effective_sample_size(matching_weights(matches, len(queries.covariates), len(self.covariates_))[1])

    def effect(self, outcome: ArrayLike, matches: Matches | None = None) -> Effect:
        """Return the effect of the treatment on an outcome, treated minus control; see `okapi.matching.effect`.

        Parameters
        ----------
        outcome : array of shape (n,)
            Of every sample fitted: numbers, counts, or yes and no; NaN where it is missing.
        """
        check_is_fitted(self)
        if not self.treatment_:
            groups = self.domains_[:20].tolist()
            raise ValueError(
                f"treated must be given to fit, to estimate an effect: which of the groups {groups} is it?"
            )
        if isinstance(matches, NewMatches):
            raise ValueError("matches must be of the samples fitted, whose outcome is given; got those of new samples")
        n, n_fitted = len(np.asarray(outcome)), len(self.covariates_)
        if n != n_fitted:
            raise ValueError(f"outcome must have a value for each of the {n_fitted} samples fitted, got {n}")
        return effect(outcome, self.domain_ == 1, self._matched(matches)[0], n=self.n_queries_)

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

    def removed(self, matches: Matches | None = None) -> pd.DataFrame:
        """Return what each rule left: queries, keys and pairs, step by step, with the thresholds in use."""
        matches, queries = self._matched(matches)
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
        return len(self.domain_) if self.direction is None else int((self.domain_ == self.direction[0]).sum())

    @property
    def propensity_(self) -> Array:
        """Propensities of the samples fitted."""
        check_is_fitted(self)
        if self._samples.propensity is None:
            self._estimate_propensity()
        assert self._samples.propensity is not None
        return self._samples.propensity

    @property
    def propensity_model_(self) -> Propensity:
        """What estimates the propensities; there is none where they were given."""
        check_is_fitted(self)
        if self._model is None:
            if self._samples.propensity is not None:
                raise ValueError("propensity_scores were given in fit, so there is no model of them")
            self._estimate_propensity()
        assert self._model is not None
        return self._model

    def check_settings(self) -> None:
        """Raise what `fit` would raise of the settings, without any data."""
        check_choosing(self.k, self.replace, self.order, self.allow_fewer)
        check_choice("distance", self.distance, (None, *DISTANCES))
        check_choice("estimand", self.estimand, (None, *ESTIMANDS))
        check_choice("caliper_sd", self.caliper_sd, (None, *DEVIATIONS))
        self._calipers()
        check_flag("centre", self.centre)
        check_flag("embeddings", self.embeddings)
        if self.centre and self.distance not in (None, *CENTRED_DISTANCES):
            raise ValueError(f"centre needs one of the distances {CENTRED_DISTANCES}, got {self.distance!r}")
        if isinstance(self.exact, str):
            raise TypeError(f"exact must be a list of columns, got {self.exact!r}; did you mean [{self.exact!r}]?")
        check_temperature(self.temperature)
        check_classifier(self.propensity)

    def _warn(self, matches: Matches) -> None:
        """Warn of a matching that leaves little, or rests on few."""
        share = len(matches) / self.n_queries_
        advice = "widen or leave out a caliper, exact columns or k; removed() says what each of them costs"
        if not len(matches):
            warnings.warn(
                f"nothing was matched: no query has as many admissible keys as k asks for; {advice}",
                MatchingWarning,
                stacklevel=3,
            )
        elif share < FEW_MATCHED:
            warnings.warn(
                f"only {len(matches):,} of {self.n_queries_:,} queries were matched ({share:.1%}), and results hold "
                f"for this small part; {advice}",
                MatchingWarning,
                stacklevel=3,
            )
        if len(matches) >= LEAST_SHARED:
            weight = matching_weights(matches, len(self.domain_), len(self.domain_))[1]
            if weight.max() > len(matches) / 2:
                warnings.warn(
                    f"one key, row {int(weight.argmax())}, serves most of the {len(matches):,} queries: results rest "
                    "on it: match without replacement, or compare another distance",
                    MatchingWarning,
                    stacklevel=3,
                )

    def _check_unchanged(self) -> None:
        """Reject settings other than those fitted with: half of them would be in force."""
        for name, value in self.get_params(deep=False).items():
            if value is not self._settings[name] and not np.array_equal(value, self._settings[name]):
                raise ValueError(f"{name} was {self._settings[name]!r} in fit and is {value!r} now: fit again")

    def _choose(self, *, embeddings: bool) -> None:
        """Set what the settings leave to the data."""
        self.treatment_ &= self.estimand != "both"
        if self.estimand in ("att", "atc", "ate") and not self.treatment_:
            groups = self.domains_[:20].tolist()
            raise ValueError(
                f"estimand={self.estimand!r} needs a treatment: name one of the groups {groups} as treated"
            )
        usual = "propensity" if self.treatment_ else "mahalanobis"
        self.distance_ = self.distance or ("euclidean" if embeddings else usual)
        self.estimand_ = self.estimand or ("att" if self.treatment_ else "both")
        self.caliper_sd_ = self.caliper_sd or ("all" if self.treatment_ else "pooled")

    def _check_k(self) -> None:
        """Reject more keys than any query could have, before any work."""
        sizes = self.domain_.sum(0) if self.domain_.ndim == 2 else np.bincount(self.domain_)
        most = int(len(self.domain_) - sizes.min() if self.direction is None else sizes[self.direction[1]])
        if self.k > (len(self.domain_) if self.allow_fewer else most):
            raise ValueError(
                f"k must be at most {most:,}, the number of samples that a query may be matched to, got {self.k:,}"
            )

    def _calipers(self) -> Calipers:
        fitted = hasattr(self, "estimand_")
        return Calipers(
            fixed=self.fixed_caliper,
            std=self.std_caliper,
            scale=self.caliper_scale,
            sd=self.caliper_sd_ if fitted else "pooled",
            two_way=self.two_way,
            direction=self.direction if fitted else None,
            prognostic=self.prognostic_caliper,
        )

    def needs_propensity(self) -> bool:
        """Return whether these settings use propensities, as far as they are known before `fit`."""
        distance = getattr(self, "distance_", self.distance)
        ordered = not self.replace and self.order == "largest"
        return not self._calipers().off() or distance == "propensity" or ordered

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
        check_covariates(numbers, self._covariates.names)
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

    def _given_scores(self, scores: ArrayLike, n: int) -> Array:
        array = check_propensity(np.asarray(scores), "propensity_scores", n).numpy()
        width = len(self.domains_)
        if array.shape[1:] != (width,) and not (array.ndim == 1 and width == 2 and self.domain_.ndim == 1):
            raise ValueError(f"propensity_scores must have {width} columns for {width} domains, got {array.shape}")
        return at_temperature(array, self.temperature, multi_label=self.domain_.ndim == 2)

    def _new_scores(self, numbers: Array, given: ArrayLike | None) -> Array | None:
        if given is not None:
            return self._given_scores(given, len(numbers))
        if self._samples.propensity is None:
            return None
        if self._model is None:
            raise ValueError("propensity_scores is needed with X, because scores were given in fit")
        return self._model.scores(numbers)

    def _estimate_propensity(self) -> None:
        self._model = Propensity(self.propensity, temperature=self.temperature, treatment=self.treatment_)
        self._model.fit(self.covariates_, self.domain_)
        self._samples = self._samples._replace(propensity=self._model.scores(self.covariates_))

    def _with_prognosis(self, samples: Samples, prognosis: ArrayLike | Tensor | None) -> Samples:
        if self._encoder is None:
            return samples
        return samples._replace(prognosis=self._encoder.encode(prognosis, len(samples.covariates)))

    def _to_vectors(self, samples: Samples) -> Tensor:
        """Return vectors whose Euclidean distance is compared; `fit` comes first, so the means are of its samples."""
        if self.distance_ == "propensity":
            assert samples.propensity is not None
            scaled = on_scale(to_tensor(samples.propensity, "propensity_scores"), self.caliper_scale)
            return scaled.reshape(len(scaled), -1)
        vectors = to_tensor(self._metric.vectors(samples.covariates), "X")
        if not self.centre:
            return vectors
        domain = torch.from_numpy(samples.domain)
        if self._means is None:
            self._means = domain_means([vectors], [domain])
        return centred_by(self._means, vectors, domain)

    def _match(self, vectors: Tensor, queries: Samples) -> Matches:
        query, key = sides_of(queries, self._samples)
        matches = caliper_nn(
            vectors,
            self._vectors,
            query_domain=query.domain,
            key_domain=key.domain,
            query_propensity=query.propensity,
            key_propensity=key.propensity,
            query_prognosis=query.prognosis,
            key_prognosis=key.prognosis,
            query_exact=query.exact,
            key_exact=key.exact,
            caliper_sd=self.caliper_sd_,
            order=self.order or ("largest" if self.needs_propensity() else "data"),
            **{name: getattr(self, name) for name in _OF_CALIPER_NN},
        )
        if self.distance_ == "propensity":
            return matches
        return replace(matches, distance=torch.from_numpy(self._metric.report(matches.distance.numpy())))

    def _matched(self, matches: Matches | None) -> tuple[Matches, Samples]:
        """Return the matches, by default those of the samples fitted, and the samples that were their queries."""
        matches = self.match() if matches is None else matches
        return matches, matches.queries if isinstance(matches, NewMatches) else self._samples


def _expanded(X: Any) -> tuple[Any, bool]:
    """Return a frame whose one column holds lists as an array; and whether it was one."""
    lists = isinstance(X, pd.DataFrame) and X.shape == (len(X), 1) and np.ndim(X.iloc[:1, 0].tolist()) == 2
    return (np.array(X.iloc[:, 0].tolist()), True) if lists else (X, False)
