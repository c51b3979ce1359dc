"""Okapi in transformers' Trainer: a model whose loss has the consistency in it. Unlabelled samples have label -100.

    pip install accelerate
    python examples/transformers_trainer.py --steps 150

Trains a small ConvNeXt on the labelled digits of two sites and the unlabelled ones of a third, and prints the accuracy
at the third.
"""

import argparse
import tempfile

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import ConvNextConfig, ConvNextModel, Trainer, TrainingArguments

from okapi.config import MatchingSettings
from okapi.data.four_sites import load_four_sites
from okapi.nn import CrossDomainConsistency, Linear

BATCH = 64
NONE = -100  # the label that transformers, too, leaves out of a loss


class Encoder(nn.Module):
    """A ConvNeXt of two stages on pictures of 8 by 8 pixels."""

    out_features = 64

    def __init__(self) -> None:
        super().__init__()
        config = ConvNextConfig(
            num_channels=1,
            patch_size=2,
            num_stages=2,
            hidden_sizes=[32, self.out_features],
            depths=[1, 1],
            image_size=8,
        )
        self.backbone = ConvNextModel(config)

    def forward(self, pixel_values: Tensor) -> Tensor:
        """Return encodings, shape (n, 64)."""
        return self.backbone(pixel_values).pooler_output


class Model(nn.Module):
    """What Trainer wants: a module that takes a batch by name and returns its loss."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.encoder = Encoder()
        self.head = nn.Linear(self.encoder.out_features, 10)
        self.consistency = CrossDomainConsistency(
            self.encoder,
            matching=MatchingSettings(k=1, fixed_caliper=0.95, std_caliper=1.0),
            bank=1024,
            weight=Linear(0.0, 1.0, steps // 10),
        )

    def forward(self, pixel_values: Tensor, labels: Tensor, domain: Tensor) -> dict[str, Tensor]:
        """Return the loss and logits of a batch."""
        z = self.encoder(pixel_values)
        logits = self.head(z)
        loss = cross_entropy(logits, labels, ignore_index=NONE)
        if self.training:
            matched = self.consistency(z, pixel_values, domain)
            loss = loss + matched.loss
        return {"loss": loss, "logits": logits}


def main(steps: int = 150, seed: int = 0, folder: str | None = None) -> tuple[Trainer, float]:
    """Train; return the trainer and the accuracy at the unlabelled site."""
    torch.manual_seed(seed)
    sites = load_four_sites()
    is_labelled = (sites.site == "harbour") | (sites.site == "hospital")
    rows = [int(row) for row in (is_labelled | (sites.site == "station")).nonzero()[0]]
    data = [
        {
            "pixel_values": torch.from_numpy(sites.images[row])[None],
            "labels": int(sites.label[row]) if is_labelled[row] else NONE,
            "domain": 0 if is_labelled[row] else 1,
        }
        for row in rows
    ]
    arguments = TrainingArguments(
        output_dir=folder or tempfile.mkdtemp(),
        max_steps=steps,
        per_device_train_batch_size=BATCH,
        learning_rate=1e-3,
        seed=seed,
        logging_steps=max(1, steps // 5),
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    trainer = Trainer(model=Model(steps), args=arguments, train_dataset=data)
    trainer.train()

    station = torch.from_numpy(sites.site == "station")
    images, label = torch.from_numpy(sites.images)[station][:, None], torch.from_numpy(sites.label)[station]
    model = trainer.model.eval()
    with torch.no_grad():
        device = next(model.parameters()).device
        right = model.head(model.encoder(images.to(device))).argmax(1).cpu() == label
    accuracy = right.float().mean().item()
    print(f"accuracy at the unlabelled site: {accuracy:.1%}")
    return trainer, accuracy


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
