"""Where runs are made: processes of this machine, or jobs of a Slurm cluster by submitit."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import joblib
import torch

from okapi.benchmark.nursery import Nursery
from okapi.files import write_bytes

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_GOING = ("PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "REQUEUED", "COMPLETING")


class Started(Protocol):
    """A run that was started."""

    def poll(self) -> int | None:
        """Return its exit code, None while it runs."""

    def stop(self) -> None:
        """Ask it to write a checkpoint and end."""

    def kill(self) -> None:
        """End it at once."""


class Engine(Protocol):
    """What starts runs."""

    slots: int
    """How many runs there may be at a time."""

    def start(self, job: Path, log: Path, slot: int) -> Started:
        """Start the job of a file in a slot that is free; what it says is added to the log."""


class Local:
    """Processes of this machine, which share its cores, or its GPUs, evenly.

    Parameters
    ----------
    runs : int
        How many there are to be made.
    workers : int, optional
        How many at a time; by default as many as there are GPUs or, where there are none, cores.
    gpus : bool
        Whether runs may use GPUs.
    forks : bool
        Whether runs on Linux may be copies of a process that has imported everything, which spares them seconds. Not
        those of several processes, which Lightning starts by the command line of the first.
    """

    def __init__(self, runs: int, workers: int | None = None, gpus: bool = True, forks: bool = True) -> None:
        if workers is not None and workers < 1:
            raise ValueError(f"workers must be at least 1, got {workers}")
        cores = joblib.cpu_count()
        self._gpus = _gpus() if gpus else []
        self.slots = max(1, min(workers or len(self._gpus) or cores, runs))
        self.threads = max(1, cores // self.slots)
        self._forks = forks and sys.platform == "linux"
        self._nursery: Nursery | None = None

    def start(self, job: Path, log: Path, slot: int) -> Started:
        """Start a process with its share of cores, and a GPU if there are any."""
        environment = clean_environment() | dict.fromkeys(_THREADS, str(self.threads))
        gpu = self._gpus[slot % len(self._gpus)] if self._gpus else None
        if self._forks:
            if self._nursery is None or not self._nursery.is_alive():
                self._nursery = Nursery(environment, log)
            return self._nursery.start(job, log, gpu)
        if gpu is not None:
            environment["CUDA_VISIBLE_DEVICES"] = gpu
        return _Process(start_process(job, log, environment))


@dataclass(frozen=True, kw_only=True)
class SlurmSettings:
    """What a job of each run asks of Slurm.

    Parameters
    ----------
    partition : str, optional
    minutes : int
        Time limit of a run; one that is not finished by then is queued again and goes on.
    cpus, gpus : int
    memory_gb : float, optional
    cluster : {"slurm", "local"}
        "local": processes of this machine in the manner of submitit, to try it out.
    """

    partition: str | None = None
    minutes: int = 24 * 60
    cpus: int = 4
    gpus: int = 0
    memory_gb: float | None = None
    cluster: str = "slurm"


class Slurm:
    """Jobs of a Slurm cluster, one for each run.

    Parameters
    ----------
    folder : Path
        For the files of submitit, on a disk that all machines see.
    settings : SlurmSettings
    """

    def __init__(self, folder: Path, settings: SlurmSettings) -> None:
        if find_spec("submitit") is None:
            raise ValueError("Slurm needs submitit, which is not installed: pip install 'okapi-ssl[slurm]'")
        import submitit

        self.slots = sys.maxsize
        self._folder, self._settings = folder, settings
        try:
            self._executor = submitit.AutoExecutor(folder=folder, cluster=settings.cluster)
        except RuntimeError as error:
            raise ValueError(f"Slurm cannot be used here: {error}") from error
        wanted: dict[str, Any] = {
            "name": "okapi",
            "timeout_min": settings.minutes,
            "cpus_per_task": settings.cpus,
        }
        if settings.gpus:
            wanted["gpus_per_node"] = settings.gpus
        if settings.partition:
            wanted["slurm_partition"] = settings.partition
        if settings.memory_gb:
            wanted["mem_gb"] = settings.memory_gb
        self._executor.update_parameters(**wanted)

    def start(self, job: Path, log: Path, slot: int) -> Started:
        """Submit a job; or watch the one that an earlier benchmark, which was killed, has submitted."""
        note = job.with_suffix(".submitted")
        if self._settings.cluster == "slurm" and note.exists():
            from submitit import SlurmJob

            earlier: Any = SlurmJob(self._folder, note.read_text(encoding="utf-8").strip())
            if earlier.state in _GOING:  # one that Slurm has forgotten is not waited for
                return _Submitted(earlier)
        submitted = self._executor.submit(_Resumable(job.resolve(), log.resolve(), self._settings.cpus))
        write_bytes(note, f"{submitted.job_id}\n".encode())
        return _Submitted(submitted)


def start_process(job: Path, log: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start a worker that leads a group of processes, and is deaf to the terminal's Ctrl-C."""
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "okapi.benchmark.worker", str(job), str(os.getpid())]
    with log.open("ab") as file:
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def clean_environment() -> dict[str, str]:
    """Return the environment without what would make a run take itself for a part of somebody else's Slurm job."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}


class _Process:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def poll(self) -> int | None:
        return self._process.poll()

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class _Submitted:
    def __init__(self, job: Any) -> None:
        self._job = job

    def poll(self) -> int | None:
        if not self._job.done():
            return None
        try:
            return int(self._job.result())
        except Exception as error:  # whatever submitit, or the machine, made of the job
            return _code(error)

    def stop(self) -> None:
        self._job.cancel()

    def kill(self) -> None:
        self._job.cancel()


class _Resumable:
    """Does a job on a machine of the cluster; where Slurm takes that away it is queued again, and the run goes on."""

    def __init__(self, job: Path, log: Path, cpus: int) -> None:
        self.job, self.log, self.cpus = job, log, cpus

    def __call__(self) -> int:
        environment = clean_environment() | dict.fromkeys(_THREADS, str(self.cpus))
        process = start_process(self.job, self.log, environment)
        try:
            return process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise

    def checkpoint(self) -> Any:
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def _code(error: Exception) -> int:
    """Return an exit code for a job that has none."""
    return 130 if "CANCEL" in str(error).upper() else 1


def _gpus() -> list[str]:
    """Return the GPUs that a process may be given, as CUDA_VISIBLE_DEVICES calls them."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return [name for name in given.split(",") if name.strip()] if torch.cuda.is_available() else []
    return [str(number) for number in range(torch.cuda.device_count())]
