"""The whole unsupervised loss as one module: in a plain loop, its state, its errors, and over two real processes."""

import runpy
import subprocess
import sys
import textwrap
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import normalize, one_hot

from okapi.config import MatchingSettings, PrognosticMatchingSettings
from okapi.data.task import Task
from okapi.matching import Matches, centred
from okapi.nn import CrossDomainConsistency, Linear, PropensityScorer
from okapi.nn.match_metrics import hubness, matched_smd
from okapi.nn.pseudo_labels import ErrorGate

WIDE = MatchingSettings(k=1, fixed_caliper=1.0, std_caliper=None)  # with a scorer, and all samples inside
NEAREST = MatchingSettings(k=1, fixed_caliper=None, std_caliper=None)
BY_OUTCOME = PrognosticMatchingSettings(k=1, centre=False, prognostic_caliper=0.6, class_prior=None)


def encoder():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 6))


def batch(seed=0, n=10):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 4, generator=generator), torch.arange(n) % 2


def test_it_pulls_matched_samples_together():
    net = encoder()
    consistency = CrossDomainConsistency(net, matching=WIDE, bank=64, momentum=0.9)
    optimiser = torch.optim.AdamW([*net.parameters(), *consistency.scorer.parameters()], lr=0.01)
    distances = []
    for step in range(30):
        x, domain = batch(step)
        result = consistency(net(x), x, domain)
        optimiser.zero_grad()
        result.loss.backward()
        optimiser.step()
        distances.append(result.metrics["consistency"].item())
    assert sum(distances[-5:]) < sum(distances[:5]) / 2
    assert len(consistency.encodings) == len(consistency.domains) == 64
    assert int(consistency.step) == 30


def test_the_keys_of_the_first_step_are_the_batch_and_the_loss_is_that_of_the_nearest():
    net = encoder().eval()
    consistency = CrossDomainConsistency(net, matching=replace(WIDE, k=2))
    x, domain = batch()
    z = net(x)
    unit = normalize(z.detach(), dim=1)
    squared = torch.cdist(unit, unit).square()
    squared[domain[:, None] == domain] = torch.inf
    expected = squared.topk(2, largest=False).values.mean()
    result = consistency(z, x, domain)
    assert result.match_rate.item() == 1
    assert result.metrics["consistency"].item() == pytest.approx(expected.item(), rel=1e-4)
    scorer_loss = result.metrics["propensity_loss"]
    assert (result.loss - scorer_loss).item() == pytest.approx(expected.item(), rel=1e-3)


def test_no_match_costs_nothing():
    net = encoder()
    consistency = CrossDomainConsistency(net, matching=WIDE)
    x, _ = batch()
    result = consistency(net(x), x, torch.zeros(10, dtype=torch.int64))  # one domain only
    assert result.match_rate == 0
    assert result.loss.item() == result.metrics["propensity_loss"].item()
    result.loss.backward()


def test_gradients_reach_the_online_encoder_and_the_scorer_only():
    net = encoder()
    consistency = CrossDomainConsistency(net, matching=WIDE)
    x, domain = batch()
    consistency(net(x), x, domain).loss.backward()
    assert net[0].weight.grad.abs().sum() > 0
    assert consistency.scorer.linear.weight.grad.abs().sum() > 0
    assert all(parameter.grad is None for parameter in consistency.momentum.parameters())
    learnt = {name for name, parameter in consistency.named_parameters() if parameter.requires_grad}
    assert learnt == {"scorer.linear.weight", "scorer.linear.bias"}  # the encoder is its model's


def test_in_evaluation_mode_nothing_changes():
    net = encoder()
    consistency = CrossDomainConsistency(net, matching=WIDE)
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
    consistency = CrossDomainConsistency(net, matching=NEAREST, momentum=0.5)
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
    one, two = (CrossDomainConsistency(net, matching=WIDE, bank=15, weight=Linear(0, 1, 10)) for net in nets)
    for step in range(3):
        x, domain = batch(step)
        one(nets[0](x), x, domain)
    two.load_state_dict(one.state_dict())
    nets[1].load_state_dict(nets[0].state_dict())
    x, domain = batch(9)
    assert one(nets[0](x), x, domain).loss.item() == two(nets[1](x), x, domain).loss.item()


def test_more_domains_and_multi_label_ones():
    net, (x, _) = encoder(), batch()
    calipers = MatchingSettings(k=1, std_caliper=2.0, fixed_caliper=0.99)
    many = CrossDomainConsistency(net, domains=4, matching=calipers)
    assert many(net(x), x, torch.arange(10) % 4).match_rate > 0
    several = CrossDomainConsistency(net, domains=3, multi_label=True, matching=NEAREST)
    assert several(net(x), x, torch.eye(3, dtype=torch.bool)[torch.arange(10) % 3]).match_rate == 1


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
    assert CrossDomainConsistency(net, matching=WIDE)(net(x), x, torch.arange(10) % 2).match_rate == 1


