"""Predictions that stand in for labels: their alignment with a class prior, and the loss that learns from them."""

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss, one_hot

from okapi.config import Kind
from okapi.data.task import Task
from okapi.nn.distributed import gather

EPSILON = 1e-6  # least frequency: a class that is predicted less often is not made frequent
CLUSTERED = 4096  # samples by which the sizes of clusters are estimated
SHARPNESS = 8.0  # by how much the logarithm of a membership falls at a cluster's width from its centre
ROUNDS = 3  # of expectation maximisation
MOST_ROUNDS, SETTLED = 1000, 1e-6  # of the maximum-likelihood prior: rounds, and the change at which it stops
MEMORY = 0.9  # share of the past that a step leaves in the error of `ErrorGate`


def predicted_outcome(prediction: Tensor, kind: Kind) -> Tensor:
    """Return a prediction (n, C), logits or numbers, as an outcome: probabilities, or the numbers themselves."""
    if kind == "regression":
        return prediction
    return prediction.softmax(-1) if kind == "classification" else prediction.sigmoid()


def known_outcome(task: Task, target: Tensor) -> Tensor:
    """Return targets as outcomes (n, outputs): classes as rows of 0 and 1."""
    if task.kind == "classification":
        return one_hot(target, task.outputs).to(torch.get_default_dtype())
    return target.reshape(len(target), task.outputs)


def align(prediction: Tensor, p_target: Tensor, p_model: Tensor) -> Tensor:
    """Return predictions (n, C) after distribution alignment (Berthelot et al., "ReMixMatch", 2020).

    Parameters
    ----------
    prediction : tensor (n, C)
        Probabilities.
    p_target : tensor (C,)
        The class prior.
    p_model : tensor (C,)
        How often each class is predicted.

    Examples
    --------
    >>> align(torch.tensor([[0.8, 0.2]]), torch.tensor([0.5, 0.5]), torch.tensor([0.8, 0.2]))
    tensor([[0.5000, 0.5000]])
    """
    scaled = prediction * (p_target / p_model.clamp(min=EPSILON))
    return scaled / scaled.sum(1, keepdim=True).clamp(min=EPSILON)


