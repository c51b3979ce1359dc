"""Outcomes of past samples, known or predicted, for the prognostic caliper."""

from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from okapi.matching import caliper_nn
from okapi.nn.distributed import gather
from okapi.nn.memory_bank import MemoryBank

OutcomeKind: TypeAlias = Literal["classes", "numbers", "labels"]
LEAST = 1e-6  # a class that is predicted less often than this is not made frequent
CLUSTERED = 4096  # samples by which the sizes of clusters are judged
SHARPNESS = 8.0  # by how much the logarithm of a membership falls at a cluster's width from its centre
ROUNDS = 3  # of fitting them
REMEMBERED = 0.9  # of how many known classes were predicted wrong, from one batch to the next


class Outcome(NamedTuple):
    """Outcomes (n, C), which rows (n,) are known, not predicted, and what was predicted of them all."""

    values: Tensor
    known: Tensor
    said: Tensor


class OutcomeBank(nn.Module):
    """The outcomes of the newest samples, beside the bank of their encodings.

    Parameters
    ----------
    capacity : int
    width : int
        C, how many classes, numbers or labels there are.
    kind : {"classes", "numbers", "labels"}
        What a prediction is: logits of classes, numbers, or a logit of each label.
    dtype : torch.dtype
    neighbours : int
        How many past samples, whose outcomes are not known either, have a say in the outcome of a new one: the nearest
        by encoding. A prediction is then the mean of its own and theirs, which is steadier where samples cluster.
    aligned : bool
        Whether predicted classes are made as frequent, over the bank, as those known: each probability is multiplied by
        how frequent its class is among the known over how frequent it is predicted to be.
    clusters : float in [0, 1]
        With ``aligned``: how much a say the unlabelled samples themselves have in how frequent classes are made. At 0
        none; at 1 a class is as frequent as its cluster is large, as `cluster_sizes` finds it; in between the
        logarithms of the two are mixed. For places where classes are more or less frequent than where labels are from.
    tolerance : float in (0, 1]
        Share of the known classes that may be predicted wrong; while more are, predictions are `trusted` less.
    """

    judged: Tensor

    def __init__(
        self,
        capacity: int,
        width: int,
        kind: OutcomeKind,
        dtype: torch.dtype = torch.float32,
        *,
        neighbours: int = 0,
        aligned: bool = False,
        clusters: float = 0.0,
        tolerance: float = 1.0,
    ) -> None:
        super().__init__()
        if neighbours < 0:
            raise ValueError(f"outcome_neighbours must be at least 0, got {neighbours}")
        if aligned and kind != "classes":
            raise ValueError(f"outcome_alignment is for classes, outcomes are {kind}")
        if not 0 <= clusters <= 1:
            raise ValueError(f"outcome_clusters must be in [0, 1], got {clusters}")
        if not 0 < tolerance <= 1:
            raise ValueError(f"outcome_tolerance must be in (0, 1], got {tolerance}")
        if kind not in ("classes", "numbers", "labels"):
            raise ValueError(f"outcomes must be 'classes', 'numbers' or 'labels', got {kind!r}")
        self.kind, self.width, self.neighbours = kind, width, neighbours
        self.aligned, self.clusters, self.tolerance = aligned, clusters, tolerance
        self.values = MemoryBank(capacity, (width,), dtype)
        if aligned:
            self.said = MemoryBank(capacity, (width,), dtype)  # predictions as they were
        self.known = MemoryBank(capacity, dtype=torch.bool)
        self.register_buffer("judged", torch.zeros(2, dtype=dtype))  # share predicted wrong, and 1, averaged from zeros

    def check(self, outcome: Tensor | None, count: int, name: str) -> None:
        """Refuse outcomes of another shape than (count, width)."""
        if outcome is not None and outcome.shape != (count, self.width):
            raise ValueError(f"{name} must be of shape ({count}, {self.width}), got {tuple(outcome.shape)}")

    @torch.no_grad()
    def of(self, prediction: Tensor, outcome: Tensor | None) -> Outcome:
        """Return what is known, and what the prediction (n, C) says of the rest, of the samples of all ranks."""
        values = said = predicted_outcome(prediction.to(self.values.slots.dtype), self.kind)
        known = torch.zeros(len(values), dtype=torch.bool, device=values.device)
        if outcome is not None:
            known = ~outcome.isnan().any(1)
            values = torch.where(known[:, None], outcome.to(values.dtype), values)
        return Outcome(*(torch.cat(gather(part)) for part in (values, known, said)))

    @torch.no_grad()
    def refined(self, new: Outcome, encoding: Tensor, past: Tensor) -> Outcome:
        """Return outcomes whose predictions are aligned, and smoothed over neighbours, as far as the settings say.

        Parameters
        ----------
        new : Outcome
        encoding : tensor (n, d)
            Of the new samples.
        past : tensor (m, d)
            Of those in the bank.
        """
        open_ = ~new.known
        values = new.values.clone()
        if self.aligned and new.known.any() and open_.any():
            values[open_] = self._aligned(values[open_], new, encoding, past)
        rest = (~self.known.rows()).nonzero()[:, 0]
        if self.neighbours and open_.any() and len(rest) >= self.neighbours:
            asking = open_.nonzero()[:, 0]
            near = caliper_nn(
                encoding[asking],
                past[rest],
                query_domain=torch.zeros_like(asking),  # of one pool, but any of them may be a neighbour
                key_domain=torch.ones_like(rest),
                k=self.neighbours,
            ).key
            theirs = self.values.rows()[rest[near]].sum(1)
            values[open_] = (values[open_] + theirs) / (self.neighbours + 1)
        return new._replace(values=values)

    def _aligned(self, values: Tensor, new: Outcome, encoding: Tensor, past: Tensor) -> Tensor:
        known = torch.cat([new.known, self.known.rows()])
        wanted = torch.cat([new.values, self.values.rows()])[known].mean(0)
        said = torch.cat([new.said, self.said.rows()])[~known]
        found = said.mean(0)
        if self.clusters:
            step = -(-len(said) // CLUSTERED)
            rows = (~known).nonzero()[::step, 0]
            first, later = rows[rows < len(encoding)], rows[rows >= len(encoding)] - len(encoding)
            some = torch.cat([encoding[first], past[later]])  # no copy of the whole bank
            sizes = cluster_sizes(some, as_frequent(said[::step], wanted, found))
            wanted = wanted ** (1 - self.clusters) * sizes**self.clusters
        return as_frequent(values, wanted, found)

    def compared(self, query: Outcome, new: Outcome) -> dict[str, Tensor]:
        """Return outcomes of queries and of keys, new ones and those of the bank, as ``caliper_nn`` takes them."""
        keys = self.values.after(new.values)
        if self.kind != "numbers":
            return {"query_outcome": query.values, "key_outcome": keys}
        known = keys[torch.cat([new.known, self.known.rows()])]
        scale = known.std(0) if len(known) > 1 else torch.ones_like(keys[0])
        scale = torch.where(scale > 0, scale, 1.0)
        return {"query_outcome": query.values / scale, "key_outcome": keys / scale}

    def trusted(self) -> Tensor:
        """Return how far predictions can be trusted, (), in [0, 1]: the square of ``tolerance`` over the error.

        The error is the share of the known classes that were predicted wrong, over the newest batches. Up to the
        tolerance, and where no class was known, predictions are trusted in full.
        """
        wrong, of = self.judged
        error = torch.where(of > 0, wrong / of, 0.0)
        return (self.tolerance / error.clamp(min=self.tolerance)) ** 2

    def push(self, new: Outcome) -> None:
        """Overwrite the oldest outcomes."""
        if self.kind == "classes" and new.known.any():
            wrong = (new.said.argmax(1) != new.values.argmax(1))[new.known].to(self.judged.dtype).mean()
            self.judged.lerp_(torch.stack([wrong, torch.ones_like(wrong)]), 1 - REMEMBERED)
        self.values.push(new.values)
        self.known.push(new.known)
        if self.aligned:
            self.said.push(new.said)


def cluster_sizes(encoding: Tensor, membership: Tensor) -> Tensor:
    """Return the share (C,) of the samples that the cluster of each class holds.

    Expectation maximisation for a mixture of one round distribution per class, all of one width, in a few rounds from
    memberships (n, C) such as predictions are. How large a cluster is depends on where samples lie close together, and
    less on what a model trained elsewhere says of them.
    """
    for _ in range(ROUNDS):
        held = membership.sum(0)
        centre = (membership.T @ encoding) / held.clamp(min=LEAST)[:, None]
        apart = torch.cdist(encoding, centre).square_()
        width = (membership * apart).sum() / held.sum()
        membership = (held.clamp(min=LEAST).log() - SHARPNESS * apart / width.clamp(min=LEAST)).softmax(-1)
    return membership.mean(0)


def as_frequent(values: Tensor, wanted: Tensor, found: Tensor) -> Tensor:
    """Return probabilities (n, C) times how frequent classes are to be, (C,), over how frequent they are said to be."""
    scaled = values * (wanted / found.clamp(min=LEAST))
    return scaled / scaled.sum(1, keepdim=True).clamp(min=LEAST)


def predicted_outcome(prediction: Tensor, kind: OutcomeKind) -> Tensor:
    """Return what a prediction (n, C) says: probabilities of its logits, or the numbers themselves."""
    if kind == "numbers":
        return prediction
    return prediction.softmax(-1) if kind == "classes" else prediction.sigmoid()
