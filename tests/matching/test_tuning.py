import itertools
import os
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pandas as pd
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from okapi.matching import CaliperMatcher, SeparableDomainsWarning
from okapi.matching.diagnostics.tuning import SETTINGS, Tuning, pareto_front, settings_of, tune
from okapi.report.matching_plots import pareto_plot

pytestmark = pytest.mark.filterwarnings("ignore::okapi.matching.MatchingWarning")

SMALL = {"fixed_caliper": [None, 0.8], "std_caliper": [None, 0.2], "temperature": [1.0, 1.7], "k": [1, 3]}


def samples(n=160, d=3, domains=2, seed=0):
    rng = np.random.default_rng(seed)
    domain = np.arange(n) % domains
    return rng.normal(size=(n, d)) + 0.4 * domain[:, None], domain + 1  # not 0 and 1, which are a treatment


# The Pareto front

points = st.lists(
    st.tuples(
        st.one_of(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.floats(0, 1)),
        st.one_of(st.sampled_from([0.0, 0.1, np.inf, np.nan]), st.floats(0, 3)),
    ),
    max_size=30,
)


@given(points)
def test_pareto_front_is_what_its_definition_says(found):
    def beats(a, b):
        return a[0] >= b[0] and a[1] <= b[1] and a != b

    expected = [not np.isnan(b[1]) and not any(beats(a, b) for a in found) for b in found]
    retained, imbalance = np.array(found, dtype=float).reshape(-1, 2).T
    assert pareto_front(retained, imbalance).tolist() == expected


@given(points)
def test_along_the_front_more_queries_cost_balance(found):
    retained, imbalance = np.array(found, dtype=float).reshape(-1, 2).T
    front = pareto_front(retained, imbalance)
    order = np.lexsort((imbalance[front], retained[front]))
    along = np.column_stack([retained[front], imbalance[front]])[order]
    for one, other in itertools.pairwise(along):
        assert (one == other).all() or (one < other).all()
    # Whatever was matched is on the front or beaten by a point of it.
    known = ~np.isnan(imbalance)
    assert front.any() == known.any()


# The grid


def test_combinations_that_say_the_same_are_run_once():
    X, domain = samples()
    table = tune(X, domain, **SMALL).table
    # Without calipers neither temperature nor scale has a meaning; with a fixed caliper alone the scale has none.
    assert len(table) == 2 * (1 + 2 + 2 * 2 + 2 * 2)
    assert not table.duplicated(list(SETTINGS)).any()
    twice = tune(X, domain, fixed_caliper=[0.9, 0.1, 0.9], std_caliper=[None], temperature=[1.0], k=[1]).table
    assert twice.fixed_caliper.tolist() == [0.9]
    by_score = CaliperMatcher(distance="propensity")
    both = tune(X, domain, fixed_caliper=[None], std_caliper=[None], temperature=[1.0], k=[1], matcher=by_score)
    assert sorted(both.table.caliper_scale) == ["logit", "probability"]


@pytest.mark.parametrize(
    "matcher",
    [
        CaliperMatcher(),
        CaliperMatcher(replace=False, estimand="att"),
        CaliperMatcher(distance="mahalanobis", caliper_sd="all", allow_fewer=True),
        CaliperMatcher(distance="propensity", estimand="atc", propensity=LogisticRegression(C=0.1)),
    ],
    ids=["plain", "att", "mahalanobis", "propensity"],
)
def test_a_row_is_what_the_matcher_gives_with_its_settings(matcher):
    X, domain = samples()
    before = matcher.get_params(deep=False)
    treated = 2 if matcher.estimand else None
    tuning = tune(X, domain, treated=treated, **SMALL, matcher=matcher)
    assert matcher.get_params(deep=False) == before
    n_queries = len(X) if matcher.estimand is None else len(X) // 2
    for _, row in tuning.table.iterrows():
        one = CaliperMatcher(**{**before, **settings_of(row)}).fit(X, domain, treated=treated)
        matches = one.match()
        assert row.matched_queries == len(matches)
        assert row.retained == len(matches) / n_queries
        assert row.matched_keys == len(np.unique(matches.key[matches.key >= 0]))
        assert row.ess_share == pytest.approx(one.effective_sample_size() / n_queries)
        summary = one.balance().summary()
        for name in ("max_abs_smd", "mean_abs_smd", "variance_ratio_share"):
            assert row[name] == pytest.approx(summary[f"{name}_after"], nan_ok=True)
            assert row[f"{name}_before"] == pytest.approx(summary[f"{name}_before"])


