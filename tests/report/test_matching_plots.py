"""Figures of a matching: what they show, checked on the artists they are made of."""

import sys
import xml.etree.ElementTree as ElementTree
from importlib.util import find_spec, module_from_spec

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from okapi.matching import Matches
from okapi.matching.diagnostics.balance import Balance, balance
from okapi.report.matching_plots import love_plot, propensity_histograms
from okapi.report.plots import to_svg


def make_case(n_domains: int = 2, n_covariates: int = 4, n: int = 60) -> tuple[Balance, dict[str, object]]:
    """Return the balance of random pairs and what propensity_histograms() takes."""
    generator = np.random.default_rng(0)
    domain = np.arange(n) % n_domains
    x = generator.normal(size=(n, n_covariates)) + domain[:, None]
    key = generator.integers(0, n, (n, 1))
    query = np.flatnonzero(domain[key[:, 0]] != domain)
    matches = Matches(torch.tensor(query), torch.tensor(key[query]), torch.zeros(len(query), 1))
    domains = {"query_domain": domain, "key_domain": domain, "matches": matches}
    propensity = generator.dirichlet(np.ones(n_domains), n)
    propensity = propensity[:, 1] if n_domains == 2 else propensity
    return balance(x, x, **domains), {"query_propensity": propensity, "key_propensity": propensity, **domains}


def tick_labels(figure: Figure) -> list[str]:
    return [label.get_text() for label in figure.axes[0].get_yticklabels()]


def points(figure: Figure, label: str) -> np.ndarray:
    (collection,) = (c for c in figure.axes[0].collections if c.get_label() == label)
    return np.asarray(collection.get_offsets())[:, 0]


def test_love_plot_shows_the_worst_direction_from_top_to_bottom() -> None:
    found, _ = make_case(n_domains=3)
    figure = love_plot(found)
    worst = next(found.pairs.itertuples())
    table = found.table[(found.table.query_domain == worst.query_domain) & (found.table.key_domain == worst.key_domain)]
    table = table.assign(before=table.smd_before.abs(), after=table.smd_after.abs()).sort_values("before")
    assert tick_labels(figure) == table.covariate.tolist()
    np.testing.assert_allclose(points(figure, "before"), table.before)
    np.testing.assert_allclose(points(figure, "after"), table.after)
    assert figure.axes[0].get_title(loc="left") == (
        f"{worst.query_domain} → {worst.key_domain} (worst of {len(found.pairs)} directions)"
    )
    assert figure.get_supxlabel() == "|SMD|, in pooled deviations before matching"


def test_love_plot_of_a_chosen_direction_and_of_all() -> None:
    found, _ = make_case(n_domains=3)
    assert love_plot(found, direction=(2, 1)).axes[0].get_title(loc="left") == "2 → 1"
    figure = love_plot(found, direction="all")
    pairs = found.pairs.sort_values(["max_abs_smd_before", "max_abs_smd_after"])
    assert tick_labels(figure) == [f"{a} → {b}" for a, b in zip(pairs.query_domain, pairs.key_domain, strict=True)]
    np.testing.assert_allclose(points(figure, "after"), pairs.max_abs_smd_after)


def test_love_plot_keeps_the_worst_covariates() -> None:
    found, _ = make_case(n_covariates=40)
    figure = love_plot(found, max_covariates=5)
    table = found.table.iloc[:40]
    worst = table.assign(worst=table[["smd_before", "smd_after"]].abs().max(axis=1)).nlargest(5, "worst")
    assert set(tick_labels(figure)) == set(worst.covariate)
    assert "the worst 5 of 40 covariates" in figure.axes[0].get_title(loc="left")


def test_love_plot_marks_infinite_and_missing_differences() -> None:
    none = Matches(torch.empty(0, dtype=torch.int64), torch.empty((0, 1), dtype=torch.int64), torch.empty(0, 1))
    x = np.array([[0.0, 1.0], [0.0, 2.0], [1.0, 1.0], [1.0, 4.0]])
    found = balance(x, x, query_domain=[0, 0, 1, 1], key_domain=[0, 0, 1, 1], matches=none)
    assert np.isinf(found.table.smd_before).any()
    figure = love_plot(found)
    low, high = figure.axes[0].get_xlim()
    arrows = [c for c in figure.axes[0].collections if c.get_label().startswith("_") and hasattr(c, "get_sizes")]
    (arrow,) = np.concatenate([np.asarray(c.get_offsets()) for c in arrows])
    assert low < arrow[0] < high
    svg = to_svg(figure)
    assert "nan" not in svg.lower()
    assert "inf" not in svg.lower()


@pytest.mark.parametrize("scale", ["probability", "logit"])
def test_histograms_are_shares_that_mirror_each_other(scale: str) -> None:
    _, case = make_case()
    figure = propensity_histograms(**case, scale=scale, fixed_caliper=0.9, domain_names=["lab", "field"], bins=10)
    assert len(figure.axes) == 4  # before and after, for the queries of either domain
    for axes in figure.axes:
        up, down = (sum(bar.get_height() for bar in bars) for bars in axes.containers)
        assert up == pytest.approx(1.0)
        assert down == pytest.approx(-1.0)
        lines = [line.get_xdata()[0] for line in axes.lines if line.get_linestyle() == "--"]
        expected = np.array([0.1, 0.9])
        assert lines == pytest.approx(expected if scale == "probability" else np.log(expected / (1 - expected)))
    assert figure.get_supxlabel() == f"propensity of field, {scale} scale\ndashed: fixed caliper"
    texts = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert texts[:2] == ["lab: 30", "field: 30"]


