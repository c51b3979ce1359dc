"""Labelled samples that a run remembers: how far others are from them, and which are the nearest."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from okapi.data.dataset import Dataset
from okapi.files import replacing
from okapi.models import Network
from okapi.training.inference import predict
from okapi.training.seeds import derived_seed

MOST = 1_000  # samples of train, and of a validation split
_AT_ONCE = 1_024


class Reference(NamedTuple):
    """Labelled samples of a run, encoded by its selected weights.

    Parameters
    ----------
    encoding : array (m, d), float32
    id, label : array (m,) of str
    unit : float
        The median distance of validation samples from the nearest labelled one.
    """

    encoding: NDArray[np.float32]
    id: NDArray[np.str_]
    label: NDArray[np.str_]
    unit: float

    def nearest(self, encoding: NDArray[np.float32], k: int = 1) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return distances (n, k), in units of the validation split's, and the samples (n, k), nearest first."""
        k = min(k, len(self.encoding))
        keys = torch.from_numpy(self.encoding).double()
        parts = [
            torch.cdist(part.double(), keys, compute_mode="donot_use_mm_for_euclid_dist").topk(k, largest=False)
            for part in torch.from_numpy(encoding).split(_AT_ONCE)
        ]
        distance, index = (torch.cat(tensors).numpy() for tensors in zip(*parts, strict=True))
        return distance / self.unit, index


def make_reference(network: Network, dataset: Dataset, seed: int, *, batch_size: int, workers: int) -> Reference:
    """Return the reference of a run: at most 1,000 labelled samples, drawn by its seed.

    The unit is measured on as many of id_val, else of ood_val; without either, on labelled samples and their nearest
    others.
    """
    rows = {split: dataset.rows(split) for split in ("train", "id_val", "ood_val")}
    drawn = {}
    for split, every in rows.items():
        order = torch.randperm(
            len(every), generator=torch.Generator().manual_seed(derived_seed(seed, "reference", split))
        )
        drawn[split] = every[order[:MOST].sort().values]
    device = next(network.parameters()).device
    options: dict[str, Any] = {"batch_size": batch_size, "workers": workers, "device": device}
    train = drawn["train"]
    encoding = predict(network, dataset, train, **options).encoding.numpy()
    reference = Reference(
        encoding=encoding,
        id=np.array([dataset.ids[row] for row in train.tolist()]),
        label=np.array([_label(dataset, row) for row in train.tolist()]),
        unit=1.0,
    )
    other = next((drawn[split] for split in ("id_val", "ood_val") if len(drawn[split])), None)
    if other is None:
        distance = reference.nearest(encoding, 2)[0][:, -1]
    else:
        distance = reference.nearest(predict(network, dataset, other, **options).encoding.numpy())[0][:, 0]
    return reference._replace(unit=float(np.median(distance)) or 1.0)


def write_reference(path: Path, reference: Reference) -> None:
    """Write a reference to an npz file, all of it or nothing."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **reference._asdict())


def read_reference(path: Path) -> Reference | None:
    """Return the reference of a file; None where there is none, as in runs of the last weights."""
    if not path.is_file():
        return None
    try:
        with np.load(path, allow_pickle=False) as file:
            parts = {name: file[name] for name in Reference._fields}
    except (OSError, ValueError, EOFError, KeyError) as error:
        raise ValueError(f"{path} cannot be read, it was edited or damaged: {error}") from error
    return Reference(parts["encoding"], parts["id"], parts["label"], float(parts["unit"]))


def _label(dataset: Dataset, row: int) -> str:
    target = dataset.target[row]
    if dataset.task.kind == "classification":
        return dataset.class_names[int(target)] if dataset.class_names else str(int(target))
    return " ".join(f"{value:.6g}" for value in target.reshape(-1).tolist())
