"""What a file or a folder is: which kind of data set, read by which settings, where nobody wrote a config."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

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
from okapi.data.io import NUMERIC, TableError, TableFile, check_names, fractions, missing, open_table
from okapi.data.wilds import civilcomments, iwildcam, poverty
from okapi.messages import listed

TABLES = (".csv", ".csv.gz", ".parquet")


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
    if not path.exists():
        raise TableError(f"{path} does not exist")
    if path.is_dir():
        return _folder(path, roles)
    if path.name.lower().endswith(".npz") and not (roles.image or roles.text):
        return _arrays(path, roles)
    if path.name.lower().endswith((*TABLES, ".npz")):
        return _table(path, roles)
    shown = path.suffix or "a file without suffix"
    raise TableError(f"{path}: cannot read {shown!r}; want a folder, {listed((*TABLES, '.npz', '.yaml'))}")


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


def _table(path: Path, roles: Roles) -> TableSettings:
    source = open_table(path)
    target, domain = tuple(roles.target) or ("target",), tuple(roles.domain) or ("domain",)
    splits = _splits(roles, source.columns)
    taken = [*target, *domain, *filter(None, (splits["split"], roles.id, roles.image, roles.text))]
    check_names(path, source.columns, [*taken, *roles.columns])
    features = tuple(roles.columns)
    if not (roles.image or roles.text or features):
        features = _numbers(source, taken)
    return TableSettings(
        path=str(path),
        root=roles.root,
        image=roles.image,
        text=roles.text,
        features=features,
        target=_one(target),
        domain=_one(domain),
        id=roles.id,
        task=roles.task or _guess(source, target),
        **splits,
    )


def _one(names: tuple[str, ...]) -> str | tuple[str, ...]:
    return names[0] if len(names) == 1 else names


def _numbers(source: TableFile, taken: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of numbers that have no other role."""
    free = [name for name in source.columns if name not in taken]
    kinds = source.kinds(free) if free else {}
    numbers = tuple(name for name, kind in kinds.items() if kind in NUMERIC)
    if not numbers:
        raise TableError(
            f"{source.path} has no columns of numbers: say by --image, --text or --columns what a sample is; "
            f"columns are {listed(source.columns)}"
        )
    return numbers


def _guess(source: TableFile, target: tuple[str, ...]) -> Kind:
    """Return the task that targets in a table look like."""
    labels = source.labels(list(target))
    if any(fractions(labels[name]).any() for name in target):
        return "regression"
    if len(target) == 1:
        return "classification"
    known = {str(value).lower() for name in target for value in labels[name][~missing(labels[name])].unique()}
    return "multilabel" if known <= {"0", "1", "0.0", "1.0", "false", "true"} else "regression"


def _arrays(path: Path, roles: Roles) -> ArraysSettings:
    source = open_table(path)
    if several := next((values for values in (roles.columns, roles.target, roles.domain) if len(values) > 1), None):
        raise TableError(f"{path}: one array is wanted for inputs, target and domain each, got {listed(several)}")
    given = {"--columns": (roles.columns, "x"), "--target": (roles.target, "y"), "--domain": (roles.domain, "domain")}
    named = {option: (*names, default)[0] for option, (names, default) in given.items()}
    splits = _splits(roles, source.columns)
    for option, name in {**named, "--split": splits["split"], "--id": roles.id}.items():
        if name is not None and name not in source.columns:
            raise TableError(f"{path} has no array {name!r}; say by {option} which it is: {listed(source.columns)}")
    return ArraysSettings(
        path=str(path),
        inputs=named["--columns"],
        target=named["--target"],
        domain=named["--domain"],
        ids=roles.id,
        task=roles.task or _guess_array(path, named["--target"]),
        **splits,
    )


def _guess_array(path: Path, name: str) -> Kind:
    """Return the task that targets in an npz file look like."""
    try:
        with np.load(path, allow_pickle=False) as file:
            target = file[name]
    except ValueError as error:
        raise TableError(f"{path} cannot be read: {error}") from error
    if target.ndim > 1:
        known = target[np.isfinite(target)] if target.dtype.kind == "f" else target
        return "multilabel" if np.isin(known, (0, 1)).all() else "regression"
    return "regression" if target.dtype.kind == "f" else "classification"
