"""Labels of samples, in columns: targets, domains, splits and ids, and the data set that they make with inputs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from okapi.config import LabelSettings, names_of
from okapi.data.augment import Views
from okapi.data.dataset import Dataset
from okapi.data.images import without_unreadable
from okapi.data.io import (
    CellError,
    Place,
    TableError,
    categories,
    fractions,
    missing,
    present,
    reject_cells,
    to_numbers,
    to_truth,
)
from okapi.data.splits import SPLITS, Splits, by_column, divide, unseen_classes, warn_of_seen_domains
from okapi.data.task import Task
from okapi.messages import listed

Make: TypeAlias = Callable[[Splits], tuple[Any, Mapping[str, Any]]]
"""Splits in; inputs, and how they are made, out."""


def label_columns(settings: LabelSettings) -> list[str]:
    """Return the columns that settings name."""
    single = [name for name in (settings.split, settings.id) if name is not None]
    several = (settings.target, settings.domain, settings.group)
    return list(dict.fromkeys([*(name for names in several for name in names_of(names)), *single]))


class Labels:
    """Labels of n samples.

    Parameters
    ----------
    frame : DataFrame of n rows
        The columns that the settings name; its index counts the rows of the file.
    settings : LabelSettings
    path : path or str
        What errors call the file.
    place : Place
        What errors call a cell of it.
    """

    def __init__(self, frame: pd.DataFrame, settings: LabelSettings, path: Any, place: Place) -> None:
        if frame.empty:
            raise TableError(f"{path} has no rows")
        self.frame, self.settings, self.path, self._place = frame, settings, path, place
        self.target, self.domain = names_of(settings.target), names_of(settings.domain)

    def of_domains(self, wanted: Sequence[str]) -> "Labels":
        """Return the samples of some domains."""
        if len(self.domain) > 1:
            raise TableError(f"{self.path}: samples have several domains, of which domains cannot choose")
        names, numbers = categories(self.frame[self.domain[0]])
        if unknown := [name for name in wanted if name not in names]:
            raise TableError(f"{self.path}: {self.domain[0]!r} has no domain {listed(unknown)}; it has {listed(names)}")
        return self.take(np.isin(np.array(names)[numbers], list(wanted)))

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def rows(self) -> NDArray[np.int64]:
        """The rows of the file, (n,)."""
        return self.frame.index.to_numpy()

    def take(self, rows: NDArray[Any]) -> "Labels":
        """Return some of the samples, by places (m,) or as a mask (n,)."""
        return Labels(self.frame.iloc[rows], self.settings, self.path, self._place)

    def place(self, row: int, column: str) -> str:
        """Return what errors call a cell."""
        return self._place(int(self.frame.index[row]), column)

    def dataset(self, make: Make, views: Views) -> Dataset:
        """Return the data set of these samples."""
        settings, frame = self.settings, self.frame
        for name in filter(None, [*self.domain, *names_of(settings.group), settings.split, settings.id]):
            present(frame[name], self.place)
        if settings.id is not None:
            reject_cells(
                frame[settings.id].duplicated().to_numpy(), frame[settings.id], self.place, ": {} was there before"
            )
        domain, domain_names = self._domain()
        labelled = np.all([~missing(frame[name]) for name in self.target], axis=0)
        split = self._split(domain, domain_names, labelled)
        target, class_names = self._target(split, labelled)
        inputs, recipe = make(split)
        dataset = Dataset(
            inputs=inputs,
            target=torch.from_numpy(target),
            domain=torch.from_numpy(domain),
            split=split,
            task=Task(settings.task, len(class_names) or (1 if target.ndim == 1 else target.shape[1])),
            domain_names=domain_names,
            ids=frame[settings.id].astype(str).tolist() if settings.id is not None else (),
            views=views,
            class_names=class_names,
            recipe=recipe,
        )
        dataset = without_unreadable(dataset)
        try:
            dataset.check()
        except (ValueError, TypeError) as error:
            raise TableError(f"{self.path}: {error}") from error
        return dataset

    def _reject(self, bad: NDArray[np.bool_], column: str, wrong: Callable[[int], str]) -> None:
        if bad.any():
            raise CellError(bad, lambda row: self.place(row, column) + wrong(row))

    def _domain(self) -> tuple[NDArray[Any], tuple[str, ...]]:
        if len(self.domain) > 1:
            return np.stack([to_truth(self.frame[name], self.place) > 0 for name in self.domain], axis=1), self.domain
        values, numbers = categories(self.frame[self.domain[0]])
        return numbers, values

    def _split(self, domain: NDArray[Any], domain_names: tuple[str, ...], labelled: NDArray[np.bool_]) -> Splits:
        settings = self.settings
        if settings.split is None:
            return self._drawn(domain, domain_names, labelled)
        values = self.frame[settings.split]
        split = by_column(values.astype(str).to_numpy(dtype=np.str_))
        reject_cells(~np.isin(split, SPLITS), values, self.place, f" must be one of {listed(SPLITS)}, got {{}}")
        if not (split == "train").any():
            wrong = f"column {settings.split!r} must name at least one sample 'train', got none"
            raise TableError(f"{self.path}: {wrong}")
        warn_of_seen_domains(domain, split, domain_names)
        self._check_together(split)
        if settings.fully_labelled:
            split[labelled & (split == "unlabelled")] = "train"
        wanting = ~labelled & (split != "unlabelled")
        for name in self.target:
            bad = wanting & missing(self.frame[name])
            self._reject(bad, name, lambda row: f" is missing, but the sample is in {split[row]}")
        return split

    def _drawn(self, domain: NDArray[Any], domain_names: tuple[str, ...], labelled: NDArray[np.bool_]) -> Splits:
        if domain.ndim > 1:
            raise TableError(
                f"{self.path}: samples have several domains, by which splits cannot be drawn; name a column"
            )
        classes = categories(self.frame[self.target[0]])[1] if self.settings.task == "classification" else None
        groups = [np.unique(_plain(self.frame[name]), return_inverse=True)[1] for name in names_of(self.settings.group)]
        try:
            return divide(
                self.settings,
                np.array(domain_names)[domain],
                labelled=labelled,
                classes=classes,
                groups=np.stack(groups, axis=1) if groups else None,
            )
        except ValueError as error:
            raise TableError(f"{self.path}: {error}") from error

    def _check_together(self, split: Splits) -> None:
        """Reject a group that the column of splits tears apart; unlabelled samples do not count."""
        if not (names := list(names_of(self.settings.group))):
            return
        labelled = split != "unlabelled"
        count = self.frame[names].assign(split=split)[labelled].groupby(names)["split"].transform("nunique")
        torn = np.zeros(len(split), dtype=bool)
        torn[labelled] = count.to_numpy() > 1

        def wrong(row: int) -> str:
            values = ", ".join(str(self.frame[name].iloc[row]) for name in names)
            return f": group '{values}' is in more than one split"

        self._reject(torn, names[0], wrong)

    def _target(self, split: Splits, labelled: NDArray[np.bool_]) -> tuple[NDArray[Any], tuple[str, ...]]:
        if self.settings.task == "classification":
            return self._classes(self.frame[self.target[0]], split, labelled)
        read = to_truth if self.settings.task == "multilabel" else to_numbers
        columns = [read(self.frame[name], self.place).astype(np.float32) for name in self.target]
        if self.settings.task == "multilabel":
            return np.stack(columns, axis=1), self.target
        return columns[0] if len(columns) == 1 else np.stack(columns, axis=1), ()

    def _classes(
        self, values: pd.Series, split: Splits, labelled: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], tuple[str, ...]]:
        """Return classes as numbers of those that train has; an unlabelled sample may have another, which is none."""
        wrong = " must be a class, by name or whole number, got {}; is it a regression?"
        reject_cells(fractions(values), values, self.place, wrong)
        names, numbers = categories(values)

        def wrong_class(row: int) -> str:
            return f": class {names[numbers[row]]!r} is in {split[row]}, but not in train"

        self._reject(unseen_classes(numbers, split), str(values.name), wrong_class)
        known = np.unique(numbers[(split == "train") & labelled])
        if len(known) < 2:
            got = listed([names[number] for number in known]) or "none"
            raise TableError(f"{self.path}: column {values.name!r} must have two classes or more in train, got {got}")
        place = np.full(len(names), -1, dtype=np.int64)
        place[known] = np.arange(len(known))
        return np.where(labelled, place[numbers], -1), tuple(names[number] for number in known)


def _plain(values: pd.Series) -> NDArray[Any]:
    """Return values that can be sorted."""
    if pd.api.types.is_numeric_dtype(values.dtype):
        return np.asarray(values.to_numpy())
    return values.astype(str).to_numpy(dtype=np.str_)
