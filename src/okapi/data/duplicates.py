"""Samples that come twice: exact copies, and pictures that differ by little more than size or compression.

An exact copy has the same digest, whatever that is of. Near copies are found by a perceptual hash: 64 bits that say
which of the lowest frequencies of a small grey picture are above their median. Drawings on white share many of those
bits and are no copies of one another, so where hashes agree the small pictures are compared themselves. Pictures that
were mirrored, turned or cropped are not found.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.fft import dctn

Integers = NDArray[np.int64]
Hashes = NDArray[np.uint64]
Pairs = tuple[Integers, Integers, Integers]

SIDE = 32  # pixels of the grey picture that is hashed
LIKENESS = 0.95  # least correlation of the grey pictures of near copies
_FLAT = 2.0  # grey levels of 255; what differs by less is noise, and so would its hash be
_BITS, _LOWEST = 64, slice(1, 9)  # frequencies along each side, without the mean
_AT_A_TIME = 2**17  # pairs whose bits are compared at once
_COMPARED = 2**12  # pairs whose pictures are
_NONE = np.iinfo(np.int64).max


def perceptual_hash(grey: NDArray[np.uint8]) -> int | None:
    """Return the hash of a grey picture (32, 32), or None if it is flat: all hashes of nothing would agree.

    Examples
    --------
    >>> ramp = np.arange(32)
    >>> picture = np.uint8(ramp[:, None] * ramp // 8)
    >>> perceptual_hash(picture) == perceptual_hash(picture + 60)
    True
    >>> perceptual_hash(np.full((32, 32), 255, dtype=np.uint8)) is None
    True
    """
    if grey.std() < _FLAT:
        return None
    lowest = dctn(grey.astype(np.float64))[_LOWEST, _LOWEST]
    return int.from_bytes(np.packbits(lowest > np.median(lowest)).tobytes(), "big")


def near_pairs(hashes: Hashes, most: int) -> Iterator[Pairs]:
    """Yield all pairs of hashes (n,) that differ in ``most`` bits or fewer, each pair once, some at a time.

    If the 64 bits are cut into one band more than bits may differ, a pair agrees in all of some band: no other pairs
    are compared. Yielded are the lower positions, the higher ones and numbers of bits, each (m,).

    Examples
    --------
    >>> for first, second, bits in near_pairs(np.array([7, 0, 6], dtype=np.uint64), 1):
    ...     print(first, second, bits)
    [0] [2] [1]
    """
    edges = [_BITS * band // (most + 1) for band in range(most + 2)]
    masks = np.array([(1 << high) - (1 << low) for low, high in pairwise(edges)], dtype=np.uint64)
    for band, mask in enumerate(masks):
        key = hashes & mask
        order = np.argsort(key, kind="stable").astype(np.int64)
        ends = np.concatenate([[0], np.flatnonzero(np.diff(key[order])) + 1, [len(key)]])
        for bucket in np.flatnonzero(np.diff(ends) > 1):
            yield from _near_in(hashes, order[ends[bucket] : ends[bucket + 1]], most, masks[:band])


def _near_in(hashes: Hashes, rows: Integers, most: int, seen: Hashes) -> Iterator[Pairs]:
    """Yield near pairs among some ascending positions, but for those that agree in a band that was seen before."""
    chosen = hashes[rows]
    step = max(1, _AT_A_TIME // len(rows))
    for start in range(0, len(rows), step):
        differing = chosen[start : start + step, None] ^ chosen[None, start:]
        bits = _count_ones(differing)
        first, second = np.nonzero(bits <= most)
        first, second = first[second > first], second[second > first]
        new = ((differing[first, second][:, None] & seen) != 0).all(axis=1)
        first, second = first[new], second[new]
        if len(first):
            yield rows[start + first], rows[start + second], bits[first, second].astype(np.int64)


def _count_bytewise(numbers: Hashes) -> NDArray[np.uint8]:
    """Return how many bits of each number are 1, where numpy is older than 2 and cannot."""
    ones = np.array([value.bit_count() for value in range(256)], dtype=np.uint8)
    eight = ones[np.ascontiguousarray(numbers).view(np.uint8)].reshape(*numbers.shape, 8)
    return np.asarray(eight.sum(axis=-1, dtype=np.uint8))


_count_ones: Any = getattr(np, "bitwise_count", _count_bytewise)


@dataclass(frozen=True, eq=False)
class Samples:
    """What is known of n samples to find copies among them.

    Parameters
    ----------
    group : array (n,), int64
        The same number for exact copies; -1 for a sample that cannot be read.
    split, domain : array (n,), int64
        Splits are in the order in which they are used: a sample is a copy of one in an earlier split.
    hashed : array (h,), int64
        Rows that have a hash, ascending.
    hashes : array (h,), uint64
    grey : array (h, 32, 32), uint8
        What was hashed.
    """

    group: Integers
    split: Integers
    domain: Integers
    hashed: Integers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    hashes: Hashes = field(default_factory=lambda: np.zeros(0, dtype=np.uint64))
    grey: NDArray[np.uint8] = field(default_factory=lambda: np.zeros((0, SIDE, SIDE), dtype=np.uint8))


@dataclass(frozen=True, eq=False)
class Copies:
    """Samples that are copies of others.

    Parameters
    ----------
    across_splits : DataFrame
        Columns ``row``, ``other``, ``exact`` and ``bits``: for each sample and each earlier split that holds a copy of
        it, the first exact copy, or else the nearest.
    across_domains : DataFrame
        Likewise: for each sample that has a copy in another domain, one copy, whatever the splits; a pair stands once.
    within_splits : DataFrame
        Likewise, in the same split: for each sample that repeats an earlier one, the first; for each that has a near
        copy but is no exact one, the nearest.
    """

    across_splits: pd.DataFrame
    across_domains: pd.DataFrame
    within_splits: pd.DataFrame

    def every(self) -> pd.DataFrame:
        """Return all pairs, each once, those across splits first."""
        return _once(pd.concat([self.across_splits, self.across_domains, self.within_splits], ignore_index=True))


def find_copies(samples: Samples, most: int | None) -> Copies:
    """Return copies among samples; near ones, if they have hashes, that differ in ``most`` bits or fewer.

    Time and memory grow with samples, not with pairs of them: of a thousand copies every one is told once.
    """
    rows = np.arange(len(samples.group))
    known = samples.group >= 0
    exact = _exact(samples)
    near = _near(samples, most) if most is not None and len(samples.hashed) else _no_near(samples)
    found = []
    for split in np.unique(samples.split):
        later = known & (samples.split > split)
        found += _told(rows[later], exact.in_split[later, split], near.in_split[later, split], len(rows))
    elsewhere = _told(rows[known], exact.in_domain[known], near.in_domain[known], len(rows))
    first = exact.in_split[rows, samples.split]
    within = _told(rows[known], np.where(first == rows, _NONE, first)[known], near.within[known], len(rows))
    return Copies(_frame(found), _once(_frame(elsewhere)), _once(_frame(within)))


@dataclass(frozen=True, eq=False)
class _Partners:
    """A copy of each sample in each split (n, S), in another domain (n,) and, if it is near, in its own split (n,).

    Exact ones are rows; near ones bits * n + row, so that the least is the nearest.
    """

    in_split: Integers
    in_domain: Integers
    within: Integers


def _exact(samples: Samples) -> _Partners:
    count, splits = len(samples.group), int(samples.split.max(initial=0)) + 1
    rows, group = np.arange(count), samples.group
    first = np.full((int(group.max(initial=-1)) + 2, splits), _NONE)  # the last is of those that cannot be read
    np.minimum.at(first, (group, samples.split), rows)
    known = group >= 0
    in_domain = np.full(count, _NONE)
    in_domain[known] = _first_other(group[known], samples.domain[known], rows[known])
    return _Partners(first[group], in_domain, np.full(count, _NONE))


def _first_other(group: Integers, kind: Integers, rows: Integers) -> Integers:
    """Return for each of ascending rows the first one of its group that is of another kind, or none."""
    first = np.full(int(group.max(initial=-1)) + 1, _NONE)
    np.minimum.at(first, group, np.arange(len(rows)))
    odd = kind != kind[first[group]]  # of another kind than the first of the group
    other = np.full(len(first), _NONE)
    np.minimum.at(other, group[odd], rows[odd])
    return np.where(odd, rows[first[group]], other[group])


def _no_near(samples: Samples) -> _Partners:
    shape = (len(samples.group), int(samples.split.max(initial=0)) + 1)
    return _Partners(np.full(shape, _NONE), np.full(shape[0], _NONE), np.full(shape[0], _NONE))


def _near(samples: Samples, most: int) -> _Partners:
    """Return near copies; samples that agree in hash, split and domain are looked for as one."""
    found, count, rows = _no_near(samples), len(samples.group), samples.hashed
    columns = {"split": samples.split, "domain": samples.domain, "group": samples.group}
    frame = pd.DataFrame({name: values[rows] for name, values in columns.items()}).assign(hash=samples.hashes)
    item = frame.groupby(["hash", "split", "domain"], sort=False).ngroup().to_numpy().astype(np.int64)
    first = np.unique(item, return_index=True)[1]  # of each item, by place among those that have a hash
    several = frame.groupby(item)["group"].nunique().to_numpy() > 1
    split, domain, group = (frame[name].to_numpy()[first] for name in ("split", "domain", "group"))
    in_split, in_domain = found.in_split[: len(first)].copy(), found.in_domain[: len(first)].copy()
    for one, two, bits in near_pairs(samples.hashes[first], most):
        exact = (group[one] == group[two]) & ~several[one] & ~several[two]
        near = np.flatnonzero(~exact)
        near = near[_alike(samples.grey, first[one[near]], first[two[near]])]
        for a, b in ((one[near], two[near]), (two[near], one[near])):
            code = bits[near] * count + rows[first[b]]
            np.minimum.at(in_split, (a, split[b]), code)
            apart = domain[a] != domain[b]
            np.minimum.at(in_domain, a[apart], code[apart])
    found.in_split[rows], found.in_domain[rows] = in_split[item], in_domain[item]
    # Of the same hash, split and domain but with other pixels, or else the nearest.
    alike = _first_other(item, samples.group[rows], rows)
    found.within[rows] = np.minimum(alike, in_split[np.arange(len(first)), split][item])
    return found


def _alike(grey: NDArray[np.uint8], rows: Integers, others: Integers) -> NDArray[np.bool_]:
    """Return whether grey pictures correlate as copies do, (m,)."""
    alike = np.zeros(len(rows), dtype=bool)
    for start in range(0, len(rows), _COMPARED):
        part = slice(start, start + _COMPARED)
        one, two = (_standardised(grey[chosen[part]]) for chosen in (rows, others))
        alike[part] = np.einsum("ij,ij->i", one, two) >= LIKENESS
    return alike


def _standardised(grey: NDArray[np.uint8]) -> NDArray[np.float32]:
    flat = grey.reshape(len(grey), -1).astype(np.float32)
    flat -= flat.mean(axis=1, keepdims=True)
    return np.asarray(flat / np.linalg.norm(flat, axis=1, keepdims=True))


def _told(rows: Integers, exact: Integers, near: Integers, count: int) -> list[pd.DataFrame]:
    """Return each sample with its exact copy, or else its near one, if it has any."""
    is_exact = exact != _NONE
    is_near = ~is_exact & (near != _NONE)
    bits, other = np.divmod(near[is_near], max(count, 1))
    zero = np.zeros(int(is_exact.sum()), dtype=np.int64)
    return [
        pd.DataFrame({"row": rows[is_exact], "other": exact[is_exact], "exact": True, "bits": zero}),
        pd.DataFrame({"row": rows[is_near], "other": other, "exact": False, "bits": bits}),
    ]


def _frame(parts: list[pd.DataFrame]) -> pd.DataFrame:
    """Return all together, the nearest first; there may be none."""
    parts = [part for part in parts if len(part)]
    if not parts:
        return pd.DataFrame({"row": [], "other": [], "exact": [], "bits": []}, dtype=np.int64).astype({"exact": bool})
    frame = pd.concat(parts).sort_values(["exact", "bits", "row"], ascending=[False, True, True])
    return frame.reset_index(drop=True)


def _once(frame: pd.DataFrame) -> pd.DataFrame:
    ends = np.sort(frame[["row", "other"]].to_numpy(), axis=1)
    return frame[~pd.DataFrame(ends).duplicated().to_numpy()].reset_index(drop=True)
