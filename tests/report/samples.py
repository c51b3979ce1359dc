"""Samples with made-up encodings, for pages of all kinds of data and tasks."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from okapi.commands.run_samples import sample_rows
from okapi.config import Config, make_config
from okapi.data.dataset import Dataset
from okapi.data.task import Task
from okapi.report.run_matches import Encoded

SPLIT = np.repeat(["train", "unlabelled", "id_val", "ood_val", "id_test", "ood_test"], [60, 60, 20, 20, 20, 20])
ROWS = len(SPLIT)
CLASSES = torch.arange(ROWS) % 3
TARGETS = {
    "classification": (Task("classification", 3), CLASSES),
    "regression": (Task("regression", 1), torch.linspace(-1, 1, ROWS)[torch.arange(ROWS) * 7 % ROWS]),
    "multilabel": (Task("multilabel", 3), (torch.arange(3 * ROWS).reshape(ROWS, 3) % 5 < 2).float()),
}


def make_dataset(kind: str = "classification", **changes: Any) -> Dataset:
    """Return a data set of which the sites of train, of unlabelled and of out-of-distribution samples differ."""
    task, target = TARGETS[kind]
    site = np.select([SPLIT == "unlabelled", np.char.startswith(SPLIT, "ood")], [2, 4], 0) + np.arange(ROWS) % 2
    parts: dict[str, Any] = {
        "inputs": torch.randn(ROWS, 5, generator=torch.Generator().manual_seed(0)),
        "target": target,
        "domain": torch.from_numpy(site),
        "split": SPLIT,
        "task": task,
        "domain_names": ("rome", "oslo", "bern", "wien", "kyiv", "lima"),
        "ids": [f"sample {row}" for row in range(ROWS)],
        "class_names": () if kind == "regression" else ("ant", "bee", "cow"),
    }
    return Dataset(**{**parts, **changes})


def make_encoded(
    dataset: Dataset, samples: int = 200, algorithm: dict[str, Any] | None = None, **matching: Any
) -> Encoded:
    """Return samples whose encodings lie near those of their class and a little apart by domain.

    They are of a run of Okapi with these settings of matching, or of Okapi+ where Okapi has none such.
    """
    algorithm = algorithm or {}
    rows = sample_rows(dataset, samples, seed=0)
    rng = np.random.default_rng(0)
    centre = 2 * np.eye(8)[CLASSES.numpy()[rows]]
    vectors = (
        rng.normal(size=(len(rows), 8)) * 0.5 + centre + 0.3 * (np.asarray(dataset.split)[rows] == "train")[:, None]
    )
    unit: NDArray[np.float32] = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    matching = {"k": 3, "fixed_caliper": 0.95, "std_caliper": 1.0, **matching}
    settings = {"name": "okapi_plus" if {"prognostic_caliper", "centre"} & set(matching) else "okapi", **algorithm}
    return Encoded(
        dataset=dataset,
        rows=rows,
        encodings=unit,
        predictions=torch.from_numpy(rng.normal(size=(len(rows), dataset.task.outputs))).float(),
        config=make_settings(matching=matching, **settings),
    )


def make_settings(**algorithm: Any) -> Config:
    """Return a config of which only the algorithm matters."""
    rest = {"data": {"name": "sites"}, "model": {"name": "mlp"}, "training": {"steps": 1}}
    return make_config({**rest, "algorithm": algorithm})
