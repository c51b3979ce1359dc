"""A config is typed, complete in its run directory, and rejected by name where it is wrong."""

from pathlib import Path

import pytest
import yaml

from okapi.config import MAY_CHANGE, ConfigError, TrainingSettings, differences, make_config, read_config

FOLDER = Path(__file__).parents[2] / "configs" / "sites"
CONTENT = {
    "data": {"name": "sites"},
    "model": {"name": "mlp", "hidden": [16]},
    "algorithm": {"name": "okapi", "bank": 64},
    "training": {"steps": 10},
}


def test_a_file_and_overrides_become_typed_settings(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump(CONTENT))
    overrides = [
        ("training.steps", "20"),
        ("training.learning_rate", "1e-3"),
        ("training.trackers", "[tensorboard]"),
        ("training.wandb_project", "007"),
        ("model.hidden", "[8, 4]"),
        ("algorithm.matching.std_caliper", "null"),
        ("seed", "3"),
        ("training.steps", "30"),
    ]
    config = read_config(path, overrides)
    assert config.training == TrainingSettings(
        steps=30, learning_rate=1e-3, trackers=("tensorboard",), wandb_project="007"
    )
    assert config.model.hidden == (8, 4)
    assert (config.algorithm.bank, config.algorithm.matching.std_caliper, config.seed) == (64, None, 3)
    assert (config.data.name, config.model.name, config.algorithm.name) == ("sites", "mlp", "okapi")


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_configs_that_come_with_okapi_are_read_and_read_back(path, tmp_path):
    config = read_config(path)
    assert path.stem.startswith(config.algorithm.name) or path.stem == "base"
    (tmp_path / "all.yaml").write_text(config.as_yaml())
    again = read_config(tmp_path / "all.yaml")
    assert again == config
    assert again.as_dict() == yaml.safe_load((tmp_path / "all.yaml").read_text())


