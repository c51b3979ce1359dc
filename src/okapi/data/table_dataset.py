"""Tables as data sets: a row a sample, with columns for its image, text or features and for its labels."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from okapi.config import ColumnSettings, TableSettings, names_of
from okapi.console import say
from okapi.data.augment import Views, image_views, noise_views
from okapi.data.cells import Cells, read_cells
from okapi.data.dataset import Dataset
from okapi.data.features import describe_features, listed_counts, make_features, text_cells, text_recipe
from okapi.data.images import ImageFiles
from okapi.data.io import (
    TableError,
    TableFile,
    check_names,
    choose_columns,
    open_table,
    present,
    reject_cells,
)
from okapi.data.labels import Labels, label_columns
from okapi.data.sample_files import leads_out
from okapi.data.tables import reject_kinds
from okapi.data.text import Texts
from okapi.messages import listed


def table_dataset(settings: TableSettings) -> Dataset:
    """Read a data set from a table; what is wrong is reported with the file, the row and the column."""
    return table_reader(settings).dataset()


def table_reader(settings: TableSettings, strict: bool = True) -> "TableReader":
    """Return what makes the data set of a table, which is opened and whose labels are read.

    Where it is not strict, features may be missing and are only compared with each other.
    """
    file = open_table(settings.path, settings.separator)
    file.strict = strict
    read = [name for name in (settings.image, settings.text) if name is not None]
    wanted = [*label_columns(settings), *read]
    check_names(file.path, file.columns, wanted)
    return TableReader(file, Labels(file.labels(wanted), settings, file.path, file.place), settings)


class TableReader:
    """Makes the data set of a table, or of some of its rows.

    Parameters
    ----------
    file : TableFile
    labels : Labels
        Of the rows.
    settings : ColumnSettings
    """

    def __init__(self, file: TableFile, labels: Labels, settings: ColumnSettings) -> None:
        self.file, self.labels, self.settings = file, labels, settings
        self.cells: Cells | None = None  # of all rows, once they are read

    def dataset(self) -> Dataset:
        """Return the data set; rows that cannot be used are a CellError."""
        labels, settings = self.labels, self.settings
        if settings.text is not None:
            texts = Texts(text_cells(labels.frame[settings.text], labels.place), settings)
            recipe = text_recipe(settings.text, settings)
            return labels.dataset(lambda split: (texts, recipe), Views())
        if settings.image is not None:
            views = image_views(settings, settings.channels)
            images = self.images(settings.image)
            return labels.dataset(lambda split: (images, {}), views)
        return self._features()

    def images(self, column: str) -> Any:
        """Return the images whose paths a column holds."""
        root = getattr(self.settings, "root", None)
        root = Path(root) if root is not None else self.file.path.parent
        return ImageFiles(root, image_paths(self.labels, column, root), self.settings)

    def _features(self) -> Dataset:
        settings, views = self.settings, noise_views(self.settings.train_noise, self.settings.strong_noise)
        self.cells = self.cells or read_cells(self.file, feature_kinds(self.file, settings))
        labels, cells = self.labels, self.cells.take(self.labels.rows)
        if not self.file.strict:
            codes = [pd.factorize(texts)[0] for texts in cells.texts.values()]
            features = torch.from_numpy(np.column_stack([cells.numbers, *codes]).astype(np.float32))
            return labels.dataset(lambda split: (features, {}), views)
        gaps = listed_counts(cells.gaps()) if settings.missing != "error" else ""
        if gaps and settings.missing == "drop":
            kept = np.flatnonzero(cells.complete())
            dropped = f"{len(cells.rows) - len(kept):,} of {len(cells.rows):,} rows dropped"
            say(f"{self.file.path}: {dropped}; missing in {gaps}")
            labels, cells = labels.take(kept), cells.take(kept)
        elif gaps:
            say(f"{self.file.path}: missing values imputed (median, or most frequent) in {gaps}")

        def make(split: Any) -> tuple[Any, Mapping[str, Any]]:
            recipe = describe_features(
                cells,
                split == "train",
                called=str(self.file.path),
                policy=settings.missing,
                scale=settings.scale,
                separator=getattr(settings, "separator", None),
            )
            return make_features(cells, recipe, self.file.place), recipe

        return labels.dataset(make, views)


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


def image_paths(labels: Labels, column: str, root: Path) -> list[str]:
    """Return the paths (n,) that a column holds, from the root; one that leads out of it is rejected."""
    values = labels.frame[column]
    present(values, labels.place)
    names: list[str] = text_cells(values, labels.place).to_pylist()
    names = [os.path.relpath(name, root.absolute()) if Path(name).is_absolute() else name for name in names]
    out = np.array([leads_out(name) for name in names])
    reject_cells(out, values, labels.place, f": path {{}} leads out of {root}; root says what is inside")
    return names
