"""Arrays or embeddings as a data set: in memory, or in a file that ``numpy.savez`` wrote."""

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import degrees
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from okapi.config import ArraysSettings, Kind, names_of
from okapi.data.augment import Affine, Compose, Noise, Transform, Views
from okapi.data.dataset import Dataset
from okapi.data.io import NpzFile, TableError, open_table
from okapi.data.splits import LEARNT_FROM, Splits, by_column, divide, warn_of_seen_domains
from okapi.data.task import Task
from okapi.messages import listed

_ROLES = ("inputs", "target", "domain", "split", "ids")


def arrays_dataset(settings: ArraysSettings) -> Dataset:
    """Read a data set from arrays; what is wrong is told with the file, the array and the row."""
    path = Path(settings.path)
    names = {role: getattr(settings, role) for role in _ROLES if getattr(settings, role)}
    groups = {f"group {name}": name for name in names_of(settings.group)}
    file = _open(path, [*names.values(), *groups.values()])
    arrays = {role: file.array(name) for role, name in (names | groups).items()}  # inputs are mapped, not read
    called = {role: f"{path}: array {name!r}" for role, name in (names | groups).items()}
    _check_rows(arrays, called, str(path))
    if settings.domains:
        arrays = _of_domains(arrays, called["domain"], names_of(settings.domains))
    shape = arrays["inputs"].shape
    if (settings.train_warp or settings.strong_warp) and len(shape) != 4:
        raise TableError(f"{called['inputs']} must be pictures (n, channels, H, W) to be warped, its shape is {shape}")
    given = arrays.get("split")
    arrays["split"] = _split(arrays, called, settings, str(path))
    dataset = _assemble(
        arrays,
        called,
        settings.task,
        settings.outputs,
        simple_views((settings.train_noise, settings.train_warp), (settings.strong_noise, settings.strong_warp)),
        str(path),
    )
    if given is not None:
        warn_of_seen_domains(dataset.domain.numpy(), by_column(given), dataset.domain_names)
    return _with_recipe(dataset, settings, called["domain"])


def arrays_from(file: NpzFile, description: Mapping[str, Any]) -> Tensor:
    """Return the inputs (n, ...) of a file, centred and scaled as a data set's description says."""
    _require(file, [description["inputs"]])
    inputs = torch.from_numpy(
        _numbers(f"{file.path}: array {description['inputs']!r}", file.array(description["inputs"]))
    )
    if centre := description["centre"]:
        _require(file, [centre["domain"]])
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
    outputs: int | None = None,
    views: Views | None = None,
) -> Dataset:
    """Return a data set of arrays in memory.

    Parameters
    ----------
    inputs : array (n, ...), numbers
    target : array (n,) of classes, from 0 or by name; (n,) or (n, D) of numbers; or (n, C) of 0 and 1
        Of an unlabelled sample -1, an empty name or NaN will do.
    domain : array (n,) of numbers or str; or (n, S), bool
    split : array (n,) of str
    ids : array (n,), optional
    task : {"classification", "regression", "multilabel"}
    outputs : int, optional
        How many classes there are; by default the largest target and one, or as many as have names.
    views : Views, optional

    Examples
    --------
    >>> data = from_arrays(np.eye(3), [0, 1, -1], domain=["a", "a", "b"], split=["train", "train", "unlabelled"])
    >>> data.domain_names, data.task.outputs
    (('a', 'b'), 2)
    """
    given = {"inputs": inputs, "target": target, "domain": domain, "split": split, "ids": ids}
    arrays = {role: np.asarray(value) for role, value in given.items() if value is not None}
    called = {role: role for role in arrays}
    _check_rows(arrays, called, "")
    return _assemble(arrays, called, task, outputs, views or Views(), "")


def simple_views(train: tuple[float, float], strong: tuple[float, float]) -> Views:
    """Return views with noise of a standard deviation, after a warp; none where both are 0."""
    first = _simple_view(*train)
    return Views(labelled=first, unlabelled=first, strong=_simple_view(*strong))


def _simple_view(noise: float, warp: float) -> Transform | None:
    angle = degrees(warp / 2)
    affine = Affine(degrees=angle, shear=angle, scale=(1 - warp, 1 + warp), translate=warp / 2)
    if warp and noise:
        return Compose((affine, Noise(noise)))
    return affine if warp else Noise(noise) if noise else None


