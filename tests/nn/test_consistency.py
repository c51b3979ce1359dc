"""The whole unsupervised loss as one module: in a plain loop, its state, its errors, and over two real processes."""

import runpy
import subprocess
import sys
import textwrap

import pytest
import torch
from okapi.nn.match_figures import hubness, matched_smd
from torch import nn
from torch.nn.functional import normalize

from okapi.matching import Matches
from okapi.nn import CrossDomainConsistency, Linear

FREE = {"centred": False}


def encoder():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 6))


def batch(seed=0, n=10):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 4, generator=generator), torch.arange(n) % 2


def test_it_pulls_matched_samples_together():
    net = encoder()
    consistency = CrossDomainConsistency(net, k=1, bank=64, decay=0.9, **FREE)
    optimiser = torch.optim.AdamW([*net.parameters(), *consistency.scorer.parameters()], lr=0.01)
    distances = []
    for step in range(30):
        x, domain = batch(step)
        result = consistency(net(x), x, domain)
        optimiser.zero_grad()
        result.loss.backward()
        optimiser.step()
        distances.append(result.figures["consistency"].item())
    assert sum(distances[-5:]) < sum(distances[:5]) / 2
    assert len(consistency.encodings) == len(consistency.domains) == 64
    assert int(consistency.step) == 30


def test_the_keys_of_the_first_step_are_the_batch_and_the_loss_is_that_of_the_nearest():
    net = encoder().eval()
    consistency = CrossDomainConsistency(net, k=2, **FREE)
    x, domain = batch()
    z = net(x)
    unit = normalize(z.detach(), dim=1)
    squared = torch.cdist(unit, unit).square()
    squared[domain[:, None] == domain] = torch.inf
    expected = squared.topk(2, largest=False).values.mean()
    result = consistency(z, x, domain)
    assert result.match_rate.item() == 1
    assert result.figures["consistency"].item() == pytest.approx(expected.item(), rel=1e-4)
    scorer_loss = result.figures["propensity_loss"]
    assert (result.loss - scorer_loss).item() == pytest.approx(expected.item(), rel=1e-3)


def test_no_match_costs_nothing():
    net = encoder()
    consistency = CrossDomainConsistency(net, k=1, **FREE)
    x, _ = batch()
    result = consistency(net(x), x, torch.zeros(10, dtype=torch.int64))  # one domain only
    assert result.match_rate == 0
    assert result.loss.item() == result.figures["propensity_loss"].item()
    result.loss.backward()


def test_gradients_reach_the_online_encoder_and_the_scorer_only():
    net = encoder()
    consistency = CrossDomainConsistency(net, k=1, **FREE)
    x, domain = batch()
    consistency(net(x), x, domain).loss.backward()
    assert net[0].weight.grad.abs().sum() > 0
    assert consistency.scorer.linear.weight.grad.abs().sum() > 0
    assert all(parameter.grad is None for parameter in consistency.momentum.parameters())
    learnt = {name for name, parameter in consistency.named_parameters() if parameter.requires_grad}
    assert learnt == {"scorer.linear.weight", "scorer.linear.bias"}  # the encoder is its model's


def test_in_evaluation_mode_nothing_changes():
    net = encoder()
    consistency = CrossDomainConsistency(net, k=1, **FREE)
    x, domain = batch()
    consistency(net(x), x, domain)
    before = {name: tensor.clone() for name, tensor in consistency.state_dict().items()}
    consistency.eval()
    with torch.no_grad():
        net[0].weight.add_(1)
    assert consistency(net(x), x, domain).match_rate == 1
    assert all(torch.equal(tensor, before[name]) for name, tensor in consistency.state_dict().items())


def test_calls_of_one_step_move_the_momentum_encoder_once():
    net = encoder()
    consistency = CrossDomainConsistency(net, k=1, decay=0.5, **FREE)
    with torch.no_grad():
        net[0].weight.add_(1)
    x, domain = batch()
    consistency(net(x), x, domain, step=0)
    once = consistency.momentum.average.module[0].weight.clone()
    consistency(net(x), x, domain, step=0)
    assert torch.equal(once, consistency.momentum.average.module[0].weight)
    consistency(net(x), x, domain, step=1)
    assert not torch.equal(once, consistency.momentum.average.module[0].weight)


