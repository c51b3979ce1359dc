"""Which samples a step sees: a function of the seed and the step alone, so that resuming needs no state."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Integers = NDArray[np.int64]


class Stream:
    """An endless sequence of rows, shuffled anew in every pass and cut into batches; each row comes once in every pass.

    The order of a pass is a function of the seed and its number. A batch larger than the pool holds each row once and
    continues with the next pass, so that rows come again in it.

    Parameters
    ----------
    rows : tensor or array (n,), int64
        The rows to draw from.
    batch_size : int
        Of all processes together.
    seed : int
        Streams that are to be independent need different seeds.
    rank, world : int
        This process and how many there are: each gets its share of every batch, and the shares of all ranks, one after
        another, are the batch that one process alone would see.

    Examples
    --------
    >>> stream = Stream(np.arange(10), batch_size=4, seed=0)
    >>> sorted(np.concatenate([stream.rows_at(step) for step in range(5)]).tolist())[:6]  # two passes
    [0, 0, 1, 1, 2, 2]
    """

    def __init__(self, rows: Tensor | NDArray[Any], batch_size: int, seed: int, rank: int = 0, world: int = 1) -> None:
        self.rows: Integers = np.asarray(rows, dtype=np.int64)
        if self.rows.ndim != 1 or not self.rows.size:
            raise ValueError(f"rows must be of shape (n,) and not empty, got shape {self.rows.shape}")
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        if world < 1 or not 0 <= rank < world:
            raise ValueError(f"rank must be from 0 to world - 1, got rank {rank} of {world}")
        if batch_size % world:
            raise ValueError(f"batch_size must be a multiple of the number of processes, got {batch_size} for {world}")
        self.batch_size, self.seed, self.rank, self.world = batch_size, seed, rank, world
        self._orders: dict[tuple[int, ...], tuple[int, Integers]] = {}  # pass and order, of the pool or each group

    def rows_at(self, step: int) -> Integers:
        """Return the rows that this process sees at a step, shape (batch_size / world,)."""
        if step < 0:
            raise IndexError(f"step must be 0 or more, got {step}")
        share = self.batch_size // self.world
        return self.rows[self._draw(step, slice(self.rank * share, (self.rank + 1) * share))]

    def epochs_at(self, step: int) -> float:
        """Return how often the rows have been seen before a step, on average."""
        return step * self.batch_size / len(self.rows)

    def _draw(self, step: int, share: slice) -> Integers:
        """Return which of the rows are in a share of the batch of a step."""
        return self._shuffled(len(self.rows), step * self.batch_size + np.arange(share.start, share.stop))

    def _shuffled(self, n: int, positions: Integers, *group: int) -> Integers:
        """Return what stands at positions of the endless sequence of ``range(n)``, shuffled anew in every pass."""
        epochs, places = np.divmod(positions, n)
        chosen = np.empty(len(positions), dtype=np.int64)
        for epoch in np.unique(epochs).tolist():
            now = epochs == epoch
            chosen[now] = self._order(n, epoch, group)[places[now]]
        return chosen

    def _order(self, n: int, epoch: int, group: tuple[int, ...]) -> Integers:
        last, order = self._orders.get(group, (-1, None))
        if order is None or last != epoch:
            order = np.random.default_rng((self.seed, *group, epoch)).permutation(n)
            self._orders[group] = (epoch, order)
        return order


class BalancedStream(Stream):
    """Batches in which every group, a class or a domain, has as many rows as any other.

    Where the groups do not divide the batch they differ by one row, and take turns in having it. Within its group each
    row comes once in every pass; a small group is passed through more often than a large one.

    Parameters
    ----------
    rows : tensor or array (n,), int64
    groups : tensor or array (n,), int64
        The group of each row.
    batch_size, seed, rank, world
        As of `Stream`.

    Examples
    --------
    >>> stream = BalancedStream(np.arange(5), np.array([0, 0, 0, 0, 1]), batch_size=4, seed=0)
    >>> int((stream.rows_at(7) == 4).sum())  # the only one of its group is half of the batch
    2
    """

    def __init__(
        self,
        rows: Tensor | NDArray[Any],
        groups: Tensor | NDArray[Any],
        batch_size: int,
        seed: int,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        super().__init__(rows, batch_size, seed, rank, world)
        groups = np.asarray(groups)
        if groups.shape != self.rows.shape:
            raise ValueError(f"groups must be of shape {self.rows.shape}, as rows are, got {groups.shape}")
        _, number = np.unique(groups, return_inverse=True)
        order = np.argsort(number, kind="stable")
        self.members: list[Integers] = np.split(order, np.cumsum(np.bincount(number))[:-1])

    def _draw(self, step: int, share: slice) -> Integers:
        turns, group = np.divmod(step * self.batch_size + np.arange(share.start, share.stop), len(self.members))
        chosen = np.empty(len(group), dtype=np.int64)
        for number in np.unique(group):
            now = group == number
            members = self.members[number]
            chosen[now] = members[self._shuffled(len(members), turns[now], int(number))]
        return chosen


class WeightedStream(BalancedStream):
    """Batches in which every group is as frequent as any other in expectation: each row is drawn anew, as WILDS does.

    A group is drawn, all with the same probability, then a row of it; so a row may come twice in a batch.
    """

    def _draw(self, step: int, share: slice) -> Integers:
        # Philox turns a counter into numbers: any step is drawn without those before it.
        rng = np.random.Generator(np.random.Philox(key=[self.seed, 0], counter=[0, 0, 0, step]))
        group = rng.integers(len(self.members), size=self.batch_size)[share]
        place = rng.random(self.batch_size)[share]
        return np.array([self.members[g][int(p * len(self.members[g]))] for g, p in zip(group, place, strict=True)])
