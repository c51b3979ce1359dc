"""CaliperMatcher: scikit-learn's conventions, its options against brute force, and errors."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.naive_bayes import GaussianNB
from sklearn.utils.estimator_checks import parametrize_with_checks

from okapi.matching import CaliperMatcher, balance, caliper_nn
from okapi.matching.centring import PRIOR
from okapi.matching.propensity import at_temperature

EXPECTED_FAILURES = {"check_fit_score_takes_y": "the second argument of fit is the domain, not a target"}


@parametrize_with_checks(
    [CaliperMatcher(), CaliperMatcher(std_caliper=0.2, distance="mahalanobis")],
    expected_failed_checks=lambda _: EXPECTED_FAILURES,
)
@pytest.mark.filterwarnings(
    "ignore::okapi.matching.SeparableDomainsWarning", "ignore::sklearn.exceptions.SkipTestWarning"
)
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


@pytest.fixture
def sites():
    rng = np.random.default_rng(0)
    domain = np.repeat(["b", "a", "c"], [40, 60, 50])
    shift = np.repeat([0.0, 0.7, -0.5], [40, 60, 50])
    x = rng.normal(size=(150, 3)) + shift[:, None]
    return x, domain


@pytest.fixture
def two_sites(sites):
    x, domain = sites
    return x[:100], domain[:100]


def pairs(matches):
    return dict(zip(matches.query.tolist(), matches.key.tolist(), strict=True))


def test_match_is_caliper_nn_on_the_fitted_samples(sites):
    x, domain = sites
    matcher = CaliperMatcher(k=3, fixed_caliper=0.95, std_caliper=0.5, embeddings=True).fit(x, domain)
    codes = np.unique(domain, return_inverse=True)[1]
    expected = caliper_nn(
        x,
        x,
        query_domain=codes,
        key_domain=codes,
        query_propensity=matcher.propensity_,
        key_propensity=matcher.propensity_,
        k=3,
        fixed_caliper=0.95,
        std_caliper=0.5,
    )
    assert 0 < len(expected) < 150
    assert pairs(matcher.match()) == pairs(expected)
    assert pairs(matcher.match(x, domain)) == pairs(expected)


def test_exact_codes_and_no_replacement_in_caliper_nn(sites):
    x, domain = sites
    ward = np.arange(150) % 4
    settings = {"k": 2, "std_caliper": 0.5, "caliper_sd": "all", "replace": False, "allow_fewer": True}
    matcher = CaliperMatcher(**settings, distance="euclidean", exact=[3]).fit(np.column_stack([x, ward]), domain)
    codes, score = matcher.domain_, matcher.propensity_
    sides = {"domain": codes, "propensity": score, "exact": ward}
    both = {f"{side}_{name}": torch.from_numpy(value) for name, value in sides.items() for side in ("query", "key")}
    found = caliper_nn(x, x, **both, **settings)
    assert len(found) > 50
    assert pairs(found) == pairs(matcher.match())
    assert (ward[found.query, None] == ward[found.key])[found.key.numpy() >= 0].all()
    closest = caliper_nn(x, x, **both, **settings, order="closest")
    assert pairs(closest) != pairs(found)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"query_exact": np.zeros(150, int)}, "query_exact and key_exact must be given together"),
        ({"query_exact": np.zeros(150), "key_exact": np.zeros(150)}, r"query_exact must be integers of shape \(150,\)"),
        ({"replace": False, "order": "largest"}, 'query_propensity is needed by order="largest", got None'),
        ({"order": "nearest"}, "order must be one of"),
        ({"caliper_sd": "treated"}, "caliper_sd must be one of"),
        ({"allow_fewer": None}, "allow_fewer must be True or False, got None"),
        ({"direction": (0, 7), "query_domain": np.eye(150, 3) > 0, "key_domain": np.eye(150, 3) > 0}, "in \\[0, 2\\]"),
    ],
)
def test_bad_settings_of_caliper_nn_are_named(sites, settings, message):
    codes = np.unique(sites[1], return_inverse=True)[1]
    with pytest.raises((ValueError, TypeError), match=message):
        caliper_nn(sites[0], sites[0], **{"query_domain": codes, "key_domain": codes} | settings)


def test_clone_keeps_the_settings_and_nothing_else(two_sites):
    matcher = CaliperMatcher(k=4, std_caliper=0.3, exact=None).fit(*two_sites)
    copy = clone(matcher)
    assert copy.get_params() == matcher.get_params()
    assert not hasattr(copy, "domains_")


def test_a_frame_gives_what_its_array_gives_with_its_index_as_ids(two_sites):
    x, domain = two_sites
    frame = pd.DataFrame(x, columns=["a", "b", "c"], index=[f"id{i}" for i in range(100)])
    matcher = CaliperMatcher(k=2).fit(frame, pd.Series(domain, index=frame.index))
    assert matcher.feature_names_in_.tolist() == ["a", "b", "c"]
    assert pairs(matcher.match()) == pairs(CaliperMatcher(k=2).fit(x, domain).match())
    table = matcher.to_frame()
    assert list(table.columns) == ["query", "rank", "key", "distance"]
    assert table["query"].iloc[0] == "id0"
    assert set(matcher.balance().table["covariate"]) == {"a", "b", "c"}
    with pytest.raises(ValueError, match="feature names should match"):
        matcher.match(frame[["b", "a", "c"]], domain)


def test_new_samples_are_matched_to_the_fitted_ones(two_sites):
    x, domain = two_sites
    matcher = CaliperMatcher(k=2, std_caliper=1.0).fit(x, domain)
    rng = np.random.default_rng(1)
    new, new_domain = rng.normal(size=(20, 3)), rng.choice(["a", "b"], 20)
    matches = matcher.match(new, new_domain)
    assert len(matches)
    for query, keys in pairs(matches).items():
        assert (domain[keys] != new_domain[query]).all()
    assert matcher.balance(matches).summary()["matched_directions"] == 2
    with pytest.raises(ValueError, match="domain holds 'z' in row 3, which was not there in fit"):
        matcher.match(new, np.where(np.arange(20) == 3, "z", new_domain))


def test_matches_of_new_samples_speak_of_the_new_samples(two_sites):
    """As if new and fitted samples had been given as queries and keys to the functions themselves."""
    x, domain = two_sites
    frame = pd.DataFrame(x, columns=list("abc"), index=[f"old{i}" for i in range(len(x))])
    matcher = CaliperMatcher(k=2, std_caliper=1.0).fit(frame, domain)
    rng = np.random.default_rng(1)
    n = len(x) + 50  # more than were fitted
    new = pd.DataFrame(rng.normal(size=(n, 3)) + 0.3, columns=list("abc"), index=[f"new{i}" for i in range(n)])
    new_domain = rng.choice(["a", "b"], n)
    matches = matcher.match(new, new_domain).to("cpu")

    table = matcher.to_frame(matches)
    assert table["query"].tolist() == new.index[matches.query.numpy().repeat(2)].tolist()
    assert set(table["key"]) <= set(frame.index)
    found = matcher.balance(matches).table
    expected = balance(
        new.to_numpy(),
        x,
        query_domain=(new_domain == "b").astype(int),
        key_domain=(domain == "b").astype(int),
        matches=matches,
    ).table
    np.testing.assert_array_equal(found.smd_before, expected.smd_before)
    np.testing.assert_array_equal(found.smd_after, expected.smd_after)
    assert matcher.weights(matches).sum() == len(matches)
    left = matcher.removed(matches)
    assert left["queries"].iloc[0] == n
    assert left["queries"].iloc[-1] == len(matches)
    assert left["pairs"].iloc[0] == sum((new_domain == a).sum() * (domain != a).sum() for a in "ab")
    with pytest.raises(ValueError, match="query_target is needed with matches of new samples"):
        matcher.precision(domain, matches)
    one_way = CaliperMatcher(estimand="att").fit(frame, domain, treated="b")
    with pytest.raises(ValueError, match="matches must be of the samples fitted"):
        one_way.effect(x[:, 0], one_way.match(new, new_domain))
    with pytest.raises(ValueError, match=f"a value for each of the {len(x)} samples fitted, got 3"):
        one_way.effect([1.0, 2.0, 3.0])


def test_settings_changed_since_fit_are_rejected(two_sites):
    x, domain = two_sites
    matcher = CaliperMatcher(k=2).fit(x, domain)
    matcher.match()
    with pytest.raises(ValueError, match="k was 2 in fit and is 4 now: fit again"):
        matcher.set_params(k=4).match()
    assert matcher.fit(x, domain).match().k == 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"centre": "domain"}, "centre must be True or False, got 'domain'"),
        ({"replace": "no"}, "replace must be True or False, got 'no'"),
        ({"two_way": None}, "two_way must be True or False, got None"),
        ({"allow_fewer": 1}, "allow_fewer must be True or False, got 1"),
        ({"exact": "sex"}, "exact must be a list of columns, got 'sex'"),
        ({"temperature": 0}, "temperature must be a positive number, got 0"),
        ({"temperature": "hot"}, "temperature must be a positive number, got 'hot'"),
        ({"propensity": "logit"}, "classifier must have predict_proba, str has not"),
        ({"fixed_caliper": "a"}, r"fixed_caliper must be in \[0, 1\] and not 0.5, got 'a'"),
        ({"std_caliper": "a"}, "std_caliper must be a positive number, got 'a'"),
        ({"prognostic_caliper": True}, "prognostic_caliper must be a number of at least 0, got True"),
    ],
)
def test_settings_are_checked_even_where_nothing_uses_them(two_sites, settings, message):
    with pytest.raises((TypeError, ValueError), match=message):
        CaliperMatcher(**settings).fit(*two_sites)


def test_numbers_in_columns_of_objects_are_numbers_and_dates_are_rejected(two_sites):
    x, domain = two_sites
    frame = pd.DataFrame(x, columns=list("abc"))
    assert pairs(CaliperMatcher().fit(frame.astype(object), domain).match()) == pairs(
        CaliperMatcher().fit(frame, domain).match()
    )
    assert CaliperMatcher().fit(frame.assign(d="1"), domain).covariate_names_ == ["a", "b", "c", "d_1"]
    with pytest.raises(TypeError, match="column 'when' holds datetime64 values"):
        CaliperMatcher().fit(frame.assign(when=pd.Timestamp("2020-01-01")), domain)


def test_a_missing_number_is_named_by_row_and_column(two_sites):
    x, domain = two_sites
    frame = pd.DataFrame(x, columns=["a", "b", "c"])
    frame.loc[7, "b"] = np.nan
    with pytest.raises(ValueError, match="X must be finite, row 7, column 'b' holds NaN or infinity"):
        CaliperMatcher().fit(frame, domain)


def test_tensors_of_any_precision_and_labels_of_one_type(two_sites):
    x, domain = two_sites
    coarse = torch.from_numpy(x).bfloat16()
    expected = CaliperMatcher().fit(coarse.float().numpy(), domain).match()
    assert pairs(CaliperMatcher().fit(coarse, domain).match()) == pairs(expected)
    mixed = np.array([1, *domain[1:]], dtype=object)
    with pytest.raises(TypeError, match="domain must hold labels of one type, got int, str"):
        CaliperMatcher().fit(x, mixed)


def test_estimand_names_the_queries(two_sites):
    x, domain = two_sites
    for estimand, queries in (("att", "b"), ("atc", "a")):
        matches = CaliperMatcher(estimand=estimand).fit(x, domain, treated="b").match()
        assert set(domain[matches.query.numpy()]) == {queries}
        assert len(matches) == (domain == queries).sum()


def test_cosine_is_one_minus_the_cosine(two_sites):
    x, domain = two_sites
    matches = CaliperMatcher(distance="cosine").fit(x, domain).match()
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    similarity = unit @ unit.T
    similarity[domain[:, None] == domain] = -2
    np.testing.assert_array_equal(matches.key[:, 0], similarity.argmax(1))
    np.testing.assert_allclose(matches.distance[:, 0], 1 - similarity.max(1), atol=1e-12)


@given(
    seed=st.integers(0, 2**32 - 1),
    distance=st.sampled_from(["euclidean", "cosine"]),
    n_domains=st.integers(2, 4),
    sets=st.booleans(),
)
def test_centred_vectors_are_compared_from_the_mean_of_their_domain(seed, distance, n_domains, sets):
    """Against brute force, for the samples fitted and for new ones, which are centred by the means of the fitted."""
    rng = np.random.default_rng(seed)
    n, m = 25, 10
    shift = 5 * rng.normal(size=(n_domains, 3))
    number = np.append(np.arange(n_domains), rng.integers(0, n_domains, n + m - n_domains))
    member = number[:, None] == np.arange(n_domains)
    if sets:
        member |= rng.random(member.shape) < 0.2
        member[np.arange(n_domains), np.arange(n_domains) - 1] = False  # no label of all
    x = rng.normal(size=(n + m, 3)) + member @ shift
    matcher = CaliperMatcher(distance=distance, centre=True, allow_fewer=True, k=2)
    domain = member if sets else np.array(["d", "a", "c", "b"])[number]
    matcher.fit(x[:n], domain[:n])

    start = x / np.linalg.norm(x, axis=1, keepdims=True) if distance == "cosine" else x
    fitted = start[:n]
    means = [(fitted[of].sum(0) + PRIOR * fitted.mean(0)) / (of.sum() + PRIOR) for of in member[:n].T]
    centre = np.array([np.mean([means[label] for label in np.flatnonzero(row)], axis=0) for row in member])
    unit = (start - centre) / np.linalg.norm(start - centre, axis=1, keepdims=True)
    apart = np.linalg.norm(unit[:, None] - unit[:n], axis=2)
    apart = apart**2 / 2 if distance == "cosine" else apart
    apart[(member[:, None] & member[:n]).any(2)] = np.inf
    for matches, rows in ((matcher.match(), apart[:n]), (matcher.match(x[n:], domain[n:]), apart[n:])):
        expected = np.sort(rows, axis=1)[:, :2]
        matched = np.isfinite(expected[:, 0])
        assert matches.query.tolist() == np.flatnonzero(matched).tolist()
        np.testing.assert_allclose(matches.distance.numpy(), expected[matched], atol=1e-9)
    np.testing.assert_array_equal(matcher.covariates_, x[:n])


def test_the_samples_fitted_match_alike_when_they_come_as_new(sites):
    matcher = CaliperMatcher(centre=True, k=3).fit(*sites)
    assert pairs(matcher.match(*sites)) == pairs(matcher.match())


def test_propensity_distance_compares_scores_on_the_scale_asked_for(two_sites):
    x, domain = two_sites
    rng = np.random.default_rng(0)
    scores = rng.uniform(0.001, 0.999, 100)
    for scale, on_scale in (("probability", scores), ("logit", np.log(scores / (1 - scores)))):
        matcher = CaliperMatcher(distance="propensity", caliper_scale=scale)
        matches = matcher.fit(x, domain, propensity_scores=scores).match()
        apart = np.abs(on_scale[:, None] - on_scale)
        apart[domain[:, None] == domain] = np.inf
        np.testing.assert_array_equal(matches.key[:, 0], apart.argmin(1))


def test_exact_columns_are_equal_within_pairs_and_no_covariates(two_sites):
    x, domain = two_sites
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(x, columns=["a", "b", "c"]).assign(
        sex=rng.choice(["f", "m"], 100), age=rng.integers(0, 3, 100)
    )
    matcher = CaliperMatcher(k=2, exact=["sex", "age"], allow_fewer=True, embeddings=True).fit(frame, domain)
    matches = matcher.match()
    assert matcher.covariate_names_ == ["a", "b", "c"]
    for query, keys in pairs(matches).items():
        found = [key for key in keys if key >= 0]
        allowed = np.flatnonzero(
            (domain != domain[query])
            & (frame["sex"] == frame["sex"][query]).to_numpy()
            & (frame["age"] == frame["age"][query]).to_numpy()
        )
        nearest = allowed[np.argsort(((x[allowed] - x[query]) ** 2).sum(1), kind="stable")][:2]
        assert found == nearest.tolist()
    array = np.column_stack([x, frame["sex"] == "f", frame["age"]])
    by_number = CaliperMatcher(k=2, exact=[3, 4], allow_fewer=True, embeddings=True).fit(array, domain)
    assert pairs(by_number.match()) == pairs(matches)


def test_allow_fewer_adds_queries_with_fewer_keys_and_changes_no_other(two_sites):
    x, domain = two_sites
    settings = {"k": 8, "std_caliper": 0.3}
    strict = CaliperMatcher(**settings).fit(x, domain).match()
    loose = CaliperMatcher(**settings, allow_fewer=True).fit(x, domain).match()
    assert len(loose) > len(strict) > 0
    assert {q: keys for q, keys in pairs(loose).items() if keys[-1] >= 0} == pairs(strict)
    assert torch.equal(loose.distance.isinf(), loose.key == -1)
    assert (loose.key[:, 0] >= 0).all()


def test_any_classifier_and_given_scores(two_sites):
    x, domain = two_sites
    by_classifier = CaliperMatcher(std_caliper=0.2, propensity=GaussianNB(), temperature=2.0).fit(x, domain)
    scores = GaussianNB().fit(x, domain == "b").predict_proba(x)[:, 1]
    given_scores = CaliperMatcher(std_caliper=0.2, temperature=2.0).fit(x, domain, propensity_scores=scores)
    np.testing.assert_allclose(by_classifier.propensity_, given_scores.propensity_, rtol=1e-9)
    np.testing.assert_allclose(given_scores.propensity_, at_temperature(scores, 2.0))
    assert pairs(by_classifier.match()) == pairs(given_scores.match())
    with pytest.raises(ValueError, match="propensity_scores is needed with X, because scores were given in fit"):
        given_scores.match(x, domain)


def test_propensity_is_estimated_when_first_asked_for(two_sites):
    matcher = CaliperMatcher().fit(*two_sites)
    with_caliper = CaliperMatcher(std_caliper=0.2).fit(*two_sites)
    np.testing.assert_array_equal(matcher.propensity_, with_caliper.propensity_)


def test_sets_of_domain_labels():
    rng = np.random.default_rng(0)
    labels = rng.random((80, 3)) < 0.3
    x = rng.normal(size=(80, 4)) + labels @ rng.normal(size=(3, 4))
    matcher = CaliperMatcher(k=2, std_caliper=1.0).fit(x, labels)
    matches = matcher.match()
    assert len(matches) > 10
    for query, keys in pairs(matches).items():
        assert not (labels[keys] & labels[query]).any()
    assert matcher.propensity_.shape == (80, 3)
    assert matcher.balance(matches).summary()["matched_directions"] > 0


def test_weights_count_queries_and_the_share_of_keys(two_sites):
    matcher = CaliperMatcher(k=3, estimand="att").fit(*two_sites, treated="b")
    weights = matcher.weights()
    domain = matcher.domain_
    assert weights[domain == 1].tolist() == [1.0] * (domain == 1).sum()
    assert weights[domain == 0].sum() == pytest.approx((domain == 1).sum())
    assert 0 < matcher.effective_sample_size() <= (domain == 0).sum()


def test_removed_counts_what_each_rule_leaves(two_sites):
    x, domain = two_sites
    matcher = CaliperMatcher(k=2, fixed_caliper=0.9, std_caliper=0.2).fit(x, domain)
    table = matcher.removed()
    scores, codes = matcher.propensity_, matcher.domain_
    kept = (scores > 0.1) & (scores < 0.9)
    across = codes[:, None] != codes
    limit = {}
    for a, b in ((0, 1), (1, 0)):
        pooled = (scores[kept & (codes == a)].var(ddof=1) + scores[kept & (codes == b)].var(ddof=1)) / 2
        limit[a] = 0.2 * np.sqrt(pooled)
    near = np.abs(scores[:, None] - scores) <= np.array([limit[a] for a in codes])[:, None]
    both_kept = kept[:, None] & kept
    assert table["pairs"].tolist()[:3] == [across.sum(), (across & both_kept).sum(), (across & both_kept & near).sum()]
    assert table["queries"].tolist() == [100, kept.sum(), kept.sum(), len(matcher.match())]
    assert table["threshold"][1] == "0.1 < propensity < 0.9"
    assert table["threshold"][2].startswith(f"difference <= {limit[0]:.4g} for a → b")


@pytest.mark.parametrize(
    "settings",
    [
        {"std_caliper": 0.5},
        {"std_caliper": 0.5, "exact": [0]},
        {},
        {"prognostic_caliper": 0.3},
        {"prognostic_caliper": 0.3, "std_caliper": 0.5, "exact": [0]},
    ],
)
def test_removed_counts_pairs_of_many_domains_and_of_sets(sites, settings):
    """The last row but one counts exactly the pairs that a matching with every key would return."""
    x, domain = sites
    x = np.column_stack([np.arange(150) % 2, x])
    labels = domain[:, None] == np.unique(domain)
    for kind in (domain, labels):
        matcher = CaliperMatcher(**settings, k=149, allow_fewer=True).fit(x, kind, prognosis=x[:, 1] + x[:, 2])
        table = matcher.removed()
        assert table["pairs"].iloc[-2] == table["pairs"].iloc[-1] > 0


def test_categories_of_a_frame_become_levels():
    frame = pd.DataFrame({"age": [1.0, 2, 3, 4], "race": ["x", "y", "y", "x"], "old": [True, False, True, False]})
    matcher = CaliperMatcher(distance="euclidean", estimand="both").fit(frame, [0, 0, 1, 1])
    assert matcher.covariate_names_ == ["age", "race_x", "race_y", "old"]
    # y to x costs a distance of 1, as much as a year
    assert matcher.match().distance[1, 0] == pytest.approx(np.sqrt(1 + 0 + 1))
    with pytest.raises(ValueError, match="column 'race' holds 'z' in row 0, which was not there in fit"):
        matcher.match(frame.assign(race="z"), [0, 0, 1, 1])
    with pytest.raises(ValueError, match="column 'race' has a missing value in row 1"):
        CaliperMatcher().fit(frame.assign(race=["x", None, "y", "x"]), [0, 0, 1, 1])


def test_effect_needs_to_know_who_is_treated(two_sites):
    with pytest.raises(
        ValueError, match=r"treated must be given to fit, for effect: which of the groups \['a', 'b'\] is it"
    ):
        CaliperMatcher().fit(*two_sites).effect(np.zeros(100))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"k": 0}, "k must be a whole number of at least 1, got 0"),
        ({"fixed_caliper": 0.5}, "fixed_caliper must be in"),
        ({"prognostic_caliper": -1}, "prognostic_caliper must be a number of at least 0, got -1"),
        ({"prognostic_caliper": 1}, "prognosis is needed by prognostic_caliper, got None"),
        ({"std_caliper": -1}, "std_caliper must be a positive number, got -1"),
        ({"caliper_sd": "treated"}, "caliper_sd must be one of"),
        ({"distance": "manhattan"}, "distance must be one of"),
        ({"centre": True, "distance": "mahalanobis"}, "centre needs one of the distances"),
        ({"estimand": "atx"}, "estimand must be one of"),
        ({"order": "nearest"}, "order must be one of"),
        ({"temperature": 0, "std_caliper": 0.2}, "temperature must be a positive number, got 0"),
        ({"exact": [7]}, r"exact names columns that X does not have: \[7\]"),
        ({"exact": [0, 1, 2]}, "exact names every column of X"),
        ({"propensity": object(), "std_caliper": 0.2}, "classifier must have predict_proba"),
    ],
)
def test_bad_settings_are_named(two_sites, settings, message):
    with pytest.raises((ValueError, TypeError), match=message):
        CaliperMatcher(**settings).fit(*two_sites)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"domain": np.repeat("a", 100)}, "domain must hold at least two domains, got only"),
        ({"domain": np.repeat("a", 99)}, r"domain must have shape \(100,\)"),
        ({"domain": np.array(["a", None] * 50, dtype=object)}, "domain is missing in row 1"),
        ({"propensity_scores": np.full(100, 1.2)}, r"propensity_scores must lie in \[0, 1\]"),
        ({"propensity_scores": np.full(99, 0.2)}, r"propensity_scores must have shape \(100,\)"),
        ({"propensity_scores": np.full((100, 3), 0.2)}, "propensity_scores must have 2 columns for 2 domains"),
        ({"X": np.full((100, 3), np.nan)}, "X must be finite, row 0, column .x0. holds NaN"),
        ({"X": np.full((100, 3), np.inf)}, "X must be finite, row 0, column .x0. holds NaN or infinity"),
    ],
)
def test_bad_data_are_named(two_sites, change, message):
    x, domain = two_sites
    arguments = {"X": x, "domain": domain, **change}
    with pytest.raises(ValueError, match=message):
        CaliperMatcher().fit(**arguments)


def test_att_needs_a_treatment(sites, two_sites):
    for x, domain in (sites, two_sites):
        with pytest.raises(ValueError, match=r"estimand='att' needs a treatment: name one of the groups \['a', 'b'"):
            CaliperMatcher(estimand="att").fit(x, domain)


def test_mahalanobis_names_constant_and_collinear_columns(two_sites):
    x, domain = two_sites
    frame = pd.DataFrame(x, columns=["a", "b", "c"])
    with pytest.raises(ValueError, match="'flat' is constant"):
        CaliperMatcher(distance="mahalanobis").fit(frame.assign(flat=3.0), domain)
    with pytest.raises(ValueError, match=r"linearly independent columns, leave out '[abd]', which"):
        CaliperMatcher(distance="mahalanobis").fit(frame.assign(d=frame["a"] - 2 * frame["b"]), domain)
    with pytest.raises(ValueError, match="'site' is constant within every domain but differs between them"):
        CaliperMatcher(distance="scaled_euclidean").fit(frame.assign(site=(domain == "a") * 1.0), domain)
    flat = CaliperMatcher(distance="scaled_euclidean").fit(frame.assign(flat=3.0), domain).match()
    assert pairs(flat) == pairs(CaliperMatcher(distance="scaled_euclidean").fit(frame, domain).match())


def test_cosine_names_a_row_of_zeros(two_sites):
    x, domain = two_sites
    x[5] = 0
    with pytest.raises(ValueError, match="cosine distance needs non-zero rows, row 5"):
        CaliperMatcher(distance="cosine").fit(x, domain)


@given(seed=st.integers(0, 2**32 - 1), n_domains=st.integers(2, 5), grid=st.booleans())
def test_pairs_of_many_domains_are_counted_exactly(seed, n_domains, grid):
    """Also where differences fall on a threshold."""
    rng = np.random.default_rng(seed)
    domain = np.append(np.arange(n_domains), rng.integers(0, n_domains, 30))
    scores = (
        rng.integers(0, 5, (len(domain), n_domains)) / 4 if grid else rng.dirichlet(np.ones(n_domains), len(domain))
    )
    matcher = CaliperMatcher(k=len(domain), std_caliper=1.0, caliper_sd="all", allow_fewer=True)
    table = matcher.fit(rng.normal(size=(len(domain), 2)), domain, propensity_scores=scores).removed()
    assert table["pairs"].iloc[-2] == table["pairs"].iloc[-1]


def test_matching_imports_no_matplotlib():
    program = "import sys, okapi.matching; print('matplotlib' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert out == "False\n"
