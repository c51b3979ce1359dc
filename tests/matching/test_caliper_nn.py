"""caliper_nn against a brute-force oracle, scikit-learn, and its own invariances."""

from contextlib import contextmanager
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.neighbors import NearestNeighbors
from tests.matching.oracle import brute_force

from okapi.matching import caliper_nn
from okapi.matching.search import domains as domain_plans
from okapi.matching.search import k_nearest, multi_label, panels, plan, prognosis, scores, selection, windows

KINDS = ("two domains", "many domains", "sets")


def make_problem(rng, n, m, width, kind, n_domains=4, *, ties=False, offset=0.0, dtype=np.float64):
    """Return queries, keys and the keyword arguments that describe them."""

    def vectors(rows):
        values = rng.integers(0, 3, (rows, width)) if ties else rng.normal(size=(rows, width))
        return (values + offset).astype(dtype)

    def side(rows):
        if kind == "two domains":
            return rng.integers(0, 2, rows), rng.random(rows)
        if kind == "many domains":
            return rng.integers(0, n_domains, rows), rng.dirichlet(np.ones(n_domains), rows)
        return rng.random((rows, n_domains)) < 0.4, rng.random((rows, n_domains))

    queries, keys = vectors(n), vectors(m)
    (query_domain, query_propensity), (key_domain, key_propensity) = side(n), side(m)
    return (
        queries,
        keys,
        {
            "query_domain": query_domain,
            "key_domain": key_domain,
            "query_propensity": query_propensity,
            "key_propensity": key_propensity,
        },
    )


FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
SIDES = ("query", "key")
TYPES = st.fixed_dictionaries(
    dict.fromkeys(("queries", "keys"), st.sampled_from((*FLOATS, "int32", "bool")))
    | {f"{side}_propensity": st.sampled_from((*FLOATS, "int32", "bool")) for side in SIDES}
    | {f"{side}_prognosis": st.sampled_from((*FLOATS, "int32", "bool")) for side in SIDES}
    | {f"{side}_domain": st.sampled_from(INTEGERS) for side in SIDES}
)


def in_types(types, queries, keys, arguments):
    """Return the problem with each of its arrays in a type of its own: a tensor where NumPy does not have it.

    Sets of labels stay booleans.
    """

    def converted(name, values):
        values = torch.from_numpy(np.asarray(values))
        if name.endswith("domain") and values.ndim == 2:
            return values.numpy()
        if types[name] == "float16":
            values = values.clamp(-6e4, 6e4)  # which it can hold
        values = values.to(getattr(torch, types[name]))
        return values if values.dtype == torch.bfloat16 else values.numpy()

    arguments = {name: converted(name, value) if name in types else value for name, value in arguments.items()}
    return converted("queries", queries), converted("keys", keys), arguments


def assert_same(matches, expected):
    assert matches.query.tolist() == [query for query, _, _ in expected]
    if expected:
        assert matches.key.tolist() == [keys for _, keys, _ in expected]
        np.testing.assert_allclose(matches.distance, [distances for *_, distances in expected], rtol=1e-12)


