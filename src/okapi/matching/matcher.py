"""CaliperMatcher: matching across domains in scikit-learn's manner."""

import warnings
from collections.abc import Mapping, Sequence
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
from okapi.matching.checks import (
    Side,
    as_array,
    check_choice,
    check_flag,
    check_propensity,
    check_whole,
    is_number,
    to_tensor,
)
from okapi.matching.covariates import DISTANCES, Covariates, Metric
from okapi.matching.diagnostics.weights import matching_weights
from okapi.matching.formula import parse_formula
from okapi.matching.matched import ESTIMANDS, Matched
from okapi.matching.matches import Matches, Strata
from okapi.matching.optimal import full_matching
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
from okapi.matching.strata import coarsened_strata, exact_strata, stratum_weights, subclasses

Array = NDArray[Any]

FEW_MATCHED = 0.1  # share of the queries below which a matching warns
LEAST_SHARED = 10  # queries from which on a key that serves most of them is a warning
CENTRED_DISTANCES = ("euclidean", "cosine")
METHODS = ("nearest", "optimal", "full", "exact", "cem", "subclass")
PAIRED = ("nearest", "optimal")
_OF_CALIPER_NN = (
    *("fixed_caliper", "std_caliper", "caliper_scale", "two_way", "prognostic_caliper", "direction"),
    *("max_uses", "random_state", "allow_fewer"),
)
_ONE_BY_ONE = {"replace", "order", "max_uses", "random_state", "fewest", "most"}
_OF_PAIRS = _ONE_BY_ONE | {"k", "allow_fewer"}
_OF_DISTANCE = {
    *("fixed_caliper", "std_caliper", "caliper_scale", "caliper_sd", "two_way", "prognostic_caliper"),
    *("covariate_calipers", "anti_exact", "distance", "centre"),
}
_MEANINGLESS = {
    "optimal": _ONE_BY_ONE - {"fewest", "most"},
    "full": _OF_PAIRS,
    **dict.fromkeys(("exact", "cem", "subclass"), _OF_PAIRS | _OF_DISTANCE),
}


