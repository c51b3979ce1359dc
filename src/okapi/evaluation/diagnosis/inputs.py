"""The samples of a diagnosis: checked, without the targets that must not be read, and no more than are needed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from okapi.data.task import Task
from okapi.messages import listed

Kind: TypeAlias = Literal["classification", "regression"]
Strings: TypeAlias = NDArray[Any]

LEAST_SAMPLES = 10  # of a domain: fewer cannot be divided into folds and have five keys each
POOL = 4  # domains put together are cut to so many times the limit of one


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples of labelled and unlabelled domains, in an order that depends on what they hold and not on their rows.

    Parameters
    ----------
    X : array (n, d), float32
    domain : array (n,) of str
    target : array (n,), int64 or float64
        Numbers of classes, -1 where unknown; or numbers in deviations of the labelled ones, NaN where unknown.
    labelled, unlabelled : tuple of str
        Domains; the same in both where nothing has labels.
    task : Task, optional
        None: nothing has labels.
    limit : int
        Most samples of a domain.
    notes : tuple of str
        What was left out.
    """

    X: NDArray[np.float32]
    domain: Strings
    target: NDArray[Any]
    labelled: tuple[str, ...]
    unlabelled: tuple[str, ...]
    task: Task | None
    limit: int
    notes: tuple[str, ...] = ()

    def rows(self, *domains: str) -> NDArray[np.int64]:
        """Return rows of some domains; of several at most ``POOL * limit``."""
        rows = np.flatnonzero(np.isin(self.domain, domains))
        return rows[: POOL * self.limit] if len(domains) > 1 else rows

    def labelled_but(self, domain: str) -> NDArray[np.int64]:
        """Return rows of the labelled domains but for one."""
        return self.rows(*(name for name in self.labelled if name != domain))


def gather(
    X: ArrayLike,
    domain: ArrayLike,
    target: ArrayLike | None,
    *,
    unlabelled: Sequence[Any] | None,
    task: Kind,
    normalise: bool,
    limit: int,
    seed: int,
) -> Samples:
    """Check what ``diagnose`` was given, and return the samples that it looks at."""
    if limit < LEAST_SAMPLES:
        raise ValueError(f"limit must be at least {LEAST_SAMPLES}, got {limit}")
    if task not in ("classification", "regression"):
        raise ValueError(f"task must be classification or regression, got {task!r}")
    encodings = np.asarray(X)
    names = _names(domain, len(encodings))
    if encodings.ndim != 2 or not encodings.shape[1]:
        raise ValueError(f"X must have shape (n, d), got {encodings.shape}")
    if target is None:
        if unlabelled:
            raise ValueError("unlabelled needs target, the labels of the other domains")
        every = tuple(np.unique(names).tolist())
        samples = Samples(encodings, names, np.full(len(names), np.nan), every, every, None, limit)
    else:
        samples = _with_targets(encodings, names, target, unlabelled, task, limit)
    samples = _drawn(samples, seed)
    if not normalise:
        return samples
    return replace(samples, X=samples.X / np.maximum(np.linalg.norm(samples.X, axis=1, keepdims=True), 1e-12))


def _names(domain: ArrayLike, n: int) -> Strings:
    values = np.asarray(domain)
    if values.shape != (n,):
        raise ValueError(f"domain must have shape ({n},), got {values.shape}")
    if (missing := pd.isna(values)).any():
        raise ValueError(f"domain is missing in row {int(missing.argmax())}")
    names = values.astype(str).astype(object)
    every, counts = np.unique(names, return_counts=True)
    if len(every) < 2:
        raise ValueError(f"domain must hold at least two domains, got only {every.tolist()}")
    if counts.min() < LEAST_SAMPLES:
        few = every[counts.argmin()]
        raise ValueError(f"domain {few!r} has {counts.min()} samples, at least {LEAST_SAMPLES} are wanted")
    return names


