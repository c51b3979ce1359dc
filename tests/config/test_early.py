"""A wrong config is answered before torch is imported; and every key is explained."""

import subprocess
import sys
from dataclasses import fields

import pytest

from okapi.config import MLPSettings, TrainingSettings, explain

IMPORTS = """
import sys
from okapi.cli import main
code = main(sys.argv[1:])
heavy = [name for name in ("torch", "numpy", "pandas", "transformers") if name in sys.modules]
print(code, *heavy)
"""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--training.stesp", "4"], "--training.stesp is no key of the config; did you mean training.steps?"),
        (["--model.width", "wide"], "--model.width must be a whole number, got 'wide'"),
    ],
)
def test_a_wrong_config_is_answered_before_torch_is_imported(words, message, tmp_path):
    command = [sys.executable, "-c", IMPORTS, "train", "configs/sites/okapi.yaml", "--out", "run", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.split() == ["2"], done.stderr
    assert done.stderr == f"okapi: {message}\n"
    assert list(tmp_path.iterdir()) == []


def test_every_key_is_explained():
    keys = explain()
    assert all(key.meaning and key.type for key in keys)
    assert len({(key.key, key.of) for key in keys}) == len(keys)
    assert {key.key for key in explain("training")} == {f"training.{field.name}" for field in fields(TrainingSettings)}
    hidden = explain("model.mlp.hidden")[0]
    assert (hidden.key, hidden.of, hidden.type) == ("model.hidden", "mlp", "a list, each a whole number")
    assert tuple(hidden.default.strip("[]").split(", ")) == tuple(map(str, MLPSettings().hidden))
    assert {key.of for key in explain("algorithm.matching.k")} == {"okapi", "okapi_plus", "offline_okapi"}
    assert explain("training.step") == []
