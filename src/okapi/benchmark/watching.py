"""What somebody who waits for a benchmark gets to see: a live table in a terminal, a line for each run in a file."""

import sys
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from okapi.benchmark.grid import ALL, Cell
from okapi.benchmark.runs import Run

_REFRESH = 1.0  # seconds


class Watch:
    """Shows how far the runs of a benchmark are; on stderr.

    Parameters
    ----------
    runs : mapping of Cell to (Path, int)
        The directory and the number of steps of each run.
    finished : int
        How many are finished already.
    """

    def __init__(self, runs: Mapping[Cell, tuple[Path, int]], finished: int) -> None:
        self._runs = dict(runs)
        self._console = Console(file=sys.stderr, highlight=False, markup=False, emoji=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._began = self._shown = time.monotonic()
        self._first: dict[Cell, int] = {}  # the step at which this process found a run
        self._finished_before = finished

    def __len__(self) -> int:
        return len(self._runs)

    def __enter__(self) -> "Watch":
        self._began = time.monotonic()
        if self._finished_before:
            self.say(f"{self._finished_before} of {len(self)} runs are finished already")
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        """Show a sentence, above the table."""
        self._console.print(Text(text), soft_wrap=True)

    def finished(self, run: Run, seconds: float, ended: int) -> None:
        """Say that a run is finished, and what it found: the figure that its weights were selected by."""
        metric = run.results["config"]["training"].get("metric")
        shown = []
        for split, figures in run.figures.items():
            name = metric if metric in figures else next(iter(figures), None)
            shown += [] if name is None else [f"{split} {name} {figures[name]:.4g}"]
        took = timedelta(seconds=round(seconds))
        self.say(f"{ended} of {len(self)}: {run.cell} finished in {took}: {', '.join(shown)}")

    def failed(self, run: Run, lines: Sequence[str], ended: int) -> None:
        """Say that a run failed, with the last lines of its log and where the rest is."""
        self.say(f"{ended} of {len(self)}: {run.cell} failed ({run.reason.partition(':')[0]}); its log is {run.log}")
        for line in lines:
            self.say(f"    {line}")

    def show(self, going: Collection[Cell], ended: Mapping[Cell, Run]) -> None:
        """Show the table anew if it is time, and somebody looks."""
        now = time.monotonic()
        if self._console.is_terminal and now - self._shown >= _REFRESH:
            self._shown = now
            self._live.update(self.table(going, ended), refresh=True)

    def table(self, going: Collection[Cell], ended: Mapping[Cell, Run]) -> Group:
        """Return the table of methods and targets: how many runs are in which state, and how far those are that run."""
        methods, groups = (
            list(dict.fromkeys(getattr(cell, name) for cell in self._runs)) for name in ("called", "group")
        )
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
        for heading in ("method", *("runs" if group == ALL else group for group in groups)):
            table.add_column(Text(heading))
        progress = {cell: read_progress(self._runs[cell][0]) for cell in going}
        for cell, (step, _) in progress.items():
            self._first.setdefault(cell, step)
        for method in methods:
            cells = [[cell for cell in self._runs if (cell.called, cell.group) == (method, group)] for group in groups]
            table.add_row(Text(method), *(self._cell(its, progress, ended) for its in cells))
        done = sum(run.state == "finished" for run in ended.values())
        line = f"{done} of {len(self)} runs finished, {len(going)} running, {self._left(progress, ended)}"
        return Group(table, Text(line))

    def _cell(
        self, cells: Sequence[Cell], progress: Mapping[Cell, tuple[int, float | None]], ended: Mapping[Cell, Run]
    ) -> Text:
        states = [ended[cell].state for cell in cells if cell in ended]
        running = [cell for cell in cells if cell in progress]
        counts = {
            "done": states.count("finished"),
            "failed": len(states) - states.count("finished"),
            "running": len(running),
            "waiting": len(cells) - len(states) - len(running),
        }
        text = Text(", ".join(f"{count} {name}" for name, count in counts.items() if count))
        for cell in running:
            step, loss = progress[cell]
            said = "" if loss is None else f", loss {loss:.4g}"
            text.append(f"\nseed {cell.seed}: step {step} of {self._runs[cell][1]}{said}", style="dim")
        if counts["failed"]:
            text.highlight_words([f"{counts['failed']} failed"], style="red")
        return text

    def _left(self, progress: Mapping[Cell, tuple[int, float | None]], ended: Mapping[Cell, Run]) -> str:
        """Return the time left in words, by how many steps were done since the beginning."""
        done = sum(step - self._first[cell] for cell, (step, _) in progress.items())
        done += sum(self._runs[cell][1] - first for cell, first in self._first.items() if cell in ended)
        left = sum(steps for cell, (_, steps) in self._runs.items() if cell not in ended and cell not in progress)
        left += sum(self._runs[cell][1] - step for cell, (step, _) in progress.items())
        seconds = time.monotonic() - self._began
        return f"{timedelta(seconds=round(seconds / done * left))} left" if done > 0 else "time left not known yet"


def read_progress(folder: Path) -> tuple[int, float | None]:
    """Return the last step that a run has written down, and its loss."""
    try:
        with (folder / "metrics.csv").open("rb") as file:
            file.seek(max(0, (folder / "metrics.csv").stat().st_size - 8192))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return 0, None
    for line in reversed(lines):
        cells = line.split(",")
        if len(cells) == 4 and cells[1:3] == ["train", "loss"] and cells[0].isdigit():
            try:
                return int(cells[0]), float(cells[3])
            except ValueError:
                continue
    return 0, None
