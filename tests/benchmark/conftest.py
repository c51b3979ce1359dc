from pathlib import Path

import pytest
from tests.benchmark.small import write_configs


@pytest.fixture(scope="module")
def configs(tmp_path_factory) -> Path:
    """The folder of the configs of a small data set."""
    return write_configs(tmp_path_factory.mktemp("configs"))
