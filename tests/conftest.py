"""Fixtures shared by all tests."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# Times vary on shared machines, and the first call of a test pays for imports.
settings.register_profile("okapi", deadline=None)
settings.load_profile("okapi")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Return the folder of real data: OKAPI_DATA, else ../shared/data beside the project; skip where there is none."""
    folder = Path(os.environ.get("OKAPI_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data: set OKAPI_DATA to its folder ({folder} does not exist)")
    return folder