def test_state_goes_through_a_checkpoint():
    nets = [encoder(), encoder()]
    one, two = (CrossDomainConsistency(net, k=1, bank=15, weight=Linear(0, 1, 10), **FREE) for net in nets)
    for step in range(3):
        x, domain = batch(step)
        one(nets[0](x), x, domain)
    two.load_state_dict(one.state_dict())
    nets[1].load_state_dict(nets[0].state_dict())
    x, domain = batch(9)
    assert one(nets[0](x), x, domain).loss.item() == two(nets[1](x), x, domain).loss.item()


ADAPTING = {"adapt": "balance", "temperature": "auto", "hubness": "csls", "fixed_caliper": 0.95, "std_caliper": 1.0}


def take_steps(consistency, net, optimiser, steps):
    """Return the figures of each step."""
    figures = []
    for step in steps:
        x, domain = batch(step, n=32)
        x = x + domain[:, None]
        result = consistency(net(x), x, domain)
        optimiser.zero_grad()
        result.loss.backward()
        optimiser.step()
        figures.append({name: value.item() for name, value in result.figures.items()})
    return figures


@pytest.mark.parametrize("otherwise", [{}, {"adapt": "match_rate", "hubness": "cap"}])
def test_what_adapts_resumes_as_if_it_had_never_stopped(otherwise):
    nets = [encoder(), encoder()]
    pair = [CrossDomainConsistency(net, k=2, bank=100, **(ADAPTING | otherwise)) for net in nets]
    rates = {"lr": 0.1}
    optimisers = [
        torch.optim.SGD([*net.parameters(), *consistency.scorer.parameters()], **rates)
        for net, consistency in zip(nets, pair, strict=True)
    ]
    first = take_steps(pair[0], nets[0], optimisers[0], range(8))
    calipers = [figures["std_caliper"] for figures in first]
    assert len(set(calipers)) > 1
    assert {"fixed_caliper", "temperature"} <= set(first[-1])
    pair[1].load_state_dict(pair[0].state_dict())
    nets[1].load_state_dict(nets[0].state_dict())
    later = [take_steps(pair[i], nets[i], optimisers[i], range(8, 16)) for i in (0, 1)]
    assert later[0] == later[1]
    before = {name: tensor.clone() for name, tensor in pair[0].state_dict().items()}
    pair[0].eval()
    take_steps(pair[0], nets[0].eval(), optimisers[0], [20])
    learnt = ("scorer.linear.weight", "scorer.linear.bias")
    kept = {name: tensor for name, tensor in pair[0].state_dict().items() if name not in learnt}
    assert all(torch.equal(tensor, before[name]) for name, tensor in kept.items())


def test_without_adapting_nothing_is_added_to_the_state_or_the_figures():
    net, (x, domain) = encoder(), batch()
    consistency = CrossDomainConsistency(net, k=1)
    figures = consistency(net(x), x, domain).figures
    assert not {"temperature", "std_caliper", "fixed_caliper"} & set(figures)
    assert not [name for name in consistency.state_dict() if "adaptive" in name or "spread" in name]


def funnel(*, steps=50, distance=4.0, **settings):
    """Return mean figures of the last steps, in which a fast scorer tells two domains apart almost without error."""
    torch.manual_seed(0)
    net = nn.Linear(8, 8, bias=False)
    nn.init.eye_(net.weight)
    consistency = CrossDomainConsistency(net, k=1, centred=False, bank=512, **settings)
    optimiser = torch.optim.Adam(consistency.scorer.parameters(), lr=0.3)
    late = []
    for step in range(steps):
        domain = torch.arange(64) % 2
        x = torch.randn(64, 8)
        x[:, 0] += distance * (domain - 0.5)
        result = consistency(net(x).detach(), x, domain)
        optimiser.zero_grad()
        result.loss.backward()
        optimiser.step()
        if step >= steps - 20:
            late.append(result.figures)
    return {name: sum(figures[name].item() for figures in late) / len(late) for name in late[0]}


def test_an_automatic_temperature_opens_the_funnel_of_separable_domains():
    """Scores of 0 and 1: whoever is near 0 is within the std-caliper of the few keys that are wrongly there too."""
    saturated, tempered = funnel(std_caliper=0.2), funnel(std_caliper=0.2, temperature="auto")
    assert saturated["propensity_accuracy"] > 0.9
    assert saturated["busiest_key"] > 32 / 3  # of the 32 queries of a direction
    assert tempered["busiest_key"] < saturated["busiest_key"] / 2
    assert tempered["distinct_keys"] > 0.5 > 0.4 > saturated["distinct_keys"]
    assert tempered["temperature"] > 2