def _with_targets(
    X: NDArray[Any],
    domain: Strings,
    target: ArrayLike,
    unlabelled: Sequence[Any] | None,
    task: Kind,
    limit: int,
) -> Samples:
    """Return samples without the targets of unlabelled domains, which nothing may look at."""
    values = pd.Series(np.asarray(target))
    if len(values) != len(domain):
        raise ValueError(f"target must have shape ({len(domain)},), got ({len(values)},)")
    every = np.unique(domain).tolist()
    known = (values.notna() & (values != "")).to_numpy()
    if unlabelled:
        without = tuple(dict.fromkeys(map(str, unlabelled)))
        if unknown := [name for name in without if name not in every]:
            raise ValueError(f"unlabelled must name domains of {listed(every)}, got {unknown[0]!r}")
    else:
        without = tuple(name for name in every if not known[domain == name].any())
        if not without:
            raise ValueError("unlabelled must name the domains whose targets are not to be read: every domain has some")
    labelled = tuple(name for name in every if name not in without)
    known = known & np.isin(domain, labelled)
    if not known.any():
        raise ValueError("target has no labels: all domains are unlabelled, or all targets of the others are missing")
    for name in labelled:
        if (count := int(known[domain == name].sum())) < LEAST_SAMPLES:
            raise ValueError(f"domain {name!r} has {count} targets, at least {LEAST_SAMPLES} are wanted")
    used = known | np.isin(domain, without)
    dropped = int((~used).sum())
    notes = (f"{dropped:,} samples of labelled domains have no target and are left out.",) if dropped else ()
    codes, classes = _encoded(values, known, task)
    kind = Task("classification", classes) if classes else Task("regression")
    return _take(Samples(X, domain, codes, labelled, without, kind, limit, notes), np.flatnonzero(used))


def _encoded(target: "pd.Series[Any]", known: NDArray[np.bool_], task: Kind) -> tuple[NDArray[Any], int]:
    """Return numbers of classes and how many there are, or deviations and 0."""
    values = target[known]
    if values.nunique() < 2:
        raise ValueError(f"target must differ between samples, all that are known are {str(values.iloc[0])!r}")
    numbers = pd.to_numeric(values, errors="coerce").to_numpy(np.float64)
    if task == "regression":
        if not np.isfinite(numbers).all():
            row = int(values.index[int((~np.isfinite(numbers)).argmax())])
            raise ValueError(f"target must be a finite number for regression, got {str(target[row])!r} in row {row}")
        scores = np.full(len(target), np.nan)
        scores[known] = (numbers - numbers.mean()) / numbers.std()
        return scores, 0
    if (fraction := np.isfinite(numbers) & (numbers != np.rint(numbers))).any():
        raise ValueError(f"task must be regression for targets that are not whole, got {numbers[fraction.argmax()]:g}")
    names, places = np.unique(values.astype(str), return_inverse=True)
    codes = np.full(len(target), -1, dtype=np.int64)
    codes[known] = places
    return codes, len(names)


def _drawn(samples: Samples, seed: int) -> Samples:
    """Return at most ``limit`` samples of each domain, in the order of a keyed hash of what they hold.

    So the same samples in another order give the same diagnosis, to the digit.
    """
    key = int(seed).to_bytes(8, "little", signed=True)
    kept: list[NDArray[np.int64]] = []
    cut = []
    for name in np.unique(samples.domain):
        rows = np.flatnonzero(samples.domain == name)
        digests = [blake2b(samples.X[row].tobytes(), digest_size=16, key=key).digest() for row in rows]
        order = sorted(range(len(rows)), key=lambda place: (digests[place], samples.target[rows[place]]))
        if len(rows) > samples.limit:
            cut.append(str(name))
        kept.append(rows[order[: samples.limit]])
    rows = np.concatenate(kept)
    # Domains take turns, so that the first rows of several are a sample of all.
    turn = np.argsort(np.concatenate([np.arange(len(part)) / len(part) for part in kept]), kind="stable")
    notes = [f"{samples.limit:,} samples of each larger domain are drawn (seed {seed}): {listed(cut)}."] if cut else []
    if len(rows) > POOL * samples.limit:
        notes.append(f"Of several domains together at most {POOL * samples.limit:,} samples are looked at.")
    drawn = _take(replace(samples, notes=(*samples.notes, *notes)), rows[turn])
    if not (finite := np.isfinite(drawn.X).all(axis=1)).all():
        raise ValueError(f"X must be finite, row {int(rows[turn][finite.argmin()])} holds NaN or infinity")
    return drawn


def _take(samples: Samples, rows: NDArray[np.int64]) -> Samples:
    X = np.asarray(samples.X[rows], dtype=np.float32)
    return replace(samples, X=X, domain=samples.domain[rows], target=samples.target[rows])
