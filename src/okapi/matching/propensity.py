"""Propensity scores: the probability of each domain given the covariates, by logistic regression or any classifier."""

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgWarning
from scipy.special import expit, log_softmax, logit, softmax
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from okapi.matching.checks import is_number

Array = NDArray[Any]

SEPARATED = 18.0  # logits beyond are propensities within 1e-8 of 0 or 1
SEPARABLE = 0.99  # balanced accuracy from which on domains count as separable
TYPICAL_CALIPER = 0.9


class MatchingWarning(UserWarning):
    """A matching is possible, but its result is empty, degenerate or worse than no matching."""


class SeparableDomainsWarning(MatchingWarning):
    """A classifier tells the domains apart almost without error, so calipers leave little to match."""


class Propensity(BaseEstimator):  # type: ignore[misc]
    """Propensity scores of two or more domains.

    Parameters
    ----------
    classifier : scikit-learn classifier, optional
        Any with ``predict_proba``; cloned, then fitted. By default logistic regression on standardised covariates, with
        samples weighted by the inverse frequency of their domain; of a treatment, see below.
    temperature : float > 0
        Divides the logits: above 1 scores move together and calipers keep more, below 1 they move apart.
    treatment : bool, default=False
        Whether domain 1 is treated and 0 its control. The default then is the unpenalised, unweighted logistic
        regression of maximum likelihood, as R's ``glm`` fits it; columns that others determine are left out of it.

    Attributes
    ----------
    classifier_ : the fitted classifier
    balanced_accuracy_ : float
        How well it tells the domains of the samples it was fitted to apart; 1 is perfectly.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(200, 3))
    >>> site = (x[:, 0] + rng.normal(size=200) > 0).astype(int)
    >>> Propensity().fit(x, site).scores(x).shape
    (200,)
    """

    def __init__(self, classifier: Any = None, *, temperature: float = 1.0, treatment: bool = False) -> None:
        self.classifier = classifier
        self.temperature = temperature
        self.treatment = treatment

    def fit(self, X: Array, domain: Array) -> "Propensity":
        """Fit to covariates (n, d) and domains: whole numbers from 0 (n,), or booleans (n, S) if multi-label."""
        check_temperature(self.temperature)
        self.n_features_in_ = np.shape(X)[1]
        self.of_label_ = None
        if np.ndim(domain) == 2:
            self.of_label_ = [self._fit_label(X, domain[:, s], s) for s in range(domain.shape[1])]
            return self
        check_classifier(self.classifier)
        if self.classifier is not None:
            self.classifier_ = clone(self.classifier)
        elif self.treatment:
            chosen = FunctionTransformer(_columns, kw_args={"columns": independent_columns(X)})
            logistic = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-10, max_iter=100)
            self.classifier_ = make_pipeline(chosen, StandardScaler(), logistic)
        else:
            logistic = LogisticRegression(class_weight="balanced", max_iter=1000)
            self.classifier_ = make_pipeline(StandardScaler(), logistic)
        with warnings.catch_warnings():
            if self.treatment:  # what does not converge is separated, which is said below
                warnings.simplefilter("ignore", (ConvergenceWarning, LinAlgWarning))
            self.classifier_.fit(X, domain)
        logits = self._logits(X)
        if self.treatment and np.abs(logits).max() > SEPARATED:
            warnings.warn(_separation(logits), SeparableDomainsWarning, stacklevel=2)
            return self
        predicted = (logits > 0).astype(int) if logits.ndim == 1 else logits.argmax(1)
        self.balanced_accuracy_ = float(balanced_accuracy_score(domain, predicted))
        if self.balanced_accuracy_ >= SEPARABLE:
            warnings.warn(self._advice(logits), SeparableDomainsWarning, stacklevel=2)
        return self

    def scores(self, X: Array) -> Array:
        """Return the probability of domain 1, shape (n,), for two domains; of each domain or label, (n, S), else."""
        if self.of_label_ is not None:
            return np.stack([label.scores(X) for label in self.of_label_], 1)
        return _tempered(self._logits(X), self.temperature)

    def _fit_label(self, X: Array, has_label: Array, label: int) -> "Propensity":
        if has_label.all() or not has_label.any():
            raise ValueError(f"domain must hold samples with and without label {label}, got only one kind")
        return Propensity(self.classifier, temperature=self.temperature).fit(X, has_label.astype(np.int64))

    def _logits(self, X: Array) -> Array:
        if _is_logistic(self.classifier_):  # exact where probabilities would round to 0 or 1
            return np.asarray(self.classifier_.decision_function(X))
        probability = np.asarray(self.classifier_.predict_proba(X))
        tiny = np.finfo(probability.dtype).tiny
        log = np.log(np.clip(probability, tiny, None))
        return np.asarray(log[:, 1] - log[:, 0] if log.shape[1] == 2 else log)

    def _advice(self, logits: Array) -> str:
        kept = _share_kept(logits, self.temperature, TYPICAL_CALIPER)
        half = _temperature_that_keeps_half(logits, TYPICAL_CALIPER)
        caliper = float(np.median(_confidence(_tempered(logits, self.temperature))))
        return (
            f"the domains are separable (balanced accuracy {self.balanced_accuracy_:.1%}): at temperature "
            f"{self.temperature:g} a fixed_caliper of {TYPICAL_CALIPER} keeps {kept:.1%} of the samples. A temperature "
            f"of {half:.2g} would keep half of them, and so would, at this temperature, a fixed_caliper of "
            f"{_digits(caliper)}. A std_caliper will pair most queries with the same few keys; look at the effective "
            "sample size, or do without it"
        )


