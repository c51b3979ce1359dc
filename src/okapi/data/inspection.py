"""What is in a data set: samples by split, domain and class, what is missing, what is broken, what comes twice."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from okapi.data.dataset import Dataset
from okapi.data.duplicates import Fingerprint, can_find_near, find_duplicates, fingerprints
from okapi.data.io import TableFile, missing, number_cells
from okapi.data.splits import LEARNT_FROM, OUT_OF_DISTRIBUTION, SPLITS, unseen_classes
from okapi.matching import suspicious_columns

BINS = 16  # of a histogram of targets
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_MOST_BITS = 16
_COLUMNS = 64  # that are read at a time


def inspect_dataset(dataset: Dataset, near: int | None = 6, left_out: Sequence[str] = ()) -> "Inspection":
    """Read every sample once, and return what there is to report.

    Parameters
    ----------
    dataset : Dataset
        As ``unchecked_dataset`` returns it: what cannot be read is reported, and all else is counted.
    near : int, optional
        How many of 64 bits the hashes of near duplicates may differ in; None: only exact ones are looked for, as
        where imagehash is not installed.
    left_out : sequence of str
        A sentence for each row that is not in the data set because its labels cannot be used.
    """
    check_near(near)
    prints = fingerprints(dataset)
    split = np.argmax(np.asarray(dataset.split)[:, None] == np.array(SPLITS), axis=1).astype(np.int64)
    duplicates = find_duplicates(prints, split, near if can_find_near() else None)
    return Inspection(dataset, prints, duplicates, tuple(left_out))


def inspect_columns(file: TableFile, labels: Sequence[str]) -> pd.DataFrame:
    """Return a row for each column of a table that there is something to report of.

    Parameters
    ----------
    file : TableFile
    labels : sequence of str
        Columns that are no features: ids and codes may well be there.

    Returns
    -------
    DataFrame
        Columns ``column``, ``holds``, ``missing`` (rows) and ``look at``.
    """
    kinds = file.kinds(file.columns)
    single = [name for name, kind in kinds.items() if kind not in ("matrix", "other")]
    wrong = "holds neither numbers nor texts in UTF-8"
    found: list[tuple[str, str, int, str]] = [(name, kind, 0, wrong) for name, kind in kinds.items() if kind == "other"]
    for start in range(0, len(single), _COLUMNS):
        frame = file.labels(single[start : start + _COLUMNS])
        for name in frame.columns:
            values, gone, notes = frame[name], missing(frame[name]), []
            if kinds[name] == "number":
                numbers, bad = number_cells(values)
                values, gone = pd.Series(numbers, name=name), np.isnan(numbers) & ~bad
                if bad.any():
                    first = frame[name].iloc[int(bad.argmax())]
                    where = f"first {str(first)!r} in row {int(bad.argmax()) + file.first}"
                    cells = "1 cell is" if bad.sum() == 1 else f"{bad.sum():,} cells are"
                    notes.append(f"{cells} no finite number, {where}")
            if name not in labels:
                notes += suspicious_columns(values.mask(gone).to_frame()).values()
            if gone.any() or notes:
                found.append((name, kinds[name], int(gone.sum()), "; ".join(notes)))
    return pd.DataFrame(found, columns=["column", "holds", "missing", "look at"])


def check_near(near: int | None) -> None:
    """Reject a number of bits at which images that differ would be duplicates."""
    if near is not None and not 0 <= near <= _MOST_BITS:
        raise ValueError(f"near must be from 0 to {_MOST_BITS} bits, or none, got {near}")


@dataclass(frozen=True, eq=False)
class Inspection:
    """What is in a data set.

    Parameters
    ----------
    dataset : Dataset
    prints : list of n Fingerprint
    duplicates : DataFrame
        Of ``find_duplicates``.
    left_out : tuple of str
        Of ``inspect_dataset``.
    """

    dataset: Dataset
    prints: list[Fingerprint]
    duplicates: pd.DataFrame
    left_out: tuple[str, ...] = ()

    @cached_property
    def split(self) -> NDArray[np.str_]:
        """The split of each sample, (n,)."""
        return np.asarray(self.dataset.split)

    @cached_property
    def used(self) -> list[str]:
        """The splits that have samples, in the order in which they are used."""
        return [name for name in SPLITS if (self.split == name).any()]

    @cached_property
    def labelled(self) -> NDArray[np.bool_]:
        """Which samples have a target, (n,), be it hidden from training; of several numbers or labels, all of them."""
        target = self.dataset.target.numpy()
        known = np.isfinite(target) if target.dtype.kind == "f" else target >= 0
        return np.asarray(known.reshape(len(known), -1).all(axis=1))

    @cached_property
    def class_names(self) -> tuple[str, ...]:
        """What classes, or labels, are called; none for a regression."""
        dataset = self.dataset
        if dataset.task.kind == "regression":
            return ()
        return dataset.class_names or tuple(map(str, range(dataset.task.outputs)))

    def splits(self) -> pd.DataFrame:
        """Return a row for each split: samples, with and without a target, and the domains they are from."""
        samples = [int((self.split == name).sum()) for name in self.used]
        known = [int((self.labelled & (self.split == name)).sum()) for name in self.used]
        frame = pd.DataFrame({"samples": samples, "with target": known}, index=self.used)
        frame["without"] = frame["samples"] - frame["with target"]
        return frame.assign(domains=(self._domain_counts[self.used] > 0).sum())

    def domain_names(self) -> list[str]:
        """Return the domains that samples are from, the largest first."""
        counts = self._domain_counts
        return [str(name) for name in counts.index[counts["all"] > 0]]

    def domains(self) -> pd.DataFrame:
        """Return a row for each domain, the largest first: samples of each split, and all; those in none come last."""
        counts: pd.DataFrame = self._domain_counts.loc[self.domain_names()]
        domain = self.dataset.domain.numpy()
        nowhere = np.asarray(~domain.any(axis=1)) if domain.ndim == 2 else np.zeros(len(domain), dtype=bool)
        if nowhere.any():
            return pd.concat([counts, self._by_split(nowhere[:, None], ["(none)"])])
        return counts

    def classes(self) -> pd.DataFrame:
        """Return a row for each class, or label, the largest first: samples of each split, and all."""
        target = self.dataset.target.numpy()
        return self._by_split(target == 1 if target.ndim == 2 else target, self.class_names)

    def targets(self, by: str = "split") -> pd.DataFrame:
        """Return a row for each split or domain, and each number that is predicted: what a regression's targets are.

        Parameters
        ----------
        by : {"split", "domain"}
        """
        values = self.dataset.target.numpy().reshape(len(self.dataset), -1).astype(np.float64)
        several = values.shape[1] > 1
        if by == "split":
            parts = {name: self.split == name for name in self.used}
        else:
            parts = {name: self.belongs(name) for name in self.domain_names()}
        rows = []
        for output in range(values.shape[1]):
            known = np.isfinite(values[:, output])
            edges = np.histogram_bin_edges(values[known, output], BINS)
            for name, chosen in parts.items():
                if (chosen & known).any():
                    called = f"{name}, {output}" if several else name
                    rows.append((called, *_described(values[chosen & known, output], edges)))
        quantiles = [f"{share:.0%}" for share in _QUANTILES]
        columns = [by, "samples", "mean", "deviation", "least", *quantiles, "most", "histogram"]
        return pd.DataFrame(rows, columns=columns)

    def sizes(self) -> pd.DataFrame:
        """Return a row for each width, height and mode of images that could be read, the most frequent first."""
        found = [(*one.size, one.mode) for one in self.prints if one.size is not None]
        frame = pd.DataFrame(found, columns=["width", "height", "mode"])
        counted = frame.groupby(["width", "height", "mode"]).size().rename("images").reset_index()
        return counted.sort_values("images", ascending=False, kind="stable").reset_index(drop=True)

    def faults(self) -> pd.DataFrame:
        """Return a row for each sample that cannot be read: ``row``, ``split`` and ``reason``, which names the file."""
        rows = [row for row, one in enumerate(self.prints) if one.fault]
        reasons = [self.prints[row].fault for row in rows]
        return pd.DataFrame({"row": rows, "split": self.split[rows], "reason": reasons})

    def shared_domains(self) -> dict[str, list[str]]:
        """Return, for each split that is to hold other domains than train, those that are in both.

        Of samples that have several domains nothing can be said.
        """
        if self.dataset.domain.ndim != 1:
            return {}
        counts = self._domain_counts
        later = [name for name in ("unlabelled", *OUT_OF_DISTRIBUTION) if name in counts and "train" in counts]
        shared = {name: counts.index[(counts["train"] > 0) & (counts[name] > 0)].tolist() for name in later}
        return {name: domains for name, domains in shared.items() if domains}

    def unseen_classes(self) -> dict[str, int]:
        """Return classes that labelled samples have, but none in train, and of how many samples they are."""
        if self.dataset.task.kind != "classification":
            return {}
        target = self.dataset.target.numpy()
        unseen = target[unseen_classes(target, self.split) & self.labelled]
        numbers, counts = np.unique(unseen, return_counts=True)
        return {self.class_names[number]: int(count) for number, count in zip(numbers, counts, strict=True)}

    @property
    def across_splits(self) -> pd.DataFrame:
        """The duplicates that are in another split than the sample they repeat."""
        split, found = self.split, self.duplicates
        frame: pd.DataFrame = found[split[found["row"]] != split[found["other"]]]
        return frame

    def duplicates_by_split(self) -> pd.DataFrame:
        """Return how many samples of a split have one in an earlier split: ``split``, ``of``, ``exact``, ``near``.

        Leaks come first: what is evaluated on has a duplicate among what is learnt from.
        """
        found = self.across_splits
        frame = pd.DataFrame(
            {"split": self.split[found["row"]], "of": self.split[found["other"]], "exact": found["exact"].to_numpy()}
        )
        frame = (
            frame.groupby(["split", "of"])["exact"].agg(exact="sum", near=lambda exact: (~exact).sum()).reset_index()
        )
        leak = [is_leak(split, of) for split, of in zip(frame["split"], frame["of"], strict=True)]
        place = frame[["split", "of"]].map(SPLITS.index)
        order = np.lexsort((place["split"], place["of"], ~np.array(leak, dtype=bool)))
        return frame.iloc[order].reset_index(drop=True)

    def pairs(self, found: pd.DataFrame) -> pd.DataFrame:
        """Return duplicates by ids: with splits, domains, ``kind`` (exact or near) and bits."""
        columns: dict[str, Any] = {}
        for name, rows in (("", found["row"].to_numpy()), ("other_", found["other"].to_numpy())):
            columns[f"{name}id"] = [self.dataset.ids[row] for row in rows]
            columns[f"{name}split"] = self.split[rows]
            columns[f"{name}domain"] = [self.domain_of(row) for row in rows]
        columns["kind"] = np.where(found["exact"], "exact", "near")
        columns["bits"] = found["bits"].to_numpy()
        return pd.DataFrame(columns)

    def samples(self) -> pd.DataFrame:
        """Return a row for each sample: id, split, domain, target and what is wrong with it."""
        problem = [one.fault for one in self.prints]
        found = self.across_splits
        for row, other, exact in zip(*(found[name].tolist() for name in ("row", "other", "exact")), strict=True):
            leak = f"{'exact' if exact else 'near'} duplicate of {self.dataset.ids[other]} in {self.split[other]}"
            problem[row] = f"{problem[row]}; {leak}" if problem[row] else leak
        rows = range(len(self.dataset))
        return pd.DataFrame(
            {
                "id": list(self.dataset.ids),
                "split": self.split,
                "domain": [self.domain_of(row) for row in rows],
                "target": [self.target_of(row) for row in rows],
                "problem": problem,
            }
        )

    def belongs(self, name: str) -> NDArray[np.bool_]:
        """Return which samples are of a domain, (n,), by its name."""
        domain, number = self.dataset.domain.numpy(), self.dataset.domain_names.index(name)
        return np.asarray(domain[:, number] if domain.ndim == 2 else domain == number)

    def domain_of(self, row: int) -> str:
        """Return the name of a sample's domain, or the names of several."""
        names, domain = self.dataset.domain_names, self.dataset.domain[row].numpy()
        return ", ".join(names[number] for number in (np.flatnonzero(domain) if domain.ndim else [int(domain)]))

    def target_of(self, row: int) -> str:
        """Return a sample's class, its numbers or its labels in words; nothing where it has none."""
        target = self.dataset.target[row].numpy()
        if not self.labelled[row]:
            return ""
        if self.dataset.task.kind == "classification":
            return self.class_names[int(target)]
        if self.dataset.task.kind == "multilabel":
            return ", ".join(self.class_names[number] for number in np.flatnonzero(target == 1))
        return ", ".join(f"{value:.6g}" for value in np.atleast_1d(target).tolist())

    @cached_property
    def _domain_counts(self) -> pd.DataFrame:
        """Samples of each split and domain, be there any or none."""
        return self._by_split(self.dataset.domain.numpy(), self.dataset.domain_names)

    def _by_split(self, values: NDArray[Any], names: Sequence[str]) -> pd.DataFrame:
        """Return how often each of the names comes in each split; values are numbers (n,) or sets (n, m), bool."""
        columns = {}
        for name in self.used:
            part = values[self.split == name]
            columns[name] = part.sum(axis=0) if part.ndim == 2 else np.bincount(part[part >= 0], minlength=len(names))
        frame = pd.DataFrame(columns, index=list(names)).assign(all=sum(columns.values()))
        return frame.iloc[np.argsort(-frame["all"].to_numpy(), kind="stable")]


def is_leak(split: str, of: str) -> bool:
    """Return whether a duplicate in one split of a sample in another makes an evaluation too good.

    Examples
    --------
    >>> is_leak("ood_test", "unlabelled"), is_leak("unlabelled", "train")
    (True, False)
    """
    return split not in LEARNT_FROM and of in LEARNT_FROM


def _described(values: NDArray[np.float64], edges: NDArray[np.float64]) -> tuple[Any, ...]:
    deviation = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    quantiles = np.quantile(values, (0, *_QUANTILES, 1)).tolist()
    return len(values), float(values.mean()), deviation, *quantiles, np.histogram(values, edges)[0].tolist()