def test_the_match_rate_comes_to_its_target():
    settings = {"std_caliper": 0.2, "temperature": "auto", "steps": 150, "distance": 2.0, "target_match_rate": 0.6}
    assert funnel(**settings)["match_rate"] > 0.7
    assert funnel(adapt="match_rate", **settings)["match_rate"] == pytest.approx(0.6, abs=0.05)
    one_way = funnel(adapt="match_rate", direction=(0, 1), **settings)
    assert one_way["match_rate"] == pytest.approx(0.3, abs=0.03)  # of all samples, half of whom look for matches


def test_a_cap_holds_in_a_step():
    assert funnel(std_caliper=0.2, hubness="cap", cap=2)["busiest_key"] <= 2


def test_more_domains_and_sets():
    net, (x, _) = encoder(), batch()
    many = CrossDomainConsistency(net, domains=4, k=1, std_caliper=2.0, fixed_caliper=0.99)
    assert many(net(x), x, torch.arange(10) % 4).match_rate > 0
    sets = CrossDomainConsistency(net, domains=3, sets=True, k=1, **FREE)
    assert sets(net(x), x, torch.eye(3, dtype=torch.bool)[torch.arange(10) % 3]).match_rate == 1
    many = CrossDomainConsistency(net, domains=4, k=1, **ADAPTING)
    assert many(net(x), x, torch.arange(10) % 4).match_rate > 0
    sets = CrossDomainConsistency(net, domains=3, sets=True, k=1, **ADAPTING)
    assert sets(net(x), x, torch.eye(3, dtype=torch.bool)[torch.arange(10) % 3]).figures["running_smd"] > 0


def test_mappings_of_inputs():
    class Words(nn.Module):
        out_features = 5

        def __init__(self):
            super().__init__()
            self.embed = nn.EmbeddingBag(20, 5)

        def forward(self, inputs):
            return self.embed(inputs["input_ids"])

    net = Words()
    x = {"input_ids": torch.arange(40).reshape(10, 4) % 20}
    assert CrossDomainConsistency(net, k=1, **FREE)(net(x), x, torch.arange(10) % 2).match_rate == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 0}, "k must be a whole number of at least 1, got 0"),
        ({"fixed_caliper": 0.5}, "fixed_caliper"),
        ({"std_caliper": -1.0}, "std_caliper"),
        ({"temperature": 0.0}, "temperature must be positive"),
        ({"temperature": "hot"}, "temperature must be positive or 'auto', got 'hot'"),
        ({"adapt": "luck"}, "adapt must be 'match_rate' or 'balance', got 'luck'"),
        ({"adapt": "balance", **FREE}, "adapt needs a caliper to start from"),
        ({"hubness": "luck"}, "hubness must be 'csls', 'cap' or None, got 'luck'"),
        ({"cap": 0}, "cap must be at least 1, got 0"),
        ({"queries": "other"}, "queries must be 'momentum' or 'online', got 'other'"),
        ({"loss": "l3"}, "loss must be one of"),
        ({"loss": "kl"}, "head is needed by loss 'kl'"),
        ({"bank": 0}, "capacity must be at least 1"),
        ({"outcome_caliper": 0.5}, "head is needed by outcome_caliper"),
        ({"outcome_caliper": -1.0, "head": nn.Linear(6, 3)}, "outcome_caliper must be a number of at least 0"),
        ({"outcome_caliper": 1.0, "head": nn.Linear(6, 3), "outcomes": "ranks"}, "outcomes must be 'classes', 'num"),
    ],
)
def test_bad_settings_are_refused_at_once(arguments, message):
    with pytest.raises(ValueError, match=message):
        CrossDomainConsistency(encoder(), **arguments)


