"""Which samples are trained on, chosen by and tested on: by column, by held-out domains, by fraction, by group."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from okapi.config import SplitSettings, names_of
from okapi.messages import did_you_mean, listed

Splits = NDArray[np.str_]

SPLITS = ("train", "unlabelled", "id_val", "ood_val", "id_test", "ood_test", "unlabelled_test")
"""All splits, in the order in which they are used."""
LEARNT_FROM = ("train", "unlabelled")
VALIDATION = ("id_val", "ood_val")
TESTS = tuple(name for name in SPLITS if name.endswith("_test"))
"""The sealed splits: only ``okapi evaluate`` opens them."""
OUT_OF_DISTRIBUTION = ("ood_val", "ood_test")

_WIDTH = f"<U{max(map(len, SPLITS))}"
_SPELLINGS = {"unlabeled": "unlabelled"}


class SeenDomainWarning(UserWarning):
    """A domain that is to tell how a model does elsewhere is one that it was trained on."""


def divide(
    settings: SplitSettings,
    domain: ArrayLike,
    *,
    labelled: ArrayLike | None = None,
    classes: ArrayLike | None = None,
    groups: ArrayLike | None = None,
) -> Splits:
    """Return the split of each sample as settings say, by ``by_held_out``."""
    split = by_held_out(
        domain,
        held_out=names_of(settings.held_out),
        validation=names_of(settings.validation),
        unlabelled=settings.unlabelled,
        id_val=settings.id_val,
        id_test=settings.id_test,
        seed=settings.split_seed,
        labelled=labelled,
        classes=classes,
        groups=groups,
    )
    if settings.fully_labelled:
        known = np.ones(len(split), dtype=bool) if labelled is None else np.asarray(labelled)
        split[known & (split == "unlabelled")] = "train"
    return split


def by_column(values: ArrayLike) -> Splits:
    """Return splits (n,) that a column names; "unlabeled" will do for "unlabelled".

    Which names there may be is for ``Dataset.check`` to say.

    Examples
    --------
    >>> by_column(["train", "unlabeled"]).tolist()
    ['train', 'unlabelled']
    """
    given = np.asarray(values, dtype=np.str_)
    names, numbers = np.unique(given, return_inverse=True)
    spelled = np.array([_SPELLINGS.get(name, name) for name in names.tolist()], dtype=np.str_)
    return spelled[numbers.reshape(given.shape)]


def by_fraction(
    count: int,
    parts: Mapping[str, float],
    rest: str,
    *,
    seed: int | Sequence[int],
    classes: ArrayLike | None = None,
    groups: ArrayLike | None = None,
) -> Splits:
    """Return a split for each of ``count`` samples, drawn by a seed.

    Parameters
    ----------
    count : int
    parts : mapping of str to float
        Share of each split but one, rounded down to whole samples.
    rest : str
        The split that gets all others.
    seed : int or sequence of int
    classes : array (count,), optional
        Of each value one sample, at least, stays in ``rest``, so that training knows all classes; a share is smaller
        where it must be for that.
    groups : array (count,) or (count, m), optional
        Samples that have the same value, or the same row of values, stay together: places that recur, or patients. A
        share is then as large as whole groups allow without exceeding it.

    Examples
    --------
    >>> sorted(by_fraction(5, {"id_val": 0.4}, "train", seed=0).tolist())
    ['id_val', 'id_val', 'train', 'train', 'train']
    """
    wanted = {name: int(share * count + 1e-9) for name, share in parts.items() if share > 0}
    unit = _units(count, groups)
    size = np.bincount(unit, minlength=1)
    order = np.random.default_rng(seed).permutation(len(size)).tolist()
    kept = _one_of_each(unit, order, classes)
    of_unit = np.full(len(size), rest, dtype=_WIDTH)
    for chosen in [number for number in order if number not in kept]:
        for name, room in wanted.items():
            if size[chosen] <= room:
                of_unit[chosen], wanted[name] = name, room - size[chosen]
                break
    split: Splits = of_unit[unit]
    if empty := [name for name in wanted if not (split == name).any()]:
        among = f" in {len(size)} groups" if groups is not None else ""
        needed = f" ({len(kept)} hold one of each class for {rest})" if kept else ""
        raise ValueError(f"{empty[0]} is {parts[empty[0]]} of {count} samples{among}, which leaves none for it{needed}")
    return split


def by_held_out(
    domain: ArrayLike,
    *,
    held_out: Sequence[str],
    validation: Sequence[str] = (),
    unlabelled: float = 0.5,
    id_val: float = 0.2,
    id_test: float = 0.0,
    seed: int = 0,
    labelled: ArrayLike | None = None,
    classes: ArrayLike | None = None,
    groups: ArrayLike | None = None,
) -> Splits:
    """Return the split of each sample, where some domains are to be predicted at.

    Parameters
    ----------
    domain : array (n,) of str
    held_out : sequence of str
        Domains of which ``unlabelled`` is a share that is unlabelled and the rest ood_test. How a domain is divided
        depends on nothing but the seed and the domain.
    validation : sequence of str
        Domains that are ood_val.
    unlabelled, id_val, id_test : float
        Shares of each held-out domain, and of all other domains together.
    seed : int
    labelled : array (n,), bool, optional
        Samples without a label are unlabelled, wherever they are from; shares are of those that have one.
    classes, groups : arrays (n, ...), optional
        As of ``by_fraction``.

    Examples
    --------
    >>> by_held_out(["rome", "oslo", "rome", "oslo"], held_out=["oslo"], id_val=0).tolist()
    ['train', 'unlabelled', 'train', 'ood_test']
    """
    domain = np.asarray(domain, dtype=np.str_)
    names = np.unique(domain).tolist()
    for key, chosen in (("held_out", held_out), ("validation", validation)):
        if unknown := [name for name in chosen if name not in names]:
            hint = did_you_mean(unknown[0], names)
            raise ValueError(f"{key} must be domains ({listed(names)}), got {unknown[0]!r}{hint}")
    if both := set(held_out) & set(validation):
        raise ValueError(f"validation must be other domains than held_out, got {listed(sorted(both))} for both")
    known = np.ones(len(domain), dtype=bool) if labelled is None else np.asarray(labelled, dtype=bool)
    split = np.full(len(domain), "unlabelled", dtype=_WIDTH)

    def draw(rows: NDArray[Any], parts: Mapping[str, float], rest: str, key: Sequence[int], keep: bool) -> None:
        chosen = None if classes is None or not keep else np.asarray(classes)[rows]
        together = None if groups is None else np.asarray(groups)[rows]
        split[rows] = by_fraction(len(rows), parts, rest, seed=key, classes=chosen, groups=together)

    source = np.flatnonzero(known & ~np.isin(domain, [*held_out, *validation]))
    if not len(source):
        raise ValueError(f"held_out and validation leave no labelled domain to train on; domains are {listed(names)}")
    draw(source, {"id_val": id_val, "id_test": id_test}, "train", [seed], keep=True)
    split[known & np.isin(domain, validation)] = "ood_val"
    for name in held_out:
        rows = np.flatnonzero(known & (domain == name))
        if len(rows):
            draw(rows, {"unlabelled": unlabelled}, "ood_test", [seed, *name.encode()], keep=False)
    return split


def leave_one_out(domain: ArrayLike, **options: Any) -> Iterator[tuple[str, Splits]]:
    """Yield, for each domain, its name and the splits (n,) by which it is held out; options of ``by_held_out``.

    Examples
    --------
    >>> [name for name, split in leave_one_out(["rome", "oslo", "rome", "oslo"], id_val=0)]
    ['oslo', 'rome']
    """
    for name in np.unique(np.asarray(domain, dtype=np.str_)).tolist():
        yield name, by_held_out(domain, held_out=(name,), **options)


def unseen_classes(target: NDArray[np.int64], split: Splits) -> NDArray[np.bool_]:
    """Return which samples (n,), of those whose labels are looked at, are of a class that train has no sample of.

    Examples
    --------
    >>> unseen_classes(np.array([0, 1, 2]), np.array(["train", "unlabelled", "ood_test"])).tolist()
    [False, False, True]
    """
    return np.asarray((split != "unlabelled") & ~np.isin(target, target[split == "train"]))


def warn_of_seen_domains(domain: NDArray[Any], split: Splits, names: Sequence[str]) -> None:
    """Warn of domains that are in train and in an OOD split; a sample with several domains has no say in it.

    Parameters
    ----------
    domain : array (n,), int64, numbers of ``names``; or (n, S), bool
    split : array (n,) of str
    names : sequence of str
    """
    if domain.ndim != 1:
        return
    train = set(domain[split == "train"].tolist())
    for part in OUT_OF_DISTRIBUTION:
        if shared := sorted(train & set(domain[split == part].tolist())):
            noun = "domain is" if len(shared) == 1 else "domains are"
            warnings.warn(
                f"{len(shared)} {noun} in both train and {part}, which is to be out of distribution: "
                f"{listed([names[number] for number in shared], most=5)}",
                SeenDomainWarning,
                stacklevel=3,
            )


def _units(count: int, groups: ArrayLike | None) -> NDArray[np.int64]:
    """Return the number of each sample's group, (count,); without groups every sample is one of its own."""
    if groups is None:
        return np.arange(count)
    values = np.asarray(groups)
    if len(values) != count:
        raise ValueError(f"groups must have a row for each of the {count} samples, got {len(values)}")
    if values.dtype == object:
        values = values.astype(np.str_)
    _, numbers = np.unique(values, axis=0, return_inverse=True)
    return numbers.reshape(-1).astype(np.int64)


def _one_of_each(unit: NDArray[np.int64], order: Sequence[int], classes: ArrayLike | None) -> set[int]:
    """Return units that hold every class between them: the first in the order, from the class in fewest units on."""
    if classes is None:
        return set()
    place = np.empty(len(order), dtype=np.int64)
    place[list(order)] = np.arange(len(order))
    _, label = np.unique(np.asarray(classes), return_inverse=True)
    held = np.unique(np.stack([label.reshape(-1), place[unit]], axis=1), axis=0)  # by class, then by place
    in_units = np.bincount(held[:, 0])
    first = np.concatenate([[0], np.cumsum(in_units)[:-1]])
    chosen: set[int] = set()
    known: set[int] = set()
    for number in np.argsort(in_units, kind="stable").tolist():
        if number not in known:
            at = held[first[number], 1]
            chosen.add(int(order[at]))
            known.update(held[held[:, 1] == at, 0].tolist())
    return chosen
