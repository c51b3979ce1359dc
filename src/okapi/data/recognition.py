"""What a file or a folder is: which kind of data set, read by which settings, where nobody wrote a config."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from okapi.config import (
    ArraysSettings,
    CivilCommentsSettings,
    ImageFolderSettings,
    IWildCamSettings,
    Kind,
    PovertySettings,
    TableSettings,
)
from okapi.data.image_folder import FolderError
from okapi.data.io import NpzFile, TableError, TableFile, check_names, fractions, missing, open_table
from okapi.data.wilds import civilcomments, iwildcam, poverty
from okapi.messages import listed


@dataclass(frozen=True, kw_only=True)
class Roles:
    """What a user says of a file's columns or arrays, and of splits; all of it may be left to be guessed.

    Parameters
    ----------
    image, text, root, id, split : str, optional
    columns : sequence of str
        Features.
    target, domain : sequence of str
    held_out, validation : sequence of str
        Domains.
    task : str, optional
        By default a regression if targets are fractions, several labels if they are several columns of 0 and 1, else
        classes.
    """

    image: str | None = None
    text: str | None = None
    columns: Sequence[str] = ()
    root: str | None = None
    target: Sequence[str] = ()
    domain: Sequence[str] = ()
    split: str | None = None
    id: str | None = None
    held_out: Sequence[str] = ()
    validation: Sequence[str] = ()
    task: Kind | None = None


def recognise(path: Path, roles: Roles) -> Any:
    """Return the settings by which a file or a folder is read as a data set.

    Where neither a column nor a held-out domain says what splits are, all that has a target is train.
    """
    if path.is_dir():
        return _folder(path, roles)
    if not path.exists():
        raise TableError(f"{path} does not exist")
    file = open_table(path)
    return (
        _arrays(file, roles) if isinstance(file, NpzFile) and not (roles.image or roles.text) else _table(file, roles)
    )


def _folder(path: Path, roles: Roles) -> Any:
    """Return settings of WILDS, by the names of its folders, or else of an image folder."""
    of_tables = ("image", "text", "columns", "root", "target", "domain", "split", "id", "task")
    if given := [f"--{name}" for name in of_tables if getattr(roles, name)]:
        raise ValueError(f"{given[0]} says what a file holds, but {path} is a folder")
    known: dict[str, tuple[str, Callable[[bool], Any]]] = {
        iwildcam.LABELLED: (
            iwildcam.UNLABELLED,
            lambda more: IWildCamSettings(root=str(path), unlabelled=more),
        ),
        poverty.LABELLED: (poverty.UNLABELLED, lambda more: PovertySettings(root=str(path))),
        civilcomments.LABELLED: (
            civilcomments.UNLABELLED,
            lambda more: CivilCommentsSettings(root=str(path), unlabelled=more),
        ),
    }
    absolute = path.absolute()
    found = [name for name in known if name == absolute.name or (path / name).is_dir()]
    if len(found) > 1:
        raise FolderError(f"{path} holds several data sets, {listed(found)}: name the folder of one")
    if not found:
        return ImageFolderSettings(root=str(path), **_by_domains(roles))
    if roles.held_out or roles.validation:
        raise ValueError(f"held_out and validation must be empty: {found[0]} brings its own splits")
    unlabelled, settings = known[found[0]]
    base = absolute.parent if absolute.name == found[0] else absolute
    return settings((base / unlabelled).is_dir())


def _by_domains(roles: Roles) -> dict[str, Any]:
    """Return settings of splits by domains; if none is held out, nothing is set apart by chance either."""
    if not roles.held_out and not roles.validation:
        return {"id_val": 0.0}
    return {"held_out": tuple(roles.held_out), "validation": tuple(roles.validation)}


def _splits(roles: Roles, columns: Sequence[str]) -> dict[str, Any]:
    """Return settings of splits: by the column that is named, or is called split, or else by domains."""
    column = roles.split
    if column is None and "split" in columns and not (roles.held_out or roles.validation):
        column = "split"
    return {"split": column} | ({} if column is not None and not roles.held_out else _by_domains(roles))


def _table(file: TableFile, roles: Roles) -> TableSettings:
    target, domain = tuple(roles.target) or ("target",), tuple(roles.domain) or ("domain",)
    splits = _splits(roles, file.columns)
    taken = [*target, *domain, *filter(None, (splits["split"], roles.id, roles.image, roles.text))]
    check_names(file.path, file.columns, taken)
    features = tuple(roles.columns)
    if not (roles.image or roles.text or features):
        kinds = file.default(file.kinds([name for name in file.columns if name not in taken]))
        if not (features := tuple(kinds)):
            raise TableError(
                f"{file.path} has no columns of features: say by --image, --text or --columns what a sample is; "
                f"columns are {listed(file.columns)}"
            )
    return TableSettings(
        path=str(file.path),
        root=roles.root,
        image=roles.image,
        text=roles.text,
        features=features,
        target=target,
        domain=domain,
        id=roles.id,
        task=roles.task or _guess(file, target),
        **splits,
    )


def _arrays(file: TableFile, roles: Roles) -> ArraysSettings:
    if len(roles.columns) > 1:
        raise TableError(f"{file.path}: one array is wanted for inputs, got {listed(roles.columns)}")
    inputs, target, domain = (tuple(roles.columns) or ("x",), tuple(roles.target) or ("y",), tuple(roles.domain))
    splits = _splits(roles, file.columns)
    given = {"--columns": inputs, "--target": target, "--domain": domain or ("domain",)}
    given |= {option: (name,) for option, name in (("--split", splits["split"]), ("--id", roles.id)) if name}
    for option, names in given.items():
        if absent := [name for name in names if name not in file.columns]:
            arrays = listed(file.columns)
            raise TableError(f"{file.path} has no array {absent[0]!r}; say by {option} which it is: {arrays}")
    return ArraysSettings(
        path=str(file.path),
        inputs=inputs[0],
        target=target,
        domain=domain or ("domain",),
        id=roles.id,
        task=roles.task or _guess(file, target),
        **splits,
    )


def _guess(file: TableFile, target: tuple[str, ...]) -> Kind:
    """Return the task that targets look like."""
    if isinstance(file, NpzFile):
        arrays = [file.array(name) for name in target]
        if any(array.dtype.kind == "f" and not np.isnan(array).any() for array in arrays):
            return "regression"
        columns = [pd.Series(part) for array in arrays for part in np.atleast_2d(array.T)]
    else:
        labels = file.labels(list(target))
        columns = [labels[name] for name in target]
    if any(fractions(values).any() for values in columns):
        return "regression"
    if len(columns) == 1:
        return "classification"
    known = {str(value).lower() for values in columns for value in values[~missing(values)].unique()}
    return "multilabel" if known <= {"0", "1", "0.0", "1.0", "false", "true"} else "regression"