@contextmanager
def small_blocks(block, piece, tile_flops):
    """Cut problems of the tests into many blocks, pieces and tiles."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in (
            (domain_plans, "ROWS", block),
            (domain_plans, "FEW", max(1, block // 4)),
            (windows, "ROWS", block),
            (multi_label, "ROWS", block),
            (multi_label, "ROWS_OF_WINDOWS", block),
            (scores, "MIXED_ROWS", block),
            (scores, "ROWS", 3 * block),
            (scores, "TILE_FLOPS", tile_flops),
            (prognosis, "ROWS", block),
            (prognosis, "CHUNK", block),
            (prognosis, "BOXES", piece),
            (prognosis, "FEW_DOMAINS", 3),
            (selection, "SHORT", piece),
            (plan, "PIECE", piece),
            (panels, "PIECE", piece),
            (panels, "PANEL", 3 * block * piece),
            (k_nearest, "PANEL", 3 * block * piece),
        ):
            patch.setattr(module, name, value)
        yield


settings = st.fixed_dictionaries(
    {
        "k": st.integers(1, 7),
        "fixed_caliper": st.sampled_from([None, 0.9, 0.23, 1.0, 0.55]),
        "std_caliper": st.sampled_from([None, 0.17, 0.83, 3.1]),
        "caliper_scale": st.sampled_from(["probability", "logit"]),
        "two_way": st.booleans(),
        "direction": st.sampled_from([None, None, (0, 1), (1, 0)]),
    }
)


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(0, 25),
    m=st.integers(0, 40),
    width=st.integers(1, 4) | st.just(30),  # the last wider than there are queries, which are then searched otherwise
    kind=st.sampled_from(KINDS),
    ties=st.booleans(),
    offset=st.sampled_from([0.0, 1e4]),
    block=st.integers(1, 9),
    piece=st.integers(1, 40),
    tile_flops=st.sampled_from([100.0, 5e3, 1e9]),
    types=TYPES,
    arguments=settings,
)
def test_equals_brute_force(seed, n, m, width, kind, ties, offset, block, piece, tile_flops, types, arguments):
    """Whatever the shapes, types, domains, ties, calipers, empty or filtered sides, and block sizes."""
    queries, keys, domains = make_problem(np.random.default_rng(seed), n, m, width, kind, ties=ties, offset=offset)
    queries, keys, domains = in_types(types, queries, keys, domains)
    with small_blocks(block, piece, tile_flops):
        matches = caliper_nn(queries, keys, **domains, **arguments)
    assert_same(matches, brute_force(queries, keys, **domains, **arguments))


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 25),
    m=st.integers(1, 40),
    width=st.sampled_from([2, 30]),
    ties=st.booleans(),
    block=st.integers(1, 9),
    piece=st.integers(1, 40),
    tile_flops=st.sampled_from([10.0, 5e3]),
    std_caliper=st.sampled_from([0.05, 0.17, 0.83]),
    prognostic_caliper=st.sampled_from([None, 0.4]),
    types=TYPES,
)
def test_many_domains_equal_brute_force(
    seed, n, m, width, ties, block, piece, tile_flops, std_caliper, prognostic_caliper, types
):
    """Whether keys are searched by tiles or all together."""
    rng = np.random.default_rng(seed)
    queries, keys, domains = make_problem(rng, n, m, width, "many domains", ties=ties)
    arguments = {"k": 2, "std_caliper": std_caliper}
    if prognostic_caliper is not None:
        outcome = {"query_prognosis": rng.random(n), "key_prognosis": rng.random(m)}
        arguments |= {"prognostic_caliper": prognostic_caliper, **outcome}
    queries, keys, arguments = in_types(types, queries, keys, domains | arguments)
    with small_blocks(block, piece, tile_flops):
        matches = caliper_nn(queries, keys, **arguments)
    assert_same(matches, brute_force(queries, keys, **arguments))


def test_half_precision_propensities_lose_no_match():
    """Scores are multiplied by a large power of two, which float16 does not hold."""
    rng = np.random.default_rng(0)
    x, domain, score = rng.normal(size=(300, 4)), rng.integers(0, 3, 300), rng.dirichlet(np.ones(3), 300)
    sides = {f"{side}_domain": domain for side in SIDES}
    for number in (np.float16, np.float32):
        sides |= {f"{side}_propensity": score.astype(number) for side in SIDES}
        assert len(caliper_nn(x, x, **sides, std_caliper=5.0)) == 300


def test_an_offset_in_two_types_loses_no_neighbour():
    """Both sides are centred by the same number, whatever the type of each."""
    queries, keys, domains = make_problem(np.random.default_rng(0), 60, 200, 3, "two domains", offset=1e6)
    keys = keys.astype(np.float32)
    assert_same(caliper_nn(queries, keys, **domains, k=3), brute_force(queries, keys, **domains, k=3))


def test_tiny_values_in_two_types_lose_no_query():
    queries, keys, domains = make_problem(np.random.default_rng(0), 30, 60, 3, "two domains")
    queries, keys = queries * 1e-70, (keys * 1e-70).astype(np.float32)
    assert_same(caliper_nn(queries, keys, **domains, k=3), brute_force(queries, keys, **domains, k=3))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("std_caliper", [None, 0.5])
def test_equals_brute_force_on_a_larger_problem(kind, std_caliper):
    """Several blocks, and chunks wide enough for the selection by groups."""
    rng = np.random.default_rng(3)
    queries, keys, domains = make_problem(rng, 90, 700, 5, kind, dtype=np.float32)
    arguments = {"k": 2, "std_caliper": std_caliper, "fixed_caliper": 0.95}
    assert_same(caliper_nn(queries, keys, **domains, **arguments), brute_force(queries, keys, **domains, **arguments))


@given(
    seed=st.integers(0, 2**32 - 1),
    width=st.sampled_from([3, 40, 300]),
    clusters=st.sampled_from([1, 3, 60]),
    spread=st.sampled_from([1e-3, 1e-6, 0.0]),
    k=st.sampled_from([1, 4]),
)
def test_narrow_clusters_lose_no_neighbour(seed, width, clusters, spread, k):
    """They may be narrower than what a product in float32 can tell apart: more candidates are then fetched."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(clusters, width))[rng.integers(clusters, size=180)] + spread * rng.normal(size=(180, width))
    arguments = {"query_domain": np.zeros(60, np.int64), "key_domain": np.ones(120, np.int64), "k": k}
    matches = caliper_nn(x[:60].astype(np.float32), x[60:].astype(np.float32), **arguments)
    assert_same(matches, brute_force(x[:60].astype(np.float32), x[60:].astype(np.float32), **arguments))


