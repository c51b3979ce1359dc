"""What a run writes down as it goes: metrics.csv, timings.csv, TensorBoard and Weights & Biases."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from importlib.util import find_spec
from math import isnan
from typing import Any, Protocol

from okapi.config import Config
from okapi.runs import Run
from okapi.runs.log import METRICS, TIMINGS, CsvLog, rows_until


class Means:
    """Means of the metrics of training steps since they were last taken; a checkpoint holds their sums.

    A metric that is NaN says nothing of its step, as the balance of matches does where there are none.
    """

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}

    def add(self, metrics: Mapping[str, float]) -> None:
        """Add the metrics of a step."""
        for name, value in metrics.items():
            if not isnan(value):
                self._sums[name] = self._sums.get(name, 0.0) + value
                self._counts[name] = self._counts.get(name, 0) + 1

    def take(self) -> dict[str, float]:
        """Return the means, and begin anew."""
        means = {name: total / self._counts[name] for name, total in self._sums.items()}
        self._sums, self._counts = {}, {}
        return means

    def state_dict(self) -> dict[str, Any]:
        """Return the sums."""
        return {"sums": dict(self._sums), "counts": dict(self._counts)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go back to a state."""
        self._sums, self._counts = dict(state["sums"]), dict(state["counts"])


class Logger:
    """Writes metrics and times; only the first process has one.

    Parameters
    ----------
    config : Config
    run : Run
    run_id : str
        By which Weights & Biases knows the run again.
    step : int
        Steps done before. What was tracked of later ones is replaced.
    metrics : str
        What metrics.csv held when the checkpoint that the run resumes from was made.
    """

    def __init__(self, config: Config, run: Run, run_id: str, step: int, metrics: str = "") -> None:
        self._stack = ExitStack()
        self._metrics = CsvLog(run.metrics_file, METRICS, metrics)
        self._stack.callback(self._metrics.close)
        self._timings = CsvLog(run.timings_file, TIMINGS, rows_until(run.timings_file, step))
        self._stack.callback(self._timings.close)
        self._trackers = [TRACKERS[name](config, run, run_id, step) for name in config.training.trackers]
        for tracker in self._trackers:
            self._stack.callback(tracker.close)

    def write(self, step: int, split: str, metrics: Mapping[str, float]) -> None:
        """Write the metrics of a split."""
        self._metrics.write((step, split, name, float(value)) for name, value in metrics.items())
        self._track(step, ((f"{split}/{name}", value) for name, value in metrics.items()))

    def write_times(self, step: int, seconds: float, images: int, waited: float) -> None:
        """Write how long the steps since the last line took, and how long of it was spent waiting for data."""
        speed = images / seconds
        self._timings.write([(step, seconds, speed, waited)])
        self._track(step, [("time/images_per_second", speed), ("time/waiting_for_data", waited)])

    def sync(self) -> str:
        """Wait until all is on the disk; return what metrics.csv holds."""
        self._timings.sync()
        return self._metrics.sync()

    def close(self) -> None:
        """Close files and trackers."""
        self._stack.close()

    def _track(self, step: int, metrics: Iterable[tuple[str, float]]) -> None:
        named = {name: float(value) for name, value in metrics}
        for tracker in self._trackers:
            tracker.log(step, named)


def check_trackers(config: Config) -> None:
    """Reject trackers that are not installed."""
    for name in config.training.trackers:
        if find_spec(name) is None:
            raise ValueError(
                f"training.trackers names {name}, which is not installed: pip install 'okapi-ssl[tracking]'"
            )


class _Tracker(Protocol):
    def log(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class _TensorBoard:
    def __init__(self, config: Config, run: Run, run_id: str, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # TensorBoard hides events after purge_step that an earlier process wrote.
        self._writer: Any = SummaryWriter(str(run.path / "tensorboard"), purge_step=step + 1 if step else None)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class _WandB:
    def __init__(self, config: Config, run: Run, run_id: str, step: int) -> None:
        import wandb

        self._run: Any = wandb.init(
            project=config.training.wandb_project,
            mode=config.training.wandb_mode,
            dir=str(run.path),
            id=run_id,
            name=run.path.resolve().name,
            resume="allow" if config.training.wandb_mode == "online" else None,
            config=config.as_dict(),
            settings=wandb.Settings(silent=True),
        )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        self._run.finish()


TRACKERS: dict[str, Callable[[Config, Run, str, int], _Tracker]] = {"tensorboard": _TensorBoard, "wandb": _WandB}
