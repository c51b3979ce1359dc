from pathlib import Path

from okapi.config import find_config, read_config


def test_configs_of_the_package_are_found_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert read_config(Path("configs/sites/erm.yaml")).algorithm.name == "erm"
    assert find_config(Path("configs/sites")).is_dir()


def test_files_of_ones_own_come_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mine = Path("configs/sites/erm.yaml")
    mine.parent.mkdir(parents=True)
    mine.write_text("seed: 1")
    assert find_config(mine) == mine
    for missing in (Path("configs/sites/emr.yaml"), tmp_path / "configs" / "none.yaml", Path("runs/sites/erm.yaml")):
        assert find_config(missing) == missing