def class_frequencies(
    outcome: Tensor, known: Tensor, encodings: tuple[Tensor, Tensor], clusters: float
) -> tuple[Tensor, Tensor]:
    """Return the class prior of the unlabelled samples, and how often each class is predicted of them: ``(C,)`` each.

    The prior is the geometric mean of the class frequencies of the labels and of the sizes of the clusters that the
    unlabelled encodings form, for sites where classes are more or less frequent than where the labels are from.

    Parameters
    ----------
    outcome : tensor (n, C)
        Classes as rows of 0 and 1 where known, elsewhere predicted probabilities.
    known : tensor (n,), bool
    encodings : tensors (a, d) and (b, d), a + b = n
        In two parts, since a copy of all may be large.
    clusters : float in [0, 1]
        Weight of the sizes of the clusters.
    """
    p_target, p_model = outcome[known].mean(0), outcome[~known].mean(0)
    if clusters:
        rows = (~known).nonzero()[:, 0]
        rows = rows[:: -(-len(rows) // CLUSTERED)]
        first, second = encodings
        some = torch.cat([first[rows[rows < len(first)]], second[rows[rows >= len(first)] - len(first)]])
        sizes = cluster_sizes(some.to(outcome.dtype), align(outcome[rows], p_target, p_model))
        p_target = p_target ** (1 - clusters) * sizes**clusters
    return p_target, p_model


def cluster_sizes(encoding: Tensor, membership: Tensor) -> Tensor:
    """Return the share (C,) of the samples that the cluster of each class holds.

    Expectation maximisation for a mixture of one round distribution per class, all of one width, in a few rounds from
    memberships (n, C) such as predictions are. How large a cluster is depends on where samples lie close together, and
    less on what a model trained elsewhere predicts.
    """
    for _ in range(ROUNDS):
        mass = membership.sum(0)
        centre = (membership.T @ encoding) / mass.clamp(min=EPSILON)[:, None]
        distance = torch.cdist(encoding, centre).square_()
        width = (membership * distance).sum() / mass.sum()
        membership = (mass.clamp(min=EPSILON).log() - SHARPNESS * distance / width.clamp(min=EPSILON)).softmax(-1)
    return membership.mean(0)


def likeliest_prior(prediction: Tensor, source_prior: Tensor) -> Tensor:
    """Return the class prior (C,) under which unlabelled samples are likeliest: maximum-likelihood label shift (MLLS).

    Expectation maximisation over predictions (Saerens, Latinne & Decaestecker, 2002). It takes classes to look alike
    where labels are from and where they are not, and probabilities to be calibrated where they are from: by a
    temperature of held-out samples, say (Alexandari, Kundaje & Shrikumar, 2020).

    Parameters
    ----------
    prediction : tensor (n, C)
        Probabilities of unlabelled samples.
    source_prior : tensor (C,)
        Class frequencies where the labels are from.

    Examples
    --------
    >>> sure = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> likeliest_prior(sure, torch.tensor([0.5, 0.5]))
    tensor([0.7500, 0.2500])
    """
    prior = source_prior
    for _ in range(MOST_ROUNDS):
        before, prior = prior, align(prediction, prior, source_prior).mean(0)
        if (prior - before).abs().max() < SETTLED:
            break
    return prior


def prior_by_confusion(prediction: Tensor, held_out: Tensor, target: Tensor) -> Tensor:
    """Return the class prior (C,) of unlabelled samples by how a model confuses classes: black-box shift (BBSE).

    What is predicted of unlabelled samples on average is what is predicted of each class, times how frequent it is
    (Lipton, Wang & Smola, 2018). Predictions need not be calibrated.

    Parameters
    ----------
    prediction : tensor (n, C)
        Probabilities of unlabelled samples.
    held_out : tensor (m, C)
        Probabilities of labelled samples that the model was not trained on.
    target : tensor (m,), int64
        Their classes.

    Examples
    --------
    >>> held_out, target = torch.tensor([[0.8, 0.2], [0.2, 0.8]]), torch.tensor([0, 1])
    >>> prior_by_confusion(torch.tensor([[0.65, 0.35]]), held_out, target)
    tensor([0.7500, 0.2500])
    """
    classes = one_hot(target, held_out.shape[1]).to(held_out)
    of_each = held_out.T @ classes / classes.sum(0).clamp(min=1)
    prior: Tensor = (torch.linalg.pinv(of_each) @ prediction.mean(0)).clamp(min=0)
    return prior / prior.sum().clamp(min=EPSILON)


def pseudo_label_loss(task: Task, outcome: Tensor, prediction: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """Return the mean loss of predictions against pseudo-labels, and the share of samples that have one.

    The likeliest class or label is the pseudo-label where its probability is at least ``threshold``. In regression it
    is the squared error, and all samples count.

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
    confident = (confidence >= threshold).to(loss.dtype)
    return (loss * confident).mean(), confident.mean()


class ErrorGate(nn.Module):
    """A factor that is small while a model still gets labels wrong: ``min(1, gate / error)^2``.

    The error is the share of labels predicted wrong, an exponential mean over the newest batches. Pseudo-labels of a
    model that has yet to learn the labels would keep what it got wrong.

    Parameters
    ----------
    gate : float in (0, 1]
        The error up to which the factor is 1.

    Examples
    --------
    >>> gate = ErrorGate(0.25)
    >>> gate.update(torch.tensor([[0.9, 0.1], [0.8, 0.2]]), torch.tensor([0, 1]))
    >>> gate().item()
    0.25
    """

    errors: Tensor

    def __init__(self, gate: float) -> None:
        super().__init__()
        self.gate = gate
        self.register_buffer("errors", torch.zeros(2))  # share predicted wrong, and 1, averaged from zeros

    @torch.no_grad()
    def update(self, prediction: Tensor, target: Tensor) -> None:
        """Take in predictions (n, C), scores of any scale, of samples with classes (n,), of all ranks together."""
        wrong = torch.cat(gather(prediction.argmax(1) != target)).to(self.errors.dtype)
        if len(wrong):
            self.errors.lerp_(torch.stack([wrong.mean(), wrong.new_ones(())]), 1 - MEMORY)

    def forward(self) -> Tensor:
        """Return the factor, (), in (0, 1]."""
        wrong, weight = self.errors
        error = torch.where(weight > 0, wrong / weight, 0.0)
        return (self.gate / error.clamp(min=self.gate)) ** 2
