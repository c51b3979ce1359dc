"""Which runs a benchmark consists of, and what is refused."""

from pathlib import Path

import pytest
from tests.benchmark.small import DOMAINS

from okapi.benchmark import Cell, make_grid
from okapi.benchmark.grid import folder_name, parse_seeds, read_grid, save_grid
from okapi.commands.benchmark import default_out
from okapi.config import ERMSettings, FixMatchSettings, OkapiPlusSettings
from okapi.config.methods import find_methods, parse_names


def test_every_method_meets_every_target_and_seed_and_its_config_says_so(configs, tmp_path):
    grid = make_grid([configs], seeds=(0, 3), targets=("all",), overrides=[("training.steps", "4")])
    assert list(grid.methods) == ["erm", "fixmatch", "okapi"]
    assert grid.groups == DOMAINS
    assert len(grid.cells()) == len(set(grid.cells())) == 3 * 4 * 2
    config = grid.config(Cell("okapi", "photo & co", 3), tmp_path)
    assert (config.data.held_out, config.seed, config.training.steps) == ("photo & co", 3, 4)


def test_a_domain_that_validates_is_no_target(configs):
    grid = make_grid([configs], methods=["erm"], targets=("all",), overrides=[("data.validation", "art")])
    assert grid.groups == DOMAINS[1:]


def test_offline_okapi_starts_from_the_erm_run_of_its_own_cell(configs, tmp_path):
    grid = make_grid([configs], methods=["offline_okapi", "erm"], seeds=(0, 1))
    cell = Cell("offline_okapi", "all", 1)
    assert grid.needs(cell) == Cell("erm", "all", 1)
    assert grid.config(cell, tmp_path).algorithm.erm_run == str(tmp_path / "erm" / "all" / "seed-1")
    assert grid.needs(Cell("erm", "all", 1)) is None


def test_methods_are_files_of_a_folder_or_the_files_given(configs, tmp_path):
    assert list(find_methods([configs / "okapi.yaml", configs / "broken.yaml"])) == ["okapi", "broken"]
    for paths, methods, message in (
        ([configs], ["ermm"], "method 'ermm' has no config: .* has 'broken', 'erm', 'fixmatch'"),
        ([tmp_path], [], "has no YAML file"),
        ([tmp_path / "none.yaml"], [], "none.yaml does not exist"),
        ([configs / "erm.yaml", configs / ".." / "configs" / "erm.yaml"], [], "files must differ in their names"),
    ):
        with pytest.raises(ValueError, match=message):
            find_methods(paths, methods)


def test_one_file_is_run_by_any_algorithm_with_its_defaults(configs, tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text((configs / "okapi.yaml").read_text())
    grid = make_grid([mine], methods=["erm", "fixmatch", "okapi", "okapi_plus"], start_from="erm")
    found = {name: config.algorithm for name, config in grid.methods.items()}
    assert (found["erm"], found["fixmatch"], found["okapi_plus"]) == (
        ERMSettings(),
        FixMatchSettings(),
        OkapiPlusSettings(),
    )
    assert found["okapi"].bank == 64  # the file's own
    assert len({str((config.data, config.model, config.training)) for config in grid.methods.values()}) == 1
    assert grid.start["erm"].algorithm == ERMSettings()
    assert list(make_grid([mine]).methods) == ["mine"]
    with pytest.raises(ValueError, match="method 'ermm' has no config: it must be one of the algorithms 'erm', 'fixm"):
        make_grid([mine], methods=["ermm"])
    assert default_out([mine]) == Path("runs/mine")
    assert default_out([configs]) == Path("runs/configs")


def test_what_cannot_be_is_refused(configs):
    for chosen, message in (
        ({"targets": ("moon",)}, "targets must be domains .* got 'moon'"),
        ({"folds": ("A",)}, "folds need a data set with the key data.fold, erm is on arrays, which has none"),
        ({"folds": ("A",), "targets": ("all",)}, "cannot both be given"),
        ({"seeds": (1, 1)}, "seeds must be at least one, and each only once"),
    ):
        with pytest.raises(ValueError, match=message):
            make_grid([configs], methods=["erm"], **chosen)


@pytest.mark.parametrize("text", ["", "0", "-1", "a", "1,b", "1.5", "-1,2"])
def test_seeds_that_say_nothing_are_refused(text):
    with pytest.raises(ValueError, match="must be how many seeds"):
        parse_seeds(text)


def test_names_of_folders_are_safe_and_different():
    names = ["a/b", "a_b", "..", ".", "a%2Fb", "a.", "CON fig", "ä", "a:b", ""]
    folders = [folder_name(name) for name in names[:-1]]
    assert len(set(folders)) == len(folders)
    assert not any(set(folder) & set('/\\:*?"<>|') or folder.startswith(".") for folder in folders)
    assert parse_names(" A-C ") == ("A", "B", "C")
    assert parse_names("a, b") == ("a", "b")


def test_a_benchmark_may_grow_but_not_change(configs, tmp_path):
    out = tmp_path / "out"
    save_grid(make_grid([configs], methods=["erm"], seeds=(0, 1)), out)
    grown = save_grid(make_grid([configs], methods=["okapi"], seeds=(1, 2)), out)
    assert (list(grown.methods), grown.seeds) == (["erm", "okapi"], (0, 1, 2))
    assert read_grid(out) == grown
    with pytest.raises(ValueError, match=r"whose erm has another config: training\.steps: 6 then, 7 now; give another"):
        save_grid(make_grid([configs], methods=["erm"], overrides=[("training.steps", "7")]), out)
    with pytest.raises(ValueError, match="neither folds nor targets, this one has targets"):
        save_grid(make_grid([configs], methods=["erm"], targets=("art",)), out)
    assert read_grid(out) == grown
    with pytest.raises(ValueError, match="is not empty and holds no benchmark"):
        save_grid(grown, configs)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": 99}', '{"format": 1, "methods": {"erm": 3}}'])
def test_a_damaged_plan_is_told(content, tmp_path):
    (tmp_path / "benchmark.json").write_text(content)
    with pytest.raises(ValueError, match=r"benchmark\.json cannot be understood"):
        read_grid(tmp_path)
    with pytest.raises(ValueError, match="holds no benchmark"):
        read_grid(tmp_path / "other")
