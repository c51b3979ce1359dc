"""However a config is changed, it is read or rejected in one sentence; and what is read has every value in range."""

import random
import signal
from copy import deepcopy
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from okapi.config import ConfigError, read_config

FILES = sorted((Path(__file__).parents[2] / "configs").glob("*/*.yaml"))
VALUES = [
    *(None, True, False, 0, 1, -1, 3, 0.5, -0.5, 1e308, -1e308, 1e30, 10**30, float("inf"), float("nan")),
    *("", "auto", "1e400", "\x00", "x" * 10_000, [], [[1]], [None], [1, 2, 3], ["a"]),
    *({}, {"name": "erm"}, {"name": [[1]]}, {"a": {"b": 1}}, {1: 2}),
]
EACH = 5  # mutations of each file, drawn by its number


def places(content, at=()):
    """Yield the path of every key of nested dictionaries."""
    for key, value in content.items():
        yield (*at, key)
        if isinstance(value, dict):
            yield from places(value, (*at, key))


def mutated(content, chance):
    """Return a copy with one key removed, renamed, added or given another value."""
    content = deepcopy(content)
    *above, last = chance.choice(list(places(content)))
    section = content
    for key in above:
        section = section[key]
    kind = chance.choice(["value", "value", "value", "remove", "rename", "add"])
    old = section.pop(last) if kind in ("remove", "rename") else None
    if kind == "rename":
        section[chance.choice(["nmae", 7, None, "", "weight", "steps"])] = old
    elif kind != "remove":
        section[last if kind == "value" else chance.choice(["weight", "bank", "x"])] = chance.choice(VALUES)
    return content


@pytest.fixture
def limit():
    """Let no mutation hang."""

    def stop(*_):
        raise TimeoutError

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(120)
    yield
    signal.alarm(0)


def test_a_mutated_config_is_read_or_rejected_in_one_sentence(tmp_path, limit):
    path, read, sentences = tmp_path / "mutated.yaml", 0, list[str]()
    for number, file in enumerate(FILES):
        content = read_config(file, given(file)).as_dict()
        chance = random.Random(number)
        for _ in range(EACH):
            changed = mutated(content, chance)
            path.write_text(yaml.safe_dump(changed))
            try:
                config = read_config(path)
            except ConfigError as error:
                sentences.append(str(error))
            else:
                read += 1
                path.write_text(config.as_yaml())
                assert read_config(path) == config, changed
    assert read > 50
    assert len(sentences) > 200
    assert [text for text in sentences if "\n" in text or len(text) > 2000 or not text.startswith(str(path))] == []


def given(file):
    """Return what the command line must say for a file."""
    name = yaml.safe_load((file.parent / "base.yaml").read_text())["data"]["name"]
    return [] if name == "sites" else [("data.path" if name in ("arrays", "table") else "data.root", "/data")]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *((key, "null") for key in ("algorithm.weight", "training.accumulate", "training.nodes", "training.trackers")),
        ("model.name", "[[1]]"),
        ("model.width", "1000000000"),
        ("algorithm.bank", "1000000000000"),
        ("training.accumulate", "1000000000000000000000000000000"),
        ("training.steps", "9" * 5000),
        ("model.dropout", "1"),
        ("seed", "2020-99-99"),
    ],
)
def test_values_that_once_failed_or_hung(option, value, limit):
    path = FILES[0].parents[1] / "sites" / "okapi.yaml"
    with pytest.raises(ConfigError, match=rf"^--{option} must be .* got ") as caught:
        read_config(path, [(option, value)])
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("text", ["[" * 3000 + "]" * 3000, "a: " + "{b: " * 3000 + "1" + "}" * 3000])
def test_a_file_nested_3_000_levels_deep(text, tmp_path, limit):
    (tmp_path / "deep.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"deep\.yaml is not a config: its values are nested too deeply"):
        read_config(tmp_path / "deep.yaml")
    sites = FILES[0].parents[1] / "sites" / "erm.yaml"
    with pytest.raises(ConfigError, match=r"^--model\.hidden is no key|^--model\.width must be"):
        read_config(sites, [("model.width", text)])


LETTERS = "abcdefghijkl"
BOMB = ", ".join(
    ["&a [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    + [f"&{one} [{', '.join([f'*{before}'] * 9)}]" for before, one in pairwise(LETTERS)]
)


@pytest.mark.parametrize(
    "place", ["model: {name: mlp, hidden: BOMB}", "model: {name: BOMB}", "data: BOMB", "seed: BOMB"]
)
def test_values_that_hold_themselves_many_times_over(place, tmp_path, limit):
    parts = {"data": "{name: sites}", "model": "{name: mlp}", "algorithm": "{name: erm}", "training": "{steps: 1}"}
    lines = [f"{key}: {value}" for key, value in parts.items() if key != place.partition(":")[0]]
    (tmp_path / "bomb.yaml").write_text("\n".join([*lines, place.replace("BOMB", f"[{BOMB}]")]))
    with pytest.raises(ConfigError, match=r"bomb\.yaml: \S+ must be .* got \[\[1, 1") as caught:
        read_config(tmp_path / "bomb.yaml")
    assert len(str(caught.value)) < 1000
