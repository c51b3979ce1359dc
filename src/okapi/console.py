"""The terminal: results on stdout, progress and notes on stderr; a bar where somebody watches, lines in a file."""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.text import Text

_UNBOUNDED = 10_000  # columns: a file has no right edge, so nothing in it is wrapped or cut


_collected: dict[str, list[Any]] | None = None


@contextmanager
def output(as_json: bool) -> Iterator[None]:
    """Print as usual; or tables and notes as one JSON object at the end, and nothing else on stdout."""
    global _collected
    _collected = {"tables": [], "notes": []} if as_json else None
    try:
        yield
        if _collected is not None:
            sys.stdout.write(json.dumps(_collected, indent=2, ensure_ascii=False, allow_nan=False, default=str) + "\n")
    finally:
        _collected = None


def is_collected(kind: str, *things: Any) -> bool:
    """Keep things of the kind "tables" or "notes" for the JSON object, if that is wanted; return whether it is."""
    if _collected is not None:
        _collected[kind] += things
    return _collected is not None


def stdout() -> Console:
    """Return the console for results."""
    width = None if sys.stdout.isatty() else _UNBOUNDED
    quiet = _collected is not None
    return Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False, quiet=quiet)


def stderr() -> Console:
    """Return the console for progress and complaints."""
    return Console(file=sys.stderr, highlight=False, markup=False, emoji=False)


def say(text: str) -> None:
    """Show a sentence, on stderr."""
    stderr().print(Text(text), soft_wrap=True)


def print_notes(console: Console, notes: Sequence[str]) -> None:
    """Print remarks that a reader must not miss."""
    if is_collected("notes", *notes):
        return
    for note in notes:
        console.print()
        console.print(Text.assemble(("Note: ", "bold yellow"), note))


def print_files(console: Console, files: Mapping[str, Path | None]) -> None:
    """Print where results were written."""
    written = {label: path for label, path in files.items() if path is not None}
    if written:
        console.print()
    for label, path in written.items():
        console.print(Text(f"{label}: {path}"), soft_wrap=True)


@contextmanager
def working(task: str) -> Iterator[Callable[[str], None]]:
    """Show what is being done until it is done; what is yielded changes the text."""
    console = stderr()
    if not console.is_terminal:
        say(task)
        yield say
        return
    with console.status(Text(task)) as status:
        yield lambda text: status.update(Text(text))


class Counting:
    """Shows how many of many things are done, and the time left; on stderr.

    Parameters
    ----------
    first, last : int
        How many are done at the start and at the end.
    things : str
    every : float
        Seconds between lines where nobody watches.
    shown : bool
        False shows nothing: of several processes one speaks.
    """

    def __init__(self, first: int, last: int, things: str, every: float = 10.0, shown: bool = True) -> None:
        self._first, self._done, self._last, self._things, self._every = first, first, last, things, every
        self._is_shown, self._console = shown, stderr()
        self._bar = Progress(
            TextColumn("{task.completed:,} of {task.total:,}"),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TextColumn("{task.description}"),
            console=self._console,
            disable=not (shown and self._console.is_terminal),
        )
        self._task = self._bar.add_task("", total=last, completed=first)

    def __enter__(self) -> "Counting":
        self._began = self._latest = time.monotonic()
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._bar.disable:
            self._bar.stop()  # which elsewhere prints an empty line

    def add(self, count: int, text: str = "", due: bool = False) -> None:
        """Note that so many more are done; ``text`` is shown in place of how many a second, ``due`` wants a line."""
        self._done += count
        now = time.monotonic()
        rate = (self._done - self._first) / max(now - self._began, 1e-9)
        left = timedelta(seconds=round((self._last - self._done) / rate))
        text = f"{text or f'{rate:,.0f} {self._things}/s'}  {left} left"
        if self._console.is_terminal:
            self._bar.update(self._task, completed=self._done, description=text)
        elif due or now - self._latest >= self._every or self._done == self._last:
            self._latest = now
            self.say(f"{self._done:,} of {self._last:,} {self._things}  {text}")

    def say(self, text: str) -> None:
        """Show a sentence, above the bar where there is one."""
        if self._is_shown:
            self._console.print(Text(text), soft_wrap=True)
