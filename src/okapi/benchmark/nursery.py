"""Runs as copies of one process that has imported everything: each begins at once, not after seconds of imports.

``python -m okapi.benchmark.nursery PARENT`` forks for every run that it is asked for on stdin, and says on stdout with
which code each has ended. The copy goes on as ``python -m okapi.benchmark.worker JOB PARENT`` would. Linux only: there
the libraries that have threads when they are loaded (OpenBLAS, jemalloc) look after them at a fork.
"""

import gc
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
import warnings
import weakref
from contextlib import suppress
from pathlib import Path

from okapi.benchmark import worker

_OWN = 0  # in place of a run, whose numbers begin at 1: the nursery has imported everything
_PAUSE = 0.05  # seconds between looks at the runs


class Nursery:
    """A process that copies itself for every run; it ends with this object, and its runs with it.

    Parameters
    ----------
    environment : dict
        Of all runs.
    log : Path
        What the process says before there is a run is added to it, such as why it could not start.
    """

    def __init__(self, environment: dict[str, str], log: Path) -> None:
        command = [sys.executable, "-m", "okapi.benchmark.nursery", str(os.getpid())]
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                command,
                bufsize=0,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                start_new_session=True,
            )
        weakref.finalize(self, _end, self._process)
        assert self._process.stdin
        assert self._process.stdout
        self._requests, self._answers = self._process.stdin, self._process.stdout.fileno()
        os.set_blocking(self._answers, False)
        self._logs: dict[int, Path] = {}
        self._codes: dict[int, int] = {}

    def is_alive(self) -> bool:
        """Return whether it can start runs."""
        return self._process.poll() is None

    def start(self, job: Path, log: Path, gpu: str | None) -> "Copy":
        """Start the job of a file on a GPU, as CUDA_VISIBLE_DEVICES calls it; what it says is added to the log."""
        run = len(self._logs) + 1
        self._logs[run] = log
        self._ask(run, str(job), str(log), gpu)
        return Copy(self, run)

    def code(self, run: int) -> int | None:
        """Return the exit code of a run, negative for a signal; None while it goes on."""
        alive = self.is_alive()  # asked first: what it said before its end is then read
        self._listen()
        if not alive and run not in self._codes:
            self._codes[run] = 1
            with self._logs[run].open("a", encoding="utf-8") as file:
                code = self._process.returncode
                file.write(f"okapi: the process that starts runs has ended (exit code {code}), and this run with it\n")
        return self._codes.get(run)

    def send(self, run: int, number: int) -> None:
        """Send a signal to a run; SIGKILL also to the processes that it has started."""
        self._listen()
        if _OWN not in self._codes:  # it still imports, and nothing runs
            self._process.kill()
        self._ask(run, number)

    def _listen(self) -> None:
        with suppress(BlockingIOError):
            for line in os.read(self._answers, 1 << 16).splitlines():  # a pipe does not cut lines this short
                if said := re.fullmatch(rb"(\d+) (-?\d+)", line):  # a library may greet on being imported
                    self._codes[int(said[1])] = int(said[2])

    def _ask(self, *words: int | str | None) -> None:
        with suppress(BrokenPipeError):  # whoever asks for the code learns that it has ended
            self._requests.write(json.dumps(words).encode() + b"\n")


class Copy:
    """A run of a nursery."""

    def __init__(self, nursery: Nursery, run: int) -> None:
        self._nursery, self._run = nursery, run

    def poll(self) -> int | None:
        """Return its exit code, None while it runs."""
        return self._nursery.code(self._run)

    def stop(self) -> None:
        """Ask it to write a checkpoint and end."""
        self._nursery.send(self._run, signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self._nursery.send(self._run, signal.SIGKILL)
        while self.poll() is None:
            time.sleep(0.01)


def serve(parent: int) -> int:
    """Start runs until nobody can ask for more; return an exit code: in a copy it is that of the run.

    Lines of JSON are asked for: ``[run, job, log, gpu]``, or ``[run, signal]``. Lines ``run code`` are answered.
    """
    worker.end_with(parent)
    # A signal for all processes of a job, as Slurm sends at its end, is for the runs: if the nursery died of it, they
    # could write no checkpoint. A copy that is not ready for one gets it when it is.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    gc.collect()
    gc.freeze()  # or the collector of each run would write to, and so copy, the pages that all share
    own, going, ended = os.getpid(), dict[int, int](), dict[int, int]()
    requests = os.fdopen(0, "rb", buffering=0, closefd=False)
    _say(_OWN, 0)
    while True:
        if select.select([requests], [], [], _PAUSE)[0]:
            if not (line := requests.readline()):
                return 0
            match json.loads(line):
                case [int(run), str(job), str(log), gpu]:
                    if (pid := _fork()) == 0:
                        _settle(Path(log), gpu)
                        sys.argv = [worker.__file__, job, str(own)]
                        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
                        return worker.main(sys.argv[1:])
                    going[run] = pid
                case [int(run), int(number)] if run in going:
                    _send(going[run], number)
                case [int(run), int(number)]:  # an interrupt kept the benchmark from reading it
                    _say(run, ended[run])
        for run, pid in list(going.items()):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                del going[run]
                ended[run] = os.waitstatus_to_exitcode(status)
                _say(run, ended[run])


def _say(run: int, code: int) -> None:
    os.write(1, f"{run} {code}\n".encode())


def _fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, from Python 3.12 on; see above
        return os.fork()


def _settle(log: Path, gpu: str | None) -> None:
    """Make a copy what a new process would be: a session of its own, with a log and a GPU."""
    os.setsid()
    log.parent.mkdir(parents=True, exist_ok=True)
    with Path(os.devnull).open("rb") as nothing, log.open("ab") as file:
        for number, stream in enumerate((nothing, file, file)):
            os.dup2(stream.fileno(), number)
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu


def _send(pid: int, number: int) -> None:
    if number == signal.SIGKILL:
        with suppress(ProcessLookupError):  # it leads no group yet
            os.killpg(pid, number)
    os.kill(pid, number)  # it has not been waited for: nobody else has its number


def _end(process: subprocess.Popen[bytes]) -> None:
    with process:
        process.kill()


if __name__ == "__main__":
    sys.exit(serve(int(sys.argv[1])))