def test_given_propensities_and_sets_of_labels():
    X, domain = samples(domains=3)
    scores = np.random.default_rng(1).dirichlet(np.ones(3), len(X))
    sets = np.eye(4, dtype=bool)[domain - 1] | (np.arange(len(X)) % 5 == 0)[:, None] * np.eye(4, dtype=bool)[3]
    for labels, given_scores in ((domain, scores), (sets, None)):
        table = tune(X, labels, **SMALL, propensity_scores=given_scores).table
        for _, row in table.iterrows():
            one = CaliperMatcher(**settings_of(row)).fit(X, labels, propensity_scores=given_scores)
            assert row.matched_queries == len(one.match())


def test_the_classifier_is_fitted_once():
    class Counting(LogisticRegression):
        fits = 0

        def fit(self, *args):
            Counting.fits += 1
            return super().fit(*args)

    X, domain = samples()
    tune(X, domain, **SMALL, matcher=CaliperMatcher(propensity=Counting(), distance="propensity"))
    assert Counting.fits == 1


def test_temperatures_stay_exact_where_propensities_round_to_one():
    X, domain = samples()
    X = X + 40 * domain[:, None]
    grid = {"fixed_caliper": [0.9], "std_caliper": [None], "temperature": [1.0, 30.0], "k": [1]}
    separable = LogisticRegression(C=1e6, max_iter=1000)
    with pytest.warns(SeparableDomainsWarning) as told:
        table = tune(X, domain, **grid, matcher=CaliperMatcher(propensity=separable)).table
    assert len(told) == 1
    hot = CaliperMatcher(fixed_caliper=0.9, temperature=30.0, propensity=separable)
    with pytest.warns(SeparableDomainsWarning):
        assert table.set_index("temperature").matched_queries[30.0] == len(hot.fit(X, domain).match())


# Order, the best and combinations without matches


def check_order(table: pd.DataFrame) -> None:
    balanced = table.max_abs_smd <= 0.1 + 1e-9
    first, others, none = table[balanced], table[~balanced & (table.retained > 0)], table[table.retained == 0]
    pd.testing.assert_frame_equal(pd.concat([first, others, none]), table)
    assert (-first.retained).is_monotonic_increasing
    assert others.mean_abs_smd.is_monotonic_increasing
    assert none.mean_abs_smd.isna().all()
    assert not none.pareto.any()


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.integers(2, 3))
def test_the_best_comes_first(seed, domains):
    X, domain = samples(n=60, domains=domains, seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeparableDomainsWarning)
        tuning = tune(X, domain, **SMALL)
    check_order(tuning.table)
    expected = pareto_front(tuning.table.retained, tuning.table.mean_abs_smd)
    assert tuning.table.pareto.tolist() == expected.tolist()
    pd.testing.assert_frame_equal(tuning.pareto, tuning.table[expected])
    assert tuning.best == settings_of(tuning.table.iloc[0])


_SCARCE = CaliperMatcher(replace=False)  # of 80 keys no query finds 60 that are free


def test_nothing_matched_is_a_row_and_never_the_best():
    X, domain = samples()
    table = tune(
        X, domain, fixed_caliper=[None, 0.5001], std_caliper=[None], temperature=[1.0], k=[1, 60], matcher=_SCARCE
    ).table
    check_order(table)
    assert (
        table.retained == 0
    ).sum() == 3  # nothing within 0.0001 of one half; 60 keys of the other domain are in no one's reach
    nothing = tune(X, domain, fixed_caliper=[None], std_caliper=[None], temperature=[1.0], k=[60], matcher=_SCARCE)
    assert nothing.table.retained.tolist() == [0]
    with pytest.raises(ValueError, match="no combination"):
        _ = nothing.best
    assert "0 of them with pairs" in repr(nothing)
    assert "<table" in nothing._repr_html_()
    pareto_plot(nothing).savefig(os.devnull, format="svg")


# Workers


def test_the_result_does_not_depend_on_the_workers():
    X, domain = samples(n=300, domains=3)
    frame = pd.DataFrame(X).add_prefix("x").assign(colour=np.array(["red", "blue", "green"])[np.arange(300) % 7 % 3])
    one = tune(frame, domain, **SMALL)
    seen: list[tuple[int, int]] = []
    two = tune(frame, domain, **SMALL, n_jobs=2, progress=lambda done, total: seen.append((done, total)))
    pd.testing.assert_frame_equal(one.table, two.table, check_exact=True)
    assert seen == [(i + 1, len(one.table)) for i in range(len(one.table))]


