"""``okapi report``: one page about runs and benchmarks."""

from collections.abc import Sequence
from pathlib import Path

from okapi.benchmark import RunRecord
from okapi.commands.run_samples import encode_run, match_encoded
from okapi.console import working
from okapi.data import check_output, write_text
from okapi.report.run_page import Looked, report_page
from okapi.report.run_records import Gathered, gather, read_record
from okapi.training.errors import RunError

SAMPLES = 2000


def report(
    runs: Sequence[Path],
    *,
    out: Path,
    run: Path | None = None,
    samples: int = SAMPLES,
    overrides: Sequence[tuple[str, str]] = (),
) -> None:
    """Write the page and print where it is; parameters as of ``write_report``."""
    write_report(runs, out, run=run, samples=samples, overrides=overrides)
    print(f"Report: {out} ({out.stat().st_size / 1e6:.1f} MB)")


def write_report(
    folders: Sequence[Path],
    out: Path,
    *,
    run: Path | None = None,
    samples: int = SAMPLES,
    overrides: Sequence[tuple[str, str]] = (),
) -> None:
    """Write one page about some runs: a self-contained HTML file below 5 MB, there as a whole or not at all.

    Parameters
    ----------
    folders : sequence of Path
        Run directories, folders of benchmarks, or folders of run directories.
    out : Path
        The file, ``.html``.
    run : Path, optional
        The run whose matches and map are shown; by default the first finished one of the algorithm okapi, or else the
        first finished one.
    samples : int, default=2000
        How many of its samples are encoded, at most; 0: none, the page has no matches and no map.
    overrides : sequence of (key, text)
        Where its data is, if it was moved: ``("data.root", "/elsewhere")``.
    """
    check_output(out, [".html", ".htm"])
    if samples < 0:
        raise ValueError(f"--samples must be at least 0, got {samples}")
    with working("Reading runs") as now:
        gathered = gather(folders)
        shown = choose_run(gathered, run)
        looked: Looked | str | None = None
        if shown is not None and samples:
            now(f"Encoding samples of {shown.path}")
            looked = look_into(shown.path, samples, overrides)
        now("Making the page")
        write_text(out, report_page(gathered, shown, looked))


def choose_run(gathered: Gathered, wanted: Path | None = None) -> RunRecord | None:
    """Return the run whose matches are shown; None if none is finished, unless one was asked for."""
    if wanted is not None:
        same = [record for record in gathered.runs if record.path.resolve() == wanted.resolve()]
        record = same[0] if same else read_record(wanted)
        if not record.results:
            reason = record.reason or f"{wanted} has no results.json: the run is not finished"
            raise ValueError(f"run must be a finished run: {reason}")
        return record
    finished = [record for record in gathered.runs if record.results]
    okapi = [record for record in finished if record.algorithm in ("okapi", "okapi_plus")]
    return next(iter([*okapi, *finished]), None)


def look_into(path: Path, samples: int, overrides: Sequence[tuple[str, str]] = ()) -> Looked | str:
    """Return a sample of a run's data, encoded and matched; or why that cannot be done."""
    try:
        encoded = encode_run(path, samples, overrides)
        return Looked(encoded, match_encoded(encoded))
    except (ValueError, OSError, RuntimeError, RunError, ImportError) as error:
        return " ".join(str(error).split())[:600]
