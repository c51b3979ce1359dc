"""Each loss against its closed form."""

import math

import numpy as np
import pytest
import torch
from okapi.nn.losses import cosine, jsd, kl, squared_l2
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy

from okapi.nn import consistency_loss


@pytest.fixture
def pairs():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, 7, 5, dtype=torch.float64, generator=generator)


def test_squared_l2_is_two_minus_two_cosines(pairs):
    query, key = pairs
    dot = (query * key).sum(-1) / (query.norm(dim=-1) * key.norm(dim=-1))
    torch.testing.assert_close(squared_l2(query, key), 2 - 2 * dot)
    torch.testing.assert_close(cosine(query, key), 1 - dot)


def test_closed_forms_at_right_angles_and_opposite():
    x, y = torch.tensor([[3.0, 0.0]]), torch.tensor([[0.0, 0.5]])
    assert squared_l2(x, y).item() == pytest.approx(2)
    assert squared_l2(x, -x).item() == pytest.approx(4)
    assert cosine(x, y).item() == pytest.approx(1)


def test_divergences_equal_those_of_scipy(pairs):
    query, key = pairs.log_softmax(-1)
    for q, k, by_kl, by_jsd in zip(query, key, kl(query, key), jsd(query, key), strict=True):
        assert by_kl.item() == pytest.approx(entropy(k.exp(), q.exp()))
        assert by_jsd.item() == pytest.approx(jensenshannon(q.exp(), k.exp()) ** 2)


def test_jsd_of_disjoint_predictions_is_log_two():
    query = torch.tensor([[0.0, -200.0]]).double()
    assert jsd(query, query.flip(-1)).item() == pytest.approx(math.log(2))


@pytest.mark.parametrize("name", ["squared_l2", "cosine", "jsd", "kl"])
def test_equal_sides_cost_nothing_and_gradients_are_finite(name, pairs):
    x = pairs[0].log_softmax(-1).requires_grad_()
    loss = consistency_loss(name)(x, x.detach()).sum()
    loss.backward()
    assert loss.item() == pytest.approx(0, abs=1e-12)
    assert np.isfinite(x.grad.numpy()).all()


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match="loss must be one of squared_l2, cosine, jsd, kl, got 'l3'"):
        consistency_loss("l3")
