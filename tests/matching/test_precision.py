"""Match precision, against a count of pairs one at a time."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from okapi.matching import Matches, caliper_nn, match_precision

METRICS = {"classification": ["precision"], "multilabel": ["precision"], "regression": ["difference", "difference_sd"]}


def random_case(seed: int, kind: str, *, sets: bool) -> dict[str, object]:
    """Return arguments of match_precision() for random pairs, some with fewer keys, some targets missing."""
    rng = np.random.default_rng(seed)
    n, m, k = 12, 15, 2
    width = {"classification": None, "multilabel": 3, "regression": int(rng.integers(1, 3))}[kind]
    targets = []
    for size in (n, m):
        if kind == "classification":
            names = np.array(["cat", "dog", "owl", None], dtype=object)
            targets.append(names[rng.integers(0, 4, size)])
            continue
        values = (
            rng.integers(0, 2, (size, width)).astype(float) if kind == "multilabel" else rng.normal(5, 2, (size, width))
        )
        values[rng.random(size) < 0.2, 0] = np.nan
        targets.append(values)
    domains = [rng.random((size, 3)) < 0.5 if sets else 2 * rng.integers(0, 3, size) for size in (n, m)]
    query = np.flatnonzero(rng.random(n) < 0.7)
    key = np.stack([rng.choice(m, k, replace=False) for _ in range(n)])[query]
    key[rng.random(key.shape) < 0.2] = -1
    return {
        "query_target": targets[0],
        "key_target": targets[1],
        "query_domain": domains[0],
        "key_domain": domains[1],
        "matches": Matches(torch.tensor(query), torch.tensor(key), torch.zeros(key.shape)),
        "kind": kind,
    }


def is_missing(target: object) -> bool:
    return target is None or (not isinstance(target, str) and bool(np.isnan(target).any()))


def metrics_of_all_pairs(case: dict[str, object]) -> dict[tuple[int, int], list[float]]:
    """Return the metrics of every pair of a query and a key, NaN where a target is missing."""
    kind, sides = case["kind"], [list(case[name]) for name in ("query_target", "key_target")]
    known = [target for side in sides for target in side if not is_missing(target)]
    deviation = np.std(known, axis=0) if kind == "regression" else None
    found = {}
    for query, a in enumerate(sides[0]):
        for key, b in enumerate(sides[1]):
            if is_missing(a) or is_missing(b):
                metrics = [np.nan] * len(METRICS[kind])
            elif kind == "classification":
                metrics = [float(a == b)]
            elif kind == "multilabel":
                metrics = [sum(x == y for x, y in zip(a, b, strict=True)) / len(a)]
            else:
                metrics = [float(np.mean(abs(a - b))), float(np.mean(abs(a - b) / deviation))]
            found[query, key] = metrics
    return found


def domains_of(domain: np.ndarray, row: int) -> list[int]:
    return np.flatnonzero(domain[row]).tolist() if domain.ndim == 2 else [int(domain[row])]


def mean(rows: list[list[float]], width: int) -> list[float]:
    known = [row for row in rows if not np.isnan(row[0])]
    return [float(np.mean([row[i] for row in known])) if known else np.nan for i in range(width)]


def by_direction(
    case: dict[str, object], metrics: dict[tuple[int, int], list[float]]
) -> dict[tuple[int, int], list[list[float]]]:
    found: dict[tuple[int, int], list[list[float]]] = {}
    for (query, key), of_pair in metrics.items():
        for a in domains_of(case["query_domain"], query):
            for b in domains_of(case["key_domain"], key):
                found.setdefault((a, b), []).append(of_pair)
    return found


@pytest.mark.parametrize("sets", [False, True])
@pytest.mark.parametrize("kind", METRICS)
@settings(max_examples=15)
@given(seed=st.integers(0, 10**6))
def test_metrics_and_chance_are_those_counted_pair_by_pair(seed: int, kind: str, sets: bool) -> None:
    case = random_case(seed, kind, sets=sets)
    found = match_precision(**case)
    names = METRICS[kind]
    chances = ["chance", "chance_sd"][: len(names)]

    matches = case["matches"]
    everyone = metrics_of_all_pairs(case)
    rows = zip(matches.query.tolist(), matches.key.tolist(), strict=True)
    paired = {(query, key): everyone[query, key] for query, keys in rows for key in keys if key >= 0}
    matched, possible = by_direction(case, paired), by_direction(case, everyone)
    assert list(zip(found.table.query_domain, found.table.key_domain, strict=True)) == sorted(matched)
    for row in found.table.to_dict("records"):
        direction = row["query_domain"], row["key_domain"]
        known = sum(not np.isnan(one[0]) for one in matched[direction])
        assert (row["pairs"], row["unknown"]) == (known, len(matched[direction]) - known)
        assert [row[name] for name in names] == pytest.approx(mean(matched[direction], len(names)), nan_ok=True)
        assert [row[name] for name in chances] == pytest.approx(mean(possible[direction], len(names)), nan_ok=True)

    assert found.overall["pairs"] + found.overall["unknown"] == len(paired)
    assert [found.overall[name] for name in names] == pytest.approx(
        mean(list(paired.values()), len(names)), nan_ok=True
    )
    weighed = [
        mean(possible[direction], len(names)) for direction, its in matched.items() for one in its if one[0] == one[0]
    ]
    assert [found.overall[name] for name in chances] == pytest.approx(mean(weighed, len(names)), nan_ok=True)
    assert found.value == found.overall[names[-1]] or np.isnan(found.value)


@pytest.mark.parametrize("kind", ["regression", "multilabel"])
def test_a_copy_of_each_sample_in_another_domain_is_matched_precisely(kind: str) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20, 3)), rng.integers(0, 2, (20, 4)).astype(np.float32)
    site = np.repeat([0, 1], 20)
    x, y = np.tile(x, (2, 1)), torch.from_numpy(np.tile(y, (2, 1)))
    matches = caliper_nn(x, x, query_domain=site, key_domain=site)
    found = match_precision(
        y, y, query_domain=site, key_domain=site, matches=matches, kind=kind, domain_names=["here", "there"]
    )
    assert found.value == (1.0 if kind == "multilabel" else 0.0)
    assert found.table.query_domain.tolist() == ["here", "there"]
    assert "by chance" in repr(found)
    assert "<table" in found._repr_html_()


def test_far_from_zero_the_chance_of_numbers_keeps_its_digits() -> None:
    case = random_case(3, "regression", sets=False)
    near = match_precision(**case)
    far = match_precision(**case | {name: case[name] + 1e9 for name in ("query_target", "key_target")})
    np.testing.assert_allclose(far.table.chance, near.table.chance, rtol=1e-6)


def test_without_pairs_nothing_is_known() -> None:
    case = random_case(0, "classification", sets=False)
    nothing = Matches(torch.zeros(0, dtype=torch.int64), torch.zeros(0, 1, dtype=torch.int64), torch.zeros(0, 1))
    found = match_precision(**case | {"matches": nothing})
    assert found.table.empty
    assert np.isnan(found.value)
    assert found.overall["pairs"] == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "words"}, "kind must be one of"),
        (
            {"query_target": np.zeros((12, 2))},
            r"query_target must be of shape \(n,\) for classification, got \(12, 2\)",
        ),
        ({"kind": "regression"}, "query_target must be numbers"),
        (
            {"query_domain": np.zeros(3, dtype=int)},
            "query_domain must have 12 rows, got shape",
        ),
        (
            {"kind": "multilabel", "query_target": np.full(12, 0.5), "key_target": np.zeros(15)},
            "query_target must be 0 or 1, or NaN where missing, got 0.5 in row 0",
        ),
        (
            {"kind": "regression", "query_target": np.zeros(12), "key_target": np.full(15, np.inf)},
            "key_target must be finite, or NaN where missing, got inf in row 0",
        ),
        (
            {"kind": "regression", "query_target": np.zeros((12, 2)), "key_target": np.zeros(15)},
            "query_target and key_target must have the same columns, got 2 and 1",
        ),
    ],
)
def test_bad_arguments_are_named(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        match_precision(**random_case(0, "classification", sets=False) | change)
