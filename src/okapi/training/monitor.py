"""What is looked out for while a run trains: a loss that diverges, and a match rate that stays near zero."""

from collections.abc import Mapping
from dataclasses import asdict
from math import ceil
from typing import Any

from okapi.config import Config
from okapi.training.errors import DivergedError

DIVERGED = 1e3  # times the loss of the first step, or of 0.1 if that was less
LOGS = 3  # of so high a mean loss, one after another, or of all there are if they are fewer
FEWEST = 0.01  # match rate over the first tenth of the steps


class Monitor:
    """Looks at the mean metrics of each log; all processes have one, and see the same.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    notes : list of str
        Warnings so far, for results.json.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._needed = min(LOGS, ceil(config.training.steps / config.training.log_every))
        self._first: float | None = None
        self._high = 0
        self._match_rates: list[float] | None = []  # None: judged
        self.notes: list[str] = []

    def see(self, loss: float) -> None:
        """Take the loss of a step; that of the first is what others are compared with."""
        if self._first is None:
            self._first = loss

    def check(self, step: int, metrics: Mapping[str, float]) -> str | None:
        """Return a warning by the mean metrics up to a step, if there is one; raise if the loss diverges."""
        self._check_loss(step, metrics["loss"])
        return self._check_match_rate(step, metrics.get("match_rate"))

    def _check_loss(self, step: int, loss: float) -> None:
        first, settings = self._first or 0.0, self._config.training
        self._high = self._high + 1 if loss > DIVERGED * max(first, 0.1) else 0
        if self._high >= self._needed:
            raise DivergedError(
                f"the loss diverges: it is {loss:.4g} by step {step} and was {first:.4g} at the first; lower "
                f"training.learning_rate ({settings.learning_rate:g}) and begin a new run, this one would diverge again"
            )

    def _check_match_rate(self, step: int, rate: float | None) -> str | None:
        if self._match_rates is None:
            return None
        if rate is not None:
            self._match_rates.append(rate)
        if step * 10 < self._config.training.steps:
            return None
        rates, self._match_rates = self._match_rates, None
        if not rates or (mean := sum(rates) / len(rates)) >= FEWEST:
            return None
        matching = getattr(self._config.algorithm, "matching", None)
        calipers = asdict(matching) if matching else {}
        set_ones = [
            f"algorithm.matching.{name} ({value})"
            for name, value in calipers.items()
            if name.endswith("_caliper") and value is not None and (name, value) != ("fixed_caliper", 1.0)
        ]
        widen = f"Widen {' or '.join(set_ones)}, or set it to null" if set_ones else "Use more samples"
        note = (
            f"match rate {mean:.2%} over the first {step} steps: hardly any sample is matched, so that matching has no "
            f"effect. {widen}; okapi diagnose says whether matching is likely to help on these data"
        )
        self.notes.append(note)
        return note

    def state_dict(self) -> dict[str, Any]:
        """Return what later logs are judged by."""
        rates = None if self._match_rates is None else list(self._match_rates)
        return {"first": self._first, "high": self._high, "match_rates": rates, "notes": list(self.notes)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go back to a state."""
        self._first, self._high, self._match_rates = state["first"], state["high"], state["match_rates"]
        self.notes = list(state["notes"])
