"""What matchings, runs, benchmarks and diagnoses look like to a reader: tables, figures and pages."""

from okapi.report.gallery import thumbnails
from okapi.report.match_page import match_page, sample_pairs, tune_page

__all__ = ["match_page", "sample_pairs", "thumbnails", "tune_page"]
