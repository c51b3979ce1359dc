"""Every script of benchmarks/ runs on tiny input with --smoke, and leaves no file behind."""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.training.runs import environment

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SCRIPTS = [path for path in sorted(BENCHMARKS.glob("*.py")) if not path.name.startswith("_")]


@pytest.fixture(scope="module")
def variables(tmp_path_factory) -> dict[str, str]:
    """The environment of the scripts: no data, no network for models, and modules are compiled once at the most."""
    folder = tmp_path_factory.mktemp("environment")
    variables = environment(folder) | {"HF_HUB_OFFLINE": "1"}
    variables.pop("OKAPI_DATA", None)
    if variables.pop("PYTHONDONTWRITEBYTECODE", None):
        variables["PYTHONPYCACHEPREFIX"] = str(folder / "compiled")
    return variables


def files_of_project() -> set[Path]:
    return {path for path in BENCHMARKS.rglob("*") if "__pycache__" not in path.parts}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_runs_on_tiny_input(script, variables, tmp_path):
    before = files_of_project()
    command = [sys.executable, str(script), "--smoke"]
    with TemporaryDirectory() as temporary:  # whose name is short: processes that load data make sockets in it
        env = variables | {"TMPDIR": temporary}
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        assert done.stdout
        assert [*tmp_path.iterdir(), *Path(temporary).iterdir()] == []
    assert files_of_project() == before
