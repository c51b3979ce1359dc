"""What users do with the estimators: missing labels in every form, all kinds of inputs, tools of scikit-learn."""

import pickle

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from okapi import OkapiClassifier, OkapiRegressor
from okapi.config import FixMatchSettings, OkapiPlusSettings, OkapiSettings, PrognosticMatchingSettings

N, FEATURES = 240, 6
FAST = {"steps": 40, "learning_rate": 0.01, "random_state": 0}
FEW_MATCHES = "ignore:.* of .* unlabelled rows have a match:sklearn.exceptions.ConvergenceWarning"


@pytest.fixture(scope="module")
def data():
    """Return rows of three classes at two sites; the second site is shifted, and has no labels."""
    rng = np.random.default_rng(0)
    label, site = np.arange(N) % 3, np.arange(N) % 2
    centres = 4 * np.eye(3, FEATURES)
    X = centres[label] + rng.normal(size=(N, FEATURES)) + site[:, None] * np.array([0, 0, 0, 3, 3, 0])
    return X, label, site


def unlabelled(label, site):
    return np.where(site == 1, -1, label)


@pytest.mark.filterwarnings(FEW_MATCHES)  # a linear scorer tells these sites apart: the paper's calipers match few
@pytest.mark.parametrize("method", ["okapi_plus", "okapi", "fixmatch", "erm"])
def test_each_method_learns(data, method):
    X, label, site = data
    model = OkapiClassifier(method, **{**FAST, "steps": 150}).fit(X, unlabelled(label, site))
    assert model.score(X[site == 0], label[site == 0]) > 0.95
    if method in ("okapi_plus", "erm"):
        assert model.score(X[site == 1], label[site == 1]) > 0.8
    assert model.classes_.tolist() == [0, 1, 2]
    np.testing.assert_allclose(model.predict_proba(X).sum(1), 1)
    assert (model.predict(X) == model.classes_[model.predict_proba(X).argmax(1)]).all()
    assert model.transform(X).shape == (N, 128)
    assert model.history_[-1]["step"] == 150
    assert (model.matches_ is not None) == method.startswith("okapi")


def test_labels_may_be_missing_in_any_form(data):
    X, label, site = data
    known = site == 0
    names = np.array(["ant", "bee", "cat"])[label]
    expected = OkapiClassifier(**FAST).fit(X, unlabelled(label, site)).predict_proba(X)
    forms = {
        "NaN": np.where(known, label, np.nan),
        "None": np.where(known, names.astype(object), None),
        "series of text": pd.Series(names).where(known),
        "nullable series": pd.Series(label, dtype="Int64").where(known),
        "list": [name if there else None for name, there in zip(names, known, strict=True)],
    }
    for form, y in forms.items():
        model = OkapiClassifier(**FAST).fit(X, y)
        np.testing.assert_array_equal(model.predict_proba(X), expected, err_msg=form)
        assert len(model.classes_) == 3, form
        assert set(model.predict(X)) <= set(model.classes_), form
    assert OkapiClassifier(**FAST).fit(X, forms["None"]).classes_.tolist() == ["ant", "bee", "cat"]


def test_minus_one_and_one_are_two_classes(data):
    X, label, _ = data
    y = np.where(label == 0, 1, -1)
    with pytest.warns(UserWarning, match="needs unlabelled rows and there are none"):
        assert OkapiClassifier(**FAST).fit(X, y).classes_.tolist() == [-1, 1]
    y = np.where(label == 0, 1, -1).astype(float)
    y[:40] = np.nan
    assert OkapiClassifier(**FAST).fit(X, y).classes_.tolist() == [-1, 1]


def test_rows_without_labels_may_be_given_apart(data):
    X, label, site = data
    order = np.argsort(site, kind="stable")
    together = OkapiClassifier(**FAST).fit(X[order], unlabelled(label, site)[order])
    apart = OkapiClassifier(**FAST).fit(X[site == 0], label[site == 0], X_unlabelled=X[site == 1])
    np.testing.assert_array_equal(together.predict_proba(X), apart.predict_proba(X))
    assert (apart.matches_.query >= (site == 0).sum()).all()
    assert (apart.matches_.key < (site == 0).sum()).all()


def test_matches_are_of_one_class(data):
    X, label, site = data
    model = OkapiClassifier(**{**FAST, "steps": 150}).fit(X, unlabelled(label, site))
    query, key = model.matches_.query.numpy(), model.matches_.key.numpy()
    assert (site[query] == 1).all()
    assert (site[key] == 0).all()
    assert (label[query, None] == label[key]).mean() > 0.8