@given(seed=st.integers(0, 2**32 - 1), arguments=settings)
def test_general_form_equals_binary_form(seed, arguments):
    queries, keys, domains = make_problem(np.random.default_rng(seed), 20, 40, 2, "two domains")
    binary = caliper_nn(queries, keys, **domains, **arguments)
    for side in ("query_propensity", "key_propensity"):
        domains[side] = np.stack([1 - domains[side], domains[side]], 1)
    # With two columns the fixed caliper bounds the larger of e and 1 - e, which says the same.
    general = caliper_nn(queries, keys, **domains, **arguments)
    assert binary.query.tolist() == general.query.tolist()
    assert binary.key.tolist() == general.key.tolist()


@given(seed=st.integers(0, 2**32 - 1), kind=st.sampled_from(KINDS), arguments=settings)
def test_a_permutation_of_keys_permutes_the_result(seed, kind, arguments):
    rng = np.random.default_rng(seed)
    queries, keys, domains = make_problem(rng, 15, 30, 3, kind)
    order = rng.permutation(30)
    before = caliper_nn(queries, keys, **domains, **arguments)
    for name in ("key_domain", "key_propensity"):
        domains[name] = domains[name][order]
    after = caliper_nn(queries, keys[order], **domains, **arguments)
    assert before.query.tolist() == after.query.tolist()
    assert before.key.tolist() == torch.from_numpy(order)[after.key].tolist()


