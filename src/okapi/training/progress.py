"""What somebody who waits gets to see: a bar in a terminal, a line now and then in a file."""

import sys
import time
from datetime import timedelta
from math import nan
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.text import Text


def say(text: str) -> None:
    """Show a sentence, on stderr."""
    _console().print(Text(text), soft_wrap=True)


class Display:
    """Shows how far a run is, its loss, match rate, images per second and the time left; on stderr.

    Parameters
    ----------
    first, last : int
        Steps done at the start and at the end.
    shown : bool
        False shows nothing: of several processes one speaks.
    """

    def __init__(self, first: int, last: int, shown: bool = True) -> None:
        self._first, self._last, self._shown = first, last, shown
        self._console = _console()
        self._began = time.monotonic()
        columns = TextColumn("{task.completed} of {task.total}"), BarColumn(bar_width=24), TaskProgressColumn()
        self._bar = Progress(
            *columns,
            TextColumn("{task.description}"),
            console=self._console,
            disable=not (shown and self._console.is_terminal),
        )
        self._task = self._bar.add_task("", total=last, completed=first)

    def __enter__(self) -> "Display":
        self._began = time.monotonic()
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def update(self, done: int, *, loss: float, match_rate: float = nan, images_per_second: float, due: bool) -> None:
        """Show the figures after a step; where nobody watches only if a line is ``due``."""
        if not self._shown or not (due or self._console.is_terminal):
            return
        seconds = (time.monotonic() - self._began) / max(1, done - self._first) * (self._last - done)
        figures = [f"loss {loss:.4g}"]
        if match_rate == match_rate:
            figures.append(f"match rate {match_rate:.1%}")
        figures += [f"{images_per_second:,.0f} images/s", f"{timedelta(seconds=round(seconds))} left"]
        text = "  ".join(figures)
        if self._console.is_terminal:
            self._bar.update(self._task, completed=done, description=text)
        else:
            self.say(f"step {done} of {self._last}  {text}")

    def say(self, text: str) -> None:
        """Show a sentence, above the bar where there is one."""
        if self._shown:
            self._console.print(Text(text), soft_wrap=True)


class Counting:
    """Shows how many of many things are done, how many a second and the time left; on stderr.

    Parameters
    ----------
    first, last : int
        How many are done at the start and at the end.
    things : str
    every : float
        Seconds between lines where nobody watches.
    """

    def __init__(self, first: int, last: int, things: str, every: float = 10.0) -> None:
        self._first, self._done, self._last, self._things, self._every = first, first, last, things, every
        self._console = _console()
        self._bar = Progress(
            TextColumn("{task.completed:,} of {task.total:,}"),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TextColumn("{task.description}"),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("", total=last, completed=first)

    def __enter__(self) -> "Counting":
        self._began = self._shown = time.monotonic()
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def add(self, count: int) -> None:
        """Say that so many more are done."""
        self._done += count
        now = time.monotonic()
        rate = (self._done - self._first) / max(now - self._began, 1e-9)
        left = timedelta(seconds=round((self._last - self._done) / rate))
        text = f"{rate:,.0f} {self._things}/s  {left} left"
        if self._console.is_terminal:
            self._bar.update(self._task, completed=self._done, description=text)
        elif now - self._shown >= self._every or self._done == self._last:
            self._shown = now
            self._console.print(Text(f"{self._done:,} of {self._last:,}  {text}"), soft_wrap=True)


def _console() -> Console:
    return Console(file=sys.stderr, highlight=False, markup=False, emoji=False)
