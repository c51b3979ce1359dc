"""A wrong config is answered before torch is imported; and every key is explained."""

import subprocess
import sys
from dataclasses import fields

import pytest

from okapi.cli import main
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
        (["--model.width", "wide"], "--model.width must be a whole number from 1 to 65,536, got 'wide'"),
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
    assert (hidden.key, hidden.of, hidden.type) == (
        "model.hidden",
        "mlp",
        "a list, each a whole number from 1 to 65,536",
    )
    assert tuple(hidden.default.strip("[]").split(", ")) == tuple(map(str, MLPSettings().hidden))
    assert {key.of for key in explain("algorithm.matching.k")} == {"okapi", "okapi_plus", "offline_okapi"}
    assert explain("training.step") == []


def test_the_help_of_train_and_okapi_config_list_every_key_with_default_and_meaning(capsys):
    assert main(["config"]) == 0
    listed = capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    assert listed in capsys.readouterr().out
    flat = " ".join(listed.split())
    for key in explain():
        default = f"default {key.default}" if key.default else "must be given"
        assert f"{key.key}: {key.type}, {default}" in flat
        assert key.meaning in flat
    assert max(map(len, listed.splitlines())) <= 100


def test_okapi_config_lists_the_keys_it_is_asked_for(capsys):
    assert main(["config", "algorithm.erm", "algorithm.okapi.matching.k", "data.poverty.fold"]) == 0
    assert capsys.readouterr().out == (
        "If algorithm.name is erm: Empirical risk minimisation has nothing to set.\n\n"
        "If algorithm.name is okapi: The paper's method; the defaults are its PovertyMap experiment, which\n"
        "PAPER pins.\n"
        "algorithm.matching.k: a whole number from 1 to 1,000,000,000, default 5\n    Keys per query.\n\n"
        "If data.name is poverty: PovertyMap of WILDS 2.0.\n"
        "data.fold: one of A, B, C, D, E, default A\n    Which countries are ood_val and ood_test.\n"
    )
    assert main(["config", "training.stepz"]) == 2
    assert capsys.readouterr().err == ("okapi: 'training.stepz' is no key of a config; did you mean training.steps?\n")
