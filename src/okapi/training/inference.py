"""The only place where a network runs over rows of a data set: to validate, evaluate, embed, match and predict."""

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from okapi.data.batches import Samples, evaluation_batches
from okapi.data.dataset import Dataset
from okapi.models import Network, Output
from okapi.nn import gather
from okapi.training.errors import NotFiniteError

_NAMED = 5  # samples that an error names


@torch.no_grad()
def run_over(
    module: nn.Module,
    dataset: Dataset,
    rows: Tensor,
    *,
    batch_size: int,
    workers: int = 0,
    device: torch.device | str = "cpu",
    fabric: Fabric | None = None,
) -> Iterator[tuple[Samples, Any]]:
    """Yield samples, a batch at a time and in order, and what a module in evaluation mode makes of their inputs.

    Parameters
    ----------
    module : Module
        On the device.
    dataset : Dataset
    rows : tensor (n,), int64
        Of the data set.
    batch_size : int
    workers : int
        Processes that read samples, at most: to start one takes longer than to read a few batches, or any in memory.
    device : device
    fabric : Fabric, optional
        Its device, its precision, and this process's share of the rows. All processes must call it.
    """
    rank, world = (fabric.global_rank, fabric.world_size) if fabric else (0, 1)
    device = fabric.device if fabric else torch.device(device)
    workers = 0 if isinstance(dataset.inputs, Tensor) else min(workers, len(rows) // (4 * batch_size * world))
    training = module.training
    module.eval()
    try:
        for samples in evaluation_batches(dataset, rows, batch_size, rank, world, workers):
            with fabric.autocast() if fabric else nullcontext():
                output = module(samples.to(device).inputs)
            yield samples, output
    finally:
        module.train(training)


def predict(
    network: Network, dataset: Dataset, rows: Tensor, *, encodings: bool | Tensor = True, **options: Any
) -> Output:
    """Return encodings (n, d) and predictions (n, outputs) of rows (n,), in their order, float32 on the host.

    Parameters
    ----------
    network : Network
    dataset : Dataset
    rows : tensor (n,), int64
    encodings : bool or tensor (m,), int64
        Whether encodings are kept; or the rows, ascending as ``rows`` are, whose encodings are kept, (m, d).
    **options
        As of ``run_over``. With ``fabric`` all processes must call it, and all get all outputs.
    """
    fabric: Fabric | None = options.get("fabric")
    some = encodings if isinstance(encodings, Tensor) else None
    width: Any = network.encoder.out_features if some is not None or encodings else 0
    several = fabric is not None and fabric.world_size > 1
    home = fabric.device if fabric and several else torch.device("cpu")
    encoding = [torch.zeros(0, width, device=home)]
    prediction = [torch.zeros(0, dataset.task.outputs, device=home)]
    for samples, output in run_over(network, dataset, rows, **options):
        prediction.append(output.prediction.float().to(home))
        if width:
            kept = slice(None) if some is None else torch.isin(samples.id, some)
            encoding.append(output.encoding[kept].float().to(home))
    parts = (torch.cat(part) for part in (encoding, prediction))
    # Shares were cut from the rows in the order of the processes.
    return Output(*(torch.cat(gather(part) if several else [part]).cpu() for part in parts))


def check_finite(dataset: Dataset, rows: Tensor, prediction: Tensor) -> None:
    """Reject predictions (n, outputs) of rows (n,) that are not finite, naming the first samples and their split."""
    if not len(bad := rows[~prediction.isfinite().all(1)]):
        return
    split = dataset.split[int(bad[0])]
    names = ", ".join(dataset.ids[row] for row in bad[:_NAMED].tolist())
    if len(bad) == 1:
        raise NotFiniteError(f"the prediction for sample {names} of {split} is not finite")
    more = f" and {len(bad) - _NAMED} more" if len(bad) > _NAMED else ""
    raise NotFiniteError(f"the predictions for samples {names}{more} of {split} are not finite")
