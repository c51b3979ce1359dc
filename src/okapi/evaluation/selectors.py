"""Which of a run's models is kept, by a selector's name.

``id_val`` and ``ood_val`` keep the best on a validation split, ``last`` the last. The label-free ones score unlabelled
samples of the target domains. ``oracle`` looks at ood_test: it is for upper bounds only, and every result names it.
"""

import math
from dataclasses import dataclass
from typing import get_args

from okapi.config import SelectorName
from okapi.data.task import Task
from okapi.evaluation.metrics import higher_is_better, main_metric


@dataclass(frozen=True)
class Selector:
    """Says when a model is to be kept instead of the one kept so far.

    Parameters
    ----------
    name : str
    split : str or None
        Whose metrics count: a validation split, ``unlabelled`` for label-free scores, or ``oracle`` for ood_test.
        None: the last model is kept, whatever its metrics.
    metric : str
        The metric that counts, by its name in ``evaluate``, or a label-free score.
    higher_is_better : bool
    also : tuple of str
        Other splits that must have samples.

    Examples
    --------
    >>> selector("ood_val", Task("regression"), "mse").is_better(0.5, than=0.7)
    True
    """

    name: SelectorName
    split: str | None
    metric: str
    higher_is_better: bool = True
    also: tuple[str, ...] = ()

    @property
    def needs(self) -> tuple[str, ...]:
        """Splits that must have samples."""
        if self.split is None:
            return ()
        return ("ood_test" if self.name == "oracle" else self.split, *self.also)

    def is_better(self, value: float, than: float | None) -> bool:
        """Return whether a value is better than the best so far, None if there is none.

        Of equal ones the earlier is kept. NaN is worse than any number, but better than nothing.
        """
        if self.split is None or than is None:
            return True
        if math.isnan(value) or math.isnan(than):
            return math.isnan(than) and not math.isnan(value)
        return value > than if self.higher_is_better else value < than


LABEL_FREE: dict[str, Selector] = {
    chosen.name: chosen
    for chosen in (
        Selector("entropy", "unlabelled", "entropy", higher_is_better=False),
        Selector("infomax", "unlabelled", "infomax"),
        Selector("corrected_confidence", "unlabelled", "corrected_confidence", also=("id_val",)),
        Selector("thresholded_confidence", "unlabelled", "thresholded_confidence", also=("id_val",)),
        Selector("ensemble", "unlabelled", "ensemble_agreement"),
        Selector("match_quality", "unlabelled", "match_quality"),
    )
}
OF_ANY_TASK = ("ensemble", "match_quality")  # the others need probabilities, which a regression has not


def selector(name: SelectorName, task: Task, metric: str | None = None) -> Selector:
    """Return a selector by its name.

    Parameters
    ----------
    name : {"id_val", "ood_val", "last", "oracle", "entropy", "infomax", "corrected_confidence", ...}
    task : Task
    metric : str, optional
        A metric of ``evaluate``, such as ``accuracy_domain_worst``; by default the task's main metric. Label-free
        selectors go by a score of their own.
    """
    if name not in get_args(SelectorName):
        raise ValueError(f"name must be one of {', '.join(get_args(SelectorName))}, got {name!r}")
    metric = metric or main_metric(task)
    direction = higher_is_better(metric)
    if name not in LABEL_FREE:
        return Selector(name, None if name == "last" else name, metric, direction)
    if task.kind == "regression" and name not in OF_ANY_TASK:
        raise ValueError(f"selector {name} needs probabilities, which a regression does not have")
    return LABEL_FREE[name]
