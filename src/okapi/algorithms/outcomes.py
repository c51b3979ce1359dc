"""What is known or predicted of samples: as the prognostic caliper compares it, and as a lesson for strong views."""

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss, one_hot

from okapi.data.task import Task
from okapi.nn.outcome_bank import OutcomeKind

OUTCOMES: dict[str, OutcomeKind] = {"classification": "classes", "regression": "numbers", "multilabel": "labels"}


def known_outcome(task: Task, target: Tensor) -> Tensor:
    """Return targets as the prognostic caliper compares them, (n, outputs): classes as rows of 0 and 1."""
    if task.kind == "classification":
        return one_hot(target, task.outputs).to(torch.get_default_dtype())
    return target.reshape(len(target), task.outputs)


def teaching_loss(task: Task, outcome: Tensor, prediction: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """Return the mean loss of predictions that are taught by outcomes, and the share of outcomes that taught.

    The likeliest class or label is the target where its probability is at least ``threshold``; numbers teach all.

    Parameters
    ----------
    task : Task
    outcome : tensor (n, outputs)
        Probabilities, or numbers, of other views of the same samples; without gradient.
    prediction : tensor (n, outputs)
        Logits, or numbers.
    threshold : float in [0, 1]
    """
    if task.kind == "regression":
        return mse_loss(prediction, outcome), prediction.new_tensor(1.0)
    if task.kind == "classification":
        confidence, target = outcome.max(-1)
        loss = cross_entropy(prediction, target, reduction="none")
    else:
        confidence = torch.maximum(outcome, 1 - outcome)
        loss = binary_cross_entropy_with_logits(prediction, (outcome > 0.5).to(prediction.dtype), reduction="none")
    teaches = (confidence >= threshold).to(loss.dtype)
    return (loss * teaches).mean(), teaches.mean()
