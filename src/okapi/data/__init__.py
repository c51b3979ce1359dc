"""What a sample is and how it is read; knows nothing of algorithms."""

from okapi.data.io import TableError, check_output, write_frame, write_text
from okapi.data.tables import Table, read_table

__all__ = ["Table", "TableError", "check_output", "read_table", "write_frame", "write_text"]
