"""Which of a run's models is kept: the best on a named validation split, or the last. Test splits do not choose."""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from okapi.data.task import Task
from okapi.evaluation.metrics import higher_is_better, main_metric

SelectorName: TypeAlias = Literal["id_val", "ood_val", "last"]


@dataclass(frozen=True)
class Selector:
    """Says when a model is to be kept instead of the one kept so far.

    Parameters
    ----------
    split : str or None
        The split whose figures count; None: the last model is kept, whatever its figures.
    metric : str
        The figure that counts, by its name in ``evaluate``.
    higher_is_better : bool

    Examples
    --------
    >>> selector("ood_val", Task("regression"), "mse").is_better(0.5, than=0.7)
    True
    """

    split: str | None
    metric: str
    higher_is_better: bool

    def is_better(self, value: float, than: float | None) -> bool:
        """Return whether a figure is better than the best so far, None if there is none.

        Of equal ones the earlier is kept. NaN is worse than any number, but better than nothing.
        """
        if self.split is None or than is None:
            return True
        if math.isnan(value) or math.isnan(than):
            return math.isnan(than) and not math.isnan(value)
        return value > than if self.higher_is_better else value < than


def selector(name: SelectorName, task: Task, metric: str | None = None) -> Selector:
    """Return a selector by its name.

    Parameters
    ----------
    name : {"id_val", "ood_val", "last"}
    task : Task
    metric : str, optional
        A figure of ``evaluate``, such as ``accuracy_domain_worst``; by default the task's main metric.
    """
    if name not in get_args(SelectorName):
        raise ValueError(f"name must be one of {', '.join(get_args(SelectorName))}, got {name!r}")
    metric = metric or main_metric(task)
    return Selector(None if name == "last" else name, metric, higher_is_better(metric))
