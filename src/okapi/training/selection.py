"""Which weights are kept: the best on a validation split so far, or the last."""

from collections.abc import Mapping
from math import nan
from typing import Any

from okapi.data.task import Task
from okapi.evaluation import Selector, metrics_for, selector
from okapi.training.config import ConfigError
from okapi.training.settings import TrainingSettings

_BY_DOMAIN = ("_domain_mean", "_domain_worst")


def plain_metric(metric: str | None) -> str | None:
    """Return a metric's name without what is done with it over domains."""
    for ending in _BY_DOMAIN if metric else ():
        metric = str(metric).removesuffix(ending)
    return metric


def make_selector(settings: TrainingSettings, task: Task) -> Selector:
    """Return the selector that the settings name, refusing a metric that the task has not."""
    known = metrics_for(task)
    if settings.metric is not None and plain_metric(settings.metric) not in known:
        wanted = f"one of {', '.join(known)}, alone or with {' or '.join(_BY_DOMAIN)}"
        raise ConfigError(f"training.metric must be {wanted}, got {settings.metric!r}")
    if settings.patience is not None and settings.selector == "last":
        raise ConfigError("training.patience needs a selector that compares, got selector last")
    return selector(settings.selector, task, settings.metric)


class Selection:
    """The best validation so far, and how many there were since.

    Parameters
    ----------
    settings : TrainingSettings
    task : Task
    """

    def __init__(self, settings: TrainingSettings, task: Task) -> None:
        self.selector = make_selector(settings, task)
        self._patience = settings.patience
        self._step = 0
        self._figures: dict[str, dict[str, float]] = {}  # of the weights that are kept, by split
        self._since = 0

    @property
    def exhausted(self) -> bool:
        """Whether there were as many validations without a new best as patience allows."""
        return self._patience is not None and self._since >= self._patience

    def consider(self, step: int, figures: Mapping[str, Mapping[str, float]]) -> bool:
        """Take the figures of each split after a step; return whether these weights are to be kept."""
        best = self._value(self._figures) if self._figures else None
        better = self.selector.is_better(self._value(figures), than=best)
        self._since = 0 if better else self._since + 1
        if better:
            self._step, self._figures = step, {split: dict(its) for split, its in figures.items()}
        return better

    def sentence(self, step: int, figures: Mapping[str, Mapping[str, float]]) -> str:
        """Return, for somebody who waits, the metric on each split and which step is the best so far."""
        metric = self.selector.metric
        shown = "  ".join(f"{split} {metric} {its.get(metric, nan):.4g}" for split, its in figures.items())
        return f"step {step}: {shown or 'no validation split'}  (best: step {self._step})"

    def as_dict(self) -> dict[str, Any]:
        """Return how the weights were selected, and their validation figures."""
        return {
            "selector": self.selector.split or "last",
            "metric": self.selector.metric,
            "higher_is_better": self.selector.higher_is_better,
            "step": self._step,
            "figures": self._figures,
        }

    def state_dict(self) -> dict[str, Any]:
        """Return what later validations depend on."""
        return {"step": self._step, "figures": self._figures, "since": self._since}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go back to a state."""
        self._step, self._figures, self._since = state["step"], dict(state["figures"]), state["since"]

    def _value(self, figures: Mapping[str, Mapping[str, float]]) -> float:
        return figures.get(self.selector.split or "", {}).get(self.selector.metric, nan)
