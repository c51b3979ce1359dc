"""How far a run is: a bar in a terminal, a line now and then in a file."""

import time
from datetime import timedelta
from math import nan
from types import TracebackType

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.text import Text

from okapi.console import stderr


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
        self._console = stderr()
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
        """Show the metrics after a step; where nobody watches only if a line is ``due``."""
        if not self._shown or not (due or self._console.is_terminal):
            return
        seconds = (time.monotonic() - self._began) / max(1, done - self._first) * (self._last - done)
        words = [f"loss {loss:.4g}"]
        if match_rate == match_rate:
            words.append(f"match rate {match_rate:.1%}")
        words += [f"{images_per_second:,.0f} images/s", f"{timedelta(seconds=round(seconds))} left"]
        text = "  ".join(words)
        if self._console.is_terminal:
            self._bar.update(self._task, completed=done, description=text)
        else:
            self.say(f"step {done} of {self._last}  {text}")

    def say(self, text: str) -> None:
        """Show a sentence, above the bar where there is one."""
        if self._shown:
            self._console.print(Text(text), soft_wrap=True)
