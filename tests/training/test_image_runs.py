"""FixMatch on images in files: the views of the readers reach the loss."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from tests.data.wilds.tiny import write_poverty

from okapi.config import Config, make_config
from okapi.data.wilds.poverty import DOMAINS
from okapi.training import train
from okapi.training.setup import build_batches, build_parts


def write_folder(root: Path) -> dict[str, Any]:
    """Write images of stripes that lie or stand, in two domains; return the settings of the data."""
    rng = np.random.default_rng(0)
    stripes = np.where(np.arange(16) % 4 < 2, 60, 180)
    for domain in ("day", "night"):
        for label, pattern in (("lie", stripes[:, None, None]), ("stand", stripes[None, :, None])):
            (root / domain / label).mkdir(parents=True)
            for number in range(24):
                pixels = np.clip(pattern + rng.normal(0, 20, (16, 16, 3)), 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(root / domain / label / f"{number}.png")
    return {"name": "image_folder", "root": str(root), "size": 16, "held_out": "night"}


def write_satellite(root: Path) -> dict[str, Any]:
    """Write satellite images, ten of each country; return the settings of the data."""
    country = np.repeat(DOMAINS, 10).tolist()
    return {"name": "poverty", "root": str(write_poverty(root, country, unlabelled=1))}


def config_of(data: dict[str, Any], steps: int) -> Config:
    batches = {"labelled_batch": 8, "unlabelled_batch": 8, "learning_rate": 0.02, "log_every": 1}
    return make_config(
        {
            "data": data,
            "model": {"name": "cnn", "width": 4, "out_features": 4},
            "algorithm": {"name": "fixmatch", "threshold": 0.0},
            "training": {"steps": steps, "selector": "last", "accelerator": "cpu", **batches},
        }
    )


def fit(config: Config, run: Path) -> pd.DataFrame:
    """Train, and return what was written down of training: a row a step."""
    train(config, run)
    log = pd.read_csv(run / "metrics.csv")
    return log[log["split"] == "train"].pivot(index="step", columns="metric", values="value")


@pytest.mark.parametrize("colour", ["rgb", "grey"])
def test_fixmatch_learns_from_a_folder(tmp_path, colour: str):
    config = config_of(write_folder(tmp_path / "data") | {"colour": colour}, 60)
    log = fit(config, tmp_path / "run")
    assert len(log) == 60
    for loss in ("supervised_loss", "unsupervised_loss"):
        assert log[loss].tail(10).mean() < 0.7 * log[loss].head(5).mean()
    pd.testing.assert_frame_equal(fit(config, tmp_path / "again"), log, check_exact=True)


def test_fixmatch_trains_on_satellite_images(tmp_path, monkeypatch):
    monkeypatch.setattr("okapi.data.wilds.poverty._IN_DISTRIBUTION", 20)  # of id_val and id_test
    config = config_of(write_satellite(tmp_path / "data") | {"unlabelled_view": "weak"}, 3)
    log = fit(config, tmp_path / "run")
    assert len(log) == 3
    assert np.isfinite(log["loss"]).all()
    parts = build_parts(config)
    batch = build_batches(config, parts, None)[0]
    assert batch.unlabelled is not None
    assert torch.equal(batch.labelled.inputs, parts.dataset.read(batch.labelled.id.tolist()))  # labelled_view is none
    for samples in (batch.labelled, batch.unlabelled):  # the loss of a regression is of all samples
        assert all(not torch.equal(*pair) for pair in zip(samples.strong, samples.inputs, strict=True))
