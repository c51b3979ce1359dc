"""What the verb ``okapi benchmark`` calls: all runs of a grid, each in a process of its own."""

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from okapi.benchmark.energy import check_energy
from okapi.benchmark.engines import Engine, Local, Slurm, SlurmSettings, Started
from okapi.benchmark.grid import Cell, Grid
from okapi.benchmark.plan import settle
from okapi.benchmark.results import Results, read_results
from okapi.benchmark.runs import Run, forget_failure, last_lines, log_file, note_failure, read_run
from okapi.benchmark.watching import Watch
from okapi.benchmark.worker import Job
from okapi.files import locked
from okapi.training.errors import InterruptedRunError

_PATIENCE = 120.0  # seconds that a stopped run has to write a checkpoint
_PAUSE = 0.1  # seconds between looks at the runs


@dataclass(frozen=True, kw_only=True)
class Running:
    """How runs are made.

    Parameters
    ----------
    workers : int, optional
        Runs at a time on this machine; by default as many as GPUs, or cores. Where energy is measured: 1.
    slurm : SlurmSettings, optional
        Jobs of a cluster instead.
    test : bool
        Whether test splits are opened, once, of each finished run.
    country : str, optional
        Where the machine stands, by three letters: energy is measured.
    engine : Engine, optional
        One of your own that starts the runs.
    """

    workers: int | None = None
    slurm: SlurmSettings | None = None
    engine: Engine | None = None
    test: bool = True
    country: str | None = None


def run_benchmark(grid: Grid, out: Path, running: Running | None = None) -> Results:
    """Make all runs of a grid that are not finished yet; return the results of all that the folder holds.

    Called again after a kill, it goes on where it was: finished runs stay as they are, begun ones are resumed, failed
    ones are tried again. A run that fails does not keep the others from going on.

    Parameters
    ----------
    grid : Grid
    out : Path
        Folder of the benchmark: new, empty, or of an earlier call, whose grid is then enlarged by this one.
    running : Running, optional
    """
    running = running or Running()
    if running.country is not None:
        check_energy(running.country)
    for cell in grid.cells():
        grid.config(cell, out)  # refuses what cannot be, before anything is written
    with _alone(out):
        _Benchmark(settle(grid, out), grid.cells(), out, running).run()
    results = read_results(out)
    results.write()
    return results


class _Going(NamedTuple):
    """A run that goes on, the slot that it has, and when it was started."""

    started: Started
    slot: int
    began: float


