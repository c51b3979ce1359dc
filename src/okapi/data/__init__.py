"""What a sample is and how it is read; knows nothing of algorithms."""

from okapi.data.formats import TableError
from okapi.data.tables import Table, check_output, read_table, write_frame, write_text

__all__ = ["Table", "TableError", "check_output", "read_table", "write_frame", "write_text"]
