"""How good a network is on a split: every sample once, whatever the number of processes."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor

from okapi.config import TrainingSettings
from okapi.data.batches import evaluation_batches
from okapi.data.dataset import Dataset
from okapi.evaluation import evaluate
from okapi.models import Network
from okapi.models.network import Output
from okapi.nn import gather
from okapi.training.errors import NotFiniteError

VALIDATION = ("id_val", "ood_val")
_NAMED = 5  # samples that an error names


def validate(dataset: Dataset, split: str, prediction: Tensor) -> dict[str, float]:
    """Return the figures of predictions (n, outputs) of a split."""
    rows = dataset.rows(split)
    return evaluate(
        dataset.task,
        prediction,
        dataset.target[rows],
        dataset.domain[rows],
        dataset.domain_names,
        groups=None if dataset.groups is None else dataset.groups[rows],
        group_names=dataset.group_names,
    )


@torch.no_grad()
def predict(
    network: Network,
    dataset: Dataset,
    split: str,
    settings: TrainingSettings,
    fabric: Fabric,
    *,
    encodings: bool | Tensor = False,
) -> Output:
    """Return encodings (n, d), if they are wanted, and predictions (n, outputs) of a split, in the order of its rows.

    ``encodings`` may also be rows of the data set, (m,): only theirs are kept, (m, d).

    Each process predicts for a share of its own; all then know all predictions. If some are not finite NotFiniteError
    names the first of them.
    """
    training = network.training
    network.eval()
    rows, size = dataset.rows(split), settings.evaluation_batch
    # To start a process takes longer than a few batches do, or any that lie in memory.
    in_memory = isinstance(dataset.inputs, Tensor)
    workers = 0 if in_memory else min(settings.workers, len(rows) // (4 * size * fabric.world_size))
    batches = evaluation_batches(dataset, rows, size, fabric.global_rank, fabric.world_size, workers)
    some = encodings if isinstance(encodings, Tensor) else None
    width: Any = network.encoder.out_features if some is not None or encodings else 0
    encoding = [torch.zeros(0, width, device=fabric.device)]
    prediction = [torch.zeros(0, dataset.task.outputs, device=fabric.device)]
    for samples in batches:
        with fabric.autocast():
            output = network(samples.to(fabric.device).inputs)
        prediction.append(output.prediction.float())
        if width:
            kept = slice(None) if some is None else torch.isin(samples.id, some)
            encoding.append(output.encoding[kept].float())
    network.train(training)
    # Shares were cut from the rows in the order of the processes.
    found = Output(*(torch.cat(gather(torch.cat(parts))).cpu() for parts in (encoding, prediction)))
    if len(bad := rows[~found.prediction.isfinite().all(1)]):
        names = ", ".join(dataset.ids[row] for row in bad[:_NAMED].tolist())
        if len(bad) == 1:
            raise NotFiniteError(f"the prediction for sample {names} of {split} is not finite")
        more = f" and {len(bad) - _NAMED} more" if len(bad) > _NAMED else ""
        raise NotFiniteError(f"the predictions for samples {names}{more} of {split} are not finite")
    return found


def draw(dataset: Dataset, split: str, most: int, seed: int) -> Dataset:
    """Return the data set with at most so many rows in a split, drawn by the seed alone."""
    rows = dataset.rows(split).numpy()
    if len(rows) <= most:
        return dataset
    chosen = np.zeros(len(dataset), dtype=bool)
    chosen[np.random.default_rng(seed).choice(rows, most, replace=False)] = True
    return replace(dataset, split=np.where(chosen, split, "id_test" if split == "train" else "train"))
