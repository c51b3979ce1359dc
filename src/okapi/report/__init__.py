"""What matchings and runs look like to a reader: one HTML page that needs nothing else."""

from typing import TYPE_CHECKING, Any

from okapi.report.page import match_page, sample_pairs, thumbnails, tune_page

if TYPE_CHECKING:
    from okapi.report.run_page import write_report

__all__ = ["match_page", "sample_pairs", "thumbnails", "tune_page", "write_report"]


def __getattr__(name: str) -> Any:
    if name == "write_report":  # on first use: it needs all that trains
        from okapi.report.run_page import write_report

        return write_report
    raise AttributeError(f"module 'okapi.report' has no attribute {name!r}")