def test_domains_decide_who_is_matched(data):
    X, label, site = data
    y = label.astype(float)
    y[::5] = np.nan  # at both sites
    domain = np.array(["oslo", "rome"])[site]
    model = OkapiClassifier(**FAST).fit(X, y, domain=domain)
    assert (domain[model.matches_.query, None] != domain[model.matches_.key]).all()
    apart = OkapiClassifier(**FAST).fit(
        X[::2], label[::2], domain=domain[::2], X_unlabelled=X[1::2], domain_unlabelled=domain[1::2]
    )
    assert len(apart.matches_)


@pytest.mark.parametrize("kind", ["float32", "frame", "csr", "csc", "tensor", "list"])
def test_inputs_of_all_kinds_give_the_same(data, kind):
    X, label, site = data
    X = X.astype(np.float32)
    kinds = {
        "float32": X,
        "frame": pd.DataFrame(X, columns=list("abcdef")),
        "csr": sparse.csr_matrix(X),
        "csc": sparse.csc_array(X),
        "tensor": torch.from_numpy(X),
        "list": X.tolist(),
    }
    y = unlabelled(label, site)
    expected = OkapiClassifier(**FAST).fit(X, y).predict_proba(X)
    model = OkapiClassifier(**FAST).fit(kinds[kind], y)
    np.testing.assert_array_equal(model.predict_proba(kinds[kind]), expected)


@pytest.mark.filterwarnings(FEW_MATCHES)
def test_a_network_of_ones_own(data):
    rng = np.random.default_rng(0)
    images = rng.normal(size=(60, 1, 8, 8)).astype(np.float32)
    y = np.arange(60) % 2
    images[y == 1] += 1
    encoder = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    model = OkapiClassifier(encoder=encoder, **FAST).fit(images, np.where(np.arange(60) < 40, y, -1))
    assert model.score(images[40:], y[40:]) > 0.9
    assert model.transform(images).shape == (60, 4)
    assert all(torch.equal(before[name], value) for name, value in encoder.state_dict().items())
    with pytest.raises(ValueError, match=r"encoder must give encodings \(n, d\), got shape \(2, 4, 6, 6\) of 2 rows"):
        OkapiClassifier(encoder=nn.Conv2d(1, 4, 3), **FAST).fit(images, y)


def test_the_same_seed_gives_the_same_model_and_leaves_torch_alone(data):
    X, label, site = data
    y = unlabelled(label, site)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    one = OkapiClassifier(**FAST).fit(X, y)
    assert torch.equal(torch.rand(3), expected)
    two = OkapiClassifier(**FAST).fit(X, y)
    other = OkapiClassifier(**{**FAST, "random_state": 1}).fit(X, y)
    np.testing.assert_array_equal(one.predict_proba(X), two.predict_proba(X))
    assert (one.predict_proba(X) != other.predict_proba(X)).any()
    np.testing.assert_array_equal(one.predict_proba(X)[:7], one.predict_proba(X[:7]))


def test_pickle_clone_and_pipeline(data):
    X, label, site = data
    y = unlabelled(label, site)
    model = make_pipeline(StandardScaler(), OkapiClassifier(scale=None, **FAST))
    expected = clone(model).fit(X, y).predict_proba(X)
    again = pickle.loads(pickle.dumps(model.fit(X, y)))
    np.testing.assert_array_equal(again.predict_proba(X), expected)


@pytest.mark.filterwarnings(FEW_MATCHES)
def test_grid_search_scores_labelled_rows_only(data):
    X, label, site = data
    grid = GridSearchCV(OkapiClassifier(**FAST), {"learning_rate": [1e-5, 1e-2]}, cv=2)
    grid.fit(X, unlabelled(label, site))
    assert grid.best_params_ == {"learning_rate": 1e-2}
    assert grid.best_score_ > 0.8


def test_domains_are_routed_through_a_search(data):
    X, label, site = data
    with sklearn.config_context(enable_metadata_routing=True):
        model = OkapiClassifier(**FAST).set_fit_request(domain=True)
        y = np.where(np.arange(N) % 5, label, -1)
        grid = GridSearchCV(model, {"noise": [0.0, 0.1]}, cv=2).fit(X, y, domain=site)
    assert (site[grid.best_estimator_.matches_.query, None] != site[grid.best_estimator_.matches_.key]).all()


