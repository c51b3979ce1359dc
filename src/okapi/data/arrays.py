"""Arrays or embeddings as a data set: in memory, or in a file that ``numpy.savez`` wrote."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from okapi.config import ArraysSettings, Kind, LabelSettings, names_of
from okapi.data.augment import Views, noise_views
from okapi.data.dataset import Dataset
from okapi.data.io import CellError, NpzFile, TableError, open_table
from okapi.data.labels import Labels, label_columns
from okapi.data.splits import LEARNT_FROM
from okapi.messages import listed


def arrays_dataset(settings: ArraysSettings) -> Dataset:
    """Read a data set from arrays; what is wrong is reported with the file, the array and the row."""
    return arrays_reader(settings).dataset()


def arrays_reader(settings: ArraysSettings) -> "ArraysReader":
    """Return what makes the data set of a file, whose labels are read."""
    path = Path(settings.path)
    file = open_table(path)
    if not isinstance(file, NpzFile):
        raise TableError(f"{path}: arrays are read from npz, got {path.suffix!r}; see the data set 'table'")
    names = label_columns(settings)
    _require(file, [settings.inputs, *names])
    arrays = {name: file.array(name) for name in names}
    reader = ArraysReader(file, settings.inputs, file.array(settings.inputs), arrays, settings)
    if domains := names_of(settings.domains):
        reader.labels = reader.labels.of_domains(domains)
    return reader


class ArraysReader:
    """Makes the data set of arrays, or of some of their rows.

    Parameters
    ----------
    file : NpzFile
    name : str
        Of the inputs.
    inputs : array (n, ...)
        A memory map is read when the data set is made.
    arrays : mapping of str to array (n,) or (n, D)
        Those that the settings name; one of shape (n, D) is D columns.
    settings : LabelSettings
    """

    def __init__(
        self, file: Any, name: str, inputs: NDArray[Any], arrays: Mapping[str, NDArray[Any]], settings: LabelSettings
    ) -> None:
        self.file, self.name, self.inputs = file, name, inputs
        for other, array in arrays.items():
            if array.shape[:1] != inputs.shape[:1]:
                rows = f"array {name!r} has {len(inputs) if inputs.ndim else 0} rows"
                raise TableError(f"{file.path}: {rows}, array {other!r} is of shape {array.shape}")
        for other in filter(None, (settings.split, settings.id, *names_of(settings.group))):
            if arrays[other].ndim != 1:
                got = f"got {arrays[other].shape}"
                raise TableError(f"{file.path}: array {other!r} must be of shape (n,), {got}")
        columns = {name: _columns(f"{file.path}: array {name!r}", name, array) for name, array in arrays.items()}
        target, domain = (
            tuple(column for name in names_of(given) for column in columns[name])
            for given in (settings.target, settings.domain)
        )
        frame = pd.DataFrame({name: values for part in columns.values() for name, values in part.items()})
        for column in target if settings.task != "regression" else ():
            if frame[column].dtype.kind in "iu":
                frame[column] = frame[column].where(frame[column] >= 0)  # -1 is no class
        try:
            settings = replace(settings, target=target, domain=domain)
        except ValueError as error:
            raise TableError(f"{file.path}: {error}") from error
        self.settings, self.labels = settings, Labels(frame, settings, file.path, file.place)

    def dataset(self) -> Dataset:
        """Return the data set; rows that cannot be used are a CellError."""
        settings, labels = self.settings, self.labels
        chosen = self.inputs if len(labels) == len(self.inputs) else self.inputs[labels.rows]
        inputs = _numbers(f"{self.file.path}: array {self.name!r}", chosen, lambda row: labels.place(row, self.name))
        warp = [getattr(settings, name, 0.0) for name in ("train_warp", "strong_warp")]
        if any(warp) and inputs.ndim != 4:
            wanted = f"must be images (n, channels, H, W) to be warped, its shape is {tuple(inputs.shape)}"
            raise TableError(f"{self.file.path}: array {self.name!r} {wanted}")
        views = noise_views(settings.train_noise, settings.strong_noise, *warp)
        dataset = labels.dataset(lambda split: (inputs, {}), views)
        return _scaled(dataset, settings) if isinstance(settings, ArraysSettings) else dataset


def arrays_from(file: NpzFile, description: Mapping[str, Any]) -> Tensor:
    """Return the inputs (n, ...) of a file, centred and scaled as a data set's description says."""
    name, centre = description["inputs"], description["centre"]
    _require(file, [name, *([centre["domain"]] if centre else [])])
    inputs = _numbers(f"{file.path}: array {name!r}", file.array(name), lambda row: file.place(row, name))
    if centre:
        inputs = _centred(inputs, np.asarray(file.array(centre["domain"], ndim=1)).astype(np.str_), centre)
    return inputs / description["scale"] if description["scale"] else inputs


