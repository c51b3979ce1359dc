"""CaliperMatcher's other methods, calipers on covariates, formulas, Table 1, matched data and sensitivity."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import torch
from hypothesis import given
from hypothesis import strategies as st

from okapi.matching import CaliperMatcher, Matches, MatchingWarning, e_value, effects_of_treatments, rosenbaum_bounds
from okapi.matching.diagnostics.sensitivity import e_values, explained_by
from okapi.matching.strata import coarsened_strata, stratum_weights

N = 200


@pytest.fixture
def study():
    rng = np.random.default_rng(0)
    treated = rng.random(N) < 0.35
    frame = pd.DataFrame({"age": rng.normal(50, 10, N) + 4 * treated, "dose": rng.normal(size=N)})
    frame["sex"] = rng.choice(["f", "m"], N)
    return frame, treated, frame.age.to_numpy() / 10 + 3 * treated + rng.normal(size=N)


@pytest.mark.parametrize("method", ["full", "cem", "subclass", "exact"])
@pytest.mark.parametrize("estimand", ["att", "atc", "ate"])
def test_the_effect_in_strata_is_a_weighted_regression_with_clustered_errors(study, method, estimand):
    frame, treated, y = study
    X = frame.round({"age": -1, "dose": 0}) if method == "exact" else frame
    matcher = CaliperMatcher(method=method, estimand=estimand).fit(X, treated)
    strata, found = matcher.match(), matcher.effect(y)
    data = matcher.get_matched_data(X.assign(y=y, treated=treated))
    assert set(data.subclass) == set(strata.subclass) - {-1}
    design = sm.add_constant(data.treated.astype(float))
    few = data.subclass.nunique() < 20
    groups = np.arange(len(data)) if few else data.subclass.to_numpy()
    model = sm.WLS(data.y, design, weights=data.weights)
    fit = model.fit(cov_type="cluster", cov_kwds={"groups": groups})
    assert found.estimate == pytest.approx(fit.params["treated"])
    assert found.standard_error == pytest.approx(fit.bse["treated"])
    assert found.clusters == ("unit" if few else "subclass")
    assert found.estimate == pytest.approx(3, abs=0.8)
    assert matcher.balance().summary()["mean_abs_smd_after"] < matcher.balance().summary()["mean_abs_smd_before"]
    for group in (True, False):
        assert data.weights[data.treated == group].mean() == pytest.approx(1)


def test_strata_are_those_of_the_functions(study):
    frame, treated, _ = study
    strata = CaliperMatcher(method="cem", cutpoints=4).fit(frame, treated).match()
    np.testing.assert_array_equal(strata.subclass, coarsened_strata(frame, treated, 4))
    np.testing.assert_array_equal(strata.weights, stratum_weights(strata.subclass, treated))
    table = strata.to_frame()
    assert list(table) == ["sample", "subclass", "weights"]
    assert len(table) == len(strata)


def test_optimal_pairs_cost_no_more_than_pairs_chosen_in_turn(study):
    frame, treated, _ = study
    settings = {"distance": "mahalanobis", "std_caliper": 0.2}
    in_turn = CaliperMatcher(**settings, replace=False).fit(frame, treated).match()
    matcher = CaliperMatcher(**settings, method="optimal").fit(frame, treated)
    assert len(matcher.match()) >= len(in_turn)
    assert len(matcher.match().key.unique()) == len(matcher.match())
    loose = CaliperMatcher(distance="mahalanobis", method="optimal").fit(frame, treated).match()
    greedy = CaliperMatcher(distance="mahalanobis", replace=False).fit(frame, treated).match()
    assert loose.distance.sum() <= greedy.distance.sum()


@given(
    seed=st.integers(0, 2**32 - 1),
    std=st.sampled_from([None, 1.0]),
    replace=st.booleans(),
    prognostic=st.sampled_from([None, 0.8]),
    distance=st.sampled_from(["euclidean", "propensity"]),
)
@pytest.mark.filterwarnings("ignore::okapi.matching.MatchingWarning")
def test_calipers_on_covariates_and_values_that_differ_equal_brute_force(seed, std, replace, prognostic, distance):
    rng = np.random.default_rng(seed)
    n = 40
    X = np.column_stack([rng.integers(0, 10, n), rng.normal(size=n), rng.integers(0, 3, n)]).astype(float)
    treated, scores, risk = np.arange(n) % 3 == 0, rng.random(n), rng.normal(size=n)
    settings = {"std_caliper": std, "prognostic_caliper": prognostic, "distance": distance, "replace": replace}
    matcher = CaliperMatcher(**settings, covariate_calipers={"x0": 2, "x1": 0.7}, anti_exact=[2], order=None)
    matcher.fit(X, treated, propensity_scores=scores, prognosis=risk)
    found = dict(zip(matcher.match().query.tolist(), matcher.match().key[:, 0].tolist(), strict=True))
    expected, taken = {}, set()
    queries = np.flatnonzero(treated)
    ordered = not replace and matcher.needs_propensity()
    for query in queries[np.argsort(-scores[queries], kind="stable")] if ordered else queries:
        near = (np.abs(X[:, :2] - X[query, :2]) <= [2, 0.7]).all(1) & (X[:, 2] != X[query, 2]) & ~treated
        near &= std is None or np.abs(scores - scores[query]) <= std * scores.std(ddof=1)
        near &= prognostic is None or np.abs(risk - risk[query]) / risk.std(ddof=1) <= prognostic
        near[list(taken)] = False
        if near.any():
            apart = np.abs(scores - scores[query]) if distance == "propensity" else ((X - X[query])[:, :2] ** 2).sum(1)
            expected[int(query)] = int(np.argmin(np.where(near, apart, np.inf)))
            taken |= set() if replace else {expected[int(query)]}
    assert found == expected
    table = matcher.removed().set_index("rule").pairs
    assert table["calipers on covariates"] <= table["values that must differ"]


def test_a_variable_ratio_gives_more_keys_to_low_propensities_and_k_on_average(study):
    frame, treated, _ = study
    matcher = CaliperMatcher(k=2, fewest=1, most=5, replace=False, random_state=3).fit(frame, treated)
    keys = (matcher.match().key >= 0).sum(1).numpy()
    assert keys.sum() == min(2 * treated.sum(), (~treated).sum())
    score = matcher.propensity_[matcher.match().query.numpy()]
    assert set(keys) <= {1, 2, 3, 4, 5}
    assert score[keys == 5].max() <= score[keys == 1].min()


def test_formulas(study):
    frame, treated, y = study
    data = frame.assign(arm=np.where(treated, "drug", "placebo"), y=y, grade=np.arange(N) % 3)
    by_formula = CaliperMatcher.from_formula(
        "arm ~ age + C(grade)", data, treated="drug", std_caliper=0.3, exact=["sex"]
    )
    X = data[["age", "grade", "sex"]].astype({"grade": "category"})
    by_hand = CaliperMatcher(std_caliper=0.3, exact=["sex"]).fit(X, data.arm, treated="drug")
    assert by_formula.covariate_names_ == ["age", "grade_0", "grade_1", "grade_2"]
    assert by_formula.effect(y).estimate == by_hand.effect(y).estimate
    everything = CaliperMatcher.from_formula("arm ~ .", data.drop(columns="y"), treated="drug")
    assert everything.covariate_names_ == ["age", "dose", "sex_f", "sex_m", "grade"]


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("arm ~ agee", "formula names 'agee', which is no column; did you mean 'age'"),
        ("treat ~ age", "formula names 'treat', which is no column"),
        ("arm ~ age * dose", r"formula holds 'age \* dose'; terms are columns"),
        ("arm ~ arm + age", "formula has 'arm' on both sides"),
        ("age + dose", "formula must be such as"),
        ("arm ~ ", "formula must be such as"),
    ],
)
def test_bad_formulas_are_named(study, formula, message):
    frame, treated, _ = study
    with pytest.raises(ValueError, match=message):
        CaliperMatcher.from_formula(formula, frame.assign(arm=treated))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "genetic"}, "method must be one of"),
        ({"method": "cem", "k": 2}, "k has no meaning with method='cem', got 2"),
        ({"method": "full", "replace": False}, "replace has no meaning with method='full', got False"),
        ({"method": "subclass", "std_caliper": 0.2}, "std_caliper has no meaning with method='subclass'"),
        ({"method": "optimal", "order": "data"}, "order has no meaning with method='optimal'"),
        ({"n_subclasses": 0}, "n_subclasses must be a whole number of at least 1, got 0"),
        ({"method": "subclass", "n_subclasses": 150}, "150 subclasses need 150 treated and controls, got"),
        ({"covariate_calipers": {"age": -1}}, "covariate_calipers must be numbers of at least 0, got -1 for 'age'"),
        ({"covariate_calipers": {"agee": 1}}, r"covariate_calipers names \['agee'\], which are no covariates"),
        ({"anti_exact": "sex"}, "anti_exact must be a list of columns, got 'sex'"),
        ({"anti_exact": ["size"]}, r"anti_exact names columns that X does not have: \['size'\]"),
        ({"fewest": 1, "most": 3}, "fewest and most need replace=False and fewest <= k <= most"),
        ({"fewest": 2, "most": 3, "replace": False}, "fewest <= k <= most, got fewest=2, k=1, most=3"),
        ({"max_uses": 2}, "max_uses needs replace=False"),
        ({"k": 100_000}, "k must be at most 1[0-9][0-9], the number of samples that a query may be matched to"),
        ({"method": "full", "std_caliper": 1e-9, "caliper_scale": "logit"}, "full matching is infeasible"),
    ],
)
def test_bad_settings_are_named(study, settings, message):
    frame, treated, _ = study
    with pytest.raises((ValueError, TypeError), match=message):
        CaliperMatcher(**settings).fit(frame, treated).match()


def test_bad_treatments_and_outcomes_are_named(study):
    frame, treated, y = study
    for domain, named, message in (
        (np.ones(N), None, "domain must hold at least two domains, got only 1.0"),
        (np.where(treated, "a", "b"), "c", r"treated must be one of the groups \['a', 'b'\], got 'c'"),
        (np.arange(N) % 3, 0, "treated needs two groups, got 3"),
    ):
        with pytest.raises(ValueError, match=message):
            CaliperMatcher().fit(frame, domain, treated=named)
    matcher = CaliperMatcher().fit(frame, treated)
    with pytest.raises(ValueError, match="outcome must have a value for each of the 200 samples fitted, got 3"):
        matcher.effect(y[:3])
    with pytest.raises(ValueError, match="propensity_scores must be finite, row 4 holds NaN"):
        CaliperMatcher().fit(frame, treated, propensity_scores=np.where(np.arange(N) == 4, np.nan, 0.5))
    with pytest.raises(ValueError, match="data must have a row for each of the 200 samples fitted, got 5"):
        matcher.get_matched_data(frame.head())
    with pytest.raises(ValueError, match="rosenbaum_bounds needs pairs"):
        matcher.rosenbaum_bounds(y)
    groups = CaliperMatcher().fit(frame[["age", "dose"]], np.where(treated, "a", "b"))
    with pytest.raises(ValueError, match="treated must be given to fit, for table_one"):
        groups.table_one()
    with pytest.raises(ValueError, match="method='cem' needs a treatment"):
        CaliperMatcher(method="cem").fit(frame, np.where(treated, "a", "b"))


def test_a_small_match_rate_a_single_key_and_a_worse_balance_warn(study):
    frame, treated, _ = study
    with pytest.warns(MatchingWarning, match=r"of 61 queries were matched .*widen or leave out a caliper"):
        CaliperMatcher(distance="mahalanobis", covariate_calipers={"age": 0.02}).fit(frame, treated).match()
    with pytest.warns(MatchingWarning, match="nothing was matched: no query has as many admissible keys"):
        CaliperMatcher(covariate_calipers={"age": 0.0}).fit(frame, treated).match()
    far = frame[["age"]].assign(age=lambda x: x.age + 100 * treated)
    far.loc[np.flatnonzero(~treated)[3], "age"] = 150
    scores = np.clip(far.age / 300, 0, 1)
    with pytest.warns(MatchingWarning, match=f"one key, row {np.flatnonzero(~treated)[3]}, serves most of the"):
        CaliperMatcher().fit(far, treated, propensity_scores=scores).match()
    scores = np.where(treated, 0.5, 0.5 + np.abs(frame.age - 20) / 1000)  # the youngest controls come first
    matcher = CaliperMatcher(replace=False).fit(frame, treated, propensity_scores=scores)
    with pytest.warns(MatchingWarning, match="less alike after matching than before"):
        matcher.balance()


def test_several_treatments_are_each_compared_with_the_reference(study):
    frame, treated, y = study
    arm = np.where(treated, "high", np.where(np.arange(N) % 2, "low", "placebo"))
    table = effects_of_treatments(frame, arm, y, reference="placebo", matcher=CaliperMatcher(k=2)).set_index(
        "treatment"
    )
    both = arm != "low"
    alone = CaliperMatcher(k=2).fit(frame[both], arm[both], treated="high").effect(y[both])
    assert table.loc["high", ["estimate", "n"]].tolist() == [alone.estimate, treated.sum()]
    assert list(table.index) == ["high", "low"]
    with pytest.raises(ValueError, match=r"reference must be one of the groups \['high', 'low', 'placebo'\], got 'no'"):
        effects_of_treatments(frame, arm, y, reference="no")


def test_table_one_has_the_moments_of_both_groups(study):
    frame, treated, _ = study
    matcher = CaliperMatcher(k=2, replace=False).fit(frame, treated)
    table = matcher.table_one().set_index("covariate")
    balance = matcher.balance().table.set_index("covariate")
    for when in ("before", "after"):
        np.testing.assert_allclose(table.loc[balance.index, f"smd_{when}"], balance[f"smd_{when}"])
        np.testing.assert_allclose(table.loc[balance.index, f"mean_control_{when}"], balance[f"mean_key_{when}"])
    assert table.loc["n", ["mean_treated_before", "mean_control_before"]].tolist() == [treated.sum(), (~treated).sum()]
    assert table.loc["n", "mean_control_after"] == len(matcher.match().key.unique())
    assert table.loc["age", "sd_treated_before"] == pytest.approx(frame.age[treated].std())
    assert np.isnan(table.loc["sex_f", "sd_treated_before"])


def test_matched_data_of_pairs_have_the_subclasses_of_matchit(study):
    frame, treated, y = study
    matcher = CaliperMatcher(replace=False, std_caliper=0.2).fit(frame, treated)
    data = matcher.get_matched_data(frame.assign(y=y, treated=treated))
    assert (data.groupby("subclass").treated.agg(["sum", "size"]) == [1, 2]).all(axis=None)
    assert (data.weights == 1).all()
    difference = data[data.treated].y.mean() - data[~data.treated].y.mean()
    assert matcher.effect(y).estimate == pytest.approx(difference)
    again = CaliperMatcher(std_caliper=0.2).fit(frame, treated).get_matched_data()
    assert "subclass" not in again
    assert list(again) == ["age", "dose", "sex", "weights"]


# Sensitivity: published numbers

EXPOSED = (
    "38 23 41 18 37 36 23 62 31 34 24 14 21 17 16 20 15 10 45 39 22 35 49 48 44 35 43 39 34 13 73 25 27",
    "16 18 18 24 19 11 10 15 16 18 18 13 19 10 16 16 24 13 9 14 21 19 7 18 19 12 11 22 25 16 13 11 13",
)
LEAD = tuple(np.array(side.split(), dtype=float) for side in EXPOSED)


def pairs_of(first, second):
    n = len(first)
    matches = Matches(torch.arange(n), torch.arange(n, 2 * n)[:, None], torch.zeros(n, 1))
    return np.concatenate([first, second]), np.arange(2 * n) < n, matches


def test_rosenbaum_bounds_of_lead_in_the_blood_of_children():
    """Rosenbaum, Observational Studies (2002), table 4.2: children of workers exposed to lead, and their neighbours."""
    bounds = rosenbaum_bounds(*pairs_of(*LEAD), gamma=[1, 2, 3, 4, 4.25, 5])
    assert bounds.p_high.round(4).tolist() == [0.0, 0.0018, 0.0136, 0.0388, 0.0468, 0.074]
    assert explained_by(bounds) == 5
    reverse = rosenbaum_bounds(*pairs_of(*LEAD[::-1]), gamma=[3])
    assert reverse.p_high[0] == bounds.p_high[2]
    with pytest.raises(ValueError, match=r"gamma must be at least 1, got 0\.5"):
        rosenbaum_bounds(*pairs_of(*LEAD), gamma=[0.5])


def test_rosenbaum_bounds_of_heavy_smoking():
    """Hammond (1964), in Rosenbaum's section 4.3.2: 110 of 122 discordant pairs. His values are approximations."""
    smokers = np.repeat([1, 0, 0], [110, 12, 300])
    bounds = rosenbaum_bounds(*pairs_of(smokers, np.repeat([0, 1, 0], [110, 12, 300])), gamma=[1, 3, 4, 5, 6])
    np.testing.assert_allclose(bounds.p_high, [0, 0, 0.0036, 0.03, 0.1], atol=0.007)


def test_e_values_are_those_published():
    """VanderWeele and Ding (2017): breast feeding and respiratory death; and leukaemia."""
    assert [round(value, 2) for value in e_values(3.9, 1.8, 8.7)] == [7.26, 3.0]
    assert [round(value, 2) for value in e_values(0.80, 0.71, 0.91)] == [1.81, 1.43]
    assert e_values(1.2, 0.9, 1.6).interval == 1


def test_e_values_of_an_effect(study):
    frame, treated, y = study
    matcher = CaliperMatcher(replace=False).fit(frame, treated)
    numbers = matcher.effect(y)
    d = numbers.estimate / numbers.outcome_sd
    assert e_value(numbers).estimate == pytest.approx(e_values(np.exp(0.91 * d), 1, 1).estimate)
    risk = matcher.effect(y > np.median(y))
    assert risk.ratio is not None
    assert e_value(risk).estimate == pytest.approx(risk.ratio[1] + np.sqrt(risk.ratio[1] * (risk.ratio[1] - 1)))
