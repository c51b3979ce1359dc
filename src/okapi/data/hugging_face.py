"""Data sets of the Hugging Face library ``datasets``, which is imported only where one is given."""

import copy
import io
from collections.abc import Mapping
from importlib import import_module
from typing import IO, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from okapi.config import ColumnSettings, ImageSettings, names_of
from okapi.data.dataset import Dataset
from okapi.data.images import Images
from okapi.data.io import TableFile, check_names, choose_columns
from okapi.data.labels import Labels, label_columns
from okapi.data.table_dataset import TableReader
from okapi.messages import listed

_SOURCE = "the Hugging Face data set"


def hugging_face_dataset(
    data: Any, settings: ColumnSettings, *, split_names: Mapping[str, str] | None = None
) -> Dataset:
    """Return a data set of the library ``datasets`` as one of ours.

    Parameters
    ----------
    data : datasets.Dataset, or mapping of str to such, as datasets.DatasetDict is
        The parts of a mapping are splits and are called so, unless ``split_names`` has another name for them.
    settings : ColumnSettings
        Which column is what. A column of images is one of ``datasets.Image``; a column of ``ClassLabel`` is read by
        the names of its classes.
    split_names : mapping of str to str, optional
        Their name of a split and ours, such as ``{"validation": "ood_val"}``; only for a mapping.

    Examples
    --------
    >>> from datasets import load_dataset  # doctest: +SKIP
    >>> columns = ColumnSettings(image="image", target="label", domain="domain", held_out="sketch")
    >>> dataset = hugging_face_dataset(load_dataset("flwrlabs/pacs", split="train"), columns)  # doctest: +SKIP
    """
    if settings.cache is not None:
        raise ValueError("cache is of images in files; the library datasets keeps its own, got one")
    if isinstance(data, Mapping):
        data = _joined(data, settings.split, dict(split_names or {}))
    elif split_names is not None:
        raise ValueError("split_names are of a mapping of data sets, got them for a single one")
    image, text = settings.image, settings.text
    wanted = [*label_columns(settings), *([text] if text is not None else [])]
    check_names(_SOURCE, data.column_names, [*wanted, *([image] if image is not None else [])])
    features = choose_columns(TableFile(data.data.table, _SOURCE), names_of(settings.features), wanted)
    file = TableFile(_table(data, list(dict.fromkeys([*wanted, *features]))), _SOURCE, first=0)
    labels = Labels(file.labels(wanted), settings, _SOURCE, file.place)
    return _Reader(file, labels, settings, data).dataset()


class _Reader(TableReader):
    def __init__(self, file: TableFile, labels: Labels, settings: ColumnSettings, data: Any) -> None:
        super().__init__(file, labels, settings)
        self.data = data

    def images(self, column: str) -> "HuggingFaceImages":
        return HuggingFaceImages(self.data, column, self.settings)


class HuggingFaceImages(Images):
    """Images of a column of ``datasets.Image``, each decoded when it is asked for.

    Parameters
    ----------
    data : datasets.Dataset
    column : str
    settings : ImageSettings
    """

    def __init__(self, data: Any, column: str, settings: ImageSettings) -> None:
        super().__init__(settings)
        # As the files have them: what datasets decodes has lost its size limit and may have lost its EXIF data.
        encoded = import_module("datasets").Image(decode=False)
        self.column = column
        self.data = data.select_columns([column]).cast_column(column, encoded)
        self._check_start()

    def __len__(self) -> int:
        return len(self.data)

    def only(self, rows: NDArray[np.int64]) -> "HuggingFaceImages":
        """Return some of the images, (m,)."""
        chosen = copy.copy(self)
        chosen.data, chosen.unreadable = self.data.select(rows), {}
        return chosen

    def called(self, row: int) -> str:
        """Return the row and the column."""
        return f"{_SOURCE}: row {row}, column {self.column!r}"

    def source(self, row: int) -> str | IO[bytes]:
        """Return the bytes of an image, or the path of its file."""
        image = self.data[row][self.column]
        if image is None:
            raise FileNotFoundError
        return io.BytesIO(image["bytes"]) if image["bytes"] is not None else str(image["path"])


def _joined(parts: Mapping[str, Any], column: str | None, names: Mapping[str, str]) -> Any:
    """Return the parts of a mapping as one, with a column of splits."""
    if column is None:
        raise ValueError("split must name the column that the parts' names are to stand in, got none")
    if unknown := [name for name in names if name not in parts]:
        raise ValueError(f"split_names must be of parts ({listed(parts)}), got {unknown[0]!r}")
    marked = [
        (part.remove_columns(column) if column in part.column_names else part).add_column(
            column, [names.get(name, name)] * len(part)
        )
        for name, part in parts.items()
    ]
    return import_module("datasets").concatenate_datasets(marked)


def _table(data: Any, columns: list[str]) -> Any:
    """Return columns as an Arrow table; classes by their names, -1 is none."""
    table = data.select_columns(columns).with_format("arrow")[:]
    for number, name in enumerate(columns):
        class_names = getattr(data.features[name], "names", None)
        if class_names is not None:
            named = dict(enumerate(class_names))
            table = table.set_column(number, name, pa.array([named.get(value) for value in table[name].to_pylist()]))
    return table.select(columns)
