"""What the benchmarks share: the option --smoke, time, memory, fresh processes, Markdown."""

import os
import platform
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from matplotlib.figure import Figure

T = TypeVar("T")

_KEEP_MEMORY = dict.fromkeys(("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"), str(1 << 33))
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

_smoke = False


def run_script(
    parser: ArgumentParser,
    run: Callable[[Namespace], None],
    tiny: Callable[[Path], Sequence[str]],
    words: Sequence[str] | None = None,
) -> None:
    """Parse the command line and run a script; with ``--smoke``, on tiny input and in a temporary folder.

    Parameters
    ----------
    parser : ArgumentParser
        Of the script's arguments, all but ``--smoke``.
    run : callable
        Takes the parsed arguments.
    tiny : callable
        Takes a temporary folder, writes tiny input to it if the script needs some, and returns a command line by which
        the script reads it, writes to the folder only and takes seconds.
    words : sequence of str, optional
        The command line; by default that of the process. With ``--smoke`` what else it holds follows that of ``tiny``.

    Examples
    --------
    >>> parser = ArgumentParser()
    >>> _ = parser.add_argument("--steps", type=int, default=600)
    >>> run_script(parser, lambda chosen: print(chosen.steps), lambda folder: ["--steps", "2"], ["--smoke"])
    2
    """
    parser.add_argument("--smoke", action="store_true", help="try the script on tiny input, in a temporary folder")
    words = sys.argv[1:] if words is None else words
    if "--smoke" not in words:
        run(parser.parse_intermixed_args(words))
        return
    global _smoke
    _smoke = True
    try:
        with TemporaryDirectory() as folder:
            run(parser.parse_intermixed_args([*tiny(Path(folder)), *words]))
    finally:
        _smoke = False


def is_smoke() -> bool:
    """Return whether the script is only tried: then nothing is worth a process of its own."""
    return _smoke


def in_fresh_process(function: Callable[..., T], *args: Any, threads: int, keep_memory: bool = False) -> T:
    """Return ``function(*args)`` computed by a new interpreter whose numerical libraries have that many threads.

    The libraries read their thread counts when they are loaded, and a process that has allocated before hides what a
    call allocates; hence a new one per measurement. The function and its arguments are pickled. With ``--smoke`` it is
    this process. With ``keep_memory`` glibc gives no memory back to the system.
    """
    if is_smoke():
        return function(*args)
    variables = dict.fromkeys(_THREAD_VARIABLES, str(threads)) | (_KEEP_MEMORY if keep_memory else {})
    with _environment(variables):  # noqa: SIM117, the pool inherits it
        with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
            return pool.submit(function, *args).result()


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def peak_extra_memory(function: Callable[[], T]) -> tuple[T, float]:
    """Call the function; return its result and by how many bytes the resident set exceeded its size before the call.

    The kernel keeps the high-water mark, so nothing is sampled and no short peak is missed. ``ru_maxrss`` would not
    do: a child inherits its parent's. NaN where there is no Linux ``/proc``.
    """
    status, clear_refs = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    if not clear_refs.exists():
        return function(), float("nan")
    clear_refs.write_text("5")  # resets the mark to the present size
    before = _high_water_mark(status)
    result = function()
    return result, _high_water_mark(status) - before


def _high_water_mark(status: Path) -> int:
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
    return 1024 * int(line.split()[1])


class Report:
    """Markdown that is printed as it grows and written to a file at the end.

    Parameters
    ----------
    title : str
        Heading of the page.
    folder : Path
        Where the page and its figures go; created if absent.
    """

    def __init__(self, title: str, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self._blocks: list[str] = []
        self.add(f"# {title}")

    def add(self, markdown: str) -> None:
        """Print a paragraph, a heading or a list and keep it."""
        self._blocks.append(markdown)
        print(markdown, end="\n\n", flush=True)

    def add_table(self, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Print a table and keep it; the first column is aligned left, the others right."""
        self.add(markdown_table(header, rows))

    def add_figure(self, figure: Figure, name: str, caption: str, formats: Sequence[str] = ("png", "svg")) -> None:
        """Save a figure beside the page and refer to it."""
        for suffix in formats:
            figure.savefig(self.folder / f"{name}.{suffix}", dpi=150)
        self.add(f"![{caption}]({name}.{formats[0]})")

    def write(self, name: str) -> None:
        """Write the page."""
        path = self.folder / name
        path.write_text("\n\n".join(self._blocks) + "\n", encoding="utf-8")
        print(f"Written to {path}")


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a table; the first column is aligned left, the others right."""
    cells = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [" | ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in cells]
    rule = " | ".join(["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])])
    return "\n".join(f"| {line} |" for line in (lines[0], rule, *lines[1:]))


def machine_facts(*packages: str) -> str:
    """Return a Markdown list: the command, the processor, its load at the start and the packages' versions."""
    script = Path(sys.argv[0])
    facts = {
        "command": f"`python {script.parent.name}/{' '.join([script.name, *sys.argv[1:]])}`",
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "load at the start": f"{os.getloadavg()[0]:.1f} processes",
        "versions": ", ".join([f"Python {platform.python_version()}", *(f"{p} {_version(p)}" for p in packages)]),
    }
    return "\n".join(f"- {name}: {value}" for name, value in facts.items())


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"
