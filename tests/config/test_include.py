"""A config may include others: what wins, what begins anew, what is rejected and which file is named."""

import os
from pathlib import Path

import pytest
import yaml

from okapi.config import ConfigError, read_config

BASE = """
data: {name: sites}
model: {name: mlp, hidden: [16, 8], dropout: 0.5}
algorithm: {name: okapi, matching: {k: 3}, bank: 64}
training: {steps: 10, learning_rate: 0.01}
seed: 4
"""


def write(folder: Path, **files: str) -> Path:
    """Write files, of whose names __ is a folder's end; return the first."""
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / f"{next(iter(files)).replace('__', '/')}.yaml"


def test_own_keys_win_over_included_ones_and_overrides_over_both(tmp_path):
    path = write(
        tmp_path, pacs__mine="include: ../base.yaml\nmodel: {hidden: [2]}\ntraining: {log_every: 7}\nseed: 5", base=BASE
    )
    config = read_config(path)
    assert (config.model.hidden, config.model.dropout) == ((2,), 0.5)  # lists are replaced, not joined
    assert (config.training.steps, config.training.learning_rate, config.training.log_every) == (10, 0.01, 7)
    assert (config.algorithm.matching.k, config.algorithm.matching.std_caliper, config.seed) == (3, 0.2, 5)
    assert read_config(path, [("training.steps", "3")]).training.steps == 3


def test_the_included_file_is_found_from_any_working_directory(tmp_path, monkeypatch):
    path = write(tmp_path, a__mine="include: ../base.yaml\nseed: 1", base=BASE)
    expected = read_config(path)
    (tmp_path / "elsewhere").mkdir()
    for folder in (tmp_path / "elsewhere", tmp_path / "a", tmp_path):
        monkeypatch.chdir(folder)
        assert read_config(Path(os.path.relpath(path))) == expected


def test_the_written_config_has_no_include_and_reads_the_same(tmp_path):
    config = read_config(write(tmp_path, mine="include: base.yaml\nseed: 1", base=BASE))
    text = config.as_yaml()
    assert "include" not in yaml.safe_load(text)
    (tmp_path / "alone").mkdir()
    assert read_config(write(tmp_path / "alone", written=text)) == config


def test_a_section_of_another_name_begins_anew(tmp_path):
    path = write(
        tmp_path, mine="include: base.yaml\nalgorithm: {name: erm}\nmodel: {name: mlp, dropout: 0.1}", base=BASE
    )
    config = read_config(path)
    assert config.algorithm.name == "erm"
    assert (config.model.hidden, config.model.dropout) == ((16, 8), 0.1)  # the same name again goes on
    again = read_config(path, [("algorithm.weight", "2"), ("algorithm.name", "okapi")])  # whatever their order
    assert (again.algorithm.matching.k, again.algorithm.bank, again.algorithm.weight) == (5, 65_536, 2)
    same = read_config(tmp_path / "base.yaml", [("algorithm.name", "okapi"), ("algorithm.weight", "2")])
    assert (same.algorithm.matching.k, same.algorithm.weight) == (3, 2)


def test_an_empty_section_says_nothing(tmp_path):
    path = write(tmp_path, mine="include: base.yaml\ntraining:\n  # steps: 5\n", base=BASE)
    assert read_config(path).training.steps == 10


def test_errors_name_the_file_that_has_the_key(tmp_path):
    def rejected(words: str, overrides: tuple = (), **files: str) -> None:
        with pytest.raises(ConfigError, match=words) as caught:
            read_config(write(tmp_path, **files), overrides)
        assert "\n" not in str(caught.value)

    mine = "include: piece.yaml\nseed: 1"
    rejected(
        r"^\S*/piece\.yaml: training\.stepz is no key of the config; did you mean training\.steps\?",
        mine=mine,
        piece=BASE.replace("{steps: 10", "{stepz: 10"),
    )
    rejected(
        r"^\S*/piece\.yaml: training\.steps must be a whole number from 1 to 1,000,000,000, got 'few'",
        mine=mine,
        piece=BASE.replace("steps: 10", "steps: few"),
    )
    rejected(r"^\S*/piece\.yaml: trainin is no key", mine=mine, piece=BASE.replace("training:", "trainin:"))
    rejected(r"^\S*/mine\.yaml: seed must be a whole number", mine="include: piece.yaml\nseed: -1", piece=BASE)
    rejected(r"^\S*/piece\.yaml: algorithm\.name must be one of", mine=mine, piece=BASE.replace("okapi", "okapy"))
    rejected(
        r"^\S*/mine\.yaml: training\.steps is missing; it must be a whole number .*; give it .* by --training.steps",
        mine=mine,
        piece=BASE.replace("steps: 10, ", ""),
    )
    rejected(
        r"^\S*/piece\.yaml: model must be keys and values, got 3",
        mine=f"{mine}\nmodel: {{}}\ndata: {{name: sites}}",
        piece="model: 3",
    )
    rejected(
        r"^\S*/piece\.yaml: algorithm\.matching is no key of the config; known are none",
        mine=mine,
        piece=BASE.replace("okapi", "erm"),
    )


def test_a_path_that_the_command_line_must_give_is_asked_for(tmp_path):
    path = write(tmp_path, mine=BASE.replace("sites", "image_folder"))
    with pytest.raises(ConfigError, match=r"data\.root is missing; it must be text; .* --data\.root PATH$"):
        read_config(path)
    assert read_config(path, [("data.root", "/pictures")]).data.root == "/pictures"


REJECTED = {
    "include: none.yaml": r"^\S*mine\.yaml includes \S*none\.yaml, which cannot be read: No such file",
    "include: .": r"^\S*mine\.yaml includes \S*, which cannot be read: Is a directory",
    "include: list.yaml": r"^\S*mine\.yaml includes \S*list\.yaml, which must have the keys .*, got \[1, 2\]",
    "include: broken.yaml": r"^\S*mine\.yaml includes \S*broken\.yaml, which is not YAML: ",
    "include: ring.yaml": r"^\S*mine\.yaml includes \S*ring\.yaml, which includes mine\.yaml: only one may include",
    "include: [base.yaml]": r"mine\.yaml: include must be the path of a file, got \['base\.yaml'\]",
    "include: {file: base.yaml}": r"mine\.yaml: include must be the path of a file, got \{",
    "include: 3": r"mine\.yaml: include must be the path of a file, got 3",
    "include:": r"mine\.yaml: include must be the path of a file, got null",
    "include: ''": r"mine\.yaml: include must be the path of a file, got ''",
    "include: /base.yaml": r"mine\.yaml: include must be a path from the file that includes it, got '/base\.yaml'",
}


@pytest.mark.parametrize("text", REJECTED)
def test_what_cannot_be_included(text, tmp_path):
    path = write(tmp_path, mine=text, base=BASE, list="[1, 2]", broken="a: [", ring="include: mine.yaml")
    with pytest.raises(ConfigError, match=REJECTED[text]) as caught:
        read_config(path)
    assert "\n" not in str(caught.value)


def test_sections_are_not_includes(tmp_path):
    with pytest.raises(ConfigError, match=r"mine\.yaml: model\.include is no key of the config"):
        read_config(write(tmp_path, mine=BASE.replace("name: mlp", "name: mlp, include: base.yaml")))