def _separation(logits: Array) -> str:
    n = int((np.abs(logits) > SEPARATED).sum())
    return (
        f"the covariates tell the treatment of {n:,} of {len(logits):,} units without error (separation): their "
        "propensities are 0 or 1 and few units are comparable. Leave out the covariates that determine the treatment, "
        "or match on another distance, such as mahalanobis, without calipers on the propensity"
    )


def _columns(X: Array, columns: Array) -> Array:
    return np.asarray(X)[:, columns]


def independent_columns(X: Array) -> Array:
    """Return the numbers of columns that are neither constant nor determined by those before them and a constant."""
    centred = np.asarray(X, np.float64) - np.mean(X, axis=0, dtype=np.float64)
    norm = np.sqrt((centred**2).sum(0))
    varies = np.flatnonzero(norm > 1e-10 * np.abs(X).max(0) * np.sqrt(len(X)))
    unit = centred[:, varies] / norm[varies]
    gram = unit.T @ unit
    kept: list[int] = []
    for place in range(len(varies)):
        if not kept:
            kept.append(place)
            continue
        others = gram[np.ix_(kept, kept)]
        if gram[place, place] - gram[place, kept] @ np.linalg.solve(others, gram[kept, place]) > 1e-9:
            kept.append(place)
    return varies[kept]


def check_classifier(classifier: Any) -> None:
    """Reject what cannot estimate probabilities."""
    if classifier is not None and not (hasattr(classifier, "fit") and hasattr(classifier, "predict_proba")):
        raise TypeError(f"classifier must have predict_proba, {type(classifier).__name__} has not")


def check_temperature(temperature: float) -> None:
    """Reject anything but a positive number."""
    if not (is_number(temperature) and 0 < temperature < np.inf):
        raise ValueError(f"temperature must be a positive number, got {temperature!r}")


def at_temperature(scores: Array, temperature: float, *, multi_label: bool = False) -> Array:
    """Return given scores at another temperature: their logits divided by it.

    Scores (n,) of two domains and, with ``multi_label``, of each label (n, S) have a logit each; scores (n, S) of more
    domains are a softmax.
    """
    check_temperature(temperature)
    if temperature == 1:
        return scores
    tiny = np.finfo(np.float64).tiny
    scores = np.asarray(scores, np.float64)
    if multi_label:
        return np.stack([at_temperature(label, temperature) for label in scores.T], 1)
    if scores.ndim == 1:
        return _tempered(logit(np.clip(scores, tiny, 1 - np.finfo(np.float64).epsneg)), temperature)
    return _tempered(np.log(np.clip(scores, tiny, None)), temperature)


def _is_logistic(classifier: Any) -> bool:
    last = classifier.steps[-1][1] if isinstance(classifier, Pipeline) else classifier
    return isinstance(last, LogisticRegression)


def _tempered(logits: Array, temperature: float) -> Array:
    scores = expit(logits / temperature) if logits.ndim == 1 else softmax(log_softmax(logits, 1) / temperature, axis=1)
    return np.asarray(scores)


def _confidence(scores: Array) -> Array:
    """Return what the fixed caliper bounds: the probability of the likeliest domain."""
    return np.asarray(np.maximum(scores, 1 - scores) if scores.ndim == 1 else scores.max(1))


def _share_kept(logits: Array, temperature: float, caliper: float) -> float:
    return float((_confidence(_tempered(logits, temperature)) < caliper).mean())


def _temperature_that_keeps_half(logits: Array, caliper: float) -> float:
    """Bisect on a logarithmic scale: a higher temperature keeps more."""
    low, high = 1e-3, 1e6
    for _ in range(60):
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if _share_kept(logits, middle, caliper) >= 0.5 else (middle, high)
    return high


def _digits(caliper: float) -> str:
    """Print a caliper near one with as many digits as tell it from one."""
    digits = 2 if caliper < 0.99 else min(12, 1 - int(np.floor(np.log10(max(1 - caliper, 1e-12)))))
    return f"{caliper:.{digits}f}"
