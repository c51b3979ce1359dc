"""CaliperMatcher with a prognostic caliper, and the precision of its matches."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from tests.matching.oracle import brute_force
from tests.matching.test_caliper_nn import assert_same

from okapi.matching import CaliperMatcher, match_precision

pytestmark = pytest.mark.filterwarnings("ignore::okapi.matching.MatchingWarning")
CLASSES = np.array(["cat", "dog", "owl"])


def outcomes(rng, n, kind):
    """Return outcomes as the matcher takes them."""
    if kind == "numbers":
        return rng.normal(50.0, 7.0, n)
    if kind == "classes":
        return CLASSES[rng.integers(0, 3, n)]
    return rng.dirichlet(np.full(3, 0.3), n)


def as_compared(outcome, fitted):
    """Return them as their definition compares them."""
    if outcome.dtype.kind == "U":
        return (outcome[:, None] == CLASSES).astype(float)
    return outcome / np.std(fitted, ddof=1) if outcome.ndim == 1 else outcome


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(3, 30),
    m=st.integers(0, 20),
    k=st.integers(1, 3),
    kind=st.sampled_from(["numbers", "classes", "columns"]),
    caliper=st.sampled_from([0.0, 0.2, 1.0, 3.0]),
    fixed=st.sampled_from([None, 0.9]),
    std=st.sampled_from([None, 0.7]),
)
def test_equals_brute_force(seed, n, m, k, kind, caliper, fixed, std):
    """Matched among themselves, and as new samples to those fitted."""
    rng = np.random.default_rng(seed)
    x, new = rng.normal(size=(n, 2)), rng.normal(size=(m, 2))
    domain, new_domain = np.append([0, 1], rng.integers(0, 2, n - 2)), rng.integers(0, 2, m)
    scores, new_scores = rng.random(n), rng.random(m)
    outcome, new_outcome = outcomes(rng, n, kind), outcomes(rng, m, kind)
    if kind == "classes":
        outcome[:3] = CLASSES
    calipers = {"k": k, "fixed_caliper": fixed, "std_caliper": std, "prognostic_caliper": caliper}
    matcher = CaliperMatcher(**calipers, distance="euclidean", estimand="both")
    assume(k <= len(domain) - np.bincount(domain).min())
    matcher.fit(x, domain, propensity_scores=scores, prognosis=outcome)
    fitted = {"key_domain": domain, "key_propensity": scores, "key_prognosis": as_compared(outcome, outcome)}
    for queries, their_domain, their_scores, theirs in (
        (x, domain, scores, outcome),
        (new, new_domain, new_scores, new_outcome),
    ):
        if not len(queries):
            continue
        given_ = {"propensity_scores": their_scores, "prognosis": theirs}
        matches = matcher.match() if queries is x else matcher.match(queries, their_domain, **given_)
        expected = brute_force(
            queries,
            x,
            query_domain=their_domain,
            query_propensity=their_scores,
            query_prognosis=as_compared(theirs, outcome),
            **fitted,
            **calipers,
        )
        assert_same(matches, expected)


@pytest.fixture
def patients():
    rng = np.random.default_rng(0)
    site = np.repeat(["a", "b"], 60)
    x = rng.normal(size=(120, 3)) + np.repeat([[0.0], [0.5]], 60, axis=0)
    return x, site, x @ [1.0, 0.5, 0.0] + rng.normal(size=120)


def test_the_unit_of_numbers_does_not_matter(patients):
    x, site, outcome = patients
    found = [
        CaliperMatcher(prognostic_caliper=0.3).fit(x, site, prognosis=y).match()
        for y in (outcome, 1000 * outcome + 7, torch.from_numpy(outcome), pd.Series(outcome))
    ]
    for matches in found[1:]:
        assert torch.equal(matches.query, found[0].query)
        assert torch.equal(matches.key, found[0].key)


def test_classes_within_a_caliper_below_their_distance_are_an_exact_match(patients):
    x, site, _ = patients
    ward = CLASSES[np.arange(120) % 3]
    frame = pd.DataFrame(x).assign(ward=ward)
    frame.columns = frame.columns.astype(str)
    exact = CaliperMatcher(k=2, exact=["ward"]).fit(frame, site).match()
    for outcome in (ward, pd.Categorical(ward), ward.astype(object)):
        matches = CaliperMatcher(k=2, prognostic_caliper=1.0).fit(x, site, prognosis=outcome).match()
        assert torch.equal(matches.query, exact.query)
        assert torch.equal(matches.key, exact.key)


def test_removed_names_the_caliper_and_balance_before_is_that_without_it(patients):
    x, site, outcome = patients
    plain = CaliperMatcher(std_caliper=0.5).fit(x, site)
    matcher = clone(CaliperMatcher(std_caliper=0.5, prognostic_caliper=0.2)).fit(x, site, prognosis=outcome)
    table = matcher.removed()
    assert table.rule.tolist() == [
        "pairs across domains",
        "std-caliper 0.5",
        "prognostic caliper 0.2",
        "matched, k = 1",
    ]
    assert table.threshold[2] == "distance of prognoses <= 0.2 (standard deviations)"
    pd.testing.assert_frame_equal(table.head(2), plain.removed().head(2))
    spread = outcome.std(ddof=1)
    apart = np.abs(outcome[matcher.match().query] - outcome[matcher.match().key[:, 0]])
    assert apart.max() <= 0.2 * spread
    before = [name for name in plain.balance().pairs if name.endswith("_before")]
    np.testing.assert_array_equal(matcher.balance().pairs[before].max(), plain.balance().pairs[before].max())


def test_precision_is_that_of_the_matches(patients):
    x, site, outcome = patients
    matcher = CaliperMatcher(k=3).fit(x, site)
    found = matcher.precision(outcome, kind="regression")
    codes = (site == "b").astype(int)
    expected = match_precision(
        outcome, outcome, query_domain=codes, key_domain=codes, matches=matcher.match(), kind="regression"
    )
    assert found.overall == expected.overall
    assert found.table.query_domain.tolist() == ["a", "b"]
    assert found.value < found.chance
    tight = (
        CaliperMatcher(k=3, prognostic_caliper=0.1)
        .fit(x, site, prognosis=outcome)
        .precision(outcome, kind="regression")
    )
    assert tight.table.difference.max() <= 0.1 * outcome.std(ddof=1)

    new = matcher.match(x[:7] + 0.01, np.repeat("a", 7))
    of_new = matcher.precision(outcome, new, kind="regression", query_target=outcome[:7])
    apart = np.abs(outcome[new.query.numpy(), None] - outcome[new.key.numpy()])
    assert of_new.overall["difference"] == pytest.approx(apart.mean())
    assert of_new.table.key_domain.tolist() == ["b"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prognosis": np.full(119, 1.0)}, r"prognosis must have shape \(120,\) or \(120, c\), got \(119,\)"),
        ({"prognosis": np.full(119, "x")}, r"prognosis must have shape \(120,\) or \(120, C\), got \(119,\)"),
        ({"prognosis": np.append(np.zeros(119), np.nan)}, "prognosis must be finite, row 119 holds NaN or infinity"),
        ({"prognosis": np.array(["x", None] * 60, dtype=object)}, "prognosis is missing in row 1"),
    ],
)
def test_bad_outcomes_are_named(patients, change, message):
    x, site, _ = patients
    with pytest.raises(ValueError, match=message):
        CaliperMatcher(prognostic_caliper=0.5).fit(x, site, **change)


def test_outcomes_of_new_samples_are_of_the_kind_fitted(patients):
    x, site, outcome = patients
    numbers = CaliperMatcher(prognostic_caliper=0.5).fit(x, site, prognosis=outcome)
    with pytest.raises(ValueError, match="prognosis is needed by prognostic_caliper, got None"):
        numbers.match(x, site)
    with pytest.raises(ValueError, match=r"prognosis must be numbers of shape \(120,\), as in fit, got"):
        numbers.match(x, site, prognosis=np.zeros((120, 2)))
    classes = CaliperMatcher(prognostic_caliper=0.5).fit(x, site, prognosis=np.where(outcome > 0, "high", "low"))
    with pytest.raises(ValueError, match="prognosis holds 'none' in row 0, which was not there in fit"):
        classes.match(x, site, prognosis=np.repeat("none", 120))
