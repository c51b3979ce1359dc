"""Benchmarks whose runs all start from the weights of one method: real, tiny runs."""

import json
import shutil
from hashlib import sha256

import pandas as pd
import pytest
from tests.benchmark.small import DOMAINS, benchmark

from okapi.benchmark import compare, make_grid, read_results
from okapi.benchmark.grid import read_grid
from okapi.report.benchmark import comparison_table

METHODS = ["erm", "okapi", "offline_okapi"]
CHOSEN = {"seeds": (0, 1), "targets": DOMAINS[1:3], "start_from": "erm"}
FOLDERS = ("car_toon/seed-0", "car_toon/seed-1", "photo %26 co/seed-0", "photo %26 co/seed-1")


@pytest.fixture(scope="module")
def done(configs, tmp_path_factory):
    """The folder of a benchmark, and the runs in the order in which they were made."""
    out = tmp_path_factory.mktemp("done") / "out"
    return out, benchmark(configs, out, METHODS, **CHOSEN)[1]


def test_each_run_starts_from_the_run_of_its_own_target_and_seed(done):
    out, made = done
    assert {folder.removeprefix(f"{out}/start/erm/") for folder in made[:4]} == set(FOLDERS)
    assert len(made) == 4 + 3 * 4
    for folder in FOLDERS:
        start = out / "start" / "erm" / folder
        before = json.loads((start / "results.json").read_text())
        assert before["started_from"] is None
        assert before["opened"] == {}  # its test splits stay sealed
        for method in METHODS:
            results = json.loads((out / method / folder / "results.json").read_text())
            expected = (str(start), sha256((start / "model.safetensors").read_bytes()).hexdigest(), "erm")
            assert tuple(results["started_from"][key] for key in ("path", "sha256", "algorithm")) == expected
            assert results["opened"]["ood_test"]["times"] == 1
    assert results["config"]["algorithm"]["erm_run"] == str(start)  # of offline Okapi


def test_they_are_in_no_table(done):
    out, _ = done
    runs = pd.read_csv(out / "runs.csv")
    assert len(runs) == 3 * 4 * 2
    assert not runs.path.str.startswith("start").any()
    assert set(runs.state) == {"finished"}
    results = read_results(out)
    table = comparison_table(results, compare(results))
    assert [row[0] for row in table.rows] == METHODS
    assert "Every run starts from the weights of one of erm." in table.caption


def test_again_it_makes_nothing_and_grows_by_what_is_new(done, configs, tmp_path):
    out = shutil.copytree(done[0], tmp_path / "out")
    times = {path: path.stat().st_mtime_ns for path in out.rglob("seed-*/*") if path.is_file()}
    assert benchmark(configs, out, METHODS, **CHOSEN)[1] == []
    made = benchmark(configs, out, ["fixmatch"], **{**CHOSEN, "seeds": (1, 2)})[1]
    assert [folder.removeprefix(f"{out}/") for folder in made] == [
        *(f"start/erm/{folder}/seed-2" for folder in ("car_toon", "photo %26 co")),
        *(f"fixmatch/{folder}/seed-{seed}" for seed in (1, 2) for folder in ("car_toon", "photo %26 co")),
    ]
    assert {path: path.stat().st_mtime_ns for path in times} == times
    for other, words in (
        (None, "start from erm, those of this one from no other run"),
        ("okapi", "of this one from okapi"),
    ):
        with pytest.raises(ValueError, match=words):
            benchmark(configs, out, METHODS, **{**CHOSEN, "start_from": other})
    with pytest.raises(ValueError, match=r"whose erm has another config: training\.steps: 6 then, 7 now"):
        benchmark(configs, out, ["broken"], **CHOSEN, overrides=[("training.steps", "7")])
    assert list(read_grid(out).start) == ["erm"]


def test_finished_runs_outlive_those_that_they_started_from(done, configs, tmp_path):
    out = shutil.copytree(done[0], tmp_path / "out")
    shutil.rmtree(out / "start")
    assert benchmark(configs, out, METHODS, **CHOSEN)[1] == []


def test_a_failed_start_fails_its_own_runs_only(configs, tmp_path):
    out = tmp_path / "out"
    chosen = {"seeds": (0, 1), "start_from": "broken"}
    results, made = benchmark(configs, out, ["okapi"], **chosen)
    assert made == [str(out / "start" / "broken" / "all" / f"seed-{seed}") for seed in (0, 1)]
    words = "it starts from the model of broken (start), seed 1, which is not finished; see "
    assert results.failed[1].reason == f"{words}{out / 'logs' / 'start' / 'broken' / 'all' / 'seed-1.log'}"
    sane, _ = benchmark(configs, tmp_path / "sane", ["okapi"], **{**chosen, "start_from": "erm"})
    assert not sane.failed
    damaged = tmp_path / "sane" / "start" / "erm" / "all" / "seed-1" / "results.json"
    damaged.write_text("{")
    shutil.rmtree(tmp_path / "sane" / "okapi")
    results, made = benchmark(configs, tmp_path / "sane", ["okapi"], **{**chosen, "start_from": "erm"})
    assert [run.cell.seed for run in results.failed] == [1]
    assert made == [str(tmp_path / "sane" / "okapi" / "all" / "seed-0")]


def test_an_unknown_method_names_the_known_ones(configs):
    with pytest.raises(ValueError, match=r"start_from must be a method: method 'ermm' has no config: .* has 'broken'"):
        make_grid([configs], start_from="ermm")
    grid = make_grid([configs], methods=["okapi"], start_from="erm")  # any file of the folder
    assert (list(grid.methods), list(grid.start)) == (["okapi"], ["erm"])
