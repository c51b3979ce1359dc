"""What whoever waits for a benchmark sees: a bar in a terminal, a line for each that ends in a file."""

import re
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType

from okapi.benchmark.grid import Cell
from okapi.benchmark.records import RunRecord
from okapi.console import Counting, stderr

_REFRESH = 1.0  # seconds


class Display:
    """Shows how far the runs of a benchmark are; on stderr.

    Parameters
    ----------
    steps : mapping of Cell to int
        Of each run.
    folders : mapping of Cell to Path
        Their run directories.
    ended : collection of Cell
        Those that have ended already.
    """

    def __init__(self, steps: Mapping[Cell, int], folders: Mapping[Cell, Path], ended: Collection[Cell]) -> None:
        self._steps, self._folders, self._ended = steps, folders, set(ended)
        self._done = sum(steps[cell] for cell in self._ended)
        self._is_watched = stderr().is_terminal
        self._bar = Counting(self._done, sum(steps.values()), "steps")
        self._shown = 0.0

    def __enter__(self) -> "Display":
        if self._ended:
            self.say(f"{len(self._ended)} of {len(self._steps)} runs are finished already")
        self._bar.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.__exit__(kind, error, trace)

    def say(self, text: str) -> None:
        """Show a sentence, above the bar."""
        self._bar.say(text)

    def finished(self, run: RunRecord, seconds: float) -> None:
        """Say that a run is finished, and its metric on each split."""
        self._ended.add(run.cell)
        metric = run.config["training"].get("metric")
        values = []
        for split, metrics in run.metrics.items():
            name = metric if metric in metrics else next(iter(metrics), None)
            values += [] if name is None else [f"{split} {name} {metrics[name]:.4g}"]
        took = timedelta(seconds=round(seconds))
        self.say(f"{self._count}: {run.cell} finished in {took}: {', '.join(values)}")

    def failed(self, run: RunRecord, lines: Sequence[str]) -> None:
        """Say that a run failed, with the last lines of its log and where the rest is."""
        self._ended.add(run.cell)
        self.say(f"{self._count}: {run.cell} failed ({run.reason.partition(':')[0]}); its log is {run.log}")
        for line in lines:
            self.say(f"    {line}")

    def update(self, running: Collection[Cell]) -> None:
        """Show the bar anew if it is time, and somebody looks."""
        now = time.monotonic()
        if not self._is_watched or now - self._shown < _REFRESH:
            return
        self._shown = now
        done = sum(self._steps[cell] for cell in self._ended) + sum(last_step(self._folders[cell]) for cell in running)
        if done > self._done:  # a run that is resumed may be a few steps behind
            self._bar.add(done - self._done, f"steps, {self._count} runs")
            self._done = done

    @property
    def _count(self) -> str:
        return f"{len(self._ended)} of {len(self._steps)}"


def last_step(folder: Path) -> int:
    """Return the last step of a run that its metrics.csv has a whole line of; 0 where there is none."""
    try:
        with (folder / "metrics.csv").open("rb") as file:
            file.seek(max(0, (folder / "metrics.csv").stat().st_size - 4096))
            steps = re.findall(rb"^(\d+),.*\n", file.read(), re.MULTILINE)
    except OSError:
        return 0
    return int(steps[-1]) if steps else 0
