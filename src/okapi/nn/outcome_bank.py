"""Outcomes of past samples, known or predicted, for the prognostic caliper."""

from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from okapi.nn.distributed import gather
from okapi.nn.memory_bank import MemoryBank

OutcomeKind: TypeAlias = Literal["classes", "numbers", "labels"]


class Outcome(NamedTuple):
    """Outcomes (n, C), and which rows (n,) are known, not predicted."""

    values: Tensor
    known: Tensor


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
    """

    def __init__(self, capacity: int, width: int, kind: OutcomeKind, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        if kind not in ("classes", "numbers", "labels"):
            raise ValueError(f"outcomes must be 'classes', 'numbers' or 'labels', got {kind!r}")
        self.kind, self.width = kind, width
        self.values = MemoryBank(capacity, (width,), dtype)
        self.known = MemoryBank(capacity, dtype=torch.bool)

    def check(self, outcome: Tensor | None, count: int, name: str) -> None:
        """Refuse outcomes of another shape than (count, width)."""
        if outcome is not None and outcome.shape != (count, self.width):
            raise ValueError(f"{name} must be of shape ({count}, {self.width}), got {tuple(outcome.shape)}")

    @torch.no_grad()
    def of(self, prediction: Tensor, outcome: Tensor | None) -> Outcome:
        """Return what is known, and what the prediction (n, C) says of the rest, of the samples of all ranks."""
        values = predicted_outcome(prediction.to(self.values.slots.dtype), self.kind)
        known = torch.zeros(len(values), dtype=torch.bool, device=values.device)
        if outcome is not None:
            known = ~outcome.isnan().any(1)
            values = torch.where(known[:, None], outcome.to(values.dtype), values)
        return Outcome(torch.cat(gather(values)), torch.cat(gather(known)))

    def compared(self, query: Outcome, new: Outcome) -> dict[str, Tensor]:
        """Return outcomes of queries and of keys, new ones and those of the bank, as ``caliper_nn`` takes them."""
        keys = self.values.after(new.values)
        if self.kind != "numbers":
            return {"query_outcome": query.values, "key_outcome": keys}
        known = keys[torch.cat([new.known, self.known.rows()])]
        scale = known.std(0) if len(known) > 1 else torch.ones_like(keys[0])
        scale = torch.where(scale > 0, scale, 1.0)
        return {"query_outcome": query.values / scale, "key_outcome": keys / scale}

    def push(self, new: Outcome) -> None:
        """Overwrite the oldest outcomes."""
        self.values.push(new.values)
        self.known.push(new.known)


def predicted_outcome(prediction: Tensor, kind: OutcomeKind) -> Tensor:
    """Return what a prediction (n, C) says: probabilities of its logits, or the numbers themselves."""
    if kind == "numbers":
        return prediction
    return prediction.softmax(-1) if kind == "classes" else prediction.sigmoid()
