"""The runs of a grid, each in a process of its own: of a pool on this machine, or as a job of Slurm."""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from multiprocessing import forkserver
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, TypeAlias

import joblib

from okapi.benchmark.energy import check_energy
from okapi.benchmark.grid import Cell, Grid, save_grid
from okapi.benchmark.progress import Display
from okapi.benchmark.records import FAILED, Results, RunRecord, last_lines, log_file, read_results, read_run
from okapi.benchmark.worker import PRELOAD, SIGNALS, Job, be_run, perform, perform_alone
from okapi.files import locked, write_bytes
from okapi.runs.results import now
from okapi.training.errors import InterruptedRunError

_PATIENCE = 120.0  # seconds that a stopped run has to write a checkpoint
_PAUSE = 0.1  # seconds between looks at the runs
_POOL = multiprocessing.get_context("forkserver")


@dataclass(frozen=True, kw_only=True)
class SlurmSettings:
    """What the job of each run asks of Slurm.

    Parameters
    ----------
    partition : str, optional
    minutes : int
        Time limit of a run; one that is not finished by then is queued again and resumes.
    cpus, gpus : int
    memory_gb : float, optional
    """

    partition: str | None = None
    minutes: int = 24 * 60
    cpus: int = 4
    gpus: int = 0
    memory_gb: float | None = None


def run_benchmark(
    grid: Grid,
    out: Path,
    *,
    workers: int | None = None,
    slurm: SlurmSettings | None = None,
    test: bool = True,
    country: str | None = None,
) -> Results:
    """Make all runs of a grid that are not finished yet; return the results of all that the folder holds.

    Called again after a kill, it resumes: finished runs stay as they are, begun ones are resumed, failed ones are
    tried again. A run that fails, or is killed, does not stop the others.

    Parameters
    ----------
    grid : Grid
    out : Path
        Folder of the benchmark: new, empty, or of an earlier call, whose grid is then enlarged by this one.
    workers : int, optional
        Runs at a time on this machine; by default as many as GPUs, or cores. Where energy is measured: 1. With 0 runs
        are made one by one in this process.
    slurm : SlurmSettings, optional
        Jobs of a cluster instead.
    test : bool
        Whether test splits are opened, once, of each finished run.
    country : str, optional
        Where the machine stands, by three letters: energy is measured.

    Notes
    -----
    A script that calls this needs ``if __name__ == "__main__":``, as for all of ``multiprocessing``.
    """
    if workers is not None and workers < 0:
        raise ValueError(f"workers must be at least 0, got {workers}")
    if country is not None:
        check_energy(country)
    for cell in grid.cells():
        grid.config(cell, out)  # rejects what cannot be, before anything is written
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is not a directory")
    out.mkdir(parents=True, exist_ok=True)
    with locked(out, f"{out} is being benchmarked by another process"):
        if workers is None and (country or _has_several_processes(grid)):
            workers = 1  # a run that shares the machine cannot say what of its energy is its own
        engine, saved = launcher(grid, out, workers, slurm)
        _Benchmark(saved, grid.cells(), out, engine, test, country).run()
        results = read_results(out)
        results.write()
    return results


