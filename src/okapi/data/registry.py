"""The data sets that a configuration may name, and what builds each."""

from collections.abc import Callable
from typing import Any

from okapi.data.arrays import arrays_dataset
from okapi.data.dataset import Dataset
from okapi.data.image_folder import image_folder_dataset
from okapi.data.sites import sites_dataset
from okapi.data.table_dataset import table_dataset
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


def build_dataset(settings: Any) -> Dataset:
    """Return the data set of settings, those of a config's section ``data``.

    Examples
    --------
    >>> from okapi.config import SitesSettings
    >>> len(build_dataset(SitesSettings()))
    9000
    """
    return BUILDERS[settings.name](settings)
