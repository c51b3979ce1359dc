"""Which weights are kept: the best so far by the run's selector, or the last."""

from collections.abc import Mapping
from math import nan
from typing import Any

from okapi.config import ConfigError, TrainingSettings
from okapi.data.dataset import Dataset
from okapi.evaluation import LABEL_FREE, SUFFIXES, Selector, main_metric, metrics_for, plain_metric, selector
from okapi.runs import Selection as Selected

ORACLE = "ood_test"
"""The split that the selector ``oracle`` looks at; its metrics are called ``oracle``."""


def make_selector(settings: TrainingSettings, dataset: Dataset) -> Selector:
    """Return the selector that the settings name, or that the data allows; one that cannot work is a ConfigError."""
    task, name = dataset.task, settings.selector
    if name is None:
        name = "ood_val" if len(dataset.rows("ood_val")) else "id_val" if len(dataset.rows("id_val")) else "last"
    known = metrics_for(task)
    if settings.metric is not None and plain_metric(settings.metric) not in known:
        wanted = f"one of {', '.join(known)}, alone or with {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
        raise ConfigError(f"training.metric must be {wanted}, got {settings.metric!r}")
    if settings.patience is not None and name == "last":
        raise ConfigError("training.patience needs a selector that compares, got selector last")
    try:
        return selector(name, task, settings.metric)
    except ValueError as error:
        raise ConfigError(f"training.{error}") from error


def check_selector(settings: TrainingSettings, dataset: Dataset) -> None:
    """Reject a selector that the data set has not the samples, or the groups, for, or that nobody consented to."""
    chosen = make_selector(settings, dataset)
    if settings.selector == "oracle" and not settings.consent_to_oracle:
        raise ConfigError(
            f"training.selector oracle chooses the weights by {ORACLE}, so that no honest metric of it is left; "
            "say that this is meant by training.consent_to_oracle true"
        )
    for split in chosen.needs:
        if not len(dataset.rows(split)):
            raise ConfigError(f"training.selector is {settings.selector}, but split {split!r} has no samples")
    if settings.metric is not None and "_group_" in settings.metric and dataset.groups is None:
        raise ConfigError(f"training.metric {settings.metric} needs groups, which the data set has not")


class Selection:
    """The best validation so far, and how many there were since.

    Parameters
    ----------
    settings : TrainingSettings
    dataset : Dataset
    """

    def __init__(self, settings: TrainingSettings, dataset: Dataset) -> None:
        self.selector = make_selector(settings, dataset)
        self._shown = settings.metric or main_metric(dataset.task)
        self._patience = settings.patience
        self._step = 0
        self._metrics: dict[str, dict[str, float]] = {}  # of the weights that are kept, by split
        self._since = 0
        self.validations = 0

    @property
    def exhausted(self) -> bool:
        """Whether there were as many validations without a new best as patience allows."""
        return self._patience is not None and self._since >= self._patience

    @property
    def is_label_free(self) -> bool:
        """Whether the weights are kept by a score of unlabelled samples."""
        return self.selector.name in LABEL_FREE

    @property
    def is_oracle(self) -> bool:
        """Whether the weights are kept by what only a test split can tell."""
        return self.selector.name == "oracle"

    def consider(self, step: int, metrics: Mapping[str, Mapping[str, float]]) -> bool:
        """Take the metrics of each split after a step; return whether these weights are to be kept.

        Where metrics say how good the best so far is by now, as an ensemble does, ``{metric}_of_best``, that counts.
        """
        best = self._value(self._metrics) if self._metrics else None
        anew = metrics.get(self.selector.split or "", {}).get(f"{self.selector.metric}_of_best")
        better = self.selector.is_better(self._value(metrics), than=best if anew is None else anew)
        self.validations += 1
        self._since = 0 if better else self._since + 1
        if better:
            self._step, self._metrics = step, {split: dict(values) for split, values in metrics.items()}
        return better

    def sentence(self, step: int, metrics: Mapping[str, Mapping[str, float]]) -> str:
        """Return, for somebody who waits, the metric on each split and which step is the best so far."""
        own = self.selector.split, self.selector.metric
        shown = []
        for split, values in metrics.items():
            name = own[1] if split == own[0] else self._shown
            shown.append(f"{split} {name} {values.get(name, nan):.4g}")
        return f"step {step}: {'  '.join(shown) or 'no validation split'}  (best: step {self._step})"

    def summary(self) -> Selected:
        """Return how the weights were selected, and their validation metrics."""
        return Selected(
            selector=self.selector.name,
            metric=self.selector.metric,
            higher_is_better=self.selector.higher_is_better,
            step=self._step,
            metrics=self._metrics,
        )

    def state_dict(self) -> dict[str, Any]:
        """Return what later validations depend on."""
        return {
            "step": self._step,
            "metrics": self._metrics,
            "since": self._since,
            "validations": self.validations,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go back to a state."""
        self._step, self._metrics, self._since = state["step"], dict(state["metrics"]), state["since"]
        self.validations = state["validations"]

    def _value(self, metrics: Mapping[str, Mapping[str, float]]) -> float:
        return metrics.get(self.selector.split or "", {}).get(self.selector.metric, nan)
