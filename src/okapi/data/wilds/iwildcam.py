"""iWildCam of WILDS 2.0: 182 species in images of camera traps; a domain is a camera trap."""

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from okapi.config import IWildCamSettings
from okapi.data.augment import image_views
from okapi.data.dataset import Dataset
from okapi.data.images import ImageFiles, without_unreadable
from okapi.data.io import Place, TableError, present
from okapi.data.sample_files import leads_out
from okapi.data.task import Task
from okapi.data.wilds import find_folders, place_in, read_columns, renamed_splits, whole_numbers

# Folders, columns, splits and what labels of the unlabelled images mean: p-lambda/wilds,
# wilds/datasets/iwildcam_dataset.py and wilds/datasets/unlabeled/iwildcam_unlabeled_dataset.py.
LABELLED, UNLABELLED = "iwildcam_v2.0", "iwildcam_unlabeled_v1.0"
LAYOUT = f"""\
  {LABELLED}/metadata.csv              columns split, filename, y, location_remapped
  {LABELLED}/train/                    all labelled images, by filename
  {UNLABELLED}/metadata.csv    columns uid, y, location_remapped (not needed if unlabelled is false)
  {UNLABELLED}/images/         all unlabelled images, uid.jpg"""
SPLITS = {"train": "train", "id_val": "id_val", "val": "ood_val", "id_test": "id_test", "test": "ood_test"}


def iwildcam_dataset(settings: IWildCamSettings) -> Dataset:
    """Return iWildCam with the splits of WILDS: val is ood_val, test is ood_test, extra_unlabeled is unlabelled.

    Unlabelled images keep their species where it is known; no algorithm gets to see it. Traps of labelled and of
    unlabelled images are different ones, whatever their numbers.
    """
    wanted = {LABELLED: ["metadata.csv", "train"]}
    if settings.unlabelled:
        wanted[UNLABELLED] = ["metadata.csv", "images"]
    folders = find_folders(settings.root, wanted, LAYOUT)
    path = folders[LABELLED] / "metadata.csv"
    frame, place = read_columns(path, ["split", "filename", "y", "location_remapped"]), place_in(path)
    target = whole_numbers(frame["y"], place)
    if (below := target < 0).any():
        raise TableError(f"{place(int(below.argmax()), 'y')} must be 0 or more, got {target[below][0]}")
    outputs = max(2, int(target.max()) + 1)
    split = renamed_splits(frame["split"], SPLITS, place)
    names = _files(f"{LABELLED}/train/", frame["filename"], "", place)
    domain_names, domain = _traps("", whole_numbers(frame["location_remapped"], place))
    if settings.unlabelled:
        path = folders[UNLABELLED] / "metadata.csv"
        frame, place = read_columns(path, ["uid", "y", "location_remapped"]), place_in(path)
        names += _files(f"{UNLABELLED}/images/", frame["uid"], ".jpg", place)
        truth = whole_numbers(frame["y"], place)
        truth = np.where((truth >= 0) & (truth < outputs), truth, -1)  # -1: not of the 182; 99999: unknown
        more_names, more = _traps("unlabelled ", whole_numbers(frame["location_remapped"], place))
        rest = np.where((truth >= 0) & settings.fully_labelled, "train", "unlabelled")
        target, split = np.concatenate([target, truth]), np.concatenate([split, rest])
        domain, domain_names = np.concatenate([domain, len(domain_names) + more]), domain_names + more_names
    dataset = Dataset(
        inputs=ImageFiles(folders[LABELLED].parent, names, settings),
        target=torch.from_numpy(target),
        domain=torch.from_numpy(domain),
        split=split,
        task=Task("classification", outputs),
        domain_names=domain_names,
        ids=names,
        views=image_views(settings, settings.channels),
    )
    return without_unreadable(dataset)


def _files(folder: str, values: pd.Series, suffix: str, place: Place) -> list[str]:
    """Return paths of images; one that leads out of its folder, or comes twice, is rejected."""
    names = present(values, place).astype(str)
    if (twice := names.duplicated().to_numpy()).any():
        row = int(twice.argmax())
        raise TableError(f"{place(row, str(values.name))}: '{names.iloc[row]}' was there before")
    for row, name in enumerate(names):
        if leads_out(name):
            raise TableError(f"{place(row, str(values.name))}: path {name!r} leads out of the folder")
    return [f"{folder}{name}{suffix}" for name in names]


def _traps(prefix: str, location: NDArray[np.int64]) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    found, numbers = np.unique(location, return_inverse=True)
    return tuple(f"{prefix}{number}" for number in found.tolist()), numbers.astype(np.int64)
