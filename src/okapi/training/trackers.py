"""Where metrics go beside metrics.csv: TensorBoard, Weights & Biases."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from importlib.util import find_spec
from typing import Any, Protocol

from okapi.config import Config
from okapi.runs import Run


class Tracker(Protocol):
    """What takes figures."""

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Take the figures of a step, by names such as ``train/loss``."""

    def close(self) -> None:
        """Write what is left."""


class Trackers:
    """The trackers of a config, as one.

    Parameters
    ----------
    config : Config
    run : Run
    run_id : str
        By which Weights & Biases knows the run again.
    step : int
        Steps done before; what was tracked of later ones is replaced.
    """

    def __init__(self, config: Config, run: Run, run_id: str, step: int) -> None:
        made: dict[str, Callable[..., Tracker]] = {"tensorboard": _TensorBoard, "wandb": _WandB}
        self._stack = ExitStack()
        self._trackers: list[Tracker] = []
        for name in config.training.trackers:
            tracker = made[name](config, run, run_id, step)
            self._stack.callback(tracker.close)
            self._trackers.append(tracker)

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Give the figures of a step to all trackers."""
        for tracker in self._trackers:
            tracker.log(step, figures)

    def close(self) -> None:
        """Close all trackers."""
        self._stack.close()


def check_trackers(config: Config) -> None:
    """Refuse trackers that are not installed."""
    for name in config.training.trackers:
        if find_spec(name) is None:
            raise ValueError(
                f"training.trackers names {name}, which is not installed: pip install 'okapi-ssl[tracking]'"
            )


class _TensorBoard:
    def __init__(self, config: Config, run: Run, run_id: str, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # TensorBoard hides events after purge_step that an earlier process wrote.
        self._writer: Any = SummaryWriter(str(run.path / "tensorboard"), purge_step=step + 1 if step else None)

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
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

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        self._run.log(dict(figures), step=step)

    def close(self) -> None:
        self._run.finish()