class CaliperMatcher(Matched, BaseEstimator):  # type: ignore[misc]
    """Match samples to their nearest neighbours in other domains, inside calipers on propensity and prognostic scores.

    Two domains that are called 0 and 1, or False and True, or of which `fit` names one as treated, are a control and a
    treated group: the effect of the treatment can be estimated. Other domains are groups to be compared.

    Parameters
    ----------
    method : {"nearest", "optimal", "full", "exact", "cem", "subclass"}, default="nearest"
        "optimal": the most pairs without replacement and, of such matchings, one of the least total distance. Of a
        treatment also strata: "full" matching, in which each has one treated or one control; of equal covariates; of
        coarsened ones (see `coarsened_strata`); of like propensities (see `subclasses`). Settings that have no meaning
        for a method are rejected.
    k : int, default=1
        Keys per query.
    fixed_caliper, std_caliper, caliper_scale, two_way, prognostic_caliper, replace, order, max_uses, random_state, \
allow_fewer
        As in `caliper_nn`. Propensities are in use where a caliper, the distance or the order needs them.
    fewest, most : int, optional
        Variable ratio: with ``replace=False`` and a treatment, each query has from ``fewest`` to ``most`` keys, the
        more the lower its propensity, k of them on average.
    covariate_calipers : dict of column to float, optional
        Greatest difference of covariates within a pair, in their own units: ``{"age": 5}``.
    anti_exact : list of columns, optional
        Columns of X that must differ within a pair. They are no covariates.
    n_subclasses : int, default=6
    cutpoints : "sturges", int or mapping, default="sturges"
        How ``method="cem"`` coarsens numbers, see `coarsened_strata`.
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
        method: str = "nearest",
        k: int = 1,
        fewest: int | None = None,
        most: int | None = None,
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
        max_uses: int = 1,
        random_state: int = 0,
        exact: Sequence[Any] | None = None,
        anti_exact: Sequence[Any] | None = None,
        covariate_calipers: Mapping[Any, float] | None = None,
        n_subclasses: int = 6,
        cutpoints: Any = "sturges",
        estimand: str | None = None,
        allow_fewer: bool = False,
        prognostic_caliper: float | Literal["auto"] | None = None,
    ) -> None:
        self.method = method
        self.k = k
        self.fewest = fewest
        self.most = most
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
        self.max_uses = max_uses
        self.random_state = random_state
        self.exact = exact
        self.anti_exact = anti_exact
        self.covariate_calipers = covariate_calipers
        self.n_subclasses = n_subclasses
        self.cutpoints = cutpoints
        self.estimand = estimand
        self.allow_fewer = allow_fewer
        self.prognostic_caliper = prognostic_caliper

    @classmethod
    def from_formula(
        cls, formula: str, data: pd.DataFrame, *, treated: Any = None, **settings: Any
    ) -> "CaliperMatcher":
        """Return a matcher fitted to the columns that a formula names: ``"treat ~ age + educ + C(race)"``.

        Parameters
        ----------
        formula : str
            Treatment and covariates; ``C(column)`` makes categories of numbers, ``.`` stands for all other columns.
        data : DataFrame
        treated : label, optional
            As in `fit`.
        **settings
            Of the matcher; columns that ``exact`` and ``anti_exact`` name need not be in the formula.

        Examples
        --------
        >>> data = pd.DataFrame({"treat": [1, 1, 0, 0, 0], "age": [30, 41, 29, 40, 70], "y": [5.0, 7, 3, 4, 9]})
        >>> matcher = CaliperMatcher.from_formula("treat ~ age", data, distance="mahalanobis")
        >>> matcher.effect(data["y"]).estimate
        2.5
        """
        treatment, names, categories = parse_formula(formula, map(str, data.columns))
        further = [*(settings.get("exact") or ()), *(settings.get("anti_exact") or ())]
        X = data[list(dict.fromkeys([*names, *further]))].astype(dict.fromkeys(categories, "category"))
        return cls(**settings).fit(X, data[treatment], treated=treated)

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
        self._data = X if isinstance(X, pd.DataFrame) else None
        self.covariates_, exact, anti_exact = self._columns(X, reset=True)
        self.covariate_names_ = self._covariates.names
        n = len(self.covariates_)
        self.domains_, self.treatment_ = domains_of(domain, n, treated)
        self.domain_ = domain_codes(domain, self.domains_, n)
        self._choose(embeddings=lists or self.embeddings or self.centre)
        self._check_k()
        if self.method not in PAIRED and not self.treatment_:
            raise ValueError(
                f"method={self.method!r} needs a treatment: 0 and 1, or treated=; got {self.domains_[:20]}"
            )
        self._encoder = None if self.prognostic_caliper is None else PrognosisEncoder(prognosis, n)
        self._matches: Matches | Strata | None = None
        self._model: Propensity | None = None
        limited = self._limited(self.covariates_)
        samples = Samples(self.covariates_, self.domain_, exact, anti_exact, limited, ids)
        self._samples = self._with_prognosis(samples, prognosis)
        if propensity_scores is not None:
            self._samples = self._samples._replace(propensity=self._given_scores(propensity_scores, n))
        elif self.needs_propensity():
            self._estimate_propensity()
        if self.method in ("exact", "cem", "subclass"):
            return self
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
    ) -> Any:
        """Match the samples fitted among themselves, or new samples X as queries to the samples fitted as keys.

        Returns
        -------
        Matches or Strata
            Rows of the queries (fitted or new) and rows of the samples fitted as keys; strata of the samples fitted for
            the methods that make strata.
        """
        check_is_fitted(self)
        self._check_unchanged()
        if X is None:
            if self._matches is None:
                paired = self.method in PAIRED
                self._matches = self._match(self._vectors, self._samples) if paired else self._stratify()
                self._warn(self._matches)
            return self._matches
        if self.method not in PAIRED:
            raise ValueError(f"X must be None with method={self.method!r}, which matches the samples fitted")
        if domain is None:
            raise ValueError("domain is needed with X")
        covariates, exact, anti_exact = self._columns(_expanded(X)[0], reset=False)
        codes = domain_codes(domain, self.domains_, len(covariates))
        samples = Samples(covariates, codes, exact, anti_exact, self._limited(covariates), ids_of(X))
        queries = self._with_prognosis(samples, prognosis)
        queries = queries._replace(propensity=self._new_scores(covariates, propensity_scores))
        matches = self._match(self._to_vectors(queries), queries)
        return NewMatches(matches.query, matches.key, matches.distance, queries)

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
        check_choice("method", self.method, METHODS)
        check_choosing(self.k, self.replace, self.order, self.allow_fewer, self.max_uses)
        check_whole("n_subclasses", self.n_subclasses)
        usual = CaliperMatcher()
        for name in sorted(_MEANINGLESS.get(self.method, ())):
            value = getattr(self, name)
            if value is not getattr(usual, name) and value != getattr(usual, name):
                raise ValueError(f"{name} has no meaning with method={self.method!r}, got {value!r}")
        self._check_ratio()
        for column, width in (self.covariate_calipers or {}).items():
            if not (is_number(width) and 0 <= width < np.inf):
                raise ValueError(f"covariate_calipers must be numbers of at least 0, got {width!r} for {column!r}")
        check_choice("distance", self.distance, (None, *DISTANCES))
        check_choice("estimand", self.estimand, (None, *ESTIMANDS))
        check_choice("caliper_sd", self.caliper_sd, (None, *DEVIATIONS))
        self._calipers()
        check_flag("centre", self.centre)
        check_flag("embeddings", self.embeddings)
        if self.centre and self.distance not in (None, *CENTRED_DISTANCES):
            raise ValueError(f"centre needs one of the distances {CENTRED_DISTANCES}, got {self.distance!r}")
        for name, columns in (("exact", self.exact), ("anti_exact", self.anti_exact)):
            if isinstance(columns, str):
                raise TypeError(f"{name} must be a list of columns, got {columns!r}; did you mean [{columns!r}]?")
        check_temperature(self.temperature)
        check_classifier(self.propensity)

    def _check_ratio(self) -> None:
        if self.fewest is None and self.most is None:
            return
        fewest, most = self.fewest or 0, self.most or 0
        if (self.replace and self.method != "optimal") or not 1 <= fewest <= self.k <= most:
            raise ValueError(
                f"fewest and most need replace=False and fewest <= k <= most, got fewest={self.fewest}, k={self.k}, "
                f"most={self.most}, replace={self.replace}"
            )

    def _stratify(self) -> Strata:
        """Put the samples fitted into strata."""
        treated = self.domain_ == 1
        if self.method == "full":
            query, key = sides_of(self._samples, self._samples)
            admissible = replace(self._calipers(), direction=self.direction or (1, 0)).admissible(query, key)
            found = full_matching(self._vectors, self._vectors, admissible)
            subclass = np.maximum(found.query, found.key)
            if (subclass < 0).all():
                raise ValueError("full matching is infeasible: no unit has an admissible partner; widen the calipers")
        elif self.method == "subclass":
            subclass = subclasses(self.propensity_, treated, self.n_subclasses, estimand=self.estimand_)
        elif self.method == "cem":
            subclass = coarsened_strata(self._strata_of, treated, self.cutpoints)
        else:
            subclass = exact_strata(self._strata_of, treated)
        return Strata(subclass, stratum_weights(subclass, treated, self.estimand_))

    def _warn(self, matches: Matches | Strata) -> None:
        """Warn of a matching that leaves little, or rests on few."""
        n_matched = self.n_matched(matches)
        share = n_matched / self.n_queries_
        advice = "widen or leave out a caliper, exact columns or k; removed() says what each of them costs"
        if not n_matched:
            warnings.warn(
                f"nothing was matched: no query has as many admissible keys as k asks for; {advice}",
                MatchingWarning,
                stacklevel=3,
            )
        elif share < FEW_MATCHED:
            warnings.warn(
                f"only {n_matched:,} of {self.n_queries_:,} queries were matched ({share:.1%}), and results hold "
                f"for this small part; {advice}",
                MatchingWarning,
                stacklevel=3,
            )
        if n_matched >= LEAST_SHARED and isinstance(matches, Matches):
            weight = matching_weights(matches, len(self.domain_), len(self.domain_))[1]
            if weight.max() > n_matched / 2:
                warnings.warn(
                    f"one key, row {int(weight.argmax())}, serves most of the {n_matched:,} queries: results rest "
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
        if self.method in ("exact", "cem", "subclass"):
            return self.method == "subclass"
        distance = getattr(self, "distance_", self.distance)
        ordered = not self.replace and self.order in ("largest", "smallest")
        return not self._calipers().off() or distance == "propensity" or ordered

    def _columns(self, X: Any, *, reset: bool) -> tuple[Array, pd.DataFrame | None, Tensor | None]:
        """Return covariates as numbers, exact columns and codes of anti-exact ones; sets scikit-learn's attributes."""
        settings: dict[str, Any] = {"dtype": (np.float64, np.float32), "ensure_all_finite": False}
        if isinstance(X, pd.DataFrame):
            validate_data(self, X, reset=reset, skip_check_array=True)
        else:
            X = as_array(X, "X") if isinstance(X, Tensor) else X
            X = X.astype(np.float32) if getattr(X, "dtype", None) == np.float16 else X
            X = validate_data(self, X, reset=reset, **settings)
        X, exact = self._without(X, "exact", self.exact)
        X, differing = self._without(X, "anti_exact", self.anti_exact)
        if reset:
            self._covariates = Covariates(X)
            self._strata_of = pd.DataFrame()
            if self.method in ("exact", "cem"):
                frame = X.reset_index(drop=True) if isinstance(X, pd.DataFrame) else pd.DataFrame(X)
                self._strata_of = frame if exact is None else pd.concat([frame, exact.astype(str)], axis=1)
            self._levels = None if differing is None else {name: list(differing[name].unique()) for name in differing}
        numbers = np.asarray(check_array(self._covariates.encode(X), input_name="X", **settings))
        check_covariates(numbers, self._covariates.names)
        codes = None
        if differing is not None and self._levels is not None:
            columns = [pd.Categorical(differing[name], levels).codes for name, levels in self._levels.items()]
            codes = torch.from_numpy(np.stack(columns, 1).astype(np.int64))
        return numbers, exact, codes

    def _without(self, X: Any, role: str, names: Sequence[Any] | None) -> tuple[Any, pd.DataFrame | None]:
        """Return the covariates without the columns of a role, and these."""
        if names is None:
            return X, None
        names = list(names)
        columns = list(X.columns) if isinstance(X, pd.DataFrame) else list(range(X.shape[1]))
        missing = [name for name in names if name not in columns]
        if missing:
            raise ValueError(f"{role} names columns that X does not have: {missing}; X has {columns[:20]}")
        if len(names) == len(columns):
            raise ValueError(f"{role} names every column of X, at least one must be left to match on")
        if isinstance(X, pd.DataFrame):
            return X.drop(columns=names), X[names].reset_index(drop=True)
        return np.delete(X, names, axis=1), pd.DataFrame(X[:, names], columns=names)

    def _limited(self, covariates: Array) -> Tensor | None:
        """Return the covariates with a caliper of their own, in its units."""
        if not self.covariate_calipers:
            return None
        names = self.covariate_names_
        unknown = [name for name in self.covariate_calipers if str(name) not in names]
        if unknown:
            raise ValueError(
                f"covariate_calipers names {unknown}, which are no covariates of numbers; there are {names}"
            )
        columns = covariates[:, [names.index(str(name)) for name in self.covariate_calipers]].astype(np.float64)
        widths = np.array(list(self.covariate_calipers.values()), dtype=np.float64)
        return torch.from_numpy(columns / np.where(widths > 0, widths, 1e-300**0.5))

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
        optimal = self.method == "optimal"
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
            query_covariates=query.covariates,
            key_covariates=key.covariates,
            query_anti_exact=query.anti_exact,
            key_anti_exact=key.anti_exact,
            k=self.k if self.most is None else self._ratios(query),
            caliper_sd=self.caliper_sd_,
            order="optimal" if optimal else self.order or ("largest" if self.needs_propensity() else "data"),
            replace=self.replace and not optimal,
            **{name: getattr(self, name) for name in _OF_CALIPER_NN},
        )
        if self.distance_ == "propensity":
            return matches
        return replace(matches, distance=torch.from_numpy(self._metric.report(matches.distance.numpy())))

    def _ratios(self, query: Side) -> Array:
        """Return how many keys each query is to have: many of the first in turn, k on average."""
        assert self.fewest is not None
        assert self.most is not None
        if not self.treatment_ or self.direction is None:
            raise ValueError("fewest and most need a treatment and the estimand att or atc")
        rows = np.flatnonzero(query.domain.numpy() == self.direction[0])
        low_first = rows[np.argsort(self._own_propensity(query)[rows], kind="stable")]
        more, spread = self.k * len(rows) - self.fewest * len(rows), self.most - self.fewest
        extra = np.clip(more - spread * np.arange(len(rows)), 0, spread)
        ratios = np.full(len(query.domain), self.fewest)
        ratios[low_first] += extra
        return ratios

    def _own_propensity(self, query: Side) -> Array:
        """Return the propensity of each query's domain."""
        if query.propensity is None:
            query = query._replace(propensity=torch.from_numpy(np.asarray(self.propensity_, np.float64)))
        return np.asarray(query.domain_propensity().numpy())


def _expanded(X: Any) -> tuple[Any, bool]:
    """Return a frame whose one column holds lists as an array; and whether it was one."""
    lists = isinstance(X, pd.DataFrame) and X.shape == (len(X), 1) and np.ndim(X.iloc[:1, 0].tolist()) == 2
    return (np.array(X.iloc[:, 0].tolist()), True) if lists else (X, False)
