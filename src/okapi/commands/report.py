"""``okapi report``."""

from collections.abc import Sequence
from pathlib import Path

from okapi.report.run_page import write_report


def report(
    runs: Sequence[Path],
    *,
    out: Path,
    run: Path | None = None,
    samples: int = 2000,
    overrides: Sequence[tuple[str, str]] = (),
) -> None:
    """Write one HTML file about runs and benchmarks."""
    if samples < 0:
        raise ValueError(f"--samples must be at least 0, got {samples}")
    write_report(list(runs), out, run=run, samples=samples, overrides=overrides)
    print(f"Report: {out} ({out.stat().st_size / 1e6:.1f} MB)")
