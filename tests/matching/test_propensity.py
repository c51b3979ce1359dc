"""Propensity scores against scikit-learn and closed forms."""

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.special import expit, softmax
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from okapi.matching import Propensity, SeparableDomainsWarning
from okapi.matching.propensity import at_temperature


@pytest.fixture
def sample():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 3))
    return x, (x[:, 0] + rng.normal(size=400) > 1).astype(int)


def test_default_is_a_logistic_regression_weighted_by_inverse_frequency(sample):
    x, domain = sample
    weight = (len(domain) / (2 * np.bincount(domain)))[domain]
    expected = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    expected.fit(x, domain, logisticregression__sample_weight=weight)
    np.testing.assert_allclose(Propensity().fit(x, domain).scores(x), expected.predict_proba(x)[:, 1], atol=1e-4)


def test_temperature_divides_the_logits(sample):
    x, domain = sample
    logit = Propensity().fit(x, domain)._logits(x)
    np.testing.assert_allclose(Propensity(temperature=2.5).fit(x, domain).scores(x), expit(logit / 2.5))
    three = domain + (x[:, 1] > 0)
    scores = Propensity(temperature=2.5).fit(x, three).scores(x)
    np.testing.assert_allclose(scores, softmax(Propensity().fit(x, three)._logits(x) / 2.5, axis=1))
    np.testing.assert_allclose(scores.sum(1), 1)


@pytest.mark.parametrize("n_domains", [2, 4])
def test_given_scores_at_a_temperature_are_the_models_at_that_temperature(sample, n_domains):
    x, _ = sample
    domain = np.argmax(np.random.default_rng(1).normal(size=(400, n_domains)) + x[:, :1] * np.arange(n_domains), 1)
    model = Propensity().fit(x, domain)
    tempered = Propensity(temperature=3.0).fit(x, domain).scores(x)
    np.testing.assert_allclose(at_temperature(model.scores(x), 3.0), tempered, rtol=1e-9)


def test_scores_of_labels_have_a_logit_each():
    scores = np.array([[0.2, 0.7, 0.6], [0.9, 0.5, 0.1]])
    logit = np.log(scores / (1 - scores))
    np.testing.assert_allclose(at_temperature(scores, 2.0, multi_label=True), expit(logit / 2))


def test_any_classifier_is_cloned_and_fitted(sample):
    x, domain = sample
    tree = DecisionTreeClassifier(max_depth=3, random_state=0)
    scores = Propensity(tree).fit(x, domain).scores(x)
    np.testing.assert_allclose(scores, tree.fit(x, domain).predict_proba(x)[:, 1])


def test_separable_domains_warn_with_figures_that_come_true():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(200, 2)), rng.normal(size=(200, 2)) + 12])
    domain = np.repeat([0, 1], 200)
    with pytest.warns(SeparableDomainsWarning) as caught:
        model = Propensity().fit(x, domain)
    message = str(caught[0].message)
    assert "balanced accuracy 100.0%" in message
    temperature = float(message.split("A temperature of ")[1].split()[0])
    caliper = float(message.split("a fixed_caliper of ")[2].split()[0].rstrip("."))
    with pytest.warns(SeparableDomainsWarning):
        warm = Propensity(temperature=temperature).fit(x, domain).scores(x)
    assert np.mean((warm > 0.1) & (warm < 0.9)) == pytest.approx(0.5, abs=0.1)
    scores = model.scores(x)
    assert np.mean((scores > 1 - caliper) & (scores < caliper)) == pytest.approx(0.5, abs=0.1)


def test_a_label_that_all_samples_have_is_named(sample):
    x, domain = sample
    labels = np.stack([domain == 1, np.ones(400, bool)], 1)
    with pytest.raises(ValueError, match="samples with and without label 1"):
        Propensity().fit(x, labels)


@pytest.mark.parametrize("temperature", [0, -1, float("nan"), float("inf")])
def test_bad_temperature(sample, temperature):
    with pytest.raises(ValueError, match="temperature must be a positive number"):
        Propensity(temperature=temperature).fit(*sample)


def test_the_propensity_of_a_treatment_is_that_of_maximum_likelihood(sample):
    x, treated = sample
    collinear = np.column_stack([x, x[:, 0] - 2 * x[:, 1], np.full(400, 3.0)])
    expected = sm.Logit(treated, sm.add_constant(x)).fit(disp=False, tol=1e-12).predict()
    for covariates in (x, collinear, 1000 * x + 5):
        found = Propensity(treatment=True).fit(covariates, treated).scores(covariates)
        np.testing.assert_allclose(found, expected, atol=1e-7)


def test_separation_is_a_warning_with_advice():
    x = np.random.default_rng(0).normal(size=(300, 3))
    with pytest.warns(SeparableDomainsWarning, match=r"of \d+ of 300 units without error .separation.*Leave out"):
        scores = Propensity(treatment=True).fit(x, (x[:, 0] > 0).astype(int)).scores(x)
    assert np.isfinite(scores).all()
