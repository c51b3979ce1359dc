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
from okapi.files import write_json
from okapi.training import RunError, resume, train
from okapi.training.devices import is_first
from okapi.training.evaluating import TESTS, Evaluator
from okapi.training.finished import changing_results, read_results
from okapi.training.run_directory import RunDirectory

DONE = "benchmarked"
"""The key of results.json with the splits that a benchmark had to evaluate: when it is there, all of them are."""


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
    run = RunDirectory(Path(job.folder))
    if not run.results.exists():
        meter = measured(run.path, job.country, job.tracking) if job.country and is_first() else nullcontext()
        with meter:
            if run.config.exists():
                resume(run.path)
            else:
                train(make_config(job.config, source=job.folder), run.path)
    if job.test and is_first():
        _test(run)


def is_tested(results: dict[str, Any]) -> bool:
    """Return whether the test splits of a run have been opened by a benchmark."""
    return isinstance(results.get(DONE), list)


def _test(run: RunDirectory) -> None:
    if is_tested(read_results(run)):
        return
    evaluator = Evaluator(run.path)
    tests = [split for split in TESTS if len(evaluator.dataset.rows(split))]
    for split in tests:
        if not _is_evaluated(run, split):  # a killed worker may have done it
            evaluator.evaluate(split)
    with changing_results(run) as results:
        results[DONE] = tests


def _is_evaluated(run: RunDirectory, split: str) -> bool:
    results = read_results(run)
    own = results.get("weights", {}).get("sha256")
    found = [record for record in results.get("evaluations", []) if record["split"] == split]
    written = (run.path / f"predictions-{split}.parquet").exists()
    return written and any(record["weights"]["sha256"] == own and not record.get("edited") for record in found)


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