def test_bad_input():
    net, (x, domain) = encoder(), batch()
    consistency = CrossDomainConsistency(net, k=1, **FREE)
    with pytest.raises(ValueError, match=r"z must be encodings of shape \(n, 6\), got \(10, 4\)"):
        consistency(x, x, domain)
    with pytest.raises(ValueError, match="z and domain must have as many rows, got 10 and 9"):
        consistency(net(x), x, domain[:9])
    with pytest.raises(ValueError, match="x must have as many rows as its domains, got 8 and 10"):
        consistency(net(x), x[:8], domain)
    with pytest.raises(ValueError, match=r"the scorer has never seen \[2\]"):
        consistency(net(x), x, domain + 1)
    with pytest.raises(ValueError, match="key_domain is for queries='online'"):
        consistency(net(x), x, domain, key_domain=domain)
    with pytest.raises(ValueError, match="features must be given: Flatten has no out_features"):
        CrossDomainConsistency(nn.Flatten())


def test_a_prediction_that_is_missing_is_told_before_anything_changes():
    net, (x, domain) = encoder(), batch()
    consistency = CrossDomainConsistency(net, head=nn.Linear(6, 3), loss="kl", k=1, **FREE)
    with pytest.raises(ValueError, match="prediction is needed by a loss that compares predictions"):
        consistency(net(x), x, domain)
    assert (int(consistency.step), int(consistency.updated_at), len(consistency.encodings)) == (0, -1, 0)


def test_outcomes_that_are_missing_or_misshapen_are_told_before_anything_changes():
    net, (x, domain) = encoder(), batch()
    settings = {"head": nn.Linear(6, 3), "outcome_caliper": 0.5, "k": 1, **FREE}
    consistency = CrossDomainConsistency(net, queries="online", **settings)
    with pytest.raises(ValueError, match=r"outcome must be of shape \(10, 3\), got \(10,\)"):
        consistency(net(x), x, domain, outcome=domain)
    with pytest.raises(ValueError, match=r"key_outcome must be of shape \(8, 3\), got \(10, 3\)"):
        consistency(net(x), x[:8], domain, key_domain=domain[:8], prediction=x[:, :3], key_outcome=torch.ones(10, 3))
    with pytest.raises(ValueError, match="prediction is needed by outcome_caliper where the keys are other samples"):
        consistency(net(x), x, domain, key_domain=domain)
    assert (int(consistency.step), int(consistency.updated_at), len(consistency.encodings)) == (0, -1, 0)


def test_pairs_have_the_outcome_that_is_known_or_the_one_predicted():
    """Labels of half the samples, the head's word on the others: no pair across classes."""
    net, (x, domain) = encoder().eval(), batch(n=40)
    head = nn.Linear(6, 2)
    label = torch.arange(40) // 2 % 2
    known = torch.where(domain[:, None] == 0, nn.functional.one_hot(label).float(), torch.nan)
    consistency = CrossDomainConsistency(net, head=head, outcome_caliper=0.6, k=1, bank=50, **FREE)
    rates = []
    for _ in range(2):
        result = consistency(net(x), x, domain, outcome=known)
        rates.append(result.match_rate.item())
    probability = head(net(x)).softmax(1)
    outcome = torch.where(known.isnan(), probability, known)
    apart = torch.cdist(outcome, outcome) <= 0.6
    possible = (apart & (domain[:, None] != domain)).any(1)
    assert rates == pytest.approx(2 * [possible.double().mean().item()])
    assert 0 < rates[0] < 1
    assert len(consistency.outcomes.values) == len(consistency.encodings) == 50
    assert consistency.outcomes.known.rows().sum() == 25


def test_outcomes_serve_where_each_encoder_sees_its_own_pool():
    net, (x, _) = encoder().eval(), batch(n=20)
    head = nn.Linear(6, 2)
    settings = {"direction": (0, 1), "queries": "online", "k": 1, **FREE}
    consistency = CrossDomainConsistency(net, head=head, outcome_caliper=0.5, **settings)
    sides = {"key_domain": torch.ones(10, dtype=torch.int64), "prediction": head(net(x[:10]))}
    known = {"outcome": torch.eye(2)[torch.arange(10) % 2], "key_outcome": torch.eye(2)[torch.zeros(10).long()]}
    result = consistency(net(x[:10]), x[10:], torch.zeros(10, dtype=torch.int64), **sides, **known)
    assert result.match_rate == pytest.approx(5 / 20)  # every second query, of all samples


