"""What whoever waits for a benchmark sees: a bar for each run in a terminal, a line for each that ends in a file."""

import re
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from okapi.benchmark.grid import Cell
from okapi.benchmark.results import RunRecord
from okapi.console import stderr

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
        self._console = stderr()
        name = TextColumn("{task.description}", markup=False)
        columns = (name, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._bars = Progress(*columns, console=self._console, auto_refresh=False, transient=True)
        done = sum(steps[cell] for cell in self._ended)
        self._all = self._bars.add_task(self._description, total=sum(steps.values()), completed=done)
        self._bar: dict[Cell, TaskID] = {}
        self._shown = 0.0

    @property
    def _description(self) -> str:
        return f"{len(self._ended)} of {len(self._steps)} runs, steps"

    def __enter__(self) -> "Display":
        if self._ended:
            self.say(f"{len(self._ended)} of {len(self._steps)} runs are finished already")
        if self._console.is_terminal:
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._bars.stop()  # which elsewhere prints an empty line

    def say(self, text: str) -> None:
        """Show a sentence, above the bars."""
        self._console.print(Text(text), soft_wrap=True)

    def finished(self, run: RunRecord, seconds: float) -> None:
        """Say that a run is finished, and its metric on each split."""
        self._end(run.cell)
        metric = run.config["training"].get("metric")
        values = []
        for split, metrics in run.metrics.items():
            name = metric if metric in metrics else next(iter(metrics), None)
            values += [] if name is None else [f"{split} {name} {metrics[name]:.4g}"]
        took = timedelta(seconds=round(seconds))
        self.say(f"{self._count}: {run.cell} finished in {took}: {', '.join(values)}")

    def failed(self, run: RunRecord, lines: Sequence[str]) -> None:
        """Say that a run failed, with the last lines of its log and where the rest is."""
        self._end(run.cell)
        self.say(f"{self._count}: {run.cell} failed ({run.reason.partition(':')[0]}); its log is {run.log}")
        for line in lines:
            self.say(f"    {line}")

    def update(self, running: Collection[Cell]) -> None:
        """Show the bars anew if it is time, and somebody looks."""
        now = time.monotonic()
        if not self._console.is_terminal or now - self._shown < _REFRESH:
            return
        self._shown = now
        done = sum(self._steps[cell] for cell in self._ended)
        for cell in running:
            step = last_step(self._folders[cell])
            if cell not in self._bar:
                self._bar[cell] = self._bars.add_task(str(cell), total=self._steps[cell], completed=step)
            self._bars.update(self._bar[cell], completed=step)
            done += step
        self._bars.update(self._all, completed=done, description=self._description)
        self._bars.refresh()

    @property
    def _count(self) -> str:
        return f"{len(self._ended)} of {len(self._steps)}"

    def _end(self, cell: Cell) -> None:
        self._ended.add(cell)
        if cell in self._bar:
            self._bars.remove_task(self._bar.pop(cell))


def last_step(folder: Path) -> int:
    """Return the last step of a run that its metrics.csv has a whole line of; 0 where there is none."""
    try:
        with (folder / "metrics.csv").open("rb") as file:
            file.seek(max(0, (folder / "metrics.csv").stat().st_size - 4096))
            steps = re.findall(rb"^(\d+),.*\n", file.read(), re.MULTILINE)
    except OSError:
        return 0
    return int(steps[-1]) if steps else 0