def test_regression(data):
    X, _, site = data
    Y = np.column_stack([X[:, 0] + 2 * X[:, 1], 100 * X[:, 2]])
    for target in (Y[:, 0], Y):
        known = site == 0
        y = np.where(known if target.ndim == 1 else known[:, None], target, np.nan)
        model = OkapiRegressor(**{**FAST, "steps": 300}).fit(X, y)
        assert model.predict(X).shape == target.shape
        assert model.score(X[known], target[known]) > 0.9
        assert model.score(X, y) == pytest.approx(model.score(X[known], target[known]))


def test_it_gains_where_a_site_is_shifted():
    rng = np.random.default_rng(1)
    label, site = rng.integers(3, size=600), np.arange(600) % 2
    X = 3 * np.eye(3, 6)[label] + 0.7 * rng.normal(size=(600, 6)) + 2.5 * site[:, None] * np.eye(6)[0]
    y = unlabelled(label, site)
    scores = {
        method: OkapiClassifier(method, steps=300, learning_rate=3e-3, random_state=0)
        .fit(X, y)
        .score(X[site == 1], label[site == 1])
        for method in ("erm", "okapi_plus")
    }
    assert scores["okapi_plus"] > scores["erm"] + 0.1


def test_few_matches_are_a_warning(data):
    X, label, site = data
    settings = OkapiPlusSettings(matching=PrognosticMatchingSettings(prognostic_caliper=0.0))
    with pytest.warns(ConvergenceWarning, match="0 of 120 unlabelled rows have a match"):
        OkapiClassifier(settings=settings, **FAST).fit(X, unlabelled(label, site))


def test_progress_is_printed(data, capsys):
    X, label, site = data
    OkapiClassifier(verbose=1, **FAST).fit(X, unlabelled(label, site))
    lines = capsys.readouterr().out.splitlines()
    assert 3 <= len(lines) <= 5
    assert lines[-1].startswith("OkapiClassifier: step 40 of 40, loss ")


@pytest.mark.parametrize(
    ("changes", "call", "message"),
    [
        ({"method": "magic"}, {}, "method must be one of okapi_plus, okapi, erm, fixmatch, got 'magic'"),
        ({"steps": 0}, {}, "steps must be a whole number of at least 1, got 0"),
        ({"learning_rate": -1}, {}, "learning_rate must be positive, got -1"),
        ({"scale": "log"}, {}, "scale must be 'standard', 'unit' or None, got 'log'"),
        ({"settings": OkapiSettings()}, {}, "settings are those of 'okapi', but method is 'okapi_plus'"),
        ({}, {"y": np.full(N, np.nan)}, "y has no labelled row"),
        ({}, {"y": np.zeros(N)}, "y must have at least two classes, got one class: 0.0"),
        ({}, {"y": np.linspace(0, 1, N)}, "continuous"),
        ({}, {"domain": np.zeros(N - 1)}, r"domain must have shape \(240,\), one value for each row, got \(239,\)"),
        ({}, {"domain": np.zeros(N)}, "domain must have at least two values"),
        ({}, {"domain": [None] + ["a"] * (N - 1)}, "domain is missing in row 0"),
        ({}, {"domain_unlabelled": np.zeros(3)}, "domain_unlabelled is given without domain"),
        ({}, {"X_unlabelled": np.zeros((3, 2))}, "X has 2 features, but OkapiClassifier is expecting 6 features"),
    ],
)
def test_mistakes_are_named(data, changes, call, message):
    X, label, site = data
    arguments = {"X": X, "y": unlabelled(label, site), **call}
    with pytest.raises(ValueError, match=message):
        OkapiClassifier(**{**FAST, **changes}).fit(**arguments)


def test_settings_of_the_method(data):
    X, label, site = data
    y = unlabelled(label, site)
    settings = {"okapi_plus": OkapiPlusSettings(bank=64, weight=0.5), "fixmatch": FixMatchSettings(threshold=0.5)}
    for method, given in settings.items():
        assert OkapiClassifier(method, settings=given, **FAST).fit(X, y).score(X, y) > 0.8


def test_a_diverging_loss_stops(data):
    X, _, _ = data
    with pytest.raises(FloatingPointError, match="lower learning_rate"):
        OkapiRegressor("erm", steps=200, learning_rate=1e30, random_state=0).fit(X, X[:, 0])
