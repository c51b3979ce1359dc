"""What a data set is: samples with targets, domains and splits; and the data sets that a configuration may name."""

import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from okapi.data.batches import Inputs, take
from okapi.data.formats import TableError, listed
from okapi.data.sites import SitesSettings, sites_dataset
from okapi.data.task import Kind, Task
from okapi.data.views import Noise, Views

SPLITS = ("train", "unlabelled", "id_val", "ood_val", "id_test", "ood_test")


class Rows(Protocol):
    """Samples that are read when they are asked for: row number in, one sample's input out."""

    def __len__(self) -> int: ...

    def __getitem__(self, row: int, /) -> Inputs: ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """Samples, what is to be predicted of them, where they come from and what they are used for.

    Parameters
    ----------
    inputs : tensor (n, ...), mapping of such, or anything with a length whose item ``row`` is one sample's input
        The last is for samples that are read from files.
    target : tensor (n,), int64, of classes; (n,) or (n, D), float, of a regression; (n, C), float of 0 and 1
        Of an unlabelled sample: -1 or NaN, or the truth; no algorithm gets to see it.
    domain : tensor (n,), int64, numbers of ``domain_names``; or (n, S), bool, the set of a sample's domains
    split : array (n,) of str
        One of ``SPLITS`` for every sample.
    task : Task
    domain_names : tuple of str
    ids : sequence of str, optional
        By what a sample is called; by default its row number.
    views : Views
        How samples are distorted in training; by default not at all.

    Examples
    --------
    >>> data = Dataset(
    ...     inputs=torch.randn(4, 3), target=torch.tensor([0, 1, 1, -1]), domain=torch.tensor([0, 0, 1, 1]),
    ...     split=["train", "train", "ood_test", "unlabelled"], task=Task("classification", 2),
    ...     domain_names=("rome", "oslo"),
    ... )
    >>> data.check()
    >>> data.rows("train")
    tensor([0, 1])
    """

    inputs: Tensor | Mapping[str, Tensor] | Rows
    target: Tensor
    domain: Tensor
    split: Sequence[str] | NDArray[np.str_]
    task: Task
    domain_names: tuple[str, ...]
    ids: Sequence[str] = ()
    views: Views = field(default_factory=Views)

    def __post_init__(self) -> None:
        object.__setattr__(self, "split", np.asarray(self.split, dtype=np.str_))
        if len(self.ids) == 0:
            object.__setattr__(self, "ids", [str(row) for row in range(len(self))])

    def __len__(self) -> int:
        return len(self.target)

    def rows(self, split: str) -> Tensor:
        """Return the rows of a split, int64, in order."""
        if split not in SPLITS:
            raise ValueError(f"split must be one of {listed(SPLITS)}, got {split!r}")
        return torch.from_numpy(np.flatnonzero(np.asarray(self.split) == split))

    def sample(self, row: int) -> Inputs:
        """Return one sample's input, with no dimension for rows."""
        return take(self.inputs, row) if isinstance(self.inputs, Tensor | Mapping) else self.inputs[row]

    def read(self, rows: Iterable[int]) -> Inputs:
        """Return the inputs of some rows as one, row below row."""
        rows = [int(row) for row in rows]
        if isinstance(self.inputs, Tensor | Mapping):
            return take(self.inputs, rows)
        return self.stack([self.inputs[row] for row in rows], rows)

    def stack(self, samples: Sequence[Inputs], rows: Sequence[int]) -> Inputs:
        """Return samples as one; if their sizes differ, name two that do. ``rows`` says where they come from."""
        if not samples:  # as wide as samples are
            return take(self.stack([self.sample(0)], [0]), slice(0))
        self._check_sizes(samples, rows)
        first = samples[0]
        if isinstance(first, Tensor):
            return torch.stack(list(samples))  # type: ignore[arg-type]
        return {name: torch.stack([sample[name] for sample in samples]) for name in first}  # type: ignore[index]

    def check(self) -> None:
        """Refuse a data set that cannot be learnt from, naming the first row that is wrong.

        Sizes of inputs are compared where they lie in memory; files are compared when they are read.
        """
        self._check_lengths()
        split = np.asarray(self.split)
        if split.ndim != 1:
            raise ValueError(f"split must be of shape (n,), got {split.shape}")
        if len(unknown := np.flatnonzero(~np.isin(split, SPLITS))):
            row = int(unknown[0])
            raise ValueError(f"split of row {row} must be one of {listed(SPLITS)}, got {str(split[row])!r}")
        if not len(self.rows("train")):
            raise ValueError("split must name at least one sample 'train', got none")
        labelled = torch.from_numpy(np.flatnonzero(split != "unlabelled"))
        self.task.check_target(self.target[labelled], labelled)
        self._check_domain()
        if isinstance(self.inputs, list | tuple):
            self._check_sizes(self.inputs, range(len(self)))
        if isinstance(self.sample(0), Mapping) and (self.views.train or self.views.strong):
            raise ValueError("views are of tensors, got inputs that are mappings")

    def _check_lengths(self) -> None:
        parts = self.inputs.items() if isinstance(self.inputs, Mapping) else [("inputs", self.inputs)]
        lengths: list[tuple[str, Any]] = [*parts, ("domain", self.domain), ("split", self.split), ("ids", self.ids)]
        for name, part in lengths:
            if len(part) != len(self):
                raise ValueError(f"{name} must have a row for each of the {len(self)} targets, got {len(part)}")
        if len(set(self.ids)) < len(self):
            name, _ = Counter(self.ids).most_common(1)[0]
            rows = [row for row, other in enumerate(self.ids) if other == name]
            raise ValueError(f"ids must differ, got {name!r} in rows {rows[0]} and {rows[1]}")

    def _check_sizes(self, samples: Sequence[Inputs], rows: Sequence[int]) -> None:
        size = _shape(samples[0])
        for sample, row in zip(samples, rows, strict=True):
            if _shape(sample) != size:
                first, other = (
                    f"sample {self.ids[rows[0]]!r} is {size}",
                    f"sample {self.ids[row]!r} is {_shape(sample)}",
                )
                raise ValueError(f"inputs must be of one size: {first}, {other} (row {row})")

    def _check_domain(self) -> None:
        count, domain = len(self.domain_names), self.domain
        if domain.dtype == torch.bool and domain.ndim == 2 and domain.shape[1] == count:
            return
        if domain.dtype != torch.int64 or domain.ndim != 1:
            raise ValueError(
                f"domain must be of shape (n,) and int64, or (n, {count}) and bool; "
                f"got shape {tuple(domain.shape)} of {domain.dtype}"
            )
        if len(bad := torch.nonzero((domain < 0) | (domain >= count)).flatten()):
            row = int(bad[0])
            raise ValueError(f"domain of row {row} must be from 0 to {count - 1}, got {int(domain[row])}")


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


