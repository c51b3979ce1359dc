"""Which column or array of a file is what, guessed by names and contents."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from okapi.config import Kind
from okapi.data.images import SUFFIXES
from okapi.data.io import Kind as ColumnKind
from okapi.data.io import NpzFile, TableError, TableFile, check_names, fractions, missing, open_table
from okapi.data.recognition import Roles
from okapi.data.splits import SPLITS
from okapi.messages import listed

TARGETS = ("target", "y", "label", "labels", "class", "outcome", "category", "diagnosis", "species", "grade")
DOMAINS = (
    *("domain", "site", "hospital", "centre", "center", "location", "place", "region", "country", "camera"),
    *("source", "shop", "store", "dataset", "group", "environment"),
)
INPUTS = ("x", "inputs", "features", "embeddings", "embedding", "encodings", "images", "data")
TEXTS = ("text", "texts", "review", "comment", "sentence", "document", "message", "body")
IDS = ("id", "ids", "index", "name", "filename", "uuid")
_WORDS = 3  # on average, from which text is something to read
_ROWS = 1_000  # in which contents are looked at
_MOST_CLASSES = 20  # whole numbers of more values may be a quantity


def guess_roles(path: Path, roles: Roles, sites: Sequence[str] = ()) -> Roles:
    """Return what the columns of a table, or the arrays of an npz file, are.

    Parameters
    ----------
    path : Path
    roles : Roles
        What is known; the rest is guessed.
    sites : sequence of str
        Domains: the column that holds them is the one of domains.
    """
    file = open_table(path)
    given = [*roles.target, *roles.domain, *filter(None, (roles.text, roles.image))]
    check_names(path, file.columns, given)
    return _array_roles(file, roles) if isinstance(file, NpzFile) else _column_roles(file, roles, sites)


def _column_roles(file: TableFile, roles: Roles, sites: Sequence[str]) -> Roles:
    kinds: Mapping[str, ColumnKind] = file.kinds(file.columns)
    labels = file.labels([name for name, kind in kinds.items() if kind != "matrix"])
    free = [name for name in labels.columns if name not in (roles.text, roles.image)]
    target = tuple(roles.target) or _target(file, free, roles.domain)
    rest = [name for name in free if name not in target]
    domain = tuple(roles.domain) or _domain(file, labels[rest], kinds, sites)
    rest = [name for name in rest if name not in domain]
    split = None if sites else _named(rest, ("split",))
    if split is not None and not set(labels[split].astype(str)) <= {*SPLITS, "unlabeled"}:
        split = None
    named_id = [name for name in rest if _is_id(name)]
    unique = [name for name in named_id if not (missing(labels[name]).any() or labels[name].duplicated().any())]
    rest = [name for name in rest if name not in (*named_id, split) and name.lower() != "split"]
    learnt = labels[~missing(labels[target[0]]) & ~labels[domain[0]].astype(str).isin(sites)]
    if len(learnt):  # nothing is to be learnt from an empty column
        rest = [name for name in rest if not missing(learnt[name]).all()]
    image, text, columns = _inputs(file, labels.head(_ROWS), kinds, roles, rest)
    return replace(
        roles,
        image=image,
        text=text,
        columns=columns,
        target=target,
        domain=domain,
        split=split,
        id=next(iter(unique), None),
        task=roles.task or _task(labels[list(target)]),
    )


def _inputs(
    file: TableFile, labels: pd.DataFrame, kinds: Mapping[str, ColumnKind], roles: Roles, free: Sequence[str]
) -> tuple[str | None, str | None, tuple[str, ...]]:
    """Return the column of images, that of texts, and the columns of features: one of these is there."""
    if roles.image or roles.text:
        return roles.image, roles.text, ()
    words = [name for name in free if kinds[name] in ("text", "category")]
    for name in words:
        known = labels[name][~missing(labels[name])].astype(str)
        if len(known) and known.str.lower().str.endswith(SUFFIXES).mean() > 0.5:
            return name, None, ()
    matrices = {name: kind for name, kind in kinds.items() if kind == "matrix"}
    columns = tuple(file.default({name: kinds[name] for name in free} | matrices))
    long = [name for name in words if kinds[name] == "text" and _words(labels[name]) >= _WORDS]
    if (text := _named(long, TEXTS) or (None if columns else next(iter(long), None))) is not None:
        return None, text, ()
    if not columns:
        raise TableError(
            f"{file.path} has no column of numbers, categories, texts or paths of images to learn from; say by --text "
            f"or --image which it is: {listed(file.columns)}"
        )
    return None, None, columns


def _target(file: TableFile, free: Iterable[str], taken: Collection[str]) -> tuple[str]:
    if (name := _named([name for name in free if name not in taken], TARGETS)) is None:
        noun = "array" if isinstance(file, NpzFile) else "column"
        raise TableError(
            f"{file.path} has no {noun} called target or label; say by --target which it is: {listed(file.columns)}"
        )
    return (name,)


def _domain(file: TableFile, labels: pd.DataFrame, kinds: Mapping[str, ColumnKind], sites: Sequence[str]) -> tuple[str]:
    """Return the column that holds the sites, or else the one that is called like a domain."""
    called = _named(labels.columns, DOMAINS)
    texts = [name for name in labels.columns if kinds[name] in ("text", "category")]
    for name in [called, *texts] if sites else []:
        if name is not None and set(sites) <= set(labels[name].astype(str)):
            return (name,)
    if called is None:
        raise TableError(
            f"{file.path} has no column called domain or site; say by --domain which column says where a sample "
            f"comes from: {listed(file.columns)}"
        )
    return (called,)


def _array_roles(file: NpzFile, roles: Roles) -> Roles:
    """Return the arrays of inputs, which has a row of numbers for each sample, of targets and of domains."""
    shapes = {name: file.members[name].shape for name in file.columns}
    single = [name for name, shape in shapes.items() if len(shape) == 1]
    target = tuple(roles.target) or _target(file, [*single, *file.columns], roles.domain)
    domain = tuple(roles.domain) or (_named([name for name in single if name not in target], DOMAINS) or "",)
    if not domain[0]:
        raise TableError(f"{file.path} has no array called domain; say by --domain which it is: {listed(file.columns)}")
    free = [
        name
        for name, shape in shapes.items()
        if name not in (*target, *domain) and len(shape) > 1 and file.members[name].dtype.kind in "biuf"
    ]
    if not free:
        raise TableError(f"{file.path} has no array (n, ...) of numbers to learn from; it has {listed(file.columns)}")
    inputs = _named(free, INPUTS) or max(free, key=lambda name: file.members[name].nbytes)
    ids = [name for name in single if _is_id(name) and len(np.unique(file.array(name))) == len(file.array(name))]
    return replace(roles, columns=(inputs,), target=target, domain=domain, id=next(iter(ids), None))


def _task(labels: pd.DataFrame) -> Kind | None:
    """Return "regression" for whole numbers of many values; others are known by what they are."""
    if labels.shape[1] > 1 or fractions(labels.iloc[:, 0]).any():
        return None
    values = labels.iloc[:, 0][~missing(labels.iloc[:, 0])]
    if pd.to_numeric(values, errors="coerce").notna().all() and values.nunique() > max(_MOST_CLASSES, len(values) / 10):
        return "regression"
    return None


def _named(names: Iterable[str], wanted: Sequence[str]) -> str | None:
    """Return the first name that is wanted, the more wanted the earlier, whatever its case."""
    by_name = {name.lower(): name for name in reversed(list(names))}
    return next((by_name[name] for name in wanted if name in by_name), None)


def _is_id(name: str) -> bool:
    return name.lower() in IDS or re.search(r"(_id|Id|ID)$", name) is not None


def _words(values: pd.Series) -> float:
    known = values[~missing(values)].astype(str)
    return float(known.str.count(r"\S+").mean()) if len(known) else 0.0