@given(seed=st.integers(0, 2**32 - 1), kind=st.sampled_from(KINDS), arguments=settings)
def test_queries_are_matched_independently_of_each_other(seed, kind, arguments):
    """Without a std-caliper, whose threshold depends on all queries, any part of the queries gives its part."""
    arguments["std_caliper"] = None
    rng = np.random.default_rng(seed)
    queries, keys, domains = make_problem(rng, 20, 30, 3, kind)
    whole = caliper_nn(queries, keys, **domains, **arguments)
    part = np.flatnonzero(rng.random(20) < 0.5)
    for name in ("query_domain", "query_propensity"):
        domains[name] = domains[name][part]
    some = caliper_nn(queries[part], keys, **domains, **arguments)
    expected = {q: key for q, key in zip(whole.query.tolist(), whole.key.tolist(), strict=True) if q in set(part)}
    assert dict(zip(part[some.query.numpy()].tolist(), some.key.tolist(), strict=True)) == expected


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_nearest_neighbours_without_calipers_are_scikit_learns(dtype, offset):
    rng = np.random.default_rng(0)
    queries = (rng.normal(size=(300, 64)) + offset).astype(dtype)
    keys = (rng.normal(size=(2000, 64)) + offset).astype(dtype)
    matches = caliper_nn(queries, keys, query_domain=np.ones(300, np.int64), key_domain=np.zeros(2000, np.int64), k=5)
    expected = NearestNeighbors(n_neighbors=5, algorithm="brute").fit(keys.astype(np.float64))
    distance, index = expected.kneighbors(queries.astype(np.float64))
    assert matches.query.tolist() == list(range(300))
    if not (dtype == np.float16 and offset):  # so coarse that distances tie
        assert (matches.key.numpy() == index).all()
    np.testing.assert_allclose(matches.distance, distance, rtol=1e-5)


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1e12, 1e30])
def test_neither_huge_nor_tiny_values_lose_neighbours(scale):
    queries, keys, domains = make_problem(np.random.default_rng(1), 30, 60, 3, "two domains")
    domains.pop("query_propensity"), domains.pop("key_propensity")
    expected = caliper_nn(queries, keys, **domains, k=3)
    scaled = caliper_nn(queries * scale, keys * scale, **domains, k=3)
    assert scaled.key.tolist() == expected.key.tolist()


@pytest.mark.parametrize("scale", [1e-42, 1e-39, 1e36])
def test_values_at_the_ends_of_single_precision_lose_no_query(scale):
    queries, keys, domains = make_problem(np.random.default_rng(1), 30, 60, 3, "two domains")
    domains.pop("query_propensity"), domains.pop("key_propensity")
    queries, keys = ((side * scale).astype(np.float32) for side in (queries, keys))
    assert_same(caliper_nn(queries, keys, **domains, k=3), brute_force(queries, keys, **domains, k=3))


def test_an_outlier_among_the_keys_changes_nothing():
    """It widens the bound on the product's error, so that more candidates are re-scored, not the result."""
    queries, keys, domains = make_problem(np.random.default_rng(1), 40, 200, 8, "two domains", dtype=np.float32)
    keys[7] = 1e6
    assert_same(caliper_nn(queries, keys, **domains, k=3), brute_force(queries, keys, **domains, k=3))


def test_many_identical_keys_give_the_lowest_rows():
    keys = np.zeros((5000, 3), np.float32)
    matches = caliper_nn(
        np.ones((3, 3), np.float32), keys, query_domain=np.zeros(3, np.int64), key_domain=np.ones(5000, np.int64), k=4
    )
    assert matches.key.tolist() == [[0, 1, 2, 3]] * 3


def test_thousands_of_domains():
    """As many as iWildCam has cameras: most of them with a handful of samples."""
    rng = np.random.default_rng(0)
    n_domains, n, m = 3215, 40, 2500
    domains = {}
    for side, rows in (("query", n), ("key", m)):
        domains[f"{side}_domain"] = rng.integers(0, n_domains, rows)
        score = rng.gamma(0.02, size=(rows, n_domains)).astype(np.float32) + 1e-6
        domains[f"{side}_propensity"] = score / score.sum(1, keepdims=True)
    domains["query_domain"][:20] = 5  # one domain large enough for a block of its own
    queries, keys = rng.normal(size=(n, 4)), rng.normal(size=(m, 4))
    matches = caliper_nn(queries, keys, **domains, k=3, std_caliper=0.5, fixed_caliper=0.99)
    expected = _brute_force_many_domains(queries, keys, **domains, k=3, std_caliper=0.5, fixed_caliper=0.99)
    assert len(matches) > 10
    assert dict(zip(matches.query.tolist(), matches.key.tolist(), strict=True)) == expected


