"""Okapi in a loop of your own: a task loss, plus the consistency of samples matched across sites.

    python examples/plain_loop.py --steps 300

Trains on the labelled digits of two sites and the unlabelled ones of a third, and prints the accuracy at the third.
"""

import argparse

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from okapi.config import MatchingSettings
from okapi.data.four_sites import load_four_sites
from okapi.nn import CrossDomainConsistency, Linear

BATCH = 32


def main(steps: int = 300, seed: int = 0) -> dict[str, list[float]]:
    """Train, and return the history of the metrics with the accuracy at the end."""
    torch.manual_seed(seed)
    sites = load_four_sites()
    images, label = torch.from_numpy(sites.images).flatten(1), torch.from_numpy(sites.label)
    labelled = torch.from_numpy((sites.site == "harbour") | (sites.site == "hospital")).nonzero().flatten()
    unlabelled = torch.from_numpy(sites.site == "station").nonzero().flatten()

    encoder = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))
    head = nn.Linear(64, 10)
    consistency = CrossDomainConsistency(
        encoder,
        matching=MatchingSettings(k=1, fixed_caliper=0.95, std_caliper=1.0),
        bank=1024,
        weight=Linear(0.0, 1.0, steps // 10),
    )
    optimiser = torch.optim.AdamW(
        [
            {"params": [*encoder.parameters(), *head.parameters()]},
            {"params": consistency.scorer.parameters(), "lr": 0.03},  # on unit vectors it wants a higher rate
        ],
        lr=1e-3,
    )

    history: dict[str, list[float]] = {"loss": [], "match_rate": []}
    domain = torch.arange(2).repeat_interleave(BATCH)  # 0: from a labelled site, 1: from the other
    for step in range(steps):
        at_labelled = labelled[torch.randint(len(labelled), (BATCH,))]
        at_unlabelled = unlabelled[torch.randint(len(unlabelled), (BATCH,))]
        x = images[torch.cat([at_labelled, at_unlabelled])]
        z = encoder(x)
        task_loss = cross_entropy(head(z[:BATCH]), label[at_labelled])
        matched = consistency(z, x, domain)
        loss = task_loss + matched.loss

        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        history["loss"].append(task_loss.item())
        history["match_rate"].append(matched.match_rate.item())
        if step % 50 == 0 or step == steps - 1:
            print(f"step {step:4d}  task loss {task_loss.item():.3f}  matched {matched.match_rate.item():.0%}")

    with torch.no_grad():
        right = head(encoder(images[unlabelled])).argmax(1) == label[unlabelled]
    history["accuracy"] = [right.float().mean().item()]
    print(f"accuracy at the unlabelled site: {history['accuracy'][0]:.1%}")
    return history


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
