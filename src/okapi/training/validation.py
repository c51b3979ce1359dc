"""How good a network is on a validation split: every sample once, whatever the number of processes."""

import torch
from lightning_fabric import Fabric

from okapi.data.dataset import Dataset
from okapi.data.loading import evaluation_batches
from okapi.evaluation import evaluate
from okapi.models import Network
from okapi.nn import gather
from okapi.training.errors import NotFiniteError
from okapi.training.selection import plain_metric
from okapi.training.settings import TrainingSettings

VALIDATION = ("id_val", "ood_val")


@torch.no_grad()
def validate(
    network: Network, dataset: Dataset, split: str, settings: TrainingSettings, fabric: Fabric
) -> dict[str, float]:
    """Return the figures of a split, the same in every process.

    Each process predicts for a share of its own; all then know all predictions. One that is not finite is a
    NotFiniteError.
    """
    training = network.training
    network.eval()
    rows, size = dataset.rows(split), settings.evaluation_batch
    # To start a process takes longer than a few batches do.
    workers = min(settings.workers, len(rows) // (4 * size * fabric.world_size))
    batches = evaluation_batches(dataset, split, size, fabric.global_rank, fabric.world_size, workers)
    predictions = [torch.zeros(0, dataset.task.outputs, device=fabric.device)]
    for samples in batches:
        with fabric.autocast():
            prediction = network(samples.to(fabric.device).inputs).prediction
        predictions.append(prediction.float())
    network.train(training)
    prediction = torch.cat(gather(torch.cat(predictions))).cpu()
    # Shares were cut from the rows in the order of the processes.
    if len(bad := rows[~prediction.isfinite().all(1)]):
        raise NotFiniteError(f"the prediction for sample {dataset.ids[int(bad[0])]} of {split} is not finite")
    truth = dataset.target[rows], dataset.domain[rows]
    return evaluate(dataset.task, prediction, *truth, dataset.domain_names, plain_metric(settings.metric))
