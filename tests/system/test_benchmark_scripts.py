"""Every script of benchmarks/ runs on tiny input with --smoke, and leaves no file behind."""

import subprocess
import sys
from pathlib import Path

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
    folder, temporary = tmp_path / "folder", tmp_path / "temporary"
    folder.mkdir()
    temporary.mkdir()
    before = files_of_project()
    command = [sys.executable, str(script), "--smoke"]
    done = subprocess.run(
        command, cwd=folder, env=variables | {"TMPDIR": str(temporary)}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert [*folder.iterdir(), *temporary.iterdir()] == []
    assert files_of_project() == before
