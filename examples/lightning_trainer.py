"""Okapi in Lightning's Trainer: the consistency is a module of the LightningModule like any other.

    pip install lightning
    python examples/lightning_trainer.py --steps 300

Trains on the labelled digits of two sites and the unlabelled ones of a third, and prints the accuracy at the third.
"""

import argparse

import lightning
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from okapi.config import MatchingSettings
from okapi.data.four_sites import load_four_sites
from okapi.nn import CrossDomainConsistency, Linear

BATCH = 32


class Classifier(lightning.LightningModule):
    """A small network that learns from labelled samples, and from unlabelled ones by matching."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))
        self.head = nn.Linear(64, 10)
        self.consistency = CrossDomainConsistency(
            self.encoder,
            matching=MatchingSettings(k=1, fixed_caliper=0.95, std_caliper=1.0),
            bank=1024,
            weight=Linear(0.0, 1.0, steps // 10),
        )

    def training_step(self, batch: dict[str, list[Tensor]], index: int) -> Tensor:
        """Return the loss of a batch of both loaders."""
        x, y = batch["labelled"]
        (u,) = batch["unlabelled"]
        z = self.encoder(torch.cat([x, u]))
        domain = torch.cat([torch.zeros_like(y), torch.ones(len(u), dtype=torch.int64, device=u.device)])
        matched = self.consistency(z, torch.cat([x, u]), domain)
        task_loss = cross_entropy(self.head(z[: len(x)]), y)
        self.log_dict({"task_loss": task_loss, **matched.metrics})
        return task_loss + matched.loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return AdamW; the scorer of the propensities has a rate of its own."""
        network = [*self.encoder.parameters(), *self.head.parameters()]
        return torch.optim.AdamW(
            [{"params": network}, {"params": self.consistency.scorer.parameters(), "lr": 0.03}], 1e-3
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return logits of digits."""
        return self.head(self.encoder(x))


def main(steps: int = 300, seed: int = 0, folder: str | None = None) -> tuple[Classifier, float]:
    """Train; return the model and the accuracy at the unlabelled site."""
    lightning.seed_everything(seed, verbose=False)
    sites = load_four_sites()
    images, label = torch.from_numpy(sites.images).flatten(1), torch.from_numpy(sites.label)
    labelled = torch.from_numpy((sites.site == "harbour") | (sites.site == "hospital"))
    unlabelled = torch.from_numpy(sites.site == "station")
    loaders = {
        "labelled": DataLoader(TensorDataset(images[labelled], label[labelled]), BATCH, shuffle=True, drop_last=True),
        "unlabelled": DataLoader(TensorDataset(images[unlabelled]), BATCH, shuffle=True, drop_last=True),
    }
    model = Classifier(steps)
    trainer = lightning.Trainer(
        max_steps=steps,
        accelerator="auto",
        logger=False,
        enable_checkpointing=folder is not None,
        default_root_dir=folder,
        enable_progress_bar=False,
        enable_model_summary=False,
        log_every_n_steps=1,
    )
    trainer.fit(model, lightning.pytorch.utilities.CombinedLoader(loaders, "max_size_cycle"))
    model.eval()
    with torch.no_grad():
        accuracy = (model(images[unlabelled]).argmax(1) == label[unlabelled]).float().mean().item()
    print(f"match rate at the end {trainer.callback_metrics['match_rate']:.0%}")
    print(f"accuracy at the unlabelled site: {accuracy:.1%}")
    return model, accuracy


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
