"""Arrays or embeddings as a data set: in memory, or in a file that ``numpy.savez`` wrote."""

import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from okapi.data.formats import TableError, listed
from okapi.data.splits import by_column
from okapi.data.task import Kind, Task
from okapi.data.views import Noise, Views

if TYPE_CHECKING:  # it knows all data sets, this one too
    from okapi.data.dataset import Dataset

_ROLES = ("inputs", "target", "domain", "split", "ids")


@dataclass(frozen=True, kw_only=True)
class ArraysSettings:
    """Arrays or embeddings of your own, in one file that ``numpy.savez`` wrote.

    Parameters
    ----------
    path : str
        The npz file.
    inputs : str
        Name of the array of inputs, (n, ...), numbers.
    target : str
        Name of the targets: (n,) classes from 0; (n,) or (n, D) numbers; or (n, C) of 0 and 1. Of an unlabelled sample
        -1 or NaN will do.
    domain : str
        Name of the domains: (n,) numbers or str; or (n, S), bool, for samples of several domains.
    split : str
        Name of the splits, (n,) of str: train, unlabelled, id_val, ood_val, id_test or ood_test.
    ids : str, optional
        Name of an array (n,) by whose values samples are called.
    task : {"classification", "regression", "multilabel"}
    outputs : int, optional
        How many classes there are; by default the largest target and one.
    train_noise, strong_noise : float
        Standard deviation of the noise that is added to the train view and to the strong view.
    """

    name: ClassVar[str] = "arrays"
    path: str
    inputs: str = "x"
    target: str = "y"
    domain: str = "domain"
    split: str = "split"
    ids: str | None = None
    task: Kind = "classification"
    outputs: int | None = None
    train_noise: float = 0.0
    strong_noise: float = 0.0


def arrays_dataset(settings: ArraysSettings) -> "Dataset":
    """Read a data set from arrays; what is wrong is told with the file, the array and the row."""
    path = Path(settings.path)
    names = {role: getattr(settings, role) for role in _ROLES if getattr(settings, role)}
    arrays = _load(path, list(names.values()))
    called = {role: f"{path}: array {name!r}" for role, name in names.items()}
    return _assemble(
        {role: arrays[name] for role, name in names.items()},
        called,
        settings.task,
        settings.outputs,
        noise_views(settings.train_noise, settings.strong_noise),
        str(path),
    )


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
) -> "Dataset":
    """Return a data set of arrays in memory.

    Parameters
    ----------
    inputs : array (n, ...), numbers
    target : array (n,) of classes from 0; (n,) or (n, D) of numbers; or (n, C) of 0 and 1
        Of an unlabelled sample -1 or NaN will do.
    domain : array (n,) of numbers or str; or (n, S), bool
    split : array (n,) of str
    ids : array (n,), optional
    task : {"classification", "regression", "multilabel"}
    outputs : int, optional
        How many classes there are; by default the largest target and one.
    views : Views, optional

    Examples
    --------
    >>> data = from_arrays(np.eye(3), [0, 1, -1], domain=["a", "a", "b"], split=["train", "train", "unlabelled"])
    >>> data.domain_names, data.task.outputs
    (('a', 'b'), 2)
    """
    given = {"inputs": inputs, "target": target, "domain": domain, "split": split, "ids": ids}
    arrays = {role: np.asarray(value) for role, value in given.items() if value is not None}
    return _assemble(arrays, {role: role for role in arrays}, task, outputs, views or Views(), "")


def noise_views(train: float, strong: float) -> Views:
    """Return views that add noise of these standard deviations; none where it is 0."""
    return Views(train=Noise(train) if train else None, strong=Noise(strong) if strong else None)


def _assemble(
    arrays: Mapping[str, NDArray[Any]],
    called: Mapping[str, str],
    task: Kind,
    outputs: int | None,
    views: Views,
    source: str,
) -> "Dataset":
    """Return a data set of arrays by role; ``called`` is how errors call each."""
    from okapi.data.dataset import Dataset

    inputs = _numbers(called["inputs"], arrays["inputs"])
    if odd := [role for role, array in arrays.items() if array.shape[:1] != (len(inputs),)]:
        short = called[odd[0]].removeprefix(f"{source}: ")
        raise TableError(f"{called['inputs']} has {len(inputs)} rows, {short} is of shape {arrays[odd[0]].shape}")
    domain, names = _domains(called["domain"], arrays["domain"])
    target = arrays["target"]
    if target.dtype.kind not in "biuf":
        raise TableError(f"{called['target']} must be numbers, got {target.dtype}")
    classes = task == "classification" and target.dtype.kind in "biu"
    try:
        dataset = Dataset(
            inputs=torch.from_numpy(inputs),
            target=torch.from_numpy(target.astype(np.int64 if classes else np.float32)),
            domain=torch.from_numpy(domain),
            split=by_column(arrays["split"]),
            task=Task(task, _outputs(task, target) if outputs is None else outputs),
            domain_names=names,
            ids=arrays["ids"].astype(np.str_).tolist() if "ids" in arrays else (),
            views=views,
        )
        dataset.check()
    except (ValueError, TypeError) as error:
        place = called.get(str(error).split()[0], source) if source else ""
        raise TableError(f"{place}: {error}" if place else str(error)) from error
    return dataset


def _load(path: Path, names: list[str]) -> dict[str, NDArray[Any]]:
    if not path.is_file():
        raise TableError(f"{path} does not exist" if not path.exists() else f"{path} is not a file")
    if not zipfile.is_zipfile(path):
        raise TableError(f"{path} cannot be read: it is no npz file, or it is cut short")
    try:
        with np.load(path, allow_pickle=False) as file:
            if missing := [name for name in names if name not in file]:
                raise TableError(f"{path} has no array {listed(missing)}; it has {listed(file)}")
            return {name: file[name] for name in names}
    except TableError:
        raise
    except (OSError, EOFError, ValueError, zlib.error, zipfile.BadZipFile) as error:
        raise TableError(f"{path} cannot be read: {error}") from error


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
        return domain, tuple(str(number) for number in range(domain.shape[1]))
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
