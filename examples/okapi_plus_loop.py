"""Okapi+ in a loop of your own: an algorithm takes a batch and returns a loss.

    python examples/okapi_plus_loop.py --steps 300

Trains on the labelled digits of two sites and the unlabelled ones of a third, and prints the accuracy at the third.
Strong views, which pseudo-labels supervise, are the images with noise.
"""

import argparse

import torch
from torch import Tensor

from okapi.algorithms import OkapiPlus
from okapi.config import OkapiPlusSettings
from okapi.data.batches import Batch, Samples
from okapi.data.four_sites import load_four_sites
from okapi.data.task import Task
from okapi.models import MLP, Network

BATCH = 32
NOISE = 0.3


def main(steps: int = 300, seed: int = 0) -> dict[str, list[float]]:
    """Train, and return the history of the metrics with the accuracy at the end."""
    torch.manual_seed(seed)
    sites = load_four_sites()
    images, label = torch.from_numpy(sites.images).flatten(1), torch.from_numpy(sites.label)
    site = torch.from_numpy((sites.site == "hospital") + 2 * (sites.site == "station"))
    labelled = torch.from_numpy((sites.site == "harbour") | (sites.site == "hospital")).nonzero().flatten()
    unlabelled = torch.from_numpy(sites.site == "station").nonzero().flatten()

    network = Network(MLP(64, hidden=(128,), out_features=64), torch.nn.Linear(64, 10))
    algorithm = OkapiPlus(network, Task("classification", 10), OkapiPlusSettings(bank=1024), steps=steps)
    optimiser = torch.optim.AdamW(algorithm.parameter_groups(learning_rate=1e-3))

    def samples(rows: Tensor, *, known: bool) -> Samples:
        x = images[rows]
        strong = None if known else x + NOISE * torch.randn_like(x)
        return Samples(inputs=x, domain=site[rows], id=rows, target=label[rows] if known else None, strong=strong)

    history: dict[str, list[float]] = {"supervised_loss": [], "match_rate": [], "pseudo_label_rate": []}
    for step in range(steps):
        drawn = [pool[torch.randint(len(pool), (BATCH,))] for pool in (labelled, unlabelled)]
        batch = Batch(samples(drawn[0], known=True), samples(drawn[1], known=False))
        loss, metrics = algorithm.training_step(batch, step)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        for name, values in history.items():
            values.append(metrics[name].item())
        if step % 50 == 0 or step == steps - 1:
            matched, pseudo = metrics["match_rate"].item(), metrics["pseudo_label_rate"].item()
            print(f"step {step:4d}  loss {loss.item():.3f}  matched {matched:.0%}  pseudo-labelled {pseudo:.0%}")

    network.eval()
    with torch.no_grad():
        right = network(images[unlabelled]).prediction.argmax(1) == label[unlabelled]
    history["accuracy"] = [right.float().mean().item()]
    print(f"accuracy at the unlabelled site: {history['accuracy'][0]:.1%}")
    return history


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
