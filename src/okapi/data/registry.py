"""The data sets that a configuration may name, and what builds each."""

import warnings
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np

from okapi.config import ArraysSettings, TableSettings
from okapi.data.arrays import arrays_dataset, arrays_reader
from okapi.data.dataset import Dataset
from okapi.data.image_folder import image_folder_dataset
from okapi.data.io import CellError
from okapi.data.sites import sites_dataset
from okapi.data.splits import SeenDomainWarning
from okapi.data.table_dataset import table_dataset, table_reader
from okapi.data.wilds.civilcomments import civilcomments_dataset
from okapi.data.wilds.iwildcam import iwildcam_dataset
from okapi.data.wilds.poverty import poverty_dataset

BUILDERS: dict[str, Callable[[Any], Dataset]] = {
    "sites": sites_dataset,
    "arrays": arrays_dataset,
    "image_folder": image_folder_dataset,
    "table": table_dataset,
    "iwildcam": iwildcam_dataset,
    "poverty": poverty_dataset,
    "civilcomments": civilcomments_dataset,
}
"""By the ``name`` of its settings, what builds a data set from them."""

_UNCHECKED: dict[str, Any] = {"verify": "nothing", "unreadable": "error", "cache": None, "tokenizer": ""}


def build_dataset(settings: Any) -> Dataset:
    """Return the data set of settings, those of a config's section ``data``.

    Examples
    --------
    >>> from okapi.config import SitesSettings
    >>> len(build_dataset(SitesSettings()))
    9000
    """
    return BUILDERS[settings.name](settings)


def unchecked_dataset(settings: Any) -> tuple[Dataset, list[str]]:
    """Return the data set of settings as it is found, so that what is broken can be counted, and what was left out.

    No file is looked at, no cache made and no tokeniser loaded: inputs may be unreadable. Rows of a table, or of
    arrays, with labels that cannot be used are left out; of each a sentence says why. Features are as the table has
    them: a cell that is no number is missing.
    """
    known = {field.name for field in fields(settings)}
    settings = replace(settings, **{name: value for name, value in _UNCHECKED.items() if name in known})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeenDomainWarning)  # an inspection says it too
        if not isinstance(settings, TableSettings | ArraysSettings):
            return build_dataset(settings), []
        reader: Any = (
            table_reader(settings, strict=False) if isinstance(settings, TableSettings) else arrays_reader(settings)
        )
        left_out: list[str] = []
        while True:
            try:
                return reader.dataset(), left_out
            except CellError as error:
                if error.bad.all():
                    raise
                left_out += map(error.reason, np.flatnonzero(error.bad).tolist())
                reader.labels = reader.labels.take(~error.bad)