INTERRUPTED = """
import sys
import numpy as np
from okapi.matching.diagnostics.tuning import tune
from okapi.report.matching_plots import pareto_plot

def tell(done, total):
    print(done, flush=True)

if __name__ == "__main__":
    x = np.random.default_rng(0).normal(size=(6000, 32))
    try:
        tune(x, np.arange(6000) % 3, n_jobs=2, progress=tell)
    except KeyboardInterrupt:
        print("stopped", flush=True)
        sys.exit(130)
"""


def test_ctrl_c_stops_all_workers(tmp_path):
    script = tmp_path / "interrupted.py"
    script.write_text(INTERRUPTED)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, script], text=True, start_new_session=True, **streams)
    assert process.stdout.readline() == "1\n"
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) >= 2
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to every process of the group
    out, errors = process.communicate(timeout=30)
    assert out.endswith("stopped\n")
    assert process.returncode == 130
    assert errors == ""
    deadline = time.monotonic() + 10
    while any(child.is_running() and child.status() != "zombie" for child in family):
        assert time.monotonic() < deadline
        time.sleep(0.1)


# What is refused


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"fixed_caliper": [0.9, 1.7]}, r"fixed_caliper must be in \[0, 1\]"),
        ({"fixed_caliper": [0.5]}, "fixed_caliper"),
        ({"fixed_caliper": 0.9}, "fixed_caliper must be a sequence"),
        ({"std_caliper": [0.2, 0]}, "std_caliper must be a positive"),
        ({"std_caliper": ["0.2"]}, "std_caliper must hold numbers or None"),
        ({"std_caliper": [np.nan]}, "std_caliper must be a positive"),
        ({"temperature": [-1]}, "temperature must be a positive"),
        ({"temperature": [None]}, "temperature must hold numbers, got None"),
        ({"temperature": []}, "temperature must hold at least one"),
        ({"caliper_scale": "logit"}, "caliper_scale must be a sequence"),
        ({"caliper_scale": ["odds"]}, "caliper_scale must be one of"),
        ({"k": [1, 0]}, "k must be a whole number"),
        ({"k": [2.0]}, "k must be a whole number"),
        ({"k": [True]}, "k must hold numbers"),
        ({"n_jobs": 0}, "n_jobs must be"),
    ],
)
def test_bad_grids_are_refused_before_anything_is_read(wrong, words):
    with pytest.raises((ValueError, TypeError), match=words):
        tune(object(), object(), **wrong)


def test_the_plot_shows_every_combination_that_matched():
    X, domain = samples()
    tuning = tune(X, domain, **SMALL)
    axes = pareto_plot(tuning).axes[0]
    drawn = np.vstack([marks.get_offsets() for marks in axes.collections[:2]])
    assert len(drawn) == (tuning.table.retained > 0).sum()
    assert (
        axes.collections[2].get_offsets().tolist() == tuning.table[["retained", "mean_abs_smd"]].head(1).values.tolist()
    )
    assert isinstance(tuning, Tuning)


def test_prognostic_calipers_are_tried_like_the_others():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 3)) + np.repeat([[0.0], [0.4]], 60, axis=0)
    site, outcome = np.repeat(["a", "b"], 60), x[:, 0] + rng.normal(size=120)
    grid = {"fixed_caliper": [None], "std_caliper": [None], "temperature": [1.0], "k": [2]}
    table = tune(x, site, **grid, prognostic_caliper=[None, 0.05, 0.3], prognosis=outcome).table
    assert len(table) == 3
    for row in table.itertuples():
        caliper = None if np.isnan(row.prognostic_caliper) else row.prognostic_caliper
        matcher = CaliperMatcher(k=2, prognostic_caliper=caliper).fit(x, site, prognosis=outcome)
        assert row.matched_queries == len(matcher.match())
        assert row.max_abs_smd == pytest.approx(matcher.balance().summary()["max_abs_smd_after"])
    with pytest.raises(ValueError, match="prognostic_caliper must be a number of at least 0, got -1"):
        tune(x, site, **grid, prognostic_caliper=[-1], prognosis=outcome)
    with pytest.raises(ValueError, match="prognosis is needed by prognostic_caliper, got None"):
        tune(x, site, **grid, prognostic_caliper=[0.3])
