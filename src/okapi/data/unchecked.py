"""Data sets as they are found: no file is opened and no tokeniser loaded, so that what is broken can be counted."""

import warnings
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from okapi.config import TableSettings, Verify
from okapi.data.cells import read_cells
from okapi.data.dataset import Dataset
from okapi.data.features import text_cells
from okapi.data.images import ImageFiles
from okapi.data.registry import build_dataset
from okapi.data.splits import SeenDomainWarning
from okapi.data.table_dataset import feature_kinds, image_paths, read_rows
from okapi.data.text import Texts

_UNCHECKED: dict[str, Any] = {"verify": "exists", "unreadable": "error", "cache": None, "tokenizer": ""}


def unchecked_dataset(settings: Any) -> Dataset:
    """Return the data set of some settings with all its samples, readable or not; inputs are not ready for learning.

    Parameters
    ----------
    settings : dataclass
        Those of a config's section ``data``. What they say of checks, of a cache and of a tokeniser is not done.
    """
    known = {field.name for field in fields(settings)}
    settings = replace(settings, **{name: value for name, value in _UNCHECKED.items() if name in known})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeenDomainWarning)  # an inspection says it too
        return _table_as_found(settings) if isinstance(settings, TableSettings) else build_dataset(settings)


class FoundImages(ImageFiles):
    """Images in files that may be missing or broken: they can be opened, but are no inputs."""

    def __getitem__(self, row: int) -> Tensor:
        return torch.zeros(0)

    def faults(self, verify: Verify) -> dict[int, str]:
        """Look at nothing."""
        return {}


class FoundTexts(Texts):
    """Texts that can be read, but are no inputs."""

    def __getitem__(self, row: int) -> dict[str, Tensor]:
        return {}


def _table_as_found(settings: TableSettings) -> Dataset:
    file, rows = read_rows(settings)
    if settings.text is not None:
        texts = FoundTexts(text_cells(rows.frame[settings.text], rows.place), settings)
        return rows.dataset(lambda split: (texts, {}))
    if settings.image is not None:
        root = Path(settings.root) if settings.root is not None else file.path.parent
        files = FoundImages(root, image_paths(rows, settings.image, root), settings)
        return rows.dataset(lambda split: (files, {}))
    file.strict = False
    cells = read_cells(file, feature_kinds(file, settings))
    codes = [pd.factorize(texts)[0] for texts in cells.texts.values()]
    features = torch.from_numpy(np.column_stack([cells.numbers, *codes]).astype(np.float32))
    return rows.dataset(lambda split: (features, {}))