REJECTED = [
    ({"trainng": {}}, [], r"c\.yaml: trainng is no key of the config; did you mean training\?"),
    ({}, [("trainng.steps", "5")], r"^--trainng\.steps is no key of the config; did you mean training\?"),
    (
        {"training": {"stepz": 5}},
        [],
        r"c\.yaml: training\.stepz is no key of the config; did you mean training\.steps\?",
    ),
    ({}, [("training.stepz", "5")], r"^--training\.stepz is no key .*; did you mean training\.steps\?"),
    ({}, [("model.width", "5")], r"^--model\.width is no key of the config; known are hidden, out_features, dropout"),
    ({}, [("algorithm.matching.fixed_calliper", "1")], "did you mean algorithm.matching.fixed_caliper"),
    (
        {"training": {"steps": "many"}},
        [],
        r"c\.yaml: training\.steps must be a whole number from 1 to .*, got 'many'",
    ),
    ({}, [("training.steps", "1.5")], r"^--training\.steps must be a whole number from 1 to .*, got 1\.5"),
    ({}, [("training.steps", "true")], r"^--training\.steps must be a whole number from 1 to .*, got True"),
    (
        {},
        [("training.clip", "none")],
        r"^--training\.clip must be a number of more than 0 .* or null, got 'none'",
    ),
    (
        {},
        [("training.trackers", "wandb")],
        r"^--training\.trackers must be a list, each one of tensorboard, wandb, got",
    ),
    ({}, [("training.trackers", "[tb]")], r"^--training\.trackers must be a list, each one of tensorboard, wandb, got"),
    ({}, [("training.precision", "fp8")], r"^--training\.precision must be one of fp32, bf16, fp16, got 'fp8'"),
    ({}, [("training.steps", "0")], r"^--training\.steps must be a whole number from 1 to .*, got 0"),
    ({}, [("training.steps", "")], r"training\.steps is missing; it must be a whole number"),
    (
        {"training": {"steps": 5, "warm_up": 3}},
        [],
        r"c\.yaml: training\.warm_up must be a number .* less than 1",
    ),
    ({}, [("training.learning_rate", "-1")], r"^--training\.learning_rate must be a number of more than 0 .*, got -1"),
    ({}, [("training.learning_rate", "1e-9")], "final_learning_rate must be at most learning_rate"),
    (
        {},
        [("algorithm.momentum.start", "2")],
        r"^--algorithm\.momentum\.start must be a number from 0 to 1 or auto, got 2",
    ),
    (
        {},
        [("algorithm.name", "okapy")],
        r"^--algorithm\.name must be one of erm, .*; got 'okapy'; did you mean okapi\?",
    ),
    ({"model": {"hidden": [3]}}, [], r"c\.yaml: model\.name must be one of mlp, .*; it is missing"),
    ({"model": 3}, [], r"c\.yaml: model must be keys and values, got 3"),
    ({"model": None}, [], r"c\.yaml: model\.name must be one of mlp, .*; it is missing"),
    ({"training": {"steps": None}}, [], r"training\.steps is missing; it must be a whole number"),
    ({"training": {}}, [], r"c\.yaml: training\.steps is missing; it must be a whole number"),
    (
        {"training": {"steps": "10"}},
        [],
        r"c\.yaml: training\.steps must be a whole number from 1 to .*, got '10'",
    ),
    (
        {"training": {"steps": 1, "clip": "0.5"}},
        [],
        r"c\.yaml: training\.clip must be a number of more than 0 .* or null, got '0\.5'",
    ),
    (
        {"model": {"name": "mlp", "hidden": [8, True]}},
        [],
        r"c\.yaml: model\.hidden must be a list, each a whole number",
    ),
    (
        {},
        [("training.selector", "odd_val")],
        r"^--training\.selector must be .*, got 'odd_val'; did you mean ood_val\?",
    ),
    ({}, [("algorithm.matching", "3")], r"^--algorithm\.matching must be keys and values, got '3'"),
    ({"model": 3}, [("model.name", "mlp")], r"^c\.yaml: model must be keys and values, got 3"),
    ({}, [("seed", "1"), ("seed.x", "1")], r"^--seed\.x must be a whole number"),
    ({"seed": -1}, [], r"c\.yaml: seed must be a whole number from 0 to 4,294,967,295, got -1"),
    ({}, [("seed", "x")], r"^--seed must be a whole number"),
    ({}, [("data.difficulty", "-1")], r"^--data\.difficulty must be a number from 0 to 1,000,000, got -1"),
]


@pytest.mark.parametrize(("changes", "overrides", "words"), REJECTED, ids=[str(row[:2]) for row in REJECTED])
def test_a_wrong_config_is_rejected_by_name(changes, overrides, words):
    with pytest.raises(ConfigError, match=words) as caught:
        make_config({**CONTENT, **changes}, overrides, source="c.yaml")
    assert "\n" not in str(caught.value)


def test_files_that_are_no_configs(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere\.yaml cannot be read: No such file"):
        read_config(tmp_path / "nowhere.yaml")
    for content, words in (("a: [", "is not YAML"), ("", "must have the keys"), ("- 1", "must have the keys")):
        (tmp_path / "c.yaml").write_text(content)
        with pytest.raises(ConfigError, match=words):
            read_config(tmp_path / "c.yaml")
    (tmp_path / "c.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_config(tmp_path / "c.yaml")
    (tmp_path / "c.yaml").write_text("data: !!python/object/apply:os.system ['true']")
    with pytest.raises(ConfigError, match="is not YAML"):
        read_config(tmp_path / "c.yaml")


def test_differences_name_every_key_with_both_values():
    before = make_config(CONTENT).as_dict()
    changes = [("training.steps", "20"), ("algorithm.matching.k", "1"), ("seed", "9"), ("training.workers", "2")]
    after = make_config(CONTENT, [*changes, ("training.trackers", "[wandb]")]).as_dict()
    assert sorted(differences(before, after)) == [
        "algorithm.matching.k: 5 then, 1 now",
        "seed: 0 then, 9 now",
        "training.steps: 10 then, 20 now",
    ]
    other = make_config({**CONTENT, "model": {"name": "cnn"}}).as_dict()
    assert "model.hidden: [16] then, absent now" in differences(before, other)
    assert {key.partition(".")[2] for key in MAY_CHANGE} < set(before["training"])
