"""Balance, effective sample size and effect as R's MatchIt 4.7.2 and cobalt 4.5.2 report them on LaLonde's data."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch

from okapi.matching import Matches
from okapi.matching.diagnostics.balance import balance
from okapi.matching.diagnostics.effect import effect
from okapi.matching.diagnostics.weights import effective_sample_size, matching_weights

CASES = [
    "A_nn1_default",
    "B_nn1_cal02_norep",
    "C_nn1_cal02_rep",
    "D_nn5_cal02_rep",
    "E_maha5_cal02_rep",
    "F_maha1_cal02_norep",
    "G_seuc1_norep",
    "H_euc1_rep",
]
COVARIATES = ["distance", "age", "educ", "raceblack", "racehispan", "racewhite", "married", "nodegree", "re74", "re75"]


class Lalonde(NamedTuple):
    golden: Path
    case: str
    treated: pd.DataFrame
    control: pd.DataFrame
    matches: Matches

    def balance(self, denominator: str) -> pd.DataFrame:
        names = COVARIATES if self.case[0] not in "GH" else COVARIATES[1:]
        found = balance(
            self.treated[names].to_numpy(float),
            self.control[names].to_numpy(float),
            query_domain=np.ones(len(self.treated), int),
            key_domain=np.zeros(len(self.control), int),
            matches=self.matches,
            names=names,
            denominator=denominator,
        )
        return found.table.set_index("covariate")


@pytest.fixture(params=CASES)
def lalonde(data_dir: Path, request: pytest.FixtureRequest) -> Lalonde:
    golden = data_dir / "golden"
    if not golden.is_dir():
        pytest.skip(f"no results of MatchIt: {golden} does not exist")
    people = pd.read_csv(golden / "lalonde_ps.csv").rename(columns={"ps": "distance"})
    people = people.join(pd.get_dummies(people["race"], prefix="race", prefix_sep=""))
    sides = [people[people.treat == treat].reset_index(drop=True) for treat in (1, 0)]
    return Lalonde(golden, request.param, *sides, read_matches(golden, request.param, *sides))


def read_matches(golden: Path, case: str, treated: pd.DataFrame, control: pd.DataFrame) -> Matches:
    pairs = pd.read_csv(golden / f"pairs_{case}.csv").dropna()
    pairs["query"] = pairs["focal"].map(pd.Series(treated.index, treated.id))
    pairs["key"] = pairs["match"].map(pd.Series(control.index, control.id))
    wide = pairs.pivot(index="query", columns="rank", values="key").sort_index()
    key = torch.tensor(wide.fillna(-1).to_numpy(), dtype=torch.int64)
    return Matches(torch.tensor(wide.index.to_numpy(), dtype=torch.int64), key, torch.zeros(key.shape))


def test_balance_is_matchits(lalonde: Lalonde) -> None:
    found = lalonde.balance("query")
    golden = pd.read_csv(lalonde.golden / f"balance_{lalonde.case}.csv")
    ours = {
        "Means Treated": "mean_query",
        "Means Control": "mean_key",
        "Std. Mean Diff.": "smd",
        "Var. Ratio": "variance_ratio",
        "eCDF Max": "ks",
    }
    for when in ("before", "after"):
        theirs = golden[golden.when == when].set_index("covariate")
        assert set(theirs.index) == set(found.index)
        for column, name in ours.items():
            np.testing.assert_allclose(
                found.loc[theirs.index, f"{name}_{when}"], theirs[column], rtol=1e-9, atol=1e-9, err_msg=column
            )


def test_balance_is_cobalts(lalonde: Lalonde) -> None:
    found = lalonde.balance("pooled")
    theirs = pd.read_csv(lalonde.golden / f"cobalt_pooled_{lalonde.case}.csv")
    theirs = theirs.set_index(theirs.covariate.str.replace("_", ""))
    assert set(theirs.index) == set(found.index)
    ours = {"Diff": "smd", "V.Ratio": "variance_ratio", "KS": "ks"}
    for column, name in ours.items():
        for suffix, when in (("Un", "before"), ("Adj", "after")):
            np.testing.assert_allclose(
                found.loc[theirs.index, f"{name}_{when}"],
                theirs[f"{column}.{suffix}"],
                rtol=1e-9,
                atol=1e-9,
                err_msg=f"{column}.{suffix}",
            )


def test_sizes_and_effect_are_matchits(lalonde: Lalonde) -> None:
    theirs = pd.read_csv(lalonde.golden / "summary.csv", index_col="case").loc[lalonde.case]
    query_weight, key_weight = matching_weights(lalonde.matches, len(lalonde.treated), len(lalonde.control))
    assert effective_sample_size(query_weight) == pytest.approx(theirs.ess_treated, rel=1e-12)
    assert effective_sample_size(key_weight) == pytest.approx(theirs.ess_control, rel=1e-12)
    assert np.count_nonzero(key_weight) == theirs.n_control

    n = len(lalonde.treated)
    key = torch.where(lalonde.matches.key >= 0, lalonde.matches.key + n, -1)
    y = np.concatenate([lalonde.treated.re78, lalonde.control.re78])
    found = effect(y, np.arange(len(y)) < n, Matches(lalonde.matches.query, key, lalonde.matches.distance))
    assert found.estimate == pytest.approx(theirs.wdiff_re78, rel=1e-9)
    assert (found.n_treated, found.n_controls) == (theirs.n_treated, theirs.n_control)
    assert ("unit" in found.clusters) == (theirs.ess_control < theirs.n_treated)