def test_bad_input():
    net, (x, domain) = encoder(), batch()
    consistency = CrossDomainConsistency(net, matching=WIDE)
    with pytest.raises(ValueError, match=r"z must be encodings of shape \(n, 6\), got \(10, 4\)"):
        consistency(x, x, domain)
    with pytest.raises(ValueError, match="z and domain must have as many rows, got 10 and 9"):
        consistency(net(x), x, domain[:9])
    with pytest.raises(ValueError, match="x must have as many rows as its domains, got 8 and 10"):
        consistency(net(x), x[:8], domain)
    with pytest.raises(ValueError, match=r"domain must be between 0 and 1, got \[2\]"):
        consistency(net(x), x, domain + 1)
    with pytest.raises(ValueError, match="key_domain is for queries='online'"):
        consistency(net(x), x, domain, key_domain=domain)
    with pytest.raises(ValueError, match="features must be given: Flatten has no out_features"):
        CrossDomainConsistency(nn.Flatten())


def test_outcomes_that_are_missing_or_misshapen_are_reported_before_anything_changes():
    net, (x, domain) = encoder(), batch()
    consistency = CrossDomainConsistency(net, matching=BY_OUTCOME, task=Task("classification", 3))
    outcome, known = torch.full((10, 3), 1 / 3), torch.ones(10, dtype=torch.bool)
    for bad, message in (
        ({"known": known}, r"outcome must be of shape \(10, 3\) for prognostic_caliper, got None"),
        ({"outcome": outcome[:, :2], "known": known}, r"outcome must be of shape \(10, 3\) .* got \(10, 2\)"),
        ({"outcome": outcome}, r"known must be of shape \(10,\) for prognostic_caliper, got None"),
        (
            {"outcome": outcome, "known": known[:8]},
            r"known must be of shape \(10,\) for prognostic_caliper, got \(8,\)",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            consistency(net(x), x, domain, **bad)
    assert (int(consistency.step), int(consistency.momentum.updated_at), len(consistency.encodings)) == (0, -1, 0)


def test_pairs_have_the_outcome_that_is_known_or_the_one_predicted():
    """Labels of half the samples, predictions of the others: no pair across classes."""
    net, (x, domain) = encoder().eval(), batch(n=40)
    label = torch.arange(40) // 2 % 2
    known = domain == 0
    probability = nn.Linear(6, 2)(net(x)).softmax(1).detach()
    outcome = torch.where(known[:, None], one_hot(label).float(), probability)
    consistency = CrossDomainConsistency(net, matching=BY_OUTCOME, task=Task("classification", 2), bank=50)
    results = [consistency(net(x), x, domain, outcome=outcome, known=known) for _ in range(2)]
    possible = ((torch.cdist(outcome, outcome) <= 0.6) & (domain[:, None] != domain)).any(1)
    assert [result.match_rate.item() for result in results] == pytest.approx(2 * [possible.double().mean().item()])
    assert 0 < results[0].match_rate < 1
    assert torch.equal(results[0].outcome, outcome)
    assert len(consistency.outcomes) == len(consistency.encodings) == 50
    assert consistency.known.rows().sum() == 25
    assert consistency.scorer is None


def test_the_bank_keeps_predictions_as_they_were_made_and_all_are_aligned_anew():
    net, (x, domain) = encoder().eval(), batch(n=20)
    known = domain == 0
    labels = one_hot(torch.arange(20) // 2 % 2).float()
    settings = PrognosticMatchingSettings(k=1, prognostic_caliper=2.0, class_prior=0.0)
    consistency = CrossDomainConsistency(net, matching=settings, task=Task("classification", 2), bank=20)
    outcome = torch.where(known[:, None], labels, torch.tensor([0.9, 0.1]))
    first = consistency(net(x), x, domain, outcome=outcome, known=known)
    torch.testing.assert_close(first.outcome[~known], torch.full((10, 2), 0.5))  # as frequent as the labels
    assert torch.equal(first.outcome[known], labels[known])
    assert torch.equal(consistency.outcomes.rows(), outcome)
    later = torch.where(known[:, None], labels, torch.tensor([0.3, 0.7]))
    second = consistency(net(x), x, domain, outcome=later, known=known)
    odds = (0.3 / 0.6) / (0.7 / 0.4)  # predicted are (0.9, 0.1) of the bank and (0.3, 0.7) of the batch
    torch.testing.assert_close(second.outcome[~known], torch.tensor([[odds / (1 + odds), 1 / (1 + odds)]] * 10))


def test_the_step_matches_centred_encodings_and_pulls_towards_the_keys_themselves():
    torch.manual_seed(0)
    encoder = nn.Linear(3, 6)
    settings = PrognosticMatchingSettings(k=2, prognostic_caliper=None)
    consistency = CrossDomainConsistency(encoder, matching=settings, weight=1.0, momentum=0.0)
    x, domain = torch.randn(30, 3), torch.arange(30) % 2
    z = encoder(x)
    loss, _, metrics, _ = consistency(z, x, domain, step=0)
    unit = normalize(encoder(x), dim=-1).detach()
    _, keys = centred(unit[:0], unit, domain[:0], domain)
    near = torch.cdist(keys, keys).masked_fill(domain[:, None] == domain, torch.inf).topk(2, largest=False).indices
    apart = normalize(z, dim=-1)[:, None] - unit[near]
    assert metrics["consistency"].item() == pytest.approx(apart.square().sum(-1).mean().item())
    assert loss.requires_grad


def test_a_gate_multiplies_the_weight_of_the_consistency():
    net, (x, domain) = encoder().eval(), batch()
    consistency = CrossDomainConsistency(net, matching=NEAREST, weight=2.0, gate=ErrorGate(0.5)).eval()
    whole = consistency(net(x), x, domain)
    wrong = 2**-0.5  # (0.5 / (0.5 * sqrt(2)))^2 = 1 / 2
    consistency.gate.errors.copy_(torch.tensor([wrong, 1.0]))
    half = consistency(net(x), x, domain)
    assert half.loss.item() == pytest.approx(whole.loss.item() / 2)
    assert half.metrics["consistency_weight"].item() == pytest.approx(1.0)


def test_without_calipers_there_is_no_scorer():
    net, (x, domain) = encoder(), batch()
    consistency = CrossDomainConsistency(net, matching=NEAREST)
    assert not any(isinstance(module, PropensityScorer) for module in consistency.modules())
    assert not [parameter for parameter in consistency.parameters() if parameter.requires_grad]
    assert "propensity_loss" not in consistency(net(x), x, domain).metrics


def test_hubness_is_counted():
    key = torch.tensor([[3, 4], [3, 5], [3, 3]])
    metrics = hubness(Matches(torch.arange(3), key, torch.zeros(3, 2)))
    assert metrics["distinct_keys"] == pytest.approx(3 / 6)
    assert metrics["busiest_key"] == 4
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
    from okapi.config import MatchingSettings, PrognosticMatchingSettings
    from okapi.data.task import Task
    from okapi.nn import CrossDomainConsistency, gather
    from okapi.nn.pseudo_labels import ErrorGate, known_outcome, predicted_outcome

    torch.set_num_threads(1)
    world, rank, port = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    if world > 1:
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", world_size=world, rank=rank)
        uneven = gather(torch.full((rank + 1, 2), float(rank)))
        assert [part.shape[0] for part in uneven] == [1, 2] and uneven[1].sum() == 4, uneven
        assert [part.tolist() for part in gather(torch.tensor([rank == 1]))] == [[False], [True]]
    for matching, task in (
        (MatchingSettings(k=2, fixed_caliper=0.95, std_caliper=1.0), None),
        (
            PrognosticMatchingSettings(k=2, fixed_caliper=0.95, std_caliper=1.0, prognostic_caliper=1.5),
            Task("regression"),
        ),
        (PrognosticMatchingSettings(k=2), Task("classification", 3)),
    ):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 6)).double()
        head = nn.Linear(6, task.outputs if task else 1).double()
        gate = ErrorGate(0.3)
        consistency = CrossDomainConsistency(net, matching=matching, task=task, bank=30, momentum=0.9, gate=gate)
        called = DistributedDataParallel(net) if world > 1 else net
        learnt = [parameter for parameter in consistency.parameters() if parameter.requires_grad]
        optimiser = torch.optim.AdamW([*net.parameters(), *learnt], lr=0.02)
        for step in range(20):
            x = torch.randn(16, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(step))
            mine = slice(rank * 16 // world, (rank + 1) * 16 // world)
            x, domain, outcomes = x[mine], (torch.arange(16) % 2)[mine], {}
            momentum = consistency.encode(x, step)
            if task:
                known = x[:, 0] > 0
                target = x[:, :3].argmax(1) if task.kind == "classification" else x.sum(1)
                prediction = head(momentum).detach()
                truth, guess = known_outcome(task, target).double(), predicted_outcome(prediction, task.kind)
                outcomes = dict(outcome=torch.where(known[:, None], truth, guess), known=known)
                if task.kind == "classification":
                    gate.update(prediction[known], target[known])
            result = consistency(called(x), x, domain, momentum=momentum, **outcomes)
            if task:
                compared = torch.cat(gather(result.outcome))
                result.metrics["outcome"] = (compared * torch.arange(16)[:, None]).sum()
            optimiser.zero_grad()
            result.loss.backward()
            optimiser.step()
            if rank == 0:
                print(*(repr(result.metrics[name].item()) for name in sorted(result.metrics)))
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
    assert len(alone) == len(first) == 3 * 21
    for one, two in zip(alone, first, strict=True):
        assert two == pytest.approx(one, abs=1e-9, nan_ok=True)
