"""Balance before and after matching."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ks_2samp

from okapi.matching import Matches
from okapi.matching.diagnostics import directions
from okapi.matching.diagnostics.balance import balance

STATISTICS = ["mean_query", "mean_key", "smd", "variance_ratio", "ks", "overlap"]
COLUMNS = [f"{name}_{when}" for name in STATISTICS for when in ("before", "after")]


def random_case(seed: int, *, n_domains: int = 4, n: int = 60, k: int = 3, sets: bool = False) -> dict[str, object]:
    """Return arguments of balance() for samples matched at random among themselves, some with fewer than k keys."""
    generator = np.random.default_rng(seed)
    x = np.stack([generator.normal(size=n), generator.integers(0, 2, n), generator.integers(0, 5, n)], axis=1)
    domain = generator.integers(0, n_domains, n) * 3  # labels need not be 0, 1, 2, ...
    x[:, 0] += domain
    if sets:
        domain = generator.random((n, n_domains)) < 0.4
    query = np.flatnonzero(generator.random(n) < 0.7)
    key = np.stack([generator.choice(n, k, replace=False) for _ in query])
    together = (domain[query][:, None] & domain[key]).any(axis=2) if sets else domain[query][:, None] == domain[key]
    key[together] = -1
    matches = Matches(torch.tensor(query), torch.tensor(key), torch.zeros(key.shape))
    return {"queries": x, "keys": x, "query_domain": domain, "key_domain": domain, "matches": matches}


def in_domain(domain: np.ndarray, label: int) -> np.ndarray:
    return np.flatnonzero(domain[:, label] if domain.ndim == 2 else domain == label)


def oracle(case: dict[str, object], source: int, target: int, denominator: str = "pooled") -> pd.DataFrame:
    """Return the same figures for one direction, one number at a time."""
    queries, keys, matches = case["queries"], case["keys"], case["matches"]
    of_query = in_domain(case["query_domain"], source)
    of_key = in_domain(case["key_domain"], target)
    before = dict.fromkeys(of_query, 1.0), dict.fromkeys(of_key, 1.0)
    after: tuple[dict[int, float], dict[int, float]] = ({}, {})
    for query, row in zip(matches.query.tolist(), matches.key.tolist(), strict=True):
        found = [key for key in row if key >= 0]
        for key in found:
            if query in before[0] and key in before[1]:
                after[0][query] = after[0].get(query, 0.0) + 1 / len(found)
                after[1][key] = after[1].get(key, 0.0) + 1 / len(found)

    rows = []
    for column in range(queries.shape[1]):
        binary = set(queries[:, column]) | set(keys[:, column]) <= {0.0, 1.0}
        row: dict[str, float] = {}
        scale = np.nan
        pooled = np.sort([*(queries[i, column] for i in before[0]), *(keys[i, column] for i in before[1])])
        edges = [pooled[int(np.ceil(i * len(pooled) / 10)) - 1] for i in range(1, 10)]
        for when, sides in (("before", before), ("after", after)):
            (xq, wq), (xk, wk) = (
                (np.array([x[i, column] for i in side]), np.array(list(side.values())))
                for x, side in zip((queries, keys), sides, strict=True)
            )
            if not len(xq):
                row |= {f"{name}_{when}": np.nan for name in STATISTICS}
                continue
            (mq, vq), (mk, vk) = moments(xq, wq), moments(xk, wk)
            if when == "before":
                sq, sk = (mq * (1 - mq), mk * (1 - mk)) if binary else (vq, vk)
                scale = np.sqrt({"pooled": (sq + sk) / 2, "query": sq, "key": sk}[denominator])
            row[f"mean_query_{when}"], row[f"mean_key_{when}"] = mq, mk
            row[f"smd_{when}"] = (mq - mk) / scale if scale else (0.0 if mq == mk else np.copysign(np.inf, mq - mk))
            undefined = binary or vq == vk == 0
            row[f"variance_ratio_{when}"] = np.nan if undefined else (vq / vk if vk else np.inf)
            cdf = [[w[x <= v].sum() / w.sum() for v in [*edges, *xq, *xk]] for x, w in ((xq, wq), (xk, wk))]
            row[f"ks_{when}"] = max(abs(a - b) for a, b in zip(*cdf, strict=True))
            shares = [np.diff([0.0, *side[:9], 1.0]) for side in cdf]
            row[f"overlap_{when}"] = np.minimum(*shares).sum()
        rows.append(row)
    return pd.DataFrame(rows)


def moments(x: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    share = weight / weight.sum()
    mean = float(share @ x) if len(set(x)) > 1 else float(x[0])
    variance = float(share @ (x - mean) ** 2 / (1 - share @ share)) if len(x) > 1 else 0.0
    return mean, variance


def one_direction(xq: np.ndarray, xk: np.ndarray, pairs: list[tuple[int, int]], **kwargs: object) -> pd.Series:
    """Return the only row of the table for one covariate and pairs of rows."""
    query, key = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    matches = Matches(torch.tensor(query), torch.tensor(key)[:, None], torch.zeros(len(query), 1))
    found = balance(
        np.reshape(xq, (-1, 1)),
        np.reshape(xk, (-1, 1)),
        query_domain=np.zeros(len(xq), int),
        key_domain=np.ones(len(xk), int),
        matches=matches,
        **kwargs,
    )
    return found.table.iloc[0]


@pytest.mark.parametrize("denominator", ["pooled", "query", "key"])
@pytest.mark.parametrize("sets", [False, True])
@pytest.mark.parametrize("block_size", [2**21, 30])
@pytest.mark.parametrize("seed", range(2))
def test_agrees_with_a_plain_loop(
    seed: int, block_size: int, sets: bool, denominator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directions, "BLOCK_SIZE", block_size)
    case = random_case(seed, sets=sets)
    found = balance(**case, denominator=denominator)
    labels = range(4) if sets else np.unique(case["query_domain"])
    assert set(zip(found.pairs.query_domain, found.pairs.key_domain, strict=True)) == {
        (a, b) for a in labels for b in labels if a != b
    }
    for (source, target), table in found.table.groupby(["query_domain", "key_domain"]):
        expected = oracle(case, source, target, denominator)
        ours = table.set_index("covariate").loc[["x0", "x1", "x2"], COLUMNS]
        np.testing.assert_allclose(ours, expected[COLUMNS], rtol=1e-9, atol=1e-12)


def test_pairs_summarise_the_table() -> None:
    case = random_case(1)
    found = balance(**case)
    assert found.pairs.max_abs_smd_after.is_monotonic_decreasing
    for pair in found.pairs.itertuples():
        table = found.table[
            (found.table.query_domain == pair.query_domain) & (found.table.key_domain == pair.key_domain)
        ]
        assert table.smd_after.abs().is_monotonic_decreasing
        for when in ("before", "after"):
            smd, ratio = table[f"smd_{when}"].abs(), table[f"variance_ratio_{when}"].dropna()
            assert getattr(pair, f"max_abs_smd_{when}") == pytest.approx(smd.max())
            assert getattr(pair, f"mean_abs_smd_{when}") == pytest.approx(smd.mean())
            assert getattr(pair, f"smd_share_{when}") == pytest.approx((smd <= 0.1).mean())
            assert getattr(pair, f"variance_ratio_share_{when}") == pytest.approx(ratio.between(0.8, 1.25).mean())
        assert pair.queries == (case["query_domain"] == pair.query_domain).sum()
        assert 0 < pair.ess_keys <= pair.matched_keys <= pair.keys
        assert 0 < pair.matched_queries <= pair.queries
    summary = found.summary()
    assert summary["directions"] == summary["matched_directions"] == 12
    assert summary["max_abs_smd_after"] == found.pairs.max_abs_smd_after.max()
    assert summary["mean_abs_smd_before"] == pytest.approx(found.table.smd_before.abs().mean())
    assert summary["variance_ratio_share_after"] == pytest.approx(found.pairs.variance_ratio_share_after.mean())


values = st.lists(st.integers(-20, 20).map(float), min_size=2, max_size=12)


@settings(max_examples=40)
@given(values, values, st.data())
def test_ks_before_is_scipys(xq: list[float], xk: list[float], data: st.DataObject) -> None:
    found = one_direction(xq, xk, [(0, data.draw(st.integers(0, len(xk) - 1)))])
    assert found.ks_before == pytest.approx(ks_2samp(xq, xk, method="asymp").statistic, abs=1e-12)


@settings(max_examples=40)
@given(values, st.randoms())
def test_the_same_sample_on_both_sides_is_balanced(x: list[float], random: object) -> None:
    rows = list(range(len(x)))
    shuffled = rows.copy()
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    xk = [0.0] * len(x)
    for row, place in zip(rows, shuffled, strict=True):
        xk[place] = x[row]
    found = one_direction(x, xk, list(zip(rows, shuffled, strict=True)))
    for when in ("before", "after"):
        assert found[f"smd_{when}"] == pytest.approx(0.0, abs=1e-12)
        assert found[f"ks_{when}"] == pytest.approx(0.0, abs=1e-12)
        assert found[f"overlap_{when}"] == pytest.approx(1.0)
        if len(set(x)) > 1 and not set(x) <= {0.0, 1.0}:
            assert found[f"variance_ratio_{when}"] == pytest.approx(1.0)


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.floats(0.01, 100), st.sampled_from([1, -1]), st.floats(-1000, 1000))
def test_smd_does_not_depend_on_unit_and_origin(seed: int, scale: float, sign: int, offset: float) -> None:
    case = random_case(seed, n_domains=2, n=30)
    x = np.random.default_rng(seed).normal(size=(30, 3))
    plain = balance(**case | {"queries": x, "keys": x}).table
    mapped = sign * scale * x + offset
    other = balance(**case | {"queries": mapped, "keys": mapped}).table
    index = ["query_domain", "key_domain", "covariate"]
    plain, other = (table.sort_values(index).reset_index() for table in (plain, other))
    for column in ("smd_before", "smd_after"):
        np.testing.assert_allclose(other[column], sign * plain[column], rtol=1e-6, atol=1e-8)
    for column in ("variance_ratio_before", "variance_ratio_after", "ks_before", "ks_after"):
        np.testing.assert_allclose(other[column], plain[column], rtol=1e-6, atol=1e-8)


@settings(max_examples=25)
@given(st.integers(0, 10_000))
def test_the_order_of_the_samples_does_not_matter(seed: int) -> None:
    case = random_case(seed)
    order = np.random.default_rng(seed + 1).permutation(60)
    place = np.argsort(order)
    matches = case["matches"]
    query, key = torch.tensor(place[matches.query]), matches.key
    moved = torch.where(key >= 0, torch.tensor(place)[key.clamp(min=0)], -1)
    by_query = query.argsort()
    permuted = {name: value[order] for name, value in case.items() if name != "matches"}
    found = balance(**permuted, matches=Matches(query[by_query], moved[by_query], torch.zeros(key.shape)))
    pd.testing.assert_frame_equal(
        *(b.pairs.sort_values(["query_domain", "key_domain"], ignore_index=True) for b in (found, balance(**case)))
    )


def test_a_constant_covariate_has_no_deviation_to_divide_by() -> None:
    # 0.1 + 0.1 + 0.1 is not 0.3: a mean that is off by rounding would be infinitely far away.
    same = one_direction([0.1] * 3, [0.1] * 7, [(0, 0), (1, 1), (2, 3)])
    assert (same.smd_before, same.smd_after, same.ks_after, same.overlap_after) == (0.0, 0.0, 0.0, 1.0)
    assert np.isnan([same.variance_ratio_before, same.variance_ratio_after]).all()
    apart = one_direction([0.1] * 3, [0.7] * 7, [(0, 0)])
    assert (apart.smd_before, apart.smd_after) == (-np.inf, -np.inf)
    assert apart.ks_before == pytest.approx(1.0)
    assert apart.overlap_before == 0.0
    half = one_direction([5.0, 5.0], [1.0, 3.0], [(0, 0)], denominator="query")
    assert half.smd_before == np.inf
    assert half.variance_ratio_before == 0.0
    assert one_direction([1.0, 3.0], [5.0, 5.0], [(0, 0)]).variance_ratio_before == np.inf


def test_a_small_spread_far_from_zero_is_not_lost() -> None:
    near = one_direction([1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [(0, 0), (1, 1)])
    far = one_direction(np.array([1.0, 2.0, 3.0]) + 1e9, np.array([2.0, 4.0, 6.0]) + 1e9, [(0, 0), (1, 1)])
    assert far.smd_after == pytest.approx(near.smd_after)
    assert far.variance_ratio_after == pytest.approx(near.variance_ratio_after)


def test_a_direction_without_pairs_is_listed_last() -> None:
    found = balance(
        [[0.0], [1.0], [2.0]],
        [[0.5], [9.0], [8.0]],
        query_domain=[0, 0, 0],
        key_domain=[1, 2, 2],
        matches=Matches(torch.tensor([1]), torch.tensor([[0]]), torch.zeros(1, 1)),
        domain_names={0: "lab", 1: "field", 2: "lake"},
    )
    assert found.pairs.key_domain.tolist() == ["field", "lake"]
    assert found.pairs.matched_queries.tolist() == [1, 0]
    unmatched = found.table[found.table.key_domain == "lake"].iloc[0]
    assert unmatched.smd_before < -1
    assert unmatched[[column for column in COLUMNS if column.endswith("after")]].isna().all()
    assert found.summary()["matched_directions"] == 1


def test_without_samples_or_pairs_there_is_nothing_but_no_error() -> None:
    none = Matches(torch.empty(0, dtype=torch.int64), torch.empty((0, 2), dtype=torch.int64), torch.empty(0, 2))
    empty = balance(np.empty((0, 2)), np.empty((0, 2)), query_domain=[], key_domain=[], matches=none)
    assert empty.table.empty
    assert empty.pairs.empty
    assert np.isnan(empty.summary()["max_abs_smd_after"])
    before = balance(np.eye(2), np.eye(2), query_domain=[0, 1], key_domain=[0, 1], matches=none)
    assert before.pairs.max_abs_smd_before.tolist() == [np.inf, np.inf]
    assert before.summary()["matched_directions"] == 0


def test_samples_matched_within_a_domain_are_a_direction_of_their_own() -> None:
    matches = Matches(torch.tensor([0]), torch.tensor([[1]]), torch.zeros(1, 1))
    found = balance([[0.0], [1.0]], [[0.0], [1.0]], query_domain=[0, 0], key_domain=[0, 0], matches=matches)
    assert found.pairs[["query_domain", "key_domain", "matched_queries"]].to_numpy().tolist() == [[0, 0, 1]]


def test_thousands_of_domains() -> None:
    generator = np.random.default_rng(0)
    n, n_domains = 3000, 1500
    x = torch.tensor(generator.normal(size=(n, 16)), dtype=torch.float32)
    domain = generator.permutation(np.arange(n) % n_domains)
    key = generator.integers(0, n, (n, 2))
    key[domain[key] == domain[:, None]] = -1
    matches = Matches(torch.arange(n), torch.tensor(key), torch.zeros(n, 2))
    found = balance(x, x, query_domain=torch.tensor(domain), key_domain=domain, matches=matches, max_pairs=5)
    directions = {(domain[q], domain[k]) for q, row in enumerate(key) for k in row if k >= 0}
    assert len(found.pairs) == len(directions)
    assert found.unlisted == n_domains * (n_domains - 1) - len(directions)
    assert len(found.table) == 5 * 16
    assert "directions without pairs are not listed" in repr(found)


def test_what_is_shown_names_the_denominator() -> None:
    case = random_case(0)
    found = balance(**case, denominator="query", domain_names={0: "<a>", 3: "b", 6: "c", 9: "d"})
    assert set(found.table.denominator) == {"query"}
    assert "SMD denominator: deviation of the query domain before matching" in repr(found)
    html = found._repr_html_()
    assert "SMD denominator" in html
    assert "&lt;a&gt;" in html
    assert "<a>" not in html


@pytest.mark.parametrize("max_pairs", [0, 2])
def test_the_table_holds_the_worst_directions(max_pairs: int) -> None:
    case = random_case(0)
    found, full = balance(**case, max_pairs=max_pairs), balance(**case)
    pd.testing.assert_frame_equal(found.table, full.table.iloc[: 3 * max_pairs], check_dtype=max_pairs > 0)
    pd.testing.assert_frame_equal(found.pairs, full.pairs)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"queries": np.zeros(60)}, r"queries must be 2-dimensional, got shape \(60,\)"),
        ({"queries": np.full((60, 3), np.nan)}, "queries must be finite"),
        ({"keys": np.zeros((60, 2))}, "queries and keys must have the same covariates, got 3 and 2"),
        ({"keys": np.zeros((60, 0))}, "keys must have at least one covariate"),
        ({"keys": np.zeros((5, 3)), "key_domain": np.zeros(5, int)}, "matches.key must hold rows of the 5 keys"),
        ({"query_domain": np.zeros(60)}, "query_domain must be integers of shape"),
        ({"key_domain": np.zeros((60, 2), int)}, "key_domain must be integers of shape"),
        ({"key_domain": np.zeros(59, int)}, "key_domain must have 60 rows, got shape"),
        ({"key_domain": np.zeros((60, 2), bool)}, "query_domain and key_domain must agree in kind and width"),
        ({"denominator": "treated"}, r"denominator must be one of .*, got 'treated'"),
        ({"names": ["age"]}, "names must name each of the 3 covariates, got 1"),
        ({"domain_names": ["a", "b"]}, r"domain_names must name every domain, got none for \[3, 6, 9\]"),
        ({"max_pairs": -1}, "max_pairs must not be negative, got -1"),
    ],
)
def test_bad_input(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        balance(**random_case(0) | changes)
