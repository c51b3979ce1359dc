"""Benchmarks of real, tiny runs: tables equal what the runs found, and nothing finished is made again."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests.benchmark.small import DOMAINS, benchmark

from okapi import __version__
from okapi.benchmark import Cell, Comparison, Results, RunRecord, compare, make_grid, paired_difference, read_results
from okapi.benchmark.energy import compare_energy, newest_step, read_energy
from okapi.report.benchmark import comparison_table, energy_table
from okapi.runs import Run
from okapi.runs.results import Results as RunResults
from okapi.runs.results import Selection, WeightsFile
from okapi.table import Table


@pytest.fixture(scope="module")
def done(configs, tmp_path_factory):
    """Two methods, two targets, two seeds."""
    out = tmp_path_factory.mktemp("done") / "out"
    benchmark(configs, out, ["erm", "okapi"], seeds=(0, 1), targets=DOMAINS[1:3])
    return out


@pytest.fixture
def copy(done, tmp_path):
    return shutil.copytree(done, tmp_path / "out")


def compared(results: Results, split: str | None = None, metric: str | None = None) -> tuple[Comparison, Table]:
    """Return the comparison of some results, and its table."""
    comparison = compare(results, split, metric)
    return comparison, comparison_table(results, comparison)


def found(out, method, target, seed):
    """Return the accuracy on ood_test as the run itself has it."""
    folder = {"car_toon": "car_toon", "photo & co": "photo %26 co", "all": "all"}[target]
    results = json.loads((out / method / folder / f"seed-{seed}" / "results.json").read_text())
    (record,) = [its for its in results["evaluations"] if its["split"] == "ood_test"]
    assert results["opened"]["ood_test"]["times"] == 1
    return record["metrics"]["accuracy"]


def test_the_table_is_what_the_runs_found(done):
    results = read_results(done)
    frame = compare(results).frame.set_index(["method", "target"])
    values = {
        method: {(target, seed): found(done, method, target, seed) for target in DOMAINS[1:3] for seed in range(2)}
        for method in ("erm", "okapi")
    }
    for method, its in values.items():
        array = np.array(list(its.values())).reshape(2, 2)
        for row, target in zip(array, DOMAINS[1:3], strict=True):
            assert frame.loc[(method, target), "mean"] == pytest.approx(row.mean())
            assert frame.loc[(method, target), "standard_deviation"] == pytest.approx(row.std(ddof=1))
        assert frame.loc[(method, "average"), "mean"] == pytest.approx(array.mean())
        assert frame.loc[(method, "average"), "standard_deviation"] == pytest.approx(array.mean(axis=0).std(ddof=1))
    gain = frame.loc[("okapi", "average"), ["difference_to_erm", "low", "high"]]
    assert tuple(gain) == paired_difference(values["okapi"], values["erm"])
    best = max(values, key=lambda method: np.mean(list(values[method].values())))
    assert frame.loc[(best, "average"), "best"]


def test_captions_say_what_the_numbers_are_and_files_say_the_same(done):
    results = read_results(done)
    comparison, table = compared(results)
    for words in ("accuracy on ood_test", "higher is better", "2 seeds (0, 1)", "selected by id_val", __version__):
        assert words in table.caption
    assert "ece on id_val (lower is better)" in compared(results, "id_val", "ece")[1].caption
    assert (done / "table.md").read_text() == table.to_markdown()
    assert (done / "table.tex").read_text() == table.to_latex()
    pd.testing.assert_frame_equal(pd.read_csv(done / "table.csv"), comparison.frame)
    with pytest.raises(ValueError, match="split must be one of ood_test, id_val, got 'moon'"):
        compare(results, "moon")
    with pytest.raises(ValueError, match=r"metric must be one of accuracy, .* got 'mse'"):
        compare(results, metric="mse")


def test_every_number_has_its_config_seed_version_environment_and_time_beside_it(done):
    frame = read_results(done).frame
    row = frame[(frame.method == "okapi") & (frame.target == "photo & co") & (frame.seed == 1)]
    row = row[row.split == "ood_test"].squeeze()
    assert row.accuracy == found(done, "okapi", "photo & co", 1)
    assert (row.okapi, row.steps, row.selector) == (__version__, 6, "id_val")
    assert (row.torch, row.path) == (__import__("torch").__version__, "okapi/photo %26 co/seed-1")
    assert row.seconds > 0
    assert row.date.startswith("20")
    assert len(frame) == 2 * 2 * 2 * 2  # methods, targets, seeds, splits
    assert (
        not frame[["method", "target", "seed", "split", "state", "accuracy", "config", "threads"]].isna().any(axis=None)
    )
    assert frame.groupby(["method", "target", "seed"]).config.nunique().eq(1).all()
    assert frame.config.nunique() == 2 * 2 * 2
    written = pd.read_csv(done / "runs.csv")
    assert written.columns.tolist() == frame.columns.tolist()
    assert written.accuracy.tolist() == frame.accuracy.tolist()


def test_a_larger_grid_makes_only_what_is_new(configs, copy):
    times = {path: path.stat().st_mtime_ns for path in copy.rglob("seed-*/*") if path.is_file()}
    chosen = {"seeds": (0, 1), "targets": DOMAINS[1:3]}
    assert benchmark(configs, copy, ["erm", "okapi"], **chosen)[1] == []
    results, made = benchmark(configs, copy, ["fixmatch"], **chosen)
    assert len(made) == 4
    assert all("/fixmatch/" in folder for folder in made)
    assert {path: path.stat().st_mtime_ns for path in times} == times
    table = compared(results)[1]
    assert [row[0] for row in table.rows] == ["erm", "okapi", "fixmatch"]
    assert not results.failed
    assert not any("not finished" in note for note in table.notes)


def test_seeds_that_differ_between_methods_are_not_compared(configs, copy):
    results, made = benchmark(configs, copy, ["okapi"], seeds=(3,), targets=DOMAINS[1:3])
    assert len(made) == 2
    comparison, table = compared(results)
    words = (
        "okapi and erm must have the same seeds to be compared in pairs: of car_toon okapi has 0, 1, 3, erm has 0, 1"
    )
    assert any(words in note for note in table.details)
    assert "difference to erm" not in [column.name for column in table.heads]
    assert comparison.frame.set_index(["method", "target"]).loc[("erm", "average"), "n"] == 2
    assert "2 of 12 runs are not finished." in table.notes


DAMAGES = {
    "results.json": ("{", "is no JSON"),
    "results.json ": ('{"format": 99, "okapi": "9.9"}', "is of format 99, written by okapi 9.9"),
    "results.json  ": ('{"selection": {}, "config": {}, "evaluations": [{}]}', "was edited or damaged"),
    "config.yaml": ("seed: 5", "has a config.yaml that cannot be read"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_run_is_a_failed_cell(name, configs, copy):
    content, words = DAMAGES[name]
    (copy / "okapi" / "car_toon" / "seed-1" / name.strip()).write_text(content)
    results, made = benchmark(configs, copy, ["erm", "okapi"], seeds=(0, 1), targets=DOMAINS[1:3])
    assert made == []  # nobody writes over what cannot be understood
    (run,) = results.failed
    assert words in run.reason
    table = compared(results)[1]
    assert "1 failed" in table.rows[1][1].text
    assert "n = 1" in table.rows[1][1].text
    assert any("okapi, car_toon, seed 1 failed" in note for note in table.details)
    assert "failed" in set(pd.read_csv(copy / "runs.csv").state)


def test_a_run_of_another_config_is_not_taken_for_ours(configs, copy):
    run = copy / "okapi" / "car_toon" / "seed-1"
    (run / "config.yaml").write_text((run / "config.yaml").read_text().replace("steps: 6", "steps: 5"))
    results, made = benchmark(configs, copy, ["okapi"], seeds=(1,), targets=("car_toon",))
    assert made == []
    assert "holds a run with another config: training.steps: 5 then, 6 now" in results.failed[0].reason


def test_half_written_and_empty_runs_are_made(configs, copy):
    empty, half = (copy / "erm" / "car_toon" / f"seed-{seed}" for seed in (0, 1))
    before = found(copy, "erm", "car_toon", 0), found(copy, "erm", "car_toon", 1)
    for path in [*empty.iterdir(), half / "results.json", *half.glob("predictions*")]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert [run.state for run in read_results(copy).runs if run.cell.method == "erm"].count("finished") == 2
    assert "2 of 8 runs are not finished." in compared(read_results(copy))[1].notes
    _, made = benchmark(configs, copy, ["erm"], seeds=(0, 1), targets=("car_toon",))
    assert made == [str(empty), str(half)]
    assert (found(copy, "erm", "car_toon", 0), found(copy, "erm", "car_toon", 1)) == before


def test_one_seed_has_neither_deviation_nor_interval(configs, tmp_path):
    results, _ = benchmark(configs, tmp_path / "out", ["erm", "offline_okapi"])
    comparison, table = compared(results)
    assert [column.name for column in table.heads] == ["method", "accuracy", "difference to erm"]
    assert table.rows[0][1].text.endswith("(–)")
    assert "[" not in table.rows[1][2].text
    assert "Differences are paired by seeds; one seed leaves no interval." in table.notes
    assert not any(cell.mark == "not_worse" for row in table.cells for cell in row)
    assert comparison.frame.low.isna().all()


def test_test_splits_stay_sealed_until_asked_for(configs, tmp_path):
    out = tmp_path / "out"
    results, _ = benchmark(configs, out, ["erm"], test=False)
    assert "on id_val" in compared(results)[1].caption
    run = out / "erm" / "all" / "seed-0"
    assert json.loads((run / "results.json").read_text())["opened"] == {}
    weights = (run / "model.safetensors").stat().st_mtime_ns
    results, made = benchmark(configs, out, ["erm"])
    assert made == [str(run)]
    assert "on ood_test" in compared(results)[1].caption
    assert (run / "model.safetensors").stat().st_mtime_ns == weights


def test_an_oracle_is_called_one(configs, tmp_path):
    oracle = [("training.selector", "oracle"), ("training.consent_to_oracle", "true")]
    table = compared(benchmark(configs, tmp_path / "out", ["erm"], overrides=oracle)[0])[1]
    assert "Weights selected by oracle (which looks at ood_test: not an honest result)" in table.caption
    assert table.rows[0][0] == "erm (oracle)"


def test_a_run_whose_model_is_needed_and_failed_fails_the_other(configs, tmp_path):
    overrides = [("training.learning_rate", "1e6"), ("training.weight_decay", "1e6")]
    results, made = benchmark(configs, tmp_path / "out", ["offline_okapi", "erm"], overrides=overrides)
    assert len(made) == 1
    reasons = {run.cell.method: run.reason for run in results.failed}
    assert "it starts from the model of erm, seed 0, which is not finished" in reasons["offline_okapi"]
    assert [row[1].text for row in compared(results)[1].rows] == ["failed", "failed"]


def test_folds_are_replicates_of_one_number(tmp_path):
    poverty = Path(__file__).parents[2] / "configs" / "poverty"
    folds, overrides = tuple("ABC"), [("data.root", str(tmp_path))]
    grid = make_grid([poverty], methods=["erm", "okapi"], seeds=(0, 1), folds=folds, overrides=overrides)
    assert grid.config(Cell("okapi", "C", 1), tmp_path).data.fold == "C"
    generator, runs, values = np.random.default_rng(0), [], {"erm": {}, "okapi": {}}
    for cell in grid.cells():
        value = values[cell.method][cell.group, cell.seed] = float(generator.random())
        metrics = {"id_val": {"pearson_r": value / 2, "pearson_r_group_worst": value}}
        selection = Selection(selector="ood_val", metric="", higher_is_better=True, step=1, metrics=metrics)
        weights = WeightsFile(file="", sha256="")
        about = {"steps": 1, "stopped_early": False, "seed": cell.seed, "splits": {}, "config": {}}
        results = RunResults(selection=selection, weights=weights, **about)
        (tmp_path / "results.json").write_text("")
        runs.append(RunRecord(cell=cell, run=Run(tmp_path), state="finished", results=results))
    comparison, table = compared(Results(tmp_path, grid, tuple(runs)))
    assert [column.name for column in table.heads] == ["method", "pearson_r_group_worst", "difference to erm"]
    assert "over 3 folds, each a mean over 2 seeds (0, 1)" in table.caption
    by_fold = np.array(list(values["okapi"].values())).reshape(2, 3).mean(axis=0)  # seed by seed, as cells are made
    row = comparison.frame.set_index("method").loc["okapi"]
    assert (row["mean"], row["standard_deviation"], row["n"]) == pytest.approx((by_fold.mean(), by_fold.std(ddof=1), 3))
    assert tuple(row[["difference_to_erm", "low", "high"]]) == paired_difference(values["okapi"], values["erm"])


# Energy


def test_energy_is_measured_and_compared(configs, tmp_path, monkeypatch):
    pytest.importorskip("codecarbon")
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("something reached for the network"))
    out = tmp_path / "out"
    results, _ = benchmark(configs, out, ["erm", "okapi"], country="GBR", overrides=[("training.steps", "60")])
    content = json.loads((out / "okapi" / "all" / "seed-0" / "energy.json").read_text())
    (part,) = content["parts"]
    assert (part["from_step"], part["to_step"], content["country"]) == (0, 60, "GBR")
    assert part["seconds"] > 0
    assert part["kwh"] > 0
    assert 0.05 < part["kg_co2"] / part["kwh"] < 0.5  # kg of CO2 that a kWh is in the United Kingdom
    energies = {name: read_energy(out / name / "all" / "seed-0", 60) for name in ("erm", "okapi")}
    frame = compare_energy(results)[0].set_index("method")
    assert frame.loc["erm", ["seconds_ratio", "wh_ratio", "g_co2_ratio"]].eq(1).all()
    assert frame.loc["okapi", "wh_ratio"] == pytest.approx(energies["okapi"].kwh / energies["erm"].kwh)
    assert frame.loc["okapi", "wh"] == pytest.approx(energies["okapi"].kwh * 1000)
    assert (out / "energy.tex").exists()
    if not energies["erm"].metered:
        assert any("estimates it by model and load" in note for note in energy_table(results).notes)


def test_energy_of_a_killed_run_is_not_complete(tmp_path):
    def write(*parts):
        content = [{"from_step": a, "to_step": b, "seconds": 1, "kwh": 2, "kg_co2": 3} for a, b in parts]
        (tmp_path / "energy.json").write_text(json.dumps({"hardware": ["CPU(Intel Rapl)"], "parts": content}))
        return read_energy(tmp_path, 10)

    assert write((0, 10)) == (1, 2, 3, True, True)
    assert write((0, 4), (4, 10)) == (2, 4, 6, True, True)
    assert not write((4, 10)).complete
    assert not write((0, 4), (6, 10)).complete
    (tmp_path / "energy.json").write_text("{")
    assert read_energy(tmp_path, 10) is None
    (tmp_path / "checkpoints" / "step-00000004").mkdir(parents=True)
    (tmp_path / "checkpoints" / "step-00000006.rejected").mkdir()
    assert newest_step(tmp_path) == 4


def test_without_measurement_there_is_no_table_of_energy(done):
    assert energy_table(read_results(done)) is None


def test_an_unknown_country_is_refused(configs, tmp_path):
    pytest.importorskip("codecarbon")
    with pytest.raises(ValueError, match="country must be three letters by ISO 3166, such as GBR, got 'UK'"):
        benchmark(configs, tmp_path / "out", ["erm"], country="UK")
    assert not (tmp_path / "out").exists()
