"""Tables as data sets: a row a sample, with columns for its image, text or features, its target, domain and split."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from okapi.config import ColumnSettings, TableSettings, names_of
from okapi.console import say
from okapi.data.arrays import simple_views
from okapi.data.augment import image_views
from okapi.data.cells import Cells, read_cells
from okapi.data.dataset import Dataset
from okapi.data.features import (
    describe_features,
    listed_counts,
    make_features,
    text_cells,
    text_recipe,
)
from okapi.data.images import ImageFiles, Images, without_unreadable
from okapi.data.io import (
    TableError,
    TableFile,
    categories,
    check_names,
    check_present,
    choose_columns,
    fractions,
    missing,
    open_table,
    to_numbers,
    to_truth,
)
from okapi.data.sample_files import leads_out
from okapi.data.splits import SPLITS, Splits, by_column, divide, unseen_classes, warn_of_seen_domains
from okapi.data.tables import reject_kinds
from okapi.data.task import Task
from okapi.data.text import Texts
from okapi.messages import listed

Inputs: TypeAlias = Tensor | Images | Texts
Recipe: TypeAlias = Mapping[str, Any]


def table_dataset(settings: TableSettings) -> Dataset:
    """Read a data set from a table; what is wrong is reported with the file, the row and the column."""
    file, rows = read_rows(settings)
    if settings.text is not None:
        texts = Texts(text_cells(rows.frame[settings.text], rows.place), settings)
        return rows.dataset(lambda split: (texts, text_recipe(str(settings.text), settings)))
    if settings.image is not None:
        root = Path(settings.root) if settings.root is not None else file.path.parent
        files = ImageFiles(root, image_paths(rows, settings.image, root), settings)
        return rows.dataset(lambda split: (files, {}))
    return features_dataset(rows, read_cells(file, feature_kinds(file, settings)))


def read_rows(settings: TableSettings) -> tuple[TableFile, "TableRows"]:
    """Return a table, opened, and the labels of its rows."""
    file = open_table(settings.path, settings.separator)
    read = [name for name in (settings.image, settings.text) if name is not None]
    wanted = [*label_columns(settings), *read]
    check_names(file.path, file.columns, wanted)
    frame = file.labels(wanted)
    if frame.empty:
        raise TableError(f"{file.path} has no rows")
    return file, TableRows(frame, settings, file)


def label_columns(settings: ColumnSettings) -> list[str]:
    """Return the columns that are not inputs."""
    single = [name for name in (settings.split, settings.id) if name is not None]
    several = (settings.target, settings.domain, settings.group)
    return list(dict.fromkeys([*(name for names in several for name in names_of(names)), *single]))


def feature_kinds(file: TableFile, settings: ColumnSettings) -> dict[str, str]:
    """Return the columns of features that names and patterns stand for, and what they hold."""
    chosen = choose_columns(file, names_of(settings.features), label_columns(settings))
    kinds = file.kinds(chosen)
    reject_kinds(file, kinds)
    if not kinds:
        raise TableError(f"{file.path} has no column of features for {listed(names_of(settings.features))}")
    if "all" in names_of(settings.features) and "all" not in file.columns:
        unused = [name for name in file.columns if name not in (*kinds, *label_columns(settings))]
        say(f"Features: {listed(kinds)}" + (f"; left out: {listed(unused)}" if unused else ""))
    return dict(kinds)


def features_dataset(rows: "TableRows", cells: Cells) -> Dataset:
    """Return the data set of rows and their cells of features, filled and scaled by the training split."""
    settings = rows.settings
    gaps = listed_counts(cells.gaps()) if settings.missing != "error" else ""
    if gaps and settings.missing == "drop":
        kept = np.flatnonzero(cells.complete())
        say(f"{rows.file.path}: {len(cells.rows) - len(kept):,} of {len(cells.rows):,} rows dropped; missing in {gaps}")
        rows, cells = rows.take(kept), cells.take(kept)
    elif gaps:
        say(f"{rows.file.path}: missing values imputed (median, or most frequent) in {gaps}")

    def make(split: Splits) -> tuple[Tensor, Recipe]:
        recipe = describe_features(
            cells,
            split == "train",
            called=str(rows.file.path),
            policy=settings.missing,
            scale=settings.scale,
            separator=getattr(settings, "separator", None),
        )
        return make_features(cells, recipe, rows.file.place), recipe

    return rows.dataset(make)


class TableRows:
    """Labels of samples, as a table has them, and how they become a data set.

    Parameters
    ----------
    frame : DataFrame of n rows
        The columns that the settings name, but for features; its index counts the rows of the file.
    settings : ColumnSettings
    file : TableFile
        By whose ``place`` errors call a cell.
    """

    def __init__(self, frame: pd.DataFrame, settings: ColumnSettings, file: TableFile) -> None:
        self.frame, self.settings, self.file = frame, settings, file
        named = [*names_of(settings.domain), *names_of(settings.group), settings.split, settings.id]
        for name in filter(None, named):
            check_present(frame[name], self.place)
        if settings.id is not None and (twice := frame[settings.id].duplicated()).any():
            row = int(twice.argmax())
            raise TableError(f"{self.place(row, settings.id)}: '{frame[settings.id].iloc[row]}' was there before")

    def take(self, rows: NDArray[np.int64]) -> "TableRows":
        """Return some of the rows, which keep their numbers in the file."""
        return TableRows(self.frame.iloc[rows], self.settings, self.file)

    def place(self, row: int, column: str) -> str:
        """Return what errors call a cell."""
        return self.file.place(int(self.frame.index[row]), column)

    def dataset(self, make: Callable[[Splits], tuple[Inputs, Recipe]]) -> Dataset:
        """Return the data set of these rows; ``make`` returns inputs, and how they are made, given the splits."""
        settings = self.settings
        domain, domain_names = self._domain()
        labelled = np.all([~missing(self.frame[name]) for name in names_of(settings.target)], axis=0)
        split = self._split(domain, domain_names, labelled)
        target, class_names = self._target(split, labelled)
        inputs, recipe = make(split)
        views = simple_views((settings.train_noise, 0.0), (settings.strong_noise, 0.0))
        if settings.image is not None:
            views = image_views(settings, settings.channels)
        dataset = Dataset(
            inputs=inputs,
            target=torch.from_numpy(target),
            domain=torch.from_numpy(domain),
            split=split,
            task=Task(settings.task, len(class_names) or (1 if target.ndim == 1 else target.shape[1])),
            domain_names=domain_names,
            ids=self.frame[settings.id].astype(str).tolist() if settings.id is not None else (),
            views=views,
            class_names=class_names,
            recipe=recipe,
        )
        dataset = without_unreadable(dataset)
        try:
            dataset.check()
        except (ValueError, TypeError) as error:
            raise TableError(f"{self.file.path}: {error}") from error
        if settings.split is not None:
            warn_of_seen_domains(dataset.domain.numpy(), np.asarray(dataset.split), domain_names)
        return dataset

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
            wrong = f"must be one of {listed(SPLITS)}, got {str(split[row])!r}"
            raise TableError(f"{self.place(row, settings.split)} {wrong}")
        if not (split == "train").any():
            wrong = f"column {settings.split!r} must name at least one sample 'train', got none"
            raise TableError(f"{self.file.path}: {wrong}")
        self._check_together(split)
        if settings.fully_labelled:
            split[labelled & (split == "unlabelled")] = "train"
        if (wanting := ~labelled & (split != "unlabelled")).any():
            row = int(wanting.argmax())
            column = next(name for name in names_of(settings.target) if missing(self.frame[name])[row])
            raise TableError(f"{self.place(row, column)} is missing, but the sample is in {split[row]}")
        return split

    def _check_together(self, split: Splits) -> None:
        """Reject a group that the column of splits tears apart; unlabelled samples do not count."""
        if not (names := list(names_of(self.settings.group))):
            return
        labelled = self.frame[names].assign(split=split, row=range(len(split)))[split != "unlabelled"]
        torn = labelled.groupby(names)["split"].transform("nunique").to_numpy() > 1
        if torn.any():
            row = int(labelled["row"].iloc[int(torn.argmax())])
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
            wrong = f"must be a class, by name or whole number, got {values.iloc[row]}; is it a regression?"
            raise TableError(f"{self.place(row, column)} {wrong}")
        names, numbers = categories(values)
        if (unseen := unseen_classes(numbers, split)).any():
            row = int(unseen.argmax())
            wrong = (
                f"class {names[numbers[row]]!r} is in {split[row]}, but not in train ({int(unseen.sum())} such rows)"
            )
            raise TableError(f"{self.place(row, column)}: {wrong}")
        known = np.unique(numbers[(split == "train") & labelled])
        if len(known) < 2:
            got = listed([names[number] for number in known]) or "none"
            wrong = f"column {column!r} must have two classes or more in train, got {got}"
            raise TableError(f"{self.file.path}: {wrong}")
        place = np.full(len(names), -1, dtype=np.int64)
        place[known] = np.arange(len(known))
        return np.where(labelled, place[numbers], -1), tuple(names[number] for number in known)


def image_paths(rows: TableRows, column: str, root: Path) -> list[str]:
    """Return the paths (n,) that a column holds, from the root; one that leads out of it is rejected."""
    check_present(rows.frame[column], rows.place)
    names: list[str] = text_cells(rows.frame[column], rows.place).to_pylist()
    for row, name in enumerate(names):
        inner = os.path.relpath(name, root.absolute()) if Path(name).is_absolute() else name
        if leads_out(inner):
            raise TableError(f"{rows.place(row, column)}: path {name!r} leads out of {root}; root says what is inside")
        names[row] = inner
    return names