def arrays_dataset(settings: ArraysSettings) -> Dataset:
    """Read a data set from arrays; what is wrong is told with the file, the array and the row."""
    path = Path(settings.path)
    wanted = [settings.inputs, settings.target, settings.domain, settings.split]
    arrays = _load(path, wanted + ([settings.ids] if settings.ids else []))
    inputs = _numbers(path, settings.inputs, arrays[settings.inputs])
    if odd := [name for name, array in arrays.items() if array.shape[:1] != (len(inputs),)]:
        rows = f"array {settings.inputs!r} has {len(inputs)} rows"
        raise TableError(f"{path}: {rows}, array {odd[0]!r} is of shape {arrays[odd[0]].shape}")
    domain, names = _domains(path, settings.domain, arrays[settings.domain])
    target, split = arrays[settings.target], arrays[settings.split].astype(np.str_)
    if target.dtype.kind not in "biuf":
        raise TableError(f"{path}: array {settings.target!r} must be numbers, got {target.dtype}")
    classes = settings.task == "classification" and target.dtype.kind in "biu"
    outputs = _outputs(settings.task, target) if settings.outputs is None else settings.outputs
    try:
        dataset = Dataset(
            inputs=torch.from_numpy(inputs),
            target=torch.from_numpy(target.astype(np.int64 if classes else np.float32)),
            domain=torch.from_numpy(domain),
            split=split,
            task=Task(settings.task, outputs),
            domain_names=names,
            ids=arrays[settings.ids].astype(np.str_).tolist() if settings.ids else (),
            views=Views(train=_noise(settings.train_noise), strong=_noise(settings.strong_noise)),
        )
        dataset.check()
    except (ValueError, TypeError) as error:
        role = str(error).split()[0]
        array = f"array {getattr(settings, role)!r}: " if role in ("inputs", "target", "domain", "split", "ids") else ""
        raise TableError(f"{path}: {array}{error}") from error
    return dataset


class Source(NamedTuple):
    """A kind of data set that a configuration may name: its settings, and what builds it from them."""

    settings: type
    build: Callable[[Any], Dataset]


DATA: dict[str, Source] = {
    "sites": Source(SitesSettings, sites_dataset),
    "arrays": Source(ArraysSettings, arrays_dataset),
}


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


def _numbers(path: Path, name: str, array: NDArray[Any]) -> NDArray[np.float32]:
    if array.dtype.kind not in "biuf" or array.ndim < 2:
        raise TableError(
            f"{path}: array {name!r} must be numbers of shape (n, ...), got {array.dtype} of shape {array.shape}"
        )
    with np.errstate(over="ignore"):  # what is too large for float32 is told below
        numbers = array.astype(np.float32)
    finite = np.isfinite(numbers).all(axis=tuple(range(1, array.ndim)))
    if not finite.all():
        raise TableError(f"{path}: array {name!r}, row {int(finite.argmin())} is not finite in float32")
    return numbers


def _domains(path: Path, name: str, domain: NDArray[Any]) -> tuple[NDArray[Any], tuple[str, ...]]:
    """Return domains as numbers of their sorted names, or, if they are sets, as they are."""
    if domain.ndim == 2:
        return domain, tuple(str(number) for number in range(domain.shape[1]))
    if domain.ndim != 1 or domain.dtype.kind not in "biuU":
        raise TableError(
            f"{path}: array {name!r} must be whole numbers or str of shape (n,), or bool of shape (n, S); "
            f"got {domain.dtype} of shape {domain.shape}"
        )
    values, numbers = np.unique(domain, return_inverse=True)
    return numbers.astype(np.int64), tuple(str(value) for value in values)


def _outputs(task: Kind, target: NDArray[Any]) -> int:
    if task == "classification":
        return int(target.max(initial=1)) + 1 if target.dtype.kind in "iu" else 2
    return target.shape[1] if target.ndim == 2 else 1


def _noise(std: float) -> Noise | None:
    return Noise(std) if std else None


def _shape(sample: Inputs) -> Any:
    if isinstance(sample, Tensor):
        return tuple(sample.shape)
    return {name: tuple(tensor.shape) for name, tensor in sample.items()}
