"""One run of a benchmark: train it or resume it, then open its test splits once; the process that does so."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from contextlib import nullcontext
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path

from okapi.benchmark.energy import Tracking, measured
from okapi.config import Config
from okapi.runs import Run

PRELOAD = ["okapi.training.trainer", "okapi.training.evaluating"]
"""What a process of the pool has imported before it is copied for a run."""

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a worker is to do.

    Parameters
    ----------
    config : Config
    folder : Path
        The run directory.
    log : Path
        What the run prints is added to it.
    threads : int
        Of the run's computations.
    test : bool
        Whether test splits are opened.
    country : str, optional
        Where the machine stands; without it energy is not measured.
    tracking : {"machine", "process"}
        Whose energy it is.
    """

    config: Config
    folder: Path
    log: Path
    threads: int = 1
    test: bool = True
    country: str | None = None
    tracking: Tracking = "machine"


def perform(job: Job) -> int:
    """Train or resume a run, evaluate what is not evaluated yet; return an exit code, its error is on stderr."""
    from okapi.training import RunError, resume, train

    run = Run(job.folder)
    try:
        if run.state != "finished":
            with measured(run.path, job.country, job.tracking) if job.country else nullcontext():
                if job.config.training.devices * job.config.training.nodes > 1:
                    _train_by_command(job)
                elif run.state == "begun":
                    resume(run.path)
                else:
                    train(job.config, run.path)
        if job.test:
            _test(run)
    except (RunError, ValueError, OSError) as error:
        sys.stderr.write(f"okapi: {error}\n")
        return error.code if isinstance(error, RunError) else 2
    return 0


def is_tested(run: Run) -> bool:
    """Return whether all test splits of a finished run have been evaluated."""
    return not _sealed(run)


def be_run(job: Job, gpu: str | None) -> None:
    """Be the process of a run; it ends with the benchmark, or with the process that it was forked from.

    It leads a session of its own: Ctrl-C in a terminal reaches the benchmark only, which stops its runs in good order.
    """
    os.setsid()
    _end_with_parents()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    multiprocessing.set_start_method(None, force=True)  # the usual one, for processes that load data
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    sys.exit(perform_alone(job))


def perform_alone(job: Job) -> int:
    """Perform a job in a process that does nothing else: it gets the job's threads and its log."""
    import torch
    from threadpoolctl import threadpool_limits

    os.environ.pop("SLURM_NTASKS", None)  # or the run would take itself for one task of several
    os.environ.update(dict.fromkeys(_THREADS, str(job.threads)))
    torch.set_num_threads(job.threads)
    threadpool_limits(job.threads)
    with job.log.open("ab") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    return perform(job)


def _end_with_parents() -> None:
    benchmark, server = multiprocessing.parent_process(), os.getppid()
    assert benchmark

    def watch() -> None:
        while os.getppid() == server and not wait([benchmark.sentinel], timeout=1):
            pass
        os.killpg(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def _train_by_command(job: Job) -> None:
    """Train by ``okapi train``: Lightning starts the other processes of a run by the command line of its first."""
    run, config = Run(job.folder), job.log.with_suffix(".yaml")
    config.write_text(job.config.as_yaml(), encoding="utf-8")
    words = ["--resume", run.path] if run.state == "begun" else [config, "--out", run.path]
    process = subprocess.Popen([sys.executable, "-m", "okapi", "train", *map(str, words)])
    before = signal.signal(signal.SIGTERM, lambda number, frame: process.terminate())
    code = process.wait()
    signal.signal(signal.SIGTERM, before)
    if code:
        sys.exit(code)


def _sealed(run: Run) -> list[str]:
    """Return the test splits that a finished run has, and that its selected weights are not evaluated on yet."""
    from okapi.data.splits import TESTS  # imports torch

    results = run.results()
    evaluated = {record.split for record in results.evaluations_of_selected()}
    return [
        split
        for split in TESTS
        if results.splits.get(split)
        and not (split in evaluated and (run.path / f"predictions-{split}.parquet").exists())
    ]


def _test(run: Run) -> None:
    from okapi.training.evaluating import Evaluator

    if sealed := _sealed(run):
        evaluator = Evaluator(run.path)
        for split in sealed:
            evaluator.evaluate(split)
