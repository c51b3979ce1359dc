"""One run of a benchmark, in a process of its own: train or go on, then open the test splits once.

``python -m okapi.benchmark.worker JOB PARENT``: a file that a benchmark wrote, and the process that it is to end with.
"""

import ctypes
import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from okapi.benchmark.energy import Tracking, measured
from okapi.config import make_config
from okapi.data.splits import TESTS
from okapi.files import write_json
from okapi.runs import Run
from okapi.training import RunError, resume, train
from okapi.training.devices import is_first
from okapi.training.evaluating import Evaluator


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a worker is to do.

    Parameters
    ----------
    config : dict
        Of the run, with all its keys.
    folder : str
        The run directory.
    test : bool
        Whether test splits are opened.
    country : str, optional
        Where the machine stands; null: energy is not measured.
    tracking : {"machine", "process"}
        Whose energy it is.
    """

    config: dict[str, Any]
    folder: str
    test: bool = True
    country: str | None = None
    tracking: Tracking = "machine"

    def write(self, path: Path) -> None:
        """Write it to a file."""
        write_json(path, asdict(self))


def perform(job: Job) -> None:
    """Train, or go on, to the end of the run; then evaluate what is not evaluated yet."""
    run = Run(Path(job.folder))
    if run.state != "finished":
        meter = measured(run.path, job.country, job.tracking) if job.country and is_first() else nullcontext()
        with meter:
            if run.state == "begun":
                resume(run.path)
            else:
                train(make_config(job.config, source=job.folder), run.path)
    if job.test and is_first():
        _test(run)


def _test(run: Run) -> None:
    if run.results().benchmarked is not None:
        return
    evaluator = Evaluator(run.path)
    tests = [split for split in TESTS if len(evaluator.dataset.rows(split))]
    for split in tests:
        if not _is_evaluated(run, split):  # a killed worker may have done it
            evaluator.evaluate(split)
    with run.changing_results() as results:
        results.benchmarked = tests


def _is_evaluated(run: Run, split: str) -> bool:
    written = (run.path / f"predictions-{split}.parquet").exists()
    return written and any(record.split == split for record in run.results().evaluations_of_selected())


def end_with(parent: int) -> None:
    """Let the system kill this process when its parent dies, so that nobody trains on unseen; Linux only.

    Elsewhere the lock of the run directory keeps a second benchmark from writing to the same run.
    """
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
        if os.getppid() != parent:  # it died before we asked
            os.kill(os.getpid(), signal.SIGKILL)


def main(words: Sequence[str]) -> int:
    """Do the job of a file; return 0, 1 for a run that had to stop, 2 for bad input, 130 where it was asked to stop."""
    path, parent = words
    end_with(int(parent))
    try:
        perform(Job(**json.loads(Path(path).read_text(encoding="utf-8"))))
    except (RunError, ValueError, OSError) as error:
        sys.stderr.write(f"okapi: {error}\n")
        return error.code if isinstance(error, RunError) else 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
