"""The file of a model's predictions on a split: one row a sample, for pages, replicates and other programs."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from torch import Tensor

from okapi.data.dataset import Dataset
from okapi.evaluation import decide, probabilities
from okapi.files import replacing
from okapi.runs import Weights


def write_predictions(path: Path, dataset: Dataset, split: str, prediction: Tensor, weights: Weights) -> None:
    """Write predictions (n, outputs) of a split to a parquet file, all of it or nothing.

    Columns are ``id``; ``domain``, its name, or a list of names where samples have sets of them; ``groups``, a list of
    names, where the data set has groups; ``target`` and ``prediction``, and for classes and labels ``probability_0``
    and so on. Where several numbers or labels are predicted it is ``target_0``, ``prediction_0`` and so on. The
    schema's metadata has under ``okapi`` the split, the weights' step and SHA-256, and the names of classes.
    """
    table = pa.table(_columns(dataset, dataset.rows(split), prediction))
    about = {
        "split": split,
        "step": weights.step,
        "sha256": weights.sha256,
        "selector": weights.selector,
        "class_names": list(dataset.class_names),
    }
    with replacing(path) as temporary:
        pq.write_table(table.replace_schema_metadata({"okapi": json.dumps(about)}), temporary)


def _columns(dataset: Dataset, rows: Tensor, prediction: Tensor) -> dict[str, Any]:
    task = dataset.task
    columns: dict[str, Any] = {
        "id": [dataset.ids[row] for row in rows.tolist()],
        "domain": _names(dataset.domain[rows], dataset.domain_names),
    }
    if dataset.groups is not None:
        columns["groups"] = _names(dataset.groups[rows], dataset.group_names)
    target, decided = dataset.target[rows].numpy(), decide(task, prediction)
    if task.kind == "classification" or (task.kind == "regression" and task.outputs == 1):
        columns |= {"target": target.reshape(-1), "prediction": decided.reshape(-1)}
    else:
        columns |= {f"target_{number}": target[:, number] for number in range(task.outputs)}
        columns |= {f"prediction_{number}": decided[:, number] for number in range(task.outputs)}
    if task.kind != "regression":
        probability = probabilities(task, prediction)
        columns |= {f"probability_{number}": probability[:, number] for number in range(task.outputs)}
    return columns


def _names(membership: Tensor, names: tuple[str, ...]) -> list[Any]:
    """Return the name of each sample's domain, or the names of all that it belongs to."""
    if membership.ndim == 1:
        return [names[number] for number in membership.tolist()]
    return [[name for name, member in zip(names, row, strict=True) if member] for row in membership.tolist()]
