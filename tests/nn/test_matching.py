"""The one matching against brute force, with centring, alignment and scaling transcribed."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.algorithms.transcription import aligned, class_prior_and_frequencies, from_centres, unit
from tests.matching.oracle import brute_force

from okapi.config import MatchingSettings, PrognosticMatchingSettings
from okapi.nn import Pool, match


def draw_pool(generator, n, kind, domains, known_share=0.5):
    """Return a pool whose outcomes are targets for about a share of it, each class among them, else predictions."""
    encoding = unit(torch.randn(n, 3, dtype=torch.float64, generator=generator))
    domain = torch.randint(domains, (n,), generator=generator)
    known = torch.rand(n, generator=generator) < known_share
    raw = 2 * torch.randn(n, 1 if kind == "regression" else 3, dtype=torch.float64, generator=generator)
    if kind == "classification":
        known[:3], known[3:5] = known_share > 0, known_share == 1  # clusters need some that are not known
        raw[:3] = 3 * torch.eye(3)[:n]
        outcome = torch.where(known[:, None], torch.eye(3, dtype=torch.float64)[raw.argmax(1)], raw.softmax(1))
    elif kind == "multilabel":
        outcome = torch.where(known[:, None], (raw > 0).double(), raw.sigmoid())
    else:
        outcome = raw
    score = torch.randn(n, domains, dtype=torch.float64, generator=generator).softmax(1)
    return Pool(encoding, domain, score[:, 1] if domains == 2 else score, outcome, known)


def third_of_the_deviation(queries, keys, outcomes, settings):
    """The automatic caliper: of the outcomes of queries and keys that the fixed caliper and the direction admit."""
    variances = []
    for pool, outcome, domain in zip((queries, keys), outcomes, settings.direction or (None, None), strict=True):
        admitted = torch.ones(len(outcome), dtype=torch.bool) if domain is None else pool.domain == domain
        if settings.fixed_caliper is not None:
            score = pool.propensity
            admitted &= (score > 0.1) & (score < 0.9) if score.ndim == 1 else score.max(1).values < 0.9
        variances.append(float(outcome[admitted].var(0).sum()) if admitted.sum() > 1 else 0.0)
    return math.sqrt(sum(variances) / 2) / 3


def by_hand(queries, keys, settings, kind):
    """Return {query: keys} by the definition."""
    outcome, known = torch.cat([queries.outcome, keys.outcome]), torch.cat([queries.known, keys.known])
    encoding = torch.cat([queries.encoding, keys.encoding])
    some_known = known.any() and not known.all()
    if kind == "classification" and None not in (settings.prognostic_caliper, settings.class_prior) and some_known:
        prior, frequencies = class_prior_and_frequencies(outcome, known, encoding, settings.class_prior)
        outcome[~known] = aligned(outcome[~known], prior, frequencies)
    if kind == "regression" and known.sum() > 1:
        outcome = outcome / outcome[known].std()
    sides = outcome[: len(queries.domain)], outcome[len(queries.domain) :]
    caliper = settings.prognostic_caliper
    if caliper == "auto":
        caliper = third_of_the_deviation(queries, keys, sides, settings)
    vectors = queries.encoding, keys.encoding
    if settings.centre:
        vectors = from_centres(*vectors, queries.domain, keys.domain)
    found = brute_force(
        *vectors,
        query_domain=queries.domain,
        key_domain=keys.domain,
        query_propensity=queries.propensity,
        key_propensity=keys.propensity,
        k=settings.k,
        fixed_caliper=settings.fixed_caliper,
        std_caliper=settings.std_caliper,
        caliper_scale=settings.caliper_scale,
        direction=settings.direction,
        query_prognosis=sides[0],
        key_prognosis=sides[1],
        prognostic_caliper=caliper,
    )
    return {query: near for query, near, _ in found}


@pytest.mark.parametrize("kind", ["classification", "regression", "multilabel"])
@given(
    seed=st.integers(0, 10_000),
    queries=st.integers(5, 12),
    keys=st.integers(1, 20),
    domains=st.sampled_from([2, 3]),
    known_share=st.sampled_from([0.0, 0.5, 1.0]),
    settings=st.builds(
        PrognosticMatchingSettings,
        k=st.integers(1, 3),
        fixed_caliper=st.sampled_from([None, 0.9]),
        std_caliper=st.sampled_from([None, 1.5]),
        caliper_scale=st.sampled_from(["probability", "logit"]),
        direction=st.sampled_from([None, (0, 1)]),
        centre=st.booleans(),
        prognostic_caliper=st.sampled_from([None, "auto", 0.6, 1.1]),
        class_prior=st.sampled_from([None, 0.0, 0.5, 1.0]),
    ),
)
def test_matches_are_those_of_brute_force(kind, seed, queries, keys, domains, known_share, settings):
    generator = torch.Generator().manual_seed(seed)
    pools = [draw_pool(generator, n, kind, domains, known_share) for n in (queries, keys)]
    expected = by_hand(*pools, settings, kind)
    before = [[part.clone() for part in pool] for pool in pools]
    matches = match(*pools, settings, kind)
    assert dict(zip(matches.query.tolist(), matches.key.tolist(), strict=True)) == expected
    assert all(
        torch.equal(*parts) for pool, copy in zip(pools, before, strict=True) for parts in zip(pool, copy, strict=True)
    )


@given(seed=st.integers(0, 10_000), n=st.integers(1, 20))
def test_the_papers_settings_compare_encodings_as_they_are_and_no_outcomes(seed, n):
    generator = torch.Generator().manual_seed(seed)
    pools = draw_pool(generator, n, "classification", 2), draw_pool(generator, n + 3, "classification", 2)
    settings = MatchingSettings(k=2, std_caliper=1.5)
    prognostic = PrognosticMatchingSettings(
        k=2, fixed_caliper=0.9, std_caliper=1.5, centre=False, prognostic_caliper=None
    )
    matches = match(*pools, settings)
    expected = by_hand(*pools, prognostic, None)
    assert dict(zip(matches.query.tolist(), matches.key.tolist(), strict=True)) == expected


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_queries_among_the_keys_count_once(kind):
    generator = torch.Generator().manual_seed(0)
    pool = draw_pool(generator, 40, kind, 2)
    settings = PrognosticMatchingSettings(k=1, prognostic_caliper=0.1)
    matches = match(40, pool, settings, kind)
    outcome, known = pool.outcome.clone(), pool.known
    if kind == "classification":
        prior, frequencies = class_prior_and_frequencies(outcome, known, pool.encoding, 0.5)
        outcome[~known] = aligned(outcome[~known], prior, frequencies)
    else:
        outcome /= outcome[known].std()
    _, direction = from_centres(pool.encoding[:0], pool.encoding, pool.domain[:0], pool.domain)
    possible = (torch.cdist(outcome, outcome) <= 0.1) & (pool.domain[:, None] != pool.domain)
    nearest = torch.cdist(direction, direction).masked_fill(~possible, torch.inf).argmin(1)
    assert matches.query.tolist() == possible.any(1).nonzero()[:, 0].tolist()
    assert matches.key[:, 0].tolist() == nearest[possible.any(1)].tolist()
    assert 0 < len(matches) < 40


def test_outcomes_are_needed_in_both_pools():
    pool = draw_pool(torch.Generator(), 5, "classification", 2)
    for kind in ("classification", "regression"):
        with pytest.raises(ValueError, match="outcome and known are needed in both pools by prognostic_caliper"):
            match(pool, pool._replace(known=None), PrognosticMatchingSettings(), kind)
