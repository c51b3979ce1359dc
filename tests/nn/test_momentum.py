"""The momentum encoder against its formula."""

import pytest
import torch
from torch import nn

from okapi.nn import Linear, MomentumEncoder


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2)).double()


def test_it_follows_the_formula_buffers_too():
    torch.manual_seed(0)
    online, decay = network(), Linear(0.5, 1.0, steps=4)
    momentum = MomentumEncoder(online, decay)
    expected = {name: tensor.clone() for name, tensor in online.state_dict().items()}
    for step in range(6):
        with torch.no_grad():
            for parameter in online.parameters():
                parameter.add_(torch.randn_like(parameter))
        online(torch.randn(8, 3, dtype=torch.float64))  # moves the running statistics
        momentum.update(online, step)
        zeta = decay(step)
        for name, tensor in online.state_dict().items():
            expected[name] = (
                zeta * expected[name] + (1 - zeta) * tensor if tensor.is_floating_point() else tensor.clone()
            )
        for name, tensor in momentum.average.module.state_dict().items():
            torch.testing.assert_close(tensor, expected[name], rtol=1e-12, atol=1e-12)


def test_it_stays_in_evaluation_mode_within_a_model_that_trains():
    momentum = MomentumEncoder(network())
    model = nn.ModuleList([momentum]).train()
    assert model.training
    assert not any(module.training for module in momentum.modules())
    x = torch.randn(4, 3, dtype=torch.float64)
    assert torch.equal(momentum(x), momentum(x))  # dropout is off


def test_no_gradient_reaches_it():
    momentum = MomentumEncoder(network())
    assert not any(parameter.requires_grad for parameter in momentum.parameters())
    assert not momentum(torch.randn(4, 3, dtype=torch.float64, requires_grad=True)).requires_grad


def test_it_is_a_copy():
    online = network()
    momentum = MomentumEncoder(online, decay=0.0)
    with torch.no_grad():
        online[0].weight.zero_()
    assert momentum.average.module[0].weight.abs().sum() > 0
    momentum.update(online, step=0)
    assert momentum.average.module[0].weight.abs().sum() == 0


def test_bad_decay():
    momentum = MomentumEncoder(network(), decay=1.5)
    with pytest.raises(ValueError, match=r"1\.5"):
        momentum.update(network(), step=0)