class _Benchmark:
    """The runs of a benchmark: those to be made, those that go on, and those that have ended."""

    def __init__(self, grid: Grid, cells: Sequence[Cell], out: Path, running: Running) -> None:
        self._grid, self._out, self._running = grid, out, running
        runs = {cell: read_run(grid, cell, out) for cell in cells}
        needed = [grid.needs(cell) for cell, run in runs.items() if not self._has_ended(run)]
        runs = {cell: read_run(grid, cell, out) for cell in needed if cell and cell.is_start} | runs
        self._left = [cell for cell, run in runs.items() if not self._has_ended(run)]
        self._ended = {cell: run for cell, run in runs.items() if self._has_ended(run)}
        self._going: dict[Cell, _Going] = {}
        self._engine = self._make_engine()
        steps = {cell: grid.config(cell, out).training.steps for cell in runs}
        self._watch = Watch({cell: (cell.below(out), steps[cell]) for cell in runs}, len(self._ended))

    def run(self) -> None:
        """Make all runs."""
        try:
            with self._watch, _signals_interrupt():
                for run in [run for run in self._ended.values() if run.beyond_help]:
                    self._watch.failed(run, [run.reason], len(self._ended))
                while self._left or self._going:
                    self._collect()
                    self._start()
                    self._watch.show(self._going, self._ended)
                    time.sleep(_PAUSE)
        except KeyboardInterrupt:
            self._stop()
            finished = sum(run.state == "finished" for run in self._ended.values())
            raise InterruptedRunError(
                f"stopped; {finished} of {len(self._watch)} runs are finished, those begun have written a checkpoint. "
                f"The same command goes on"
            ) from None
        finally:
            for going in self._going.values():
                going.started.kill()

    def _is_finished(self, run: Run) -> bool:
        return run.state == "finished" and (run.tested or not self._is_tested(run.cell))

    def _has_ended(self, run: Run) -> bool:
        return self._is_finished(run) or run.beyond_help

    def _is_tested(self, cell: Cell) -> bool:
        return self._running.test and not cell.is_start

    def _make_engine(self) -> Engine:
        if self._running.engine is not None:
            return self._running.engine
        if self._running.slurm is not None:
            return Slurm(self._out / "logs" / "slurm", self._running.slurm)
        settings = [config.training for config in [*self._grid.methods.values(), *self._grid.start.values()]]
        workers = self._running.workers
        several = any(its.devices * its.nodes > 1 for its in settings)
        if workers is None and (several or self._running.country):
            workers = 1  # a run that shares the machine cannot say what of its energy is its own
        gpus = not several and any(its.accelerator != "cpu" for its in settings)
        return Local(len(self._left), workers, gpus, forks=not several)

    def _collect(self) -> None:
        """Take note of the runs that have ended."""
        for cell, going in list(self._going.items()):
            if (code := going.started.poll()) is None:
                continue
            del self._going[cell]
            if code != 0:
                self._fail(cell, f"exit code {code}: {' '.join(last_lines(log_file(self._out, cell), 1))}")
                continue
            run = read_run(self._grid, cell, self._out)
            if not self._is_finished(run):
                self._fail(cell, run.reason or "it ended without results")
                continue
            self._ended[cell] = run
            self._watch.finished(run, time.monotonic() - going.began, len(self._ended))

    def _start(self) -> None:
        """Start runs as long as there is room, each after the one that it needs."""
        for cell in list(self._left):
            if len(self._going) >= self._engine.slots:
                return
            needed = self._grid.needs(cell)
            if needed in self._left or needed in self._going:
                continue
            self._left.remove(cell)
            if needed is not None and read_run(self._grid, needed, self._out).state != "finished":
                its_log = log_file(self._out, needed)
                self._fail(cell, f"it starts from the model of {needed}, which is not finished; see {its_log}")
                continue
            taken = {going.slot for going in self._going.values()}
            slot = next(number for number in range(len(taken) + 1) if number not in taken)
            self._going[cell] = _Going(self._begin(cell, slot), slot, time.monotonic())

    def _begin(self, cell: Cell, slot: int) -> Started:
        forget_failure(self._out, cell)
        alone = self._engine.slots == 1 or self._running.slurm is not None
        job = Job(
            config=self._grid.config(cell, self._out).as_dict(),
            folder=str(cell.below(self._out)),
            test=self._is_tested(cell),
            country=self._running.country,
            tracking="machine" if alone else "process",
        )
        log = log_file(self._out, cell)
        log.parent.mkdir(parents=True, exist_ok=True)
        job.write(log.with_suffix(".json"))
        return self._engine.start(log.with_suffix(".json"), log, slot)

    def _fail(self, cell: Cell, reason: str) -> None:
        note_failure(self._out, cell, reason)
        self._ended[cell] = run = read_run(self._grid, cell, self._out)
        self._watch.failed(run, [run.reason] if run.beyond_help else last_lines(run.log), len(self._ended))

    def _stop(self) -> None:
        """Ask all runs to write a checkpoint and end, and wait for them; a second Ctrl-C waits no longer."""
        self._watch.say(f"Stopping {len(self._going)} runs, which write a checkpoint first")
        for going in self._going.values():
            going.started.stop()
        until = time.monotonic() + _PATIENCE
        try:
            while time.monotonic() < until and any(going.started.poll() is None for going in self._going.values()):
                time.sleep(_PAUSE)
        except KeyboardInterrupt:
            self._watch.say("Ending them now")


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Make a folder, and keep a second benchmark from it."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is not a directory")
    out.mkdir(parents=True, exist_ok=True)
    with locked(out, f"{out} is being benchmarked by another process"):
        yield


@contextmanager
def _signals_interrupt() -> Iterator[None]:
    """Take a closed terminal and a polite kill as Ctrl-C."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    try:
        before = {name: signal.signal(name, interrupt) for name in _POLITE}
    except ValueError:  # only the main thread may
        before = {}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


_POLITE = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
