"""What a matching looks like to a reader: one HTML page that needs nothing else."""

from okapi.report.page import match_page, sample_pairs, thumbnails, tune_page

__all__ = ["match_page", "sample_pairs", "thumbnails", "tune_page"]
