"""Who is compared with whom: groups of weighted samples, one for each ordered pair of domains."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from torch import Tensor

from okapi.matching.checks import check_domain
from okapi.matching.diagnostics.weights import Floats, Integers, Pairs, sum_by

# With thousands of domains most of the millions of directions are empty: beyond this only those with pairs are listed.
MAX_DIRECTIONS = 100_000
# Numbers in one working array (16 MB): wide data are handled in blocks of columns.
BLOCK_SIZE = 2**21


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of weighted samples; those of group g stand at ``bounds[g]:bounds[g + 1]`` and may be none.

    Parameters
    ----------
    rows : ndarray of shape (p,)
        Rows of the data.
    weights : ndarray of shape (p,)
        What each of them weighs in its group.
    bounds : ndarray of shape (n_groups + 1,)
        Where each group begins and the last one ends.
    """

    rows: Integers
    weights: Floats
    bounds: Integers

    @classmethod
    def collect(cls, group: Integers, rows: Integers, weights: Floats, n_groups: int, n_rows: int) -> "Groups":
        """Sort samples into their groups; the weights of a row that comes several times in a group are added."""
        member, entry = np.unique(group * n_rows + rows, return_inverse=True)
        bounds = np.searchsorted(member, np.arange(n_groups + 1) * n_rows)
        return cls(member % max(n_rows, 1), sum_by(entry, weights, len(member)), bounds)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, group: int) -> tuple[Integers, Floats]:
        members = slice(self.bounds[group], self.bounds[group + 1])
        return self.rows[members], self.weights[members]

    @property
    def sizes(self) -> Integers:
        """Number of samples in each group."""
        return np.diff(self.bounds)

    def take(self, chosen: Integers) -> "Groups":
        """Return the chosen groups, in the order given."""
        members = [np.arange(self.bounds[g], self.bounds[g + 1]) for g in chosen]
        rows = np.concatenate([np.empty(0, np.int64), *members])
        bounds = np.concatenate([[0], np.cumsum(self.sizes[chosen])])
        return Groups(self.rows[rows], self.weights[rows], bounds)

    def moments(self, x: NDArray[Any]) -> tuple[Floats, Floats]:
        """Return mean and unbiased weighted variance of every column in every group.

        The variance is that of reliability weights: with weights that sum to one it is
        ``sum w (x - mean)^2 / (1 - sum w^2)``; 0 for a single sample. An empty group has NaN.

        Parameters
        ----------
        x : ndarray of shape (n, d)

        Returns
        -------
        mean, variance : ndarray of shape (n_groups, d)
        """
        mean = np.full((len(self), x.shape[1]), np.nan)
        variance = mean.copy()
        filled = np.flatnonzero(self.sizes)
        if not len(filled):
            return mean, variance
        group = np.repeat(np.arange(len(filled)), self.sizes[filled])
        share = self.weights / sum_by(group, self.weights, len(filled))[group]
        average = csr_array((share, np.arange(len(share)), np.append(self.bounds[filled], len(share))))
        freedom = 1 - sum_by(group, share**2, len(filled))
        freedom[self.sizes[filled] == 1] = np.inf
        for block in column_blocks(x.shape[1], len(share)):
            # Measured from a member of its group, so that a constant has exactly its value as mean and variance 0.
            origin = x[:, block][self.rows[self.bounds[filled]]].astype(np.float64)
            deviation = x[:, block][self.rows].astype(np.float64) - origin[group]
            shift = average @ deviation
            mean[filled, block] = origin + shift
            deviation -= shift[group]
            variance[filled, block] = (average @ deviation**2) / freedom[:, None]
        return mean, variance


class Membership(NamedTuple):
    """Which sample is of which domain, one entry for each domain of each sample, rows ascending."""

    row: Integers
    domain: Integers

    def expand(self, rows: Integers, n_rows: int) -> tuple[Integers, Integers]:
        """Return (entry of ``rows``, domain) for every domain of every one of the rows given."""
        bounds = np.searchsorted(self.row, np.arange(n_rows + 1))
        counts = np.diff(bounds)[rows]
        entry = np.repeat(np.arange(len(rows)), counts)
        rank = np.arange(len(entry)) - np.repeat(np.cumsum(counts) - counts, counts)
        return entry, self.domain[bounds[rows][entry] + rank]

    def only(self, domain: int) -> "Membership":
        """Return the membership of one domain alone."""
        return Membership(self.row[self.domain == domain], self.domain[self.domain == domain])


def memberships(
    query_domain: ArrayLike | Tensor, key_domain: ArrayLike | Tensor, sizes: tuple[int, int]
) -> tuple[Membership, Membership, Integers]:
    """Return the domains of queries and keys, as positions in the labels, and the labels.

    Parameters
    ----------
    query_domain, key_domain : array or tensor of shape (n,), (m,) of integers or (n, S), (m, S) of booleans
        Domain of every sample, or its several domains.
    sizes : tuple of int
        Number of queries and of keys, n and m.
    """
    of_query, of_key = (
        check_domain(domain, name, size).cpu().numpy()
        for domain, name, size in zip((query_domain, key_domain), ("query_domain", "key_domain"), sizes, strict=True)
    )
    if of_query.shape[1:] != of_key.shape[1:]:
        raise ValueError(
            f"query_domain and key_domain must agree in kind and width, got shapes {of_query.shape} and {of_key.shape}"
        )
    if of_query.ndim == 2:
        return Membership(*np.nonzero(of_query)), Membership(*np.nonzero(of_key)), np.arange(of_query.shape[1])
    labels, position = np.unique(np.concatenate([of_query, of_key]), return_inverse=True)
    query, key = np.split(position, [len(of_query)])
    return Membership(np.arange(len(query)), query), Membership(np.arange(len(key)), key), labels


