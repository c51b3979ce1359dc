"""What a run writes down: means of training figures, validation figures, times."""

from collections.abc import Mapping
from math import isnan
from typing import Any

from okapi.config import Config
from okapi.runs import Run
from okapi.runs.log import METRICS, TIMINGS, CsvLog, rows_until
from okapi.training.trackers import Trackers


class Logbook:
    """Writes metrics.csv, timings.csv and to the trackers.

    Training figures are means over the steps since the last line. Their sums are part of a checkpoint; times are not,
    for two runs never take the same time.

    Parameters
    ----------
    config : Config
    run : Run
    run_id : str
    step : int
        Steps done.
    metrics : str
        What metrics.csv held when the checkpoint that the run resumes from was made.
    """

    def __init__(self, config: Config, run: Run, run_id: str, step: int, metrics: str = "") -> None:
        self._metrics = CsvLog(run.metrics_file, METRICS, metrics)
        self._timings = CsvLog(run.timings_file, TIMINGS, rows_until(run.timings_file, step))
        self._trackers = Trackers(config, run, run_id, step)
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._seconds = self._waited = 0.0
        self._images = 0

    def add(self, figures: Mapping[str, float], *, seconds: float, waited: float, images: int) -> None:
        """Take the figures of a training step, how long it took, waiting for data included, and its images.

        A figure that is NaN says nothing of that step, as the balance of matches does where there are none.
        """
        for name, value in figures.items():
            if not isnan(value):
                self._sums[name] = self._sums.get(name, 0.0) + value
                self._counts[name] = self._counts.get(name, 0) + 1
        self._seconds += seconds
        self._waited += waited
        self._images += images

    def write_training(self, step: int) -> None:
        """Write the means since the last time."""
        self.write_figures(step, "train", {name: total / self._counts[name] for name, total in self._sums.items()})
        speed = self._images / self._seconds
        self._timings.write([(step, self._seconds, speed, self._waited)])
        self._trackers.log(step, {"time/images_per_second": speed, "time/waiting_for_data": self._waited})
        self._sums, self._counts = {}, {}
        self._seconds, self._waited, self._images = 0.0, 0.0, 0

    def write_figures(self, step: int, split: str, figures: Mapping[str, float]) -> None:
        """Write the figures of a split."""
        self._metrics.write((step, split, name, float(value)) for name, value in figures.items())
        self._trackers.log(step, {f"{split}/{name}": float(value) for name, value in figures.items()})

    def state_dict(self) -> dict[str, Any]:
        """Wait until all is on the disk; return what the next line depends on, and metrics.csv so far."""
        self._timings.sync()
        return {"sums": dict(self._sums), "counts": dict(self._counts), "metrics": self._metrics.sync()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go back to a state."""
        self._sums, self._counts = dict(state["sums"]), dict(state["counts"])

    def close(self) -> None:
        """Close files and trackers."""
        self._metrics.close()
        self._timings.close()
        self._trackers.close()
