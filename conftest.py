"""Runs the Python examples of the README and of the guide as tests."""

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser()], patterns=["README.md", "docs/*.md"], excludes=[".venv/*"]
).pytest()
