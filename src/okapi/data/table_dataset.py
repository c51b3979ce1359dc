"""Tables as data sets: a row a sample, with columns for its image, text or features, its target, domain and split."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from okapi.config import ColumnSettings, TableSettings, names_of
from okapi.data.arrays import simple_views
from okapi.data.augment import image_views
from okapi.data.dataset import Dataset
from okapi.data.images import ImageFiles, Images, without_unreadable
from okapi.data.io import (
    NUMERIC,
    TableError,
    TableFile,
    categories,
    check_names,
    first_not_utf8,
    fractions,
    missing,
    open_table,
    to_numbers,
    to_truth,
)
from okapi.data.sample_files import leads_out
from okapi.data.splits import SPLITS, Splits, by_column, divide, unseen_classes, warn_of_seen_domains
from okapi.data.task import Task
from okapi.data.text import Texts
from okapi.messages import listed

Inputs: TypeAlias = Tensor | Images | Texts


def table_dataset(settings: TableSettings) -> Dataset:
    """Read a data set from a table; what is wrong is told with the file, the row and the column."""
    source, rows = read_rows(settings)
    return rows.dataset(table_inputs(source, rows, settings))


def read_rows(settings: TableSettings) -> tuple[TableFile, "TableRows"]:
    """Return a table, opened, and the labels of its rows."""
    path = Path(settings.path)
    source = open_table(path)
    read = [name for name in (settings.image, settings.text) if name is not None]
    wanted = [*label_columns(settings), *read]
    check_names(str(path), source.columns, [*wanted, *names_of(settings.features)])
    frame = source.labels(wanted)
    if frame.empty:
        raise TableError(f"{path} has no rows")
    rows = TableRows(frame, settings, str(path))
    rows.check()
    return source, rows


def label_columns(settings: ColumnSettings) -> list[str]:
    """Return the columns that are not inputs."""
    single = [name for name in (settings.split, settings.id) if name is not None]
    names = [*names_of(settings.target), *names_of(settings.domain), *single, *names_of(settings.group)]
    return list(dict.fromkeys(names))


class TableRows:
    """Labels of samples, as a table has them, and how they become a data set.

    Parameters
    ----------
    frame : DataFrame of n rows
        The columns that the settings name, but for features.
    settings : ColumnSettings
    source : str
        What errors call the table.
    first : int
        What errors call the first row.
    """

    def __init__(self, frame: pd.DataFrame, settings: ColumnSettings, source: str, first: int = 1) -> None:
        self.frame, self.settings, self.source, self.first = frame, settings, source, first

    def check(self) -> None:
        """Refuse what cannot be read as a data set, whatever the inputs."""
        for name in (*names_of(self.settings.domain), *names_of(self.settings.group)):
            self.check_present(name)
        for name in filter(None, (self.settings.split, self.settings.id)):
            self.check_present(name)
        if self.settings.id is not None and (twice := self.frame[self.settings.id].duplicated()).any():
            row = int(twice.argmax())
            value = self.frame[self.settings.id].iloc[row]
            raise TableError(f"{self.place(row, self.settings.id)}: '{value}' was there before")

    def dataset(self, inputs: Inputs) -> Dataset:
        """Return the data set of these rows and their inputs."""
        settings = self.settings
        domain, domain_names = self._domain()
        raw = [self.frame[name] for name in names_of(settings.target)]
        labelled = np.all([~missing(values) for values in raw], axis=0)
        split = self._split(domain, domain_names, labelled)
        target, class_names = self._target(split, labelled)
        width = 1 if target.ndim == 1 else target.shape[1]
        views = simple_views((settings.train_noise, 0.0), (settings.strong_noise, 0.0))
        if settings.image is not None:
            views = image_views(settings, settings.channels)
        dataset = Dataset(
            inputs=inputs,
            target=torch.from_numpy(target),
            domain=torch.from_numpy(domain),
            split=split,
            task=Task(settings.task, len(class_names) or width),
            domain_names=domain_names,
            ids=self.frame[settings.id].astype(str).tolist() if settings.id is not None else (),
            views=views,
            class_names=class_names,
        )
        dataset = without_unreadable(dataset)
        try:
            dataset.check()
        except (ValueError, TypeError) as error:
            raise TableError(f"{self.source}: {error}") from error
        if settings.split is not None:
            warn_of_seen_domains(domain, split, domain_names)
        return dataset

    def place(self, row: int, column: str) -> str:
        """Return what errors call a cell."""
        return f"{self.source}: row {row + self.first}, column {column!r}"

    def check_present(self, column: str) -> None:
        """Refuse an empty cell."""
        if (empty := missing(self.frame[column])).any():
            raise TableError(f"{self.place(int(empty.argmax()), column)} is missing")

    def texts(self, column: str) -> Any:
        """Return a column of text as an Arrow array; NUL and what is not UTF-8 is refused."""
        values = self.frame[column]
        if (empty := values.isna()).any():
            raise TableError(f"{self.place(int(empty.to_numpy().argmax()), column)} is missing")
        array = pa.array(values.astype(str), pa.large_string())
        if (row := first_not_utf8(array)) is not None:
            raise TableError(f"{self.place(row, column)} is not UTF-8")
        nul = values.astype(str).str.contains("\0", regex=False).to_numpy(dtype=bool)
        if nul.any():
            raise TableError(f"{self.place(int(nul.argmax()), column)} has a NUL in it; text is wanted, in UTF-8")
        return array

    def _domain(self) -> tuple[NDArray[Any], tuple[str, ...]]:
        names = names_of(self.settings.domain)
        if len(names) > 1:
            return np.stack([to_truth(self.frame[name], self.place) > 0 for name in names], axis=1), names
        values, numbers = categories(self.frame[names[0]])
        return numbers, values

    def _split(self, domain: NDArray[Any], domain_names: tuple[str, ...], labelled: NDArray[np.bool_]) -> Splits:
        settings = self.settings
        if settings.split is None:
            group = [self.frame[name].astype(str).to_numpy(dtype=np.str_) for name in names_of(settings.group)]
            classes = None
            if settings.task == "classification":
                classes = categories(self.frame[names_of(settings.target)[0]])[1]
            return divide(
                settings,
                np.array(domain_names)[domain],
                labelled=labelled,
                classes=classes,
                groups=np.stack(group, axis=1) if group else None,
            )
        split = by_column(self.frame[settings.split].astype(str).to_numpy(dtype=np.str_))
        if (unknown := ~np.isin(split, SPLITS)).any():
            row = int(unknown.argmax())
            raise TableError(
                f"{self.place(row, settings.split)} must be one of {listed(SPLITS)}, got {str(split[row])!r}"
            )
        if not (split == "train").any():
            raise TableError(
                f"{self.source}: column {settings.split!r} must name at least one sample 'train', got none"
            )
        self._check_together(split)
        if settings.fully_labelled:
            split[labelled & (split == "unlabelled")] = "train"
        if (wanting := ~labelled & (split != "unlabelled")).any():
            row = int(wanting.argmax())
            column = next(name for name in names_of(settings.target) if missing(self.frame[name])[row])
            raise TableError(f"{self.place(row, column)} is missing, but the sample is in {split[row]}")
        return split

    def _check_together(self, split: Splits) -> None:
        """Refuse a group that the column of splits tears apart; unlabelled samples do not count."""
        names = list(names_of(self.settings.group))
        if not names:
            return
        labelled = self.frame[names].assign(split=split)[split != "unlabelled"]
        torn = labelled.groupby(names)["split"].transform("nunique").to_numpy() > 1
        if torn.any():
            row = int(labelled.index[int(torn.argmax())])
            values = ", ".join(str(self.frame[name].iloc[row]) for name in names)
            raise TableError(f"{self.place(row, names[0])}: group '{values}' is in more than one split")

    def _target(self, split: Splits, labelled: NDArray[np.bool_]) -> tuple[NDArray[Any], tuple[str, ...]]:
        names = names_of(self.settings.target)
        if self.settings.task == "classification":
            return self._classes(names[0], split, labelled)
        read = to_truth if self.settings.task == "multilabel" else to_numbers
        columns = [read(self.frame[name], self.place).astype(np.float32) for name in names]
        if self.settings.task == "multilabel":
            return np.stack(columns, axis=1), names
        return columns[0] if len(columns) == 1 else np.stack(columns, axis=1), ()

    def _classes(
        self, column: str, split: Splits, labelled: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], tuple[str, ...]]:
        """Return classes as numbers of those that train has; an unlabelled sample may have another, which is none."""
        values = self.frame[column]
        if (broken := fractions(values)).any():
            row = int(broken.argmax())
            raise TableError(
                f"{self.place(row, column)} must be a class, by name or whole number, got {values.iloc[row]}; is it a "
                "regression?"
            )
        names, numbers = categories(values)
        unseen = unseen_classes(numbers, split)
        if unseen.any():
            row = int(unseen.argmax())
            raise TableError(
                f"{self.place(row, column)}: class {names[numbers[row]]!r} is in {split[row]}, but not in train "
                f"({int(unseen.sum())} such rows)"
            )
        known = np.unique(numbers[(split == "train") & labelled])
        if len(known) < 2:
            raise TableError(
                f"{self.source}: column {column!r} must have two classes or more in train, "
                f"got {listed([names[number] for number in known]) or 'none'}"
            )
        place = np.full(len(names), -1, dtype=np.int64)
        place[known] = np.arange(len(known))
        return np.where(labelled, place[numbers], -1), tuple(names[number] for number in known)


def check_features(rows: TableRows, X: NDArray[Any], names: Sequence[str]) -> Tensor:
    """Return features (n, d) as float32; what is not finite is told by row and column."""
    with np.errstate(over="ignore"):  # what is too large for float32 is told below
        features = np.array(X, dtype=np.float32)
    finite = np.isfinite(features)
    if not finite.all():
        row, column = np.argwhere(~finite)[0].tolist()
        raise TableError(f"{rows.place(row, names[column])} is {X[row, column]}, not a finite number in float32")
    return torch.from_numpy(features)


def table_inputs(source: TableFile, rows: TableRows, settings: TableSettings) -> Inputs:
    """Return the texts, the images or the features of a table."""
    if settings.text is not None:
        return Texts(rows.texts(settings.text), settings)
    if settings.image is not None:
        root = Path(settings.root) if settings.root is not None else source.path.parent
        return ImageFiles(root, image_paths(rows, settings.image, root), settings)
    names = list(names_of(settings.features))
    if unusable := [name for name, kind in source.kinds(names).items() if kind not in NUMERIC]:
        raise TableError(f"{source.path}: column {listed(unusable)} must hold numbers, or lists of them, for features")
    X, expanded = source.numbers(names)
    return check_features(rows, X, expanded)


def image_paths(rows: TableRows, column: str, root: Path) -> list[str]:
    """Return the paths (n,) that a column holds, from the root; one that leads out of it is refused."""
    rows.check_present(column)
    names: list[str] = rows.texts(column).to_pylist()
    for row, name in enumerate(names):
        inner = os.path.relpath(name, root.absolute()) if Path(name).is_absolute() else name
        if leads_out(inner):
            raise TableError(f"{rows.place(row, column)}: path {name!r} leads out of {root}; root says what is inside")
        names[row] = inner
    return names