def _brute_force_many_domains(
    queries, keys, query_domain, key_domain, query_propensity, key_propensity, k, std_caliper, fixed_caliper
):
    """Return {query: keys} by brute force; the general oracle would be too slow for this many domains."""
    e_q, e_k = query_propensity.astype(np.float64), key_propensity.astype(np.float64)
    kept_q, kept_k = e_q.max(1) < fixed_caliper, e_k.max(1) < fixed_caliper

    @cache
    def variance(side, domain, d):
        score, kept, domains = (e_q, kept_q, query_domain) if side == "query" else (e_k, kept_k, key_domain)
        rows = kept & (domains == domain)
        return np.var(score[rows, d], ddof=1) if rows.sum() > 1 else 0.0

    def within(i, j, d):
        sigma = np.sqrt((variance("query", query_domain[i], d) + variance("key", key_domain[j], d)) / 2)
        return abs(e_q[i, d] - e_k[j, d]) <= std_caliper * sigma

    found = {}
    for i in np.flatnonzero(kept_q):
        near = [
            (((queries[i] - keys[j]) ** 2).sum(), j)
            for j in np.flatnonzero(kept_k & (key_domain != query_domain[i]))
            if within(i, j, query_domain[i]) and within(i, j, key_domain[j])
        ]
        if len(near) >= k:
            found[int(i)] = [int(j) for _, j in sorted(near)[:k]]
    return found


def test_one_query_alone_has_variance_zero_not_nan():
    matches = caliper_nn(
        np.zeros((1, 2)),
        np.zeros((1, 2)),
        query_domain=np.array([0]),
        key_domain=np.array([1]),
        query_propensity=np.array([0.4]),
        key_propensity=np.array([0.6]),
        std_caliper=0.2,
    )
    assert len(matches) == 0  # a caliper of zero width, not one that is off


def test_fixed_caliper_of_0_9_and_0_1_say_the_same():
    queries, keys, domains = make_problem(np.random.default_rng(0), 50, 50, 2, "two domains")
    domains["query_propensity"][:3] = [0.1, 0.9, 0.1 + 1e-12]
    nine, one = (caliper_nn(queries, keys, **domains, fixed_caliper=t) for t in (0.9, 0.1))
    assert nine.query.tolist() == one.query.tolist()
    assert not {0, 1} & set(nine.query.tolist())


def test_fixed_caliper_of_1_keeps_saturated_scores():
    queries, keys, domains = make_problem(np.random.default_rng(0), 30, 30, 2, "two domains")
    domains["query_propensity"][:], domains["key_propensity"][:] = 1.0, 0.0
    assert len(caliper_nn(queries, keys, **domains, fixed_caliper=1.0)) == 30


def test_tensors_with_gradients_and_reduced_precision_settings_change_nothing():
    queries, keys, domains = make_problem(np.random.default_rng(0), 40, 90, 16, "two domains", dtype=np.float32)
    expected = caliper_nn(queries, keys, **domains, k=2, std_caliper=0.5)
    domains = {name: torch.from_numpy(value) for name, value in domains.items()}
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = caliper_nn(
                torch.from_numpy(queries).requires_grad_(), torch.from_numpy(keys), **domains, k=2, std_caliper=0.5
            )
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    assert found.key.tolist() == expected.key.tolist()
    assert not found.distance.requires_grad


class _CountSynchronisations(torch.utils._python_dispatch.TorchDispatchMode):
    """Counts operations that make the host wait for a device: their result's shape or value is needed at once."""

    WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_consecutive", "unique_dim")

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        by_mask = name == "index" and any(t is not None and t.dtype == torch.bool for t in args[1])
        self.count += name in self.WAITING or by_mask
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("std_caliper", [None, 0.5])
@pytest.mark.parametrize("tile_flops", [10.0, 1e9])
def test_the_loop_never_waits_for_the_device(kind, std_caliper, tile_flops, monkeypatch):
    """The number of operations that synchronise does not grow with the number of blocks."""
    queries, keys, domains = make_problem(np.random.default_rng(0), 120, 300, 8, kind)

    def synchronisations(block):
        for module in (domain_plans, windows, multi_label, scores):
            monkeypatch.setattr(module, "ROWS", block)
        monkeypatch.setattr(multi_label, "ROWS_OF_WINDOWS", block)
        monkeypatch.setattr(scores, "MIXED_ROWS", block)
        monkeypatch.setattr(scores, "TILE_FLOPS", tile_flops)
        with _CountSynchronisations() as mode:
            caliper_nn(queries, keys, **domains, k=2, std_caliper=std_caliper)
        return mode.count

    assert synchronisations(4) == synchronisations(64)


