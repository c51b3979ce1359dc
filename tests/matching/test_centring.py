"""Encodings centred by domain mean."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import one_hot

from okapi.matching import caliper_nn
from okapi.matching.centring import PRIOR, centred


def _samples(seed: int, rows: int = 60, width: int = 5, domains: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(rows, width, generator=generator, dtype=torch.float64)
    return vectors, torch.randint(domains, (rows,), generator=generator)


@given(seed=st.integers(0, 1000), queries=st.integers(0, 60), domains=st.integers(1, 5))
def test_each_sample_is_centred_by_the_mean_of_its_domain(seed: int, queries: int, domains: int) -> None:
    vectors, domain = _samples(seed, domains=domains)
    sides = domain[:queries], domain[queries:]
    found = torch.cat(centred(vectors[:queries].clone(), vectors[queries:].clone(), *sides))
    for row, vector in enumerate(vectors):
        of_domain = vectors[domain == domain[row]]
        mean = (of_domain.sum(0) + PRIOR * vectors.mean(0)) / (len(of_domain) + PRIOR)
        direction = (vector - mean) / (vector - mean).norm()
        torch.testing.assert_close(found[row], direction)


@given(seed=st.integers(0, 1000))
def test_multi_label_domains_of_one_label_each_are_domains(seed: int) -> None:
    vectors, domain = _samples(seed)
    plain = centred(vectors[:20], vectors[20:], domain[:20], domain[20:])
    labels = one_hot(domain, 3).bool()
    for ours, theirs in zip(centred(vectors[:20], vectors[20:], labels[:20], labels[20:]), plain, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_inputs_stay_as_they_are() -> None:
    vectors, domain = _samples(0)
    query, keys = vectors[:20].clone(), vectors[20:].clone()
    centred(query, keys, domain[:20], domain[20:])
    assert torch.equal(query, vectors[:20])
    assert torch.equal(keys, vectors[20:])


def test_nothing_is_centred_to_nothing() -> None:
    none, domain = torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64)
    assert [part.shape for part in centred(none, none, domain, domain)] == [(0, 3), (0, 3)]


def test_classes_are_found_across_a_shift_that_hides_them() -> None:
    """Two classes a unit apart, domains ten apart: the nearest key says nothing of the class, the centred one does."""
    generator = torch.Generator().manual_seed(0)
    kind, domain = torch.arange(400) % 2, torch.arange(400) // 200
    vectors = 0.1 * torch.randn(400, 8, generator=generator)
    vectors[:, 0] += kind.float()
    vectors[:, 1] += 10 * domain
    vectors[:, 0] += 2 * domain  # the shift is also along what tells the classes apart
    sides = {"query_domain": domain, "key_domain": domain}
    shares = []
    for query, keys in ((vectors, vectors), centred(vectors, vectors, domain, domain)):
        matches = caliper_nn(query, keys, **sides)
        shares.append((kind[matches.query] == kind[matches.key[:, 0]]).double().mean().item())
    assert shares[0] == pytest.approx(0.5, abs=0.1)
    assert shares[1] > 0.99