def _assemble(
    arrays: Mapping[str, NDArray[Any]],
    called: Mapping[str, str],
    task: Kind,
    outputs: int | None,
    views: Views,
    source: str,
) -> Dataset:
    """Return a data set of arrays by role; ``called`` is how errors call each."""
    inputs = _numbers(called["inputs"], arrays["inputs"])
    domain, names = _domains(called["domain"], arrays["domain"])
    split = by_column(arrays["split"])
    target = arrays["target"]
    class_names: tuple[str, ...] = ()
    if task == "classification" and target.dtype.kind == "U":
        target, class_names = _named_classes(called["target"], target, split)
    if target.dtype.kind not in "biuf":
        raise TableError(f"{called['target']} must be numbers, got {target.dtype}")
    classes = task == "classification" and target.dtype.kind in "biu"
    try:
        dataset = Dataset(
            inputs=torch.from_numpy(inputs),
            target=torch.from_numpy(target.astype(np.int64 if classes else np.float32)),
            domain=torch.from_numpy(domain),
            split=split,
            task=Task(task, (len(class_names) or _outputs(task, target)) if outputs is None else outputs),
            domain_names=names,
            ids=arrays["ids"].astype(np.str_).tolist() if "ids" in arrays else (),
            views=views,
            class_names=class_names,
        )
        dataset.check()
    except (ValueError, TypeError) as error:
        place = called.get(str(error).split()[0], source) if source else ""
        raise TableError(f"{place}: {error}" if place else str(error)) from error
    return dataset


def _check_rows(arrays: Mapping[str, NDArray[Any]], called: Mapping[str, str], source: str) -> None:
    """Refuse arrays of other lengths than the inputs'."""
    rows = arrays["inputs"].shape[:1]
    if odd := [role for role, array in arrays.items() if array.shape[:1] != rows or not rows]:
        short = called[odd[0]].removeprefix(f"{source}: ")
        raise TableError(f"{called['inputs']} has {(*rows, 0)[0]} rows, {short} is of shape {arrays[odd[0]].shape}")


