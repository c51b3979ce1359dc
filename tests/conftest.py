"""Fixtures shared by all tests."""

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# The problems of the tests are small: threads that wait for one another would cost more than they save. NumPy,
# scikit-learn and torch, and those of the programs that tests start, look at it when they are imported.
os.environ["OMP_NUM_THREADS"] = "1"

from tests.training.runs import environment

# A shell that starts the tests in the background makes them, and the programs they start, deaf to Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Times vary on shared machines, and the first call of a test pays for imports: no deadline. A run says the same of the
# same code every time; new examples are looked for with `pytest --hypothesis-profile=explore`.
settings.register_profile("okapi", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=2000)
settings.load_profile("okapi")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Return the folder of real data: OKAPI_DATA, else ../shared/data beside the project; skip where there is none."""
    folder = Path(os.environ.get("OKAPI_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data: set OKAPI_DATA to its folder ({folder} does not exist)")
    return folder


@pytest.fixture
def free_port() -> int:
    """Return a port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def quick_start(tmp_path_factory) -> Iterator[None]:
    """Let processes start quickly, and not wait for one another."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(tmp_path_factory.mktemp("environment")).items():
            patch.setenv(name, value)
        yield
