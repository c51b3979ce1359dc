"""Image folders, ``domain/class/*.jpg``: PACS, Office-Home and any other of DomainBed's layout."""

import os
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from okapi.config import ImageFolderSettings, LabelSettings, SplitSettings, names_of
from okapi.data.augment import image_views
from okapi.data.dataset import Dataset
from okapi.data.images import SUFFIXES, ImageFiles
from okapi.data.labels import Labels
from okapi.messages import listed

LAYOUT = """\
  domain/class/image.jpg    a labelled image; folders in a class are looked into
  domain/image.jpg          an image of no known class, which is unlabelled"""


class FolderError(ValueError):
    """A folder that does not look as it must; the message says what is missing and how it must look."""


def image_folder_dataset(settings: ImageFolderSettings) -> Dataset:
    """Return the data set of an image folder; a sample's id is its path from the root."""
    root = Path(settings.root)
    files = list(_files(root, names_of(settings.domains)))
    class_names = sorted({file.label for file in files if file.label is not None})
    if len(class_names) < 2:
        got = listed(class_names) or "none"
        raise FolderError(f"{root} must have two classes or more, got {got}. Wanted:\n{LAYOUT}")
    frame = pd.DataFrame(files, columns=["domain", "class", "id"])
    splits = {field.name: getattr(settings, field.name) for field in fields(SplitSettings)}
    labels = Labels(
        frame, LabelSettings(target="class", id="id", **splits), root, lambda row, column: str(root / files[row].name)
    )
    inputs = ImageFiles(root, [file.name for file in files], settings)
    return labels.dataset(lambda split: (inputs, {}), image_views(settings, settings.channels))


class _File(NamedTuple):
    domain: str
    label: str | None
    name: str  # path from the root


def _files(root: Path, domains: tuple[str, ...]) -> Iterator[_File]:
    """Yield the images of a folder, in the order of their names."""
    if not root.is_dir():
        raise FolderError(f"{root} {'is not a folder' if root.exists() else 'does not exist'}. Wanted:\n{LAYOUT}")
    folders = [folder.name for folder in _inside(root) if folder.is_dir()]
    if missing := [name for name in domains if name not in folders]:
        raise FolderError(f"{root} has no folder {listed(missing)}; it has {listed(folders)}")
    if not folders:
        raise FolderError(f"{root} has no folders, one for each domain. Wanted:\n{LAYOUT}")
    for domain in domains or folders:
        files = list(_files_of(root, domain))
        if not files:
            suffixes = ", ".join(SUFFIXES)
            raise FolderError(f"{root / domain} has no images ({suffixes}) in folders of classes. Wanted:\n{LAYOUT}")
        yield from files


def _files_of(root: Path, domain: str) -> Iterator[_File]:
    for entry in _inside(root / domain):
        if not entry.is_dir():
            if _is_image(entry.name):
                yield _File(domain, None, f"{domain}/{entry.name}")
            continue
        for folder, inner, files in os.walk(entry):
            inner[:] = sorted(name for name in inner if not name.startswith("."))
            for file in sorted(filter(_is_image, files)):
                yield _File(domain, entry.name, (Path(folder) / file).relative_to(root).as_posix())


def _inside(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))


def _is_image(name: str) -> bool:
    return not name.startswith(".") and name.lower().endswith(SUFFIXES)
