import pandas as pd

from okapi.report import tune_page
from okapi.report.page import _rule

FIGURE = '<svg xmlns="http://www.w3.org/2000/svg" width="60pt" height="80pt"><text>front</text></svg>'


def make_page(n_rows: int = 3) -> str:
    combinations = pd.DataFrame(
        {"std_caliper": ["<none>"] * n_rows, "max_abs_smd": [0.05 + i / 20 for i in range(n_rows)]}
    )
    return tune_page(
        title="Calipers of <t.csv>",
        facts={"combinations": n_rows},
        settings={"k": "1, 5"},
        combinations=combinations,
        figures=[("Pareto front", FIGURE)],
        notes=["the best: <x>"],
    )


def test_the_page_has_everything_and_escapes_it():
    page = make_page()
    for text in (
        "Calipers of &lt;t.csv&gt;",
        "&lt;none&gt;",
        "the best: &lt;x&gt;",
        "choosing the calipers",
        ">front<",
    ):
        assert text in page
    assert "<script" not in page
    assert "script-src" not in page  # so that default-src 'none' forbids all


def test_a_large_imbalance_is_marked_and_the_best_are_shown_of_many():
    page = make_page(400)
    assert "<mark>0.15" in page
    assert "<mark>0.05" not in page
    assert "300 of 400 rows are shown: the first." in page


def test_shares_of_covariates_within_a_rule_are_not_held_to_it():
    assert _rule("max_abs_smd_after") == "smd"
    assert _rule("variance_ratio_before") == "variance ratio"
    assert _rule("smd_share_after") is None
    assert _rule("variance_ratio_share") is None