def launcher(grid: Grid, out: Path, workers: int | None, slurm: SlurmSettings | None) -> "tuple[Engine, Grid]":
    """Return what starts runs, and the grid as it is written down, with the number of threads of each run.

    They share the cores of the machine. As results depend on the number of threads, it stays what it was when the
    benchmark was first launched, however many workers there are later.
    """
    if slurm:
        return Slurm(out / "logs" / "slurm", slurm), save_grid(replace(grid, threads=slurm.cpus), out)
    if workers == 0:
        import torch

        return ThisProcess(), save_grid(replace(grid, threads=torch.get_num_threads()), out)
    gpus, cores = _gpus(grid), joblib.cpu_count()
    slots = min(workers or len(gpus) or cores, len(grid.cells()))
    saved = save_grid(replace(grid, threads=max(1, cores // slots)), out)
    return Pool(min(workers or len(gpus) or max(1, cores // saved.threads), len(grid.cells())), gpus), saved


class ThisProcess:
    """Makes runs here, one by one: what needs no new process is quick to start."""

    slots = 1

    def start(self, job: Job, slot: int) -> "_Ended":
        """Perform a job."""
        with job.log.open("a") as file, redirect_stdout(file), redirect_stderr(file):
            return _Ended(perform(job))


class _Ended:
    def __init__(self, code: int) -> None:
        self._code = code

    def poll(self) -> int:
        return self._code

    def stop(self) -> None: ...

    def kill(self) -> None: ...


class Pool:
    """Processes of this machine, each a copy of one that has imported everything.

    Parameters
    ----------
    slots : int
    gpus : sequence of str
        Names of GPUs; each slot has one, if there are any.
    """

    def __init__(self, slots: int, gpus: Sequence[str] = ()) -> None:
        self.slots, self._gpus = slots, gpus
        _POOL.set_forkserver_preload(PRELOAD)
        # A signal for all processes, as at the end of a Slurm job or when a terminal is closed, is for the benchmark
        # and its runs: if the process that copies itself died of it, the runs could write no checkpoint.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        forkserver.ensure_running()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def start(self, job: Job, slot: int) -> "_Process":
        """Start a process."""
        return _Process(job, self._gpus[slot % len(self._gpus)] if self._gpus else None)


class _Process:
    def __init__(self, job: Job, gpu: str | None) -> None:
        self._process = _POOL.Process(target=be_run, args=(job, gpu))
        self._process.start()

    def poll(self) -> int | None:
        return self._process.exitcode

    def stop(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        if self._process.exitcode is None and self._process.pid:
            with suppress(ProcessLookupError):  # it leads no group yet
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()
            self._process.join()


class Slurm:
    """Jobs of a Slurm cluster, one for each run, by submitit.

    Parameters
    ----------
    folder : Path
        For the files of submitit, on a disk that all machines see.
    settings : SlurmSettings
    """

    slots = sys.maxsize

    def __init__(self, folder: Path, settings: SlurmSettings) -> None:
        if find_spec("submitit") is None:
            raise ValueError("Slurm needs submitit, which is not installed: pip install 'okapi-ssl[slurm]'")
        import submitit

        self._folder = folder
        try:
            self._executor = submitit.AutoExecutor(folder=folder, cluster="slurm")
        except RuntimeError as error:
            raise ValueError(f"Slurm cannot be used here: {error}") from error
        wanted: dict[str, Any] = {
            "name": "okapi",
            "timeout_min": settings.minutes,
            "cpus_per_task": settings.cpus,
            "gpus_per_node": settings.gpus or None,
            "slurm_partition": settings.partition,
            "mem_gb": settings.memory_gb,
        }
        self._executor.update_parameters(**{name: value for name, value in wanted.items() if value is not None})

    def start(self, job: Job, slot: int) -> "_Submitted":
        """Submit a job; or watch the one that an earlier benchmark, which was killed, has submitted."""
        note = job.log.with_suffix(".submitted")
        if note.exists():
            from submitit import SlurmJob

            earlier: Any = SlurmJob(self._folder, note.read_text(encoding="utf-8").strip())
            if earlier.state in _UNFINISHED:  # one that Slurm has forgotten is not waited for
                return _Submitted(earlier)
        submitted = self._executor.submit(_Resumable(job))
        write_bytes(note, f"{submitted.job_id}\n".encode())
        return _Submitted(submitted)


_UNFINISHED = ("PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "REQUEUED", "COMPLETING")


class _Submitted:
    def __init__(self, job: Any) -> None:
        self._job = job

    def poll(self) -> int | None:
        if not self._job.done():
            return None
        try:
            return int(self._job.result())
        except Exception as error:  # whatever submitit, or the machine, made of the job
            return 130 if "CANCEL" in str(error).upper() else 1

    def stop(self) -> None:
        self._job.cancel()

    def kill(self) -> None:
        self._job.cancel()


class _Resumable:
    """Performs a job on a machine of the cluster; where Slurm takes that away it is queued again and resumed."""

    def __init__(self, job: Job) -> None:
        self.job = replace(job, folder=job.folder.resolve(), log=job.log.resolve())

    def __call__(self) -> int:
        return perform_alone(self.job)

    def checkpoint(self) -> Any:
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


Engine: TypeAlias = ThisProcess | Pool | Slurm
"""What starts runs: ``slots`` of them at a time."""
Started: TypeAlias = _Ended | _Process | _Submitted
"""A run that was started: ``poll`` gives its exit code, None while it runs, negative for the signal that killed it;
``stop`` asks it to write a checkpoint and end; ``kill`` ends it at once."""


class _Running(NamedTuple):
    """A run that is being made, the slot that it has, and when it was started."""

    started: Started
    slot: int
    began: float


class _Benchmark:
    """The runs of a benchmark: those to be made, those that are being made, and those that have ended."""

    def __init__(
        self, grid: Grid, cells: Sequence[Cell], out: Path, engine: Engine, test: bool, country: str | None
    ) -> None:
        self._grid, self._out, self._engine, self._test, self._country = grid, out, engine, test, country
        runs = {cell: read_run(grid, cell, out) for cell in cells}
        needed = [grid.needs(cell) for cell, run in runs.items() if not self._has_ended(run)]
        runs = {cell: read_run(grid, cell, out) for cell in needed if cell and cell.is_start} | runs
        self._left = [cell for cell, run in runs.items() if not self._has_ended(run)]
        self._ended = {cell: run for cell, run in runs.items() if self._has_ended(run)}
        self._running: dict[Cell, _Running] = {}
        steps = {cell: grid.config(cell, out).training.steps for cell in runs}
        self._display = Display(steps, {cell: cell.below(out) for cell in runs}, self._ended)

    def run(self) -> None:
        """Make all runs."""
        try:
            with self._display, _signals_interrupt():
                for run in [run for run in self._ended.values() if run.beyond_help]:
                    self._display.failed(run, [run.reason])
                while self._left or self._running:
                    self._collect()
                    self._start()
                    self._display.update(self._running)
                    time.sleep(_PAUSE)
        except KeyboardInterrupt:
            self._stop()
            finished = sum(run.state == "finished" for run in self._ended.values())
            raise InterruptedRunError(
                f"stopped; {finished} of {len(self._ended) + len(self._left) + len(self._running)} runs are finished, "
                f"those begun have written a checkpoint. The same command resumes"
            ) from None
        finally:
            for running in self._running.values():
                running.started.kill()

    def _has_ended(self, run: RunRecord) -> bool:
        return run.beyond_help or (run.state == "finished" and (run.tested or not self._is_tested(run.cell)))

    def _is_tested(self, cell: Cell) -> bool:
        return self._test and not cell.is_start

    def _collect(self) -> None:
        """Take note of the runs that have ended."""
        for cell, running in list(self._running.items()):
            if (code := running.started.poll()) is None:
                continue
            del self._running[cell]
            run = read_run(self._grid, cell, self._out)
            if code != 0 or not self._has_ended(run):
                self._fail(cell, "ended without results" if code == 0 else _meaning(code))
                continue
            self._ended[cell] = run
            self._display.finished(run, time.monotonic() - running.began)

    def _start(self) -> None:
        """Start runs as long as there is room, each after the one that it needs."""
        for cell in list(self._left):
            if len(self._running) >= self._engine.slots:
                return
            needed = self._grid.needs(cell)
            if needed in self._left or needed in self._running:
                continue
            self._left.remove(cell)
            if needed is not None and read_run(self._grid, needed, self._out).state != "finished":
                see = f"see {log_file(self._out, needed)}"
                self._fail(cell, f"it starts from the model of {needed}, which is not finished; {see}")
                continue
            taken = {running.slot for running in self._running.values()}
            slot = next(number for number in range(len(taken) + 1) if number not in taken)
            began = time.monotonic()
            self._running[cell] = _Running(self._engine.start(self._job(cell), slot), slot, began)

    def _job(self, cell: Cell) -> Job:
        log = log_file(self._out, cell)
        _note(log, f"Started {now()}")
        return Job(
            config=self._grid.config(cell, self._out),
            folder=cell.below(self._out),
            log=log,
            threads=self._grid.threads,
            test=self._is_tested(cell),
            country=self._country,
            tracking="process" if 1 < self._engine.slots < sys.maxsize else "machine",
        )

    def _fail(self, cell: Cell, reason: str) -> None:
        log = log_file(self._out, cell)
        lines = last_lines(log)
        _note(log, f"{FAILED}{reason}")
        self._ended[cell] = run = read_run(self._grid, cell, self._out)
        self._display.failed(run, [run.reason] if run.beyond_help else lines)

    def _stop(self) -> None:
        """Ask all runs to write a checkpoint and end, and wait for them; a second Ctrl-C waits no longer."""
        self._display.say(f"Stopping {len(self._running)} runs, which write a checkpoint first")
        for running in self._running.values():
            running.started.stop()
        until = time.monotonic() + _PATIENCE
        try:
            while time.monotonic() < until and any(run.started.poll() is None for run in self._running.values()):
                time.sleep(_PAUSE)
        except KeyboardInterrupt:
            self._display.say("Ending them now")


def _note(log: Path, line: str) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


def _meaning(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _has_several_processes(grid: Grid) -> bool:
    configs = [*grid.methods.values(), *grid.start.values()]
    return any(config.training.devices * config.training.nodes > 1 for config in configs)


def _gpus(grid: Grid) -> list[str]:
    """Return the GPUs that a process may be given, as CUDA_VISIBLE_DEVICES calls them."""
    configs = [*grid.methods.values(), *grid.start.values()]
    if _has_several_processes(grid) or all(config.training.accelerator == "cpu" for config in configs):
        return []
    import torch

    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return [name for name in given.split(",") if name.strip()] if torch.cuda.is_available() else []
    return [str(number) for number in range(torch.cuda.device_count())]


@contextmanager
def _signals_interrupt() -> Iterator[None]:
    """Take a closed terminal, and a request to end, as Ctrl-C."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    try:
        before = {name: signal.signal(name, interrupt) for name in SIGNALS}
    except ValueError:  # only the main thread may
        before = {}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