def test_result_lives_on_the_inputs_device_type():
    queries, keys, domains = make_problem(np.random.default_rng(0), 5, 9, 2, "two domains")
    matches = caliper_nn(torch.from_numpy(queries), torch.from_numpy(keys), **domains)
    assert matches.query.device == matches.key.device == torch.device("cpu")
    assert (matches.query.dtype, matches.key.dtype, matches.distance.dtype) == (torch.int64, torch.int64, torch.float64)


def bad(**changes):
    queries, keys, domains = make_problem(np.random.default_rng(0), 6, 8, 3, "two domains")
    arguments = {"queries": queries, "keys": keys, **domains, **changes}
    return caliper_nn(arguments.pop("queries"), arguments.pop("keys"), **arguments)


nan, inf = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"queries": np.array([[0, 0, 0]] * 4 + [[0, nan, 0]] * 2)}, "queries must be finite, row 4 holds NaN"),
        ({"keys": np.full((8, 3), inf)}, "keys must be finite, row 0"),
        ({"keys": np.zeros((8, 4))}, "queries have 3 columns, keys have 4"),
        ({"keys": np.zeros(8)}, r"keys must have shape \(n, d\), got \(8,\)"),
        ({"queries": np.array([["a"] * 3] * 6)}, "queries must be numeric"),
        ({"query_domain": np.zeros(5, int)}, r"query_domain must have 6 rows, got shape \(5,\)"),
        ({"key_domain": np.zeros(8)}, "key_domain must be integers"),
        (
            {"key_domain": np.full(8, 2)},
            r"key_domain must lie in \[0, 1\] for propensities of shape \(8,\), got values",
        ),
        ({"query_domain": np.zeros((6, 3), bool)}, "query_propensity must have the shape of query_domain"),
        ({"query_propensity": np.full(6, 1.5)}, r"query_propensity must lie in \[0, 1\], got values from 1.5 to 1.5"),
        ({"key_propensity": np.full(8, nan)}, "key_propensity must be finite, row 0"),
        ({"key_propensity": np.full(7, 0.5)}, r"key_propensity must have shape \(8,\) or \(8, S\), got \(7,\)"),
        ({"key_propensity": np.full((8, 2), 0.5)}, "must have the same width"),
        ({"key_propensity": None}, "must be given together"),
        ({"query_propensity": None, "std_caliper": 0.2}, "query_propensity is needed by fixed_caliper and std_caliper"),
        ({"fixed_caliper": 0.5}, r"fixed_caliper must be in \[0, 1\] and not 0.5, got 0.5"),
        ({"fixed_caliper": 1.7}, r"fixed_caliper must be in \[0, 1\] and not 0.5, got 1.7"),
        ({"fixed_caliper": nan}, "fixed_caliper must be"),
        ({"std_caliper": 0}, "std_caliper must be a positive number, got 0"),
        ({"std_caliper": -0.2}, "std_caliper must be a positive number, got -0.2"),
        ({"std_caliper": inf}, "std_caliper must be a positive number, got inf"),
        ({"caliper_scale": "log"}, "caliper_scale must be one of"),
        ({"k": 0}, "k must be a whole number of at least 1, got 0"),
        ({"k": 1.5}, "k must be a whole number of at least 1, got 1.5"),
        ({"k": True}, "k must be a whole number"),
        ({"queries": np.zeros((6, 0)), "keys": np.zeros((8, 0))}, "queries must have at least one column"),
        ({"keys": np.full((8, 3), -1e200)}, r"keys must lie within 1e\+150 of zero, .* row 0 does not"),
        ({"keys": np.full((8, 3), 3e38, np.float32)}, r"keys must lie within 1e\+37 of zero"),
        ({"direction": 3}, "direction must name two different domains, got 3"),
        ({"direction": (1, 1)}, r"direction must name two different domains, got \(1, 1\)"),
    ],
)
def test_bad_input_is_named(changes, message):
    with pytest.raises((ValueError, TypeError), match=message):
        bad(**changes)
