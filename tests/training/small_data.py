"""A small data set of six splits for tests, and a config for it."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytest
import torch

from okapi.config import DATA_SETTINGS, Config, make_config
from okapi.data.dataset import Dataset
from okapi.data.registry import BUILDERS
from okapi.data.splits import SPLITS, TESTS
from okapi.data.task import Task

EACH = 12
SPLIT = np.repeat(SPLITS[:6], EACH)
ROWS = len(SPLIT)
TEST_ROWS = frozenset(np.flatnonzero(np.isin(SPLIT, TESTS)).tolist())
TARGETS = {
    "classification": (Task("classification", 3), torch.arange(ROWS) % 3),
    "regression": (Task("regression", 1), torch.linspace(-1, 1, ROWS)[torch.arange(ROWS) * 5 % ROWS]),
    "several numbers": (Task("regression", 2), torch.linspace(-1, 1, 2 * ROWS).reshape(ROWS, 2)),
    "multilabel": (Task("multilabel", 3), (torch.arange(3 * ROWS).reshape(ROWS, 3) % 5 < 2).float()),
}


class Recorded:
    """Samples in memory that remember which of their rows were read."""

    def __init__(self, inputs: torch.Tensor) -> None:
        self.inputs, self.read = inputs, []

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, row: int) -> torch.Tensor:
        self.read.append(int(row))
        return self.inputs[row]


@dataclass(frozen=True, kw_only=True)
class SmallSettings:
    name: Literal["small"] = "small"


def register_data(monkeypatch: pytest.MonkeyPatch, settings: Any, dataset: Dataset) -> None:
    """Let a config name the data set of ``settings``, a dataclass that no file of the package knows."""
    monkeypatch.setitem(DATA_SETTINGS, settings.name, settings)
    monkeypatch.setitem(BUILDERS, settings.name, lambda _: dataset)


def register(monkeypatch: pytest.MonkeyPatch, kind: str = "classification", **changes: Any) -> Dataset:
    """Make a data set known by the name ``small``, and return it; changes replace its parts."""
    task, target = TARGETS[kind]
    centre = target.float().reshape(ROWS, -1)[:, :1]
    domain = np.where(np.char.startswith(SPLIT, "ood"), 2, np.arange(ROWS) % 2)
    parts = {
        "inputs": torch.randn(ROWS, 5, generator=torch.Generator().manual_seed(0)) + centre,
        "target": target,
        "domain": torch.from_numpy(domain),
        "split": SPLIT,
        "task": task,
        "domain_names": ("rome", "oslo", "bern"),
        "ids": [f"sample {row}" for row in range(ROWS)],
        **changes,
    }
    dataset = Dataset(**parts)
    register_data(monkeypatch, SmallSettings, dataset)
    return dataset


def config(algorithm: dict[str, Any] | None = None, **training: Any) -> Config:
    settings = {"steps": 6, "labelled_batch": 4, "unlabelled_batch": 4, "validate_every": 1, "checkpoint_every": 2}
    return make_config(
        {
            "data": {"name": "small"},
            "model": {"name": "mlp", "hidden": [8], "out_features": 4, "dropout": 0.3},
            "algorithm": algorithm or {"name": "erm"},
            "training": {**settings, "log_every": 1, "learning_rate": 0.05, "accelerator": "cpu", **training},
        }
    )
