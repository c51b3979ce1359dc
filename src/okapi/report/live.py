"""A page that follows a run: rewritten every few seconds while the run goes on, complete when it has ended."""

import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from okapi.console import stderr
from okapi.data import check_output, write_text
from okapi.report.run_page import SAMPLES, report_page, write_report
from okapi.report.runs import Gathered, RunRecord, gather, seconds_left

EVERY = 3.0  # seconds
_QUIET = 60  # seconds without a new line after which the page says so


def follow(
    folders: Sequence[Path],
    out: Path,
    *,
    run: Path | None = None,
    samples: int = SAMPLES,
    overrides: Sequence[tuple[str, str]] = (),
    every: float = EVERY,
) -> None:
    """Write the page again and again until all runs have results, then once more with matches and map.

    While runs go on the page has results and curves only and tells browsers to load it again. If this is interrupted
    it stays as it is, but no longer does.

    Parameters
    ----------
    folders, out, run, samples, overrides
        As of ``write_report``.
    every : float
        Seconds between two writings.
    """
    check_output(out, [".html", ".htm"])
    if every <= 0:
        raise ValueError(f"every must be greater than 0, got {every}")
    gathered = gather(folders)
    stderr().print(f"Following {', '.join(map(str, folders))} in {out}; Ctrl-C stops", soft_wrap=True)
    try:
        while goes_on(gathered):
            write_text(out, report_page(gathered, refresh=max(1, round(every)), progress=_progress(gathered)))
            time.sleep(every)
            gathered = gather(folders)
    except KeyboardInterrupt:
        write_text(out, report_page(gathered, progress=f"{_progress(gathered)}; no longer followed"))
        raise
    write_report(folders, out, run=run, samples=samples, overrides=overrides)


def goes_on(gathered: Gathered) -> bool:
    """Return whether a run has begun and not ended, or a benchmark has runs that have not begun."""
    waiting = any(run.state == "waiting" for results in gathered.benchmarks for run in results.runs)
    return waiting or any(record.run.state == "begun" for record in gathered.runs)


def _progress(gathered: Gathered) -> str:
    """Return how far runs are that go on: step 300 of 600, 2 min left."""
    begun = [record for record in gathered.runs if record.run.state == "begun"]
    waiting = sum(run.state == "waiting" for results in gathered.benchmarks for run in results.runs)
    if len(begun) != 1:
        return f"{len(begun)} runs go on" + (f", {waiting} wait" if waiting else "")
    record = begun[0]
    text = f"step {record.step} of {record.steps or '?'}"
    quiet = _quiet(record)
    if quiet > _QUIET:
        return f"{text}, silent for {timedelta(seconds=round(quiet))}"
    left = seconds_left(record)
    return text if left is None else f"{text}, {_duration(left)} left"


def _quiet(record: RunRecord) -> float:
    try:
        return time.time() - (record.path / "metrics.csv").stat().st_mtime
    except OSError:
        return 0.0


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
