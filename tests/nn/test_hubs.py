"""Limits on hubs: CSLS against its formula, the cap against what it promises."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from okapi.nn.hubs import capped, penalised
from torch.nn.functional import normalize

from okapi.matching import Matches, caliper_nn


def unit(generator, rows, width=4):
    return normalize(torch.randn(rows, width, dtype=torch.float64, generator=generator), dim=1)


def csls_by_hand(query, keys, query_domain, key_domain, k, direction=None):
    """Rank by 2 cos - r(q) - r(k), one pair at a time; domains are numbers or sets of them."""
    share = [[bool(set(a) & set(b)) for b in key_domain] for a in query_domain]
    cosine = query.numpy() @ keys.numpy().T
    possible = ~np.array(share)
    if direction is not None:
        possible &= np.array([direction[0] in a for a in query_domain])[:, None]
        possible &= np.array([direction[1] in b for b in key_domain])
    fewest = min(count for count in possible.sum(0) if count)
    near = [np.sort(cosine[possible[:, key], key])[-min(10, fewest) :] for key in range(len(keys))]
    of_key = np.array([values.mean() if len(values) else np.nan for values in near])
    found = {}
    for row in np.flatnonzero(possible.any(1)):
        score = np.where(possible[row], 2 * cosine[row] - of_key, -np.inf)
        if possible[row].sum() >= k:
            found[int(row)] = np.argsort(-score, kind="stable")[:k].tolist()
    return found


@given(seed=st.integers(0, 200), queries=st.integers(2, 30), keys=st.integers(2, 40), domains=st.integers(2, 4))
def test_the_nearest_with_a_column_more_are_the_nearest_by_csls(seed, queries, keys, domains):
    generator = torch.Generator().manual_seed(seed)
    query, key = unit(generator, queries), unit(generator, keys)
    sides = [torch.randint(domains, (n,), generator=generator) for n in (queries, keys)]
    if not (sides[0][:, None] != sides[1]).any():
        return  # nobody may be matched
    matches = caliper_nn(*penalised(query, key, *sides), query_domain=sides[0], key_domain=sides[1], k=2)
    expected = csls_by_hand(query, key, *([[d] for d in side.tolist()] for side in sides), k=2)
    assert dict(zip(matches.query.tolist(), matches.key.tolist(), strict=True)) == expected


def test_csls_of_sets_and_in_one_direction():
    generator = torch.Generator().manual_seed(0)
    query, key = unit(generator, 30), unit(generator, 40)
    sides = [torch.rand(n, 3, generator=generator) < 0.4 for n in (30, 40)]
    matches = caliper_nn(*penalised(query, key, *sides), query_domain=sides[0], key_domain=sides[1], k=2)
    expected = csls_by_hand(query, key, *([row.nonzero()[:, 0].tolist() for row in side] for side in sides), k=2)
    assert dict(zip(matches.query.tolist(), matches.key.tolist(), strict=True)) == expected
    sides = [torch.arange(n) % 3 for n in (30, 40)]
    one_way = {"query_domain": sides[0], "key_domain": sides[1], "direction": (0, 1), "k": 2}
    matches = caliper_nn(*penalised(query, key, *sides, direction=(0, 1)), **one_way)
    expected = csls_by_hand(query, key, *([[d] for d in side.tolist()] for side in sides), k=2, direction=(0, 1))
    assert dict(zip(matches.query.tolist(), matches.key.tolist(), strict=True)) == expected


def test_a_hub_no_longer_serves_everybody():
    """A key in the midst of all queries, and one beside each of them, a little further away."""
    angle = torch.arange(12) * 2 * np.pi / 12
    around = torch.stack([angle.cos(), angle.sin(), torch.full((12,), 3.0)], 1)
    beside = torch.stack([2.5 * angle.cos(), 2.5 * angle.sin(), torch.full((12,), 3.0)], 1)
    hub = torch.tensor([[0.0, 0.0, 1.0]])
    query, keys = normalize(around, dim=1), normalize(torch.cat([hub, beside]), dim=1)
    sides = {"query_domain": torch.zeros(12).long(), "key_domain": torch.ones(13).long()}
    assert (caliper_nn(query, keys, **sides).key == 0).all()
    by_csls = caliper_nn(*penalised(query, keys, *sides.values()), **sides)
    assert by_csls.key[:, 0].tolist() == list(range(1, 13))


def test_nobody_to_penalise_for():
    query, keys = torch.eye(3), torch.eye(3)
    same = torch.zeros(3).long()
    for side in (penalised(query, keys, same, same), penalised(query, keys[:0], same, same[:0])):
        assert all((part[:, 3] == 0).all() for part in side)


@given(
    keys=st.lists(st.lists(st.integers(0, 6), min_size=2, max_size=2, unique=True), max_size=20),
    cap=st.integers(1, 4),
    seed=st.integers(0, 99),
)
def test_a_cap_is_kept_and_whoever_lost_a_match_found_a_key_full(keys, cap, seed):
    key = torch.tensor(keys, dtype=torch.int64).reshape(-1, 2)
    distance = torch.rand(len(key), 2, generator=torch.Generator().manual_seed(seed)).sort(1).values
    matches = Matches(3 + torch.arange(len(key)), key, distance)
    left = capped(matches, cap)
    rows = left.query - 3
    assert torch.equal(left.key, key[rows])
    assert torch.equal(left.distance, distance[rows])
    assert torch.equal(left.query, left.query.sort().values)
    served = torch.bincount(left.key.flatten(), minlength=7)
    assert (served <= cap).all()
    for row in set(range(len(key))) - set(rows.tolist()):
        nearer = [kept for kept in rows.tolist() if distance[kept, 1] <= distance[row, 1]]
        of_nearer = torch.bincount(key[nearer].flatten(), minlength=7)
        assert (of_nearer[key[row]] == cap).any()


def test_a_cap_that_nobody_meets_changes_nothing():
    matches = Matches(torch.arange(3), torch.tensor([[0, 1], [1, 2], [0, 2]]), torch.rand(3, 2))
    assert torch.equal(capped(matches, 2).key, matches.key)
    assert capped(matches, 1).query.tolist() == [int(matches.distance[:, 1].argmin())]
