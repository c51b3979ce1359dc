"""The supervised loss of each task."""

from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss

from okapi.data.task import Task


def supervised_loss(task: Task, prediction: Tensor, target: Tensor) -> Tensor:
    """Return the mean loss: cross-entropy of classes, squared error of numbers, binary cross-entropy of labels.

    Parameters
    ----------
    task : Task
    prediction : tensor (n, outputs)
        Logits, or the numbers themselves.
    target : tensor (n,), int64, of classes; (n,) or (n, outputs), float, of numbers; (n, outputs), 0 or 1, of labels
    """
    if task.kind == "classification":
        return cross_entropy(prediction, target)
    # Shapes are made equal first: (n, 1) against (n,) would broadcast to every pair of samples.
    target = target.to(prediction.dtype).reshape(prediction.shape)
    if task.kind == "regression":
        return mse_loss(prediction, target)
    return binary_cross_entropy_with_logits(prediction, target)