def from_arrays(
    inputs: ArrayLike,
    target: ArrayLike,
    *,
    domain: ArrayLike,
    split: ArrayLike,
    ids: ArrayLike | None = None,
    task: Kind = "classification",
    views: Views | None = None,
) -> Dataset:
    """Return a data set of arrays in memory.

    Parameters
    ----------
    inputs : array (n, ...), numbers
    target : array (n,) of classes, by number or by name; (n,) or (n, D) of numbers; or (n, C) of 0 and 1
        Of an unlabelled sample -1, an empty name or NaN will do.
    domain : array (n,) of numbers or str; or (n, S), bool
    split : array (n,) of str
    ids : array (n,), optional
    task : {"classification", "regression", "multilabel"}
    views : Views, optional

    Examples
    --------
    >>> data = from_arrays(np.eye(3), [0, 1, -1], domain=["a", "a", "b"], split=["train", "train", "unlabelled"])
    >>> data.domain_names, data.class_names
    (('a', 'b'), ('0', '1'))
    """
    given = {"target": target, "domain": domain, "split": split, "id": ids}
    arrays = {name: np.asarray(values) for name, values in given.items() if values is not None}
    settings = LabelSettings(split="split", id="id" if "id" in arrays else None, task=task)
    memory = SimpleNamespace(path="arrays", place=lambda row, column: f"{column} of row {row}")
    dataset = ArraysReader(memory, "inputs", np.asarray(inputs), arrays, settings).dataset()
    return replace(dataset, views=views or Views())


def _columns(called: str, name: str, array: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Return an array as columns by name."""
    if array.dtype.kind not in "biufU" or array.ndim not in (1, 2):
        got = f"got {array.dtype} of shape {array.shape}"
        raise TableError(f"{called} must be numbers or str of shape (n,) or (n, D), {got}")
    return {name: array} if array.ndim == 1 else {f"{name}_{number}": part for number, part in enumerate(array.T)}


def _scaled(dataset: Dataset, settings: ArraysSettings) -> Dataset:
    """Return the data set centred and scaled by what training sees, and how that was done."""
    inputs: Any = dataset.inputs
    recipe: dict[str, Any] = {"kind": "arrays", "shape": list(inputs.shape[1:]), "inputs": settings.inputs}
    recipe |= {"centre": None, "scale": None}
    if settings.centre == "domain":
        if dataset.domain.ndim != 1:
            raise TableError(f"{settings.path}: samples have several domains, by whose means inputs cannot be centred")
        seen = torch.from_numpy(np.isin(dataset.split, LEARNT_FROM))
        of_domain = {name: seen & (dataset.domain == number) for number, name in enumerate(dataset.domain_names)}
        means = {name: _mean(inputs[rows]) for name, rows in of_domain.items() if rows.any()}
        (domain,) = names_of(settings.domain)
        recipe["centre"] = {"domain": domain, "means": means, "everywhere": _mean(inputs[seen])}
        inputs = _centred(inputs, np.array(dataset.domain_names)[dataset.domain], recipe["centre"])
    if settings.scale == "unit":
        size = inputs[dataset.rows("train")].double().square().mean().sqrt().item()
        recipe["scale"] = size or None
        inputs = inputs / size if size else inputs
    return replace(dataset, inputs=inputs, recipe=recipe)


def _mean(inputs: Tensor) -> Any:
    return inputs.double().mean(0).to(inputs.dtype).tolist()


def _centred(inputs: Tensor, domain: NDArray[np.str_], centre: Mapping[str, Any]) -> Tensor:
    """Return inputs less the mean of their domain; of a domain that training did not see, less that of all."""
    inputs = inputs.clone()
    for name in np.unique(domain).tolist():
        mean = torch.tensor(centre["means"].get(name, centre["everywhere"]), dtype=inputs.dtype)
        inputs[torch.from_numpy(domain == name)] -= mean
    return inputs


def _require(file: NpzFile, names: Sequence[str]) -> None:
    if absent := [name for name in names if name not in file.columns]:
        raise TableError(f"{file.path} has no array {listed(absent)}; it has {listed(file.columns)}")


def _numbers(called: str, array: NDArray[Any], place: Callable[[int], str]) -> Tensor:
    """Return inputs as float32."""
    if array.dtype.kind not in "biuf" or array.ndim < 2:
        raise TableError(f"{called} must be numbers of shape (n, ...), got {array.dtype} of shape {array.shape}")
    with np.errstate(over="ignore"):  # what is too large for float32 is reported below
        numbers = array.astype(np.float32)
    bad = np.asarray(~np.isfinite(numbers).all(axis=tuple(range(1, array.ndim))))
    if bad.any():
        raise CellError(bad, lambda row: f"{place(row)} is not finite in float32")
    return torch.from_numpy(numbers)