def _of_domains(arrays: Mapping[str, NDArray[Any]], called: str, wanted: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """Return the rows of some domains."""
    if arrays["domain"].ndim != 1:
        raise TableError(f"{called} holds sets of domains, of which domains cannot choose")
    domain = arrays["domain"].astype(np.str_)
    if unknown := [name for name in wanted if name not in domain]:
        raise TableError(f"{called} has no domain {listed(unknown)}; it has {listed(np.unique(domain).tolist())}")
    chosen = np.isin(domain, wanted)
    return {role: array[chosen] for role, array in arrays.items()}


def _split(
    arrays: Mapping[str, NDArray[Any]], called: Mapping[str, str], settings: ArraysSettings, source: str
) -> Splits:
    """Return the split of each sample, (n,): those of an array, or drawn as the settings say."""
    labelled = _labelled(arrays["target"])
    if settings.split is not None:
        split = by_column(arrays["split"])
        if settings.fully_labelled and split.ndim == 1:
            split[labelled & (split == "unlabelled")] = "train"
        return split
    if arrays["domain"].ndim != 1:
        raise TableError(f"{called['domain']} holds sets of domains: splits cannot be drawn by them, name an array")
    groups = [_units(called[role], array) for role, array in arrays.items() if role.startswith("group ")]
    try:
        return divide(
            settings,
            arrays["domain"].astype(np.str_),
            labelled=labelled,
            classes=arrays["target"] if settings.task == "classification" else None,
            groups=np.stack(groups, axis=1) if groups else None,
        )
    except ValueError as error:
        raise TableError(f"{source}: {error}") from error


def _units(called: str, array: NDArray[Any]) -> NDArray[np.int64]:
    """Return numbers (n,) that are the same where the array's values are."""
    if array.ndim != 1:
        raise TableError(f"{called} must be of shape (n,) to group samples by, got {array.shape}")
    return np.unique(array, return_inverse=True)[1].astype(np.int64)


def _labelled(target: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which samples (n,) have a label."""
    if target.dtype.kind not in "biuf":
        return np.asarray(target != "")
    known = np.isfinite(target) if target.dtype.kind == "f" else np.asarray(target >= 0)
    return np.asarray(known.reshape(len(known), -1).all(axis=1))


def _named_classes(called: str, target: NDArray[np.str_], split: Splits) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return classes as numbers of the sorted names that train has; an unlabelled sample of another has none."""
    if target.ndim != 1:
        raise TableError(f"{called} must be of shape (n,) for classes by name, got {target.shape}")
    if (empty := (target == "") & (split != "unlabelled")).any():
        row = int(empty.argmax())
        raise TableError(f"{called}, row {row} is empty, but the sample is in {split[row]}")
    names = np.unique(target[split == "train"])
    if (unseen := (split != "unlabelled") & ~np.isin(target, names)).any():
        row = int(unseen.argmax())
        raise TableError(f"{called}, row {row}: class {str(target[row])!r} is in {split[row]}, but not in train")
    known = np.isin(target, names)
    return np.where(known, np.searchsorted(names, target), -1).astype(np.int64), tuple(names.tolist())


def _with_recipe(dataset: Dataset, settings: ArraysSettings, called: str) -> Dataset:
    """Return the data set centred and scaled by what training sees, and how that was done."""
    inputs: Any = dataset.inputs
    recipe: dict[str, Any] = {"kind": "arrays", "shape": list(inputs.shape[1:]), "inputs": settings.inputs}
    recipe |= {"centre": None, "scale": None}
    if settings.centre == "domain":
        if dataset.domain.ndim != 1:
            raise TableError(
                f"{called} holds sets of domains, by whose means inputs cannot be centred; set centre to null"
            )
        seen = torch.from_numpy(np.isin(dataset.split, LEARNT_FROM))
        of_domain = {name: seen & (dataset.domain == number) for number, name in enumerate(dataset.domain_names)}
        means = {name: _mean(inputs[rows]) for name, rows in of_domain.items() if rows.any()}
        recipe["centre"] = {"domain": settings.domain, "means": means, "everywhere": _mean(inputs[seen])}
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


def _open(path: Path, names: list[str]) -> NpzFile:
    if path.is_file() and not zipfile.is_zipfile(path):
        raise TableError(f"{path} cannot be read: it is no npz file, or it is cut short")
    file = open_table(path)
    if not isinstance(file, NpzFile):
        raise TableError(f"{path}: arrays are read from npz, got {path.suffix!r}; see the data set 'table'")
    _require(file, names)
    return file


def _require(file: NpzFile, names: Sequence[str]) -> None:
    if absent := [name for name in names if name not in file.columns]:
        raise TableError(f"{file.path} has no array {listed(absent)}; it has {listed(file.columns)}")


def _numbers(called: str, array: NDArray[Any]) -> NDArray[np.float32]:
    if array.dtype.kind not in "biuf" or array.ndim < 2:
        raise TableError(f"{called} must be numbers of shape (n, ...), got {array.dtype} of shape {array.shape}")
    with np.errstate(over="ignore"):  # what is too large for float32 is told below
        numbers = array.astype(np.float32)
    finite = np.isfinite(numbers).all(axis=tuple(range(1, array.ndim)))
    if not finite.all():
        raise TableError(f"{called}, row {int(finite.argmin())} is not finite in float32")
    return numbers


def _domains(called: str, domain: NDArray[Any]) -> tuple[NDArray[Any], tuple[str, ...]]:
    """Return domains as numbers of their sorted names, or, if they are sets, as they are."""
    if domain.ndim == 2:
        return np.array(domain), tuple(str(number) for number in range(domain.shape[1]))
    if domain.ndim != 1 or domain.dtype.kind not in "biuU":
        raise TableError(
            f"{called} must be whole numbers or str of shape (n,), or bool of shape (n, S); "
            f"got {domain.dtype} of shape {domain.shape}"
        )
    values, numbers = np.unique(domain, return_inverse=True)
    return numbers.astype(np.int64), tuple(str(value) for value in values)


def _outputs(task: Kind, target: NDArray[Any]) -> int:
    if task == "classification":
        return int(target.max(initial=1)) + 1 if target.dtype.kind in "iu" else 2
    return target.shape[1] if target.ndim == 2 else 1