def test_matched_histograms_carry_the_weights_of_the_matching() -> None:
    matches = Matches(torch.tensor([0]), torch.tensor([[0, 1]]), torch.zeros(1, 2))
    figure = propensity_histograms(
        [0.1, 0.9], [0.1, 0.3, 0.9], matches=matches, query_domain=[1, 1], key_domain=[0, 0, 0], bins=5
    )
    heights = [[bar.get_height() for bar in bars] for bars in figure.axes[1].containers]
    np.testing.assert_allclose(heights, [[1, 0, 0, 0, 0], [-0.5, -0.5, 0, 0, 0]])
    assert [text.get_text() for text in figure.axes[1].texts] == ["matched: 1", "effective size: 2"]


def test_many_domains_are_small_multiples_of_the_own_propensity() -> None:
    _, case = make_case(n_domains=6)
    figure = propensity_histograms(**case, fixed_caliper=0.1, max_domains=3)
    assert len(figure.axes) == 6
    assert figure.get_supxlabel().startswith("propensity of the upper domain, probability scale")
    assert figure.get_supxlabel().endswith("3 of 6 domains, those with most queries")
    dashed = [line.get_xdata()[0] for line in figure.axes[0].lines if line.get_linestyle() == "--"]
    assert dashed == pytest.approx([0.9])


def test_histograms_without_pairs_are_empty() -> None:
    none = Matches(torch.empty(0, dtype=torch.int64), torch.empty((0, 1), dtype=torch.int64), torch.empty(0, 1))
    figure = propensity_histograms([0.2], [0.4], matches=none, query_domain=[0], key_domain=[1])
    assert [text.get_text() for text in figure.axes[1].texts] == ["matched: 0", "effective size: 0"]
    to_svg(figure)


def test_long_names_are_cut_and_dollars_are_no_formula() -> None:
    matches = Matches(torch.tensor([0]), torch.tensor([[0]]), torch.zeros(1, 1))
    names = ["income in $, not \\frac$", "a" * 40]
    x = np.array([[1.0, 2.0], [2.0, 4.0]])
    svg = to_svg(love_plot(balance(x, x, query_domain=[0, 0], key_domain=[1, 1], matches=matches, names=names)))
    assert "income in $, not \\frac$" in svg
    assert "a" * 23 + "…" in svg


def test_svg_is_the_same_each_time_and_fits_into_a_page() -> None:
    found, case = make_case()
    for draw in (lambda: love_plot(found), lambda: propensity_histograms(**case, domain_names=["<a>", "b & c"])):
        svg = to_svg(draw())
        assert svg == to_svg(draw())
        assert svg.startswith("<svg ")
        root = ElementTree.fromstring(svg)
        assert root.find("{http://www.w3.org/2000/svg}title").text
        assert list(root.iter("{http://www.w3.org/2000/svg}text"))  # letters, not outlines


def test_matplotlib_is_imported_on_use_and_pyplot_never(monkeypatch: pytest.MonkeyPatch) -> None:
    found, case = make_case()
    settings = matplotlib.rcParams.copy()
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)  # an import of it would fail
    to_svg(love_plot(found))
    to_svg(propensity_histograms(**case))
    assert matplotlib.rcParams.copy() == settings
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    spec = find_spec("okapi.report.matching_plots")
    spec.loader.exec_module(module_from_spec(spec))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"query_propensity": np.full(60, 1.5)}, r"query_propensity must be in \[0, 1\], got 1.5 to 1.5"),
        ({"key_propensity": np.full(60, np.nan)}, r"key_propensity must be in \[0, 1\]"),
        ({"key_propensity": np.zeros((60, 3, 1))}, r"key_propensity must have shape \(n,\) or \(n, S\)"),
        ({"key_propensity": np.zeros((60, 3))}, "query_propensity and key_propensity must have the same columns"),
        ({"query_domain": np.arange(60)}, "query_propensity must have a column per domain for 60 domains"),
        ({"fixed_caliper": 1.7}, r"fixed_caliper must be in \[0, 1\], got 1.7"),
        ({"scale": "log"}, "scale must be 'probability' or 'logit', got 'log'"),
        ({"bins": 0}, "bins must be at least 1, got 0"),
        ({"max_domains": 0}, "max_domains must be at least 1, got 0"),
    ],
)
def test_bad_histograms(changes: dict[str, object], message: str) -> None:
    _, case = make_case()
    with pytest.raises(ValueError, match=message):
        propensity_histograms(**case | changes)


def test_bad_love_plots() -> None:
    found, _ = make_case()
    with pytest.raises(ValueError, match=r"direction must be in balance.table or 'all', got \(7, 1\)"):
        love_plot(found, direction=(7, 1))
    with pytest.raises(ValueError, match="max_covariates must be at least 1, got 0"):
        love_plot(found, max_covariates=0)
    with pytest.raises(ValueError, match="balance must hold at least one direction"):
        love_plot(Balance(found.table, found.pairs.head(0), "pooled"))
    with pytest.raises(ValueError, match="use direction='all'"):
        love_plot(Balance(found.table.head(0), found.pairs, "pooled"))


def test_one_direction_draws_its_queries_and_keys_only() -> None:
    _, case = make_case()
    both = propensity_histograms(**case)
    one = propensity_histograms(**case, direction=(1, 0))
    assert len(both.axes) == 4
    assert len(one.axes) == 2
    with pytest.raises(ValueError, match="direction must name domains of the samples, got 7"):
        propensity_histograms(**case, direction=(1, 7))


def test_a_notebook_shows_a_figure_by_itself() -> None:
    found, _ = make_case()
    assert love_plot(found)._repr_svg_() == to_svg(love_plot(found))