def test_hubness_is_counted():
    key = torch.tensor([[3, 4], [3, 5], [3, 3]])
    figures = hubness(Matches(torch.arange(3), key, torch.zeros(3, 2)))
    assert figures["distinct_keys"] == pytest.approx(3 / 6)
    assert figures["busiest_key"] == 4
    none = hubness(Matches(torch.zeros(0, dtype=torch.int64), torch.zeros(0, 2, dtype=torch.int64), torch.zeros(0, 2)))
    assert (none["distinct_keys"], none["busiest_key"]) == (0, 0)


def test_balance_of_matched_samples_is_that_of_each_direction():
    query, keys = torch.randn(6, 3, dtype=torch.float64), torch.randn(8, 3, dtype=torch.float64)
    matches = Matches(torch.tensor([0, 1, 3]), torch.tensor([[1, 2], [0, 0], [4, 7]]), torch.zeros(3, 2))
    domain = torch.tensor([0, 0, 1, 1, 1, 0])
    first = (query[:2].mean(0) - (keys[1] + keys[2] + 2 * keys[0]) / 4).abs() / query.std(0, correction=0)
    second = (query[3] - (keys[4] + keys[7]) / 2).abs() / query.std(0, correction=0)
    expected = (2 * first.mean() + second.mean()) / 3
    assert matched_smd(query, keys, matches, domain) == pytest.approx(expected.item())
    none = Matches(torch.zeros(0, dtype=torch.int64), torch.zeros(0, 2, dtype=torch.int64), torch.zeros(0, 2))
    assert matched_smd(query, keys, none, domain).isnan()


TWO = textwrap.dedent("""
    import os, sys, torch, torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
    from okapi.nn import CrossDomainConsistency, gather

    torch.set_num_threads(1)
    world, rank, port = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    if world > 1:
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", world_size=world, rank=rank)
        uneven = gather(torch.full((rank + 1, 2), float(rank)))
        assert [part.shape[0] for part in uneven] == [1, 2] and uneven[1].sum() == 4, uneven
        assert [part.tolist() for part in gather(torch.tensor([rank == 1]))] == [[False], [True]]
    for settings in ({}, dict(adapt="balance", temperature="auto", hubness="csls")):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 6)).double()
        settings |= dict(head=nn.Linear(6, 1).double(), outcomes="numbers", outcome_caliper=1.5)
        settings |= dict(k=2, bank=30, decay=0.9, std_caliper=1.0, fixed_caliper=0.95)
        consistency = CrossDomainConsistency(net, **settings)
        called = DistributedDataParallel(net) if world > 1 else net
        optimiser = torch.optim.AdamW([*net.parameters(), *consistency.scorer.parameters()], lr=0.02)
        for step in range(20):
            x = torch.randn(16, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(step))
            mine = slice(rank * 16 // world, (rank + 1) * 16 // world)
            domain = (torch.arange(16) % 2)[mine]
            known = torch.where(x[:, :1] > 0, x.sum(1, keepdim=True), torch.nan)[mine]
            result = consistency(called(x[mine]), x[mine], domain, outcome=known)
            optimiser.zero_grad()
            result.loss.backward()
            optimiser.step()
            if rank == 0:
                print(*(repr(result.figures[name].item()) for name in sorted(result.figures)))
        if rank == 0:
            print(repr(sum(parameter.double().abs().sum().item() for parameter in net.parameters())))
        for name, buffer in consistency.named_buffers():
            assert all(torch.equal(part[0], buffer) for part in gather(buffer[None])), name
    if world > 1:
        dist.destroy_process_group()
        sys.stdout.flush()
        os._exit(0)  # gloo's threads now and then abort a process that is torn down while they end
""")


def test_two_processes_match_as_one_with_both_batches(tmp_path, free_port, monkeypatch, capsys):
    script = tmp_path / "two.py"
    script.write_text(TWO)

    def start(rank):
        command = [sys.executable, str(script), "2", str(rank), str(free_port)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    processes = start(0), start(1)
    monkeypatch.setattr(sys, "argv", [str(script), "1", "0", "none"])
    runpy.run_path(str(script))
    said = [capsys.readouterr().out]
    for process in processes:
        output, error = process.communicate(timeout=120)
        assert process.returncode == 0, error
        said.append(output)
    alone, first, _ = ([[float(figure) for figure in line.split()] for line in output.splitlines()] for output in said)
    assert len(alone) == len(first) == 2 * 21
    for one, two in zip(alone, first, strict=True):
        assert two == pytest.approx(one, abs=1e-9, nan_ok=True)