def pair_directions(
    of_query: Membership, of_key: Membership, sizes: tuple[int, int], n_domains: int, pairs: Pairs
) -> tuple[Integers, Integers]:
    """Return (pair, direction) for every direction of every pair; direction a to b is number ``a * n_domains + b``."""
    pair, source = of_query.expand(pairs.query, sizes[0])
    entry, target = of_key.expand(pairs.key[pair], sizes[1])
    return pair[entry], source[entry] * n_domains + target


def name_domains(labels: Integers, names: Sequence[Any] | Mapping[int, Any] | None) -> NDArray[Any]:
    """Return the name of every label: what ``names`` has under its number, by default the number."""
    if names is None:
        return labels
    known = names if isinstance(names, Mapping) else dict(enumerate(names))
    missing = [int(label) for label in labels if label not in known]
    if missing:
        raise ValueError(f"domain_names must name every domain, got none for {missing[:5]}")
    return np.array([known[int(label)] for label in labels], dtype=object)


def position_of(labels: Integers, domain: int) -> int:
    """Return where a domain that a direction names stands among the labels."""
    if domain not in labels:
        raise ValueError(f"direction must name domains of the samples, got {domain}; there are {labels[:20].tolist()}")
    return int(np.flatnonzero(labels == domain)[0])


@dataclass(frozen=True, eq=False)
class Directions:
    """Who is compared with whom: in direction g, queries of ``query_domain[g]`` with keys of ``key_domain[g]``.

    Parameters
    ----------
    query_domain, key_domain : ndarray of shape (n_directions,)
        The domains compared.
    queries, keys : Groups, one group per domain
        All samples, each weighing 1.
    matched_queries, matched_keys : Groups, one group per direction
        Samples of the direction's pairs, each weighing what its pairs in this direction weigh.
    unlisted : int
        Directions without pairs that were left out.
    """

    query_domain: Integers
    key_domain: Integers
    queries: Groups
    keys: Groups
    matched_queries: Groups
    matched_keys: Groups
    unlisted: int

    @classmethod
    def find(
        cls, of_query: Membership, of_key: Membership, sizes: tuple[int, int], n_domains: int, pairs: Pairs
    ) -> "Directions":
        """Find the directions with pairs and, unless there are very many, those between any two domains present."""
        queries = Groups.collect(of_query.domain, of_query.row, np.ones(len(of_query.row)), n_domains, sizes[0])
        keys = Groups.collect(of_key.domain, of_key.row, np.ones(len(of_key.row)), n_domains, sizes[1])

        pair, direction = pair_directions(of_query, of_key, sizes, n_domains, pairs)
        listed = np.unique(direction)

        queried, keyed = queries.sizes > 0, keys.sizes > 0
        n_across = int(queried.sum()) * int(keyed.sum()) - int((queried & keyed).sum())
        n_matched_across = int((listed // max(n_domains, 1) != listed % max(n_domains, 1)).sum())
        if n_across <= MAX_DIRECTIONS:
            across = queried[:, None] & keyed & ~np.eye(n_domains, dtype=bool)
            listed, n_matched_across = np.union1d(listed, np.flatnonzero(across)), n_across

        group = np.searchsorted(listed, direction)
        matched_queries, matched_keys = (
            Groups.collect(group, rows[pair], pairs.weight[pair], len(listed), size)
            for rows, size in zip((pairs.query, pairs.key), sizes, strict=True)
        )
        query_domain, key_domain = np.divmod(listed, max(n_domains, 1))
        return cls(query_domain, key_domain, queries, keys, matched_queries, matched_keys, n_across - n_matched_across)

    @classmethod
    def weighted(
        cls, of_query: Membership, of_key: Membership, n_domains: int, n: int, weights: NDArray[np.float64]
    ) -> "Directions":
        """Compare queries of one domain with keys of one other, as matching weights of all samples say."""
        queries = Groups.collect(of_query.domain, of_query.row, np.ones(len(of_query.row)), n_domains, n)
        keys = Groups.collect(of_key.domain, of_key.row, np.ones(len(of_key.row)), n_domains, n)
        matched = []
        for rows in (of_query.row, of_key.row):
            used = rows[weights[rows] > 0]
            matched.append(Groups(used, weights[used], np.array([0, len(used)])))
        return cls(of_query.domain[:1], of_key.domain[:1], queries, keys, matched[0], matched[1], 0)


def column_blocks(n_columns: int, n_rows: int) -> Iterator[slice]:
    """Yield slices of columns such that a block of ``n_rows`` rows stays small."""
    width = max(1, BLOCK_SIZE // max(n_rows, 1))
    for start in range(0, n_columns, width):
        yield slice(start, min(start + width, n_columns))
