"""What is read from run directories, whole ones and others, and the tables and curves made of it."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from tests.report.folders import evaluation, write_predictions, write_run

from okapi.benchmark import make_grid
from okapi.benchmark.grid import save_grid
from okapi.commands.report import choose_run
from okapi.report.confusion import MOST_CLASSES, read_confusion
from okapi.report.curves import MOST_POINTS, draw_curves
from okapi.report.plots import to_svg
from okapi.report.run_page import about_split, chosen_split, group_tables, report_page, runs_table
from okapi.report.run_records import gather, read_record
from okapi.runs import Run


def cells(table) -> list[list[str]]:
    return table.texts()


def test_a_finished_run_has_the_figures_of_its_results(tmp_path):
    run = write_run(tmp_path / "run", evaluations=[evaluation("ood_test", {"north": 0.5, "south": 0.25})])
    gathered = gather([run])
    table = runs_table(gathered.runs)
    assert [column.name for column in table.heads][4:6] == ["ood_test accuracy", "ood_test accuracy domain worst"]
    assert cells(table) == [["run", "erm", "0", "step 30, selected by ood_val", "0.3750", "0.2500", "0.8000", "0.6000"]]
    assert gathered.notes == ()


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda run: (run / "config.yaml").unlink(), "it has no config.yaml"),
        (lambda run: (run / "config.yaml").write_text("a: [1"), "is no YAML, it was edited or damaged"),
        (lambda run: (run / "config.yaml").write_text("just words"), "holds no config of a run"),
        (lambda run: (run / "config.yaml").write_bytes(b"\xff\xfe\x00"), "is no YAML"),
        (lambda run: (run / "results.json").write_text('{"format": 2, "sel'), "is no JSON, it was edited or damaged"),
        (lambda run: (run / "results.json").write_text("[]"), "must hold an object"),
        (lambda run: edit(run, format=7, okapi="9.0"), "is of format 7, written by okapi 9.0"),
        (lambda run: edit(run, selection=None), "selection is missing or wrong"),
        (lambda run: edit(run, selection={"metrics": [1]}), "was edited or damaged"),
        (lambda run: edit(run, selection={"metrics": {"ood_val": {"accuracy": "good"}}}), "was edited or damaged"),
        (lambda run: edit(run, evaluations=[{"split": "ood_test"}]), "was edited or damaged"),
        (lambda run: edit(run, opened={"ood_test": 3}), "was edited or damaged"),
    ],
)
def test_what_cannot_be_read_is_a_sentence_and_the_rest_is_shown(tmp_path, damage, reason):
    whole, broken = write_run(tmp_path / "whole"), write_run(tmp_path / "broken")
    damage(broken)
    with pytest.raises(ValueError, match=re.escape(reason)) as raised:
        gather([broken])
    assert "\n" not in str(raised.value)
    gathered = gather([whole, broken])
    assert [record.state for record in gathered.runs] == ["finished", "failed"]
    page = report_page(gathered, choose_run(gathered))
    assert reason in page.replace("&#39;", "'")
    assert "cannot be shown" in page
    assert "0.8000" in page


def edit(run, **changes) -> None:
    file = run / "results.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def test_folders_that_hold_nothing_are_refused(tmp_path):
    with pytest.raises(ValueError, match="nowhere does not exist"):
        gather([tmp_path / "nowhere"])
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="file is no directory"):
        gather([tmp_path / "file"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"empty holds no run: it has no config\.yaml"):
        gather([tmp_path / "empty"])
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "benchmark.json").write_text("{}")
    with pytest.raises(ValueError, match=r"benchmark\.json cannot be understood"):
        gather([tmp_path / "bench"])
    with pytest.raises(ValueError, match="at least one run directory"):
        gather([])


def test_runs_of_another_version_and_of_an_oracle_are_told(tmp_path):
    selection = {"selector": "oracle", "metric": "accuracy", "higher_is_better": True, "step": 5, "metrics": {}}
    gathered = gather([write_run(tmp_path / "old", okapi="0.0.9", selection=selection)])
    assert "okapi 0.0.9" in gathered.notes[0]
    assert "An oracle, which looks at ood_test, selected the weights of old" in gathered.notes[1]
    assert "selected by oracle (which looks at ood_test)" in cells(runs_table(gathered.runs))[0][3]


def test_a_folder_of_runs_is_all_of_them(tmp_path):
    for name in ("b", "a"):
        write_run(tmp_path / name)
    assert [record.name for record in gather([tmp_path]).runs] == ["a", "b"]


def test_runs_that_differ_in_their_seed_are_one_method_and_others_are_not(tmp_path):
    runs = [write_run(tmp_path / f"erm-{seed}", seed=seed) for seed in (0, 1)]
    runs += [write_run(tmp_path / "okapi", algorithm="okapi")]
    assert [record.method for record in gather(runs).runs] == ["erm", "erm", "okapi"]
    longer = write_run(tmp_path / "longer", steps=50, done=50)
    assert [record.method for record in gather([*runs, longer]).runs] == [
        "erm, erm-0",
        "erm, erm-0",
        "okapi",
        "erm, longer",
    ]
    assert choose_run(gather(runs)).name == "okapi"
    assert choose_run(gather(runs), runs[1]).name == "erm-1"


def test_an_unfinished_run_says_how_far_it_is(tmp_path):
    run = write_run(tmp_path / "run", steps=100, done=30)
    with (run / "metrics.csv").open("a") as file:
        file.write("40,train,loss,0.1")  # the 2345 is not written yet
    record = read_record(run)
    assert (record.step, record.steps, record.state) == (30, 100, "begun")
    assert cells(runs_table([record]))[0][3] == "not finished: step 30 of 100"
    with pytest.raises(ValueError, match="run must be a finished run"):
        choose_run(gather([run]), run)


@pytest.mark.parametrize(
    "text", ["", "a,b\n1,2\n", "step,split,metric,value\n", "\0\0", "step,split,metric,value\nx,y\n"]
)
def test_metrics_without_sense_are_no_metrics(tmp_path, text):
    (tmp_path / "metrics.csv").write_text(text)
    assert Run(tmp_path).metrics().empty
    assert Run(tmp_path / "nowhere").metrics().empty


def test_curves_are_means_over_seeds_and_skip_nan(tmp_path):
    runs = [write_run(tmp_path / f"erm-{seed}", seed=seed) for seed in (0, 1)]
    with (runs[0] / "metrics.csv").open("a") as file:
        file.write("20,train,propensity_accuracy,nan\n30,train,propensity_accuracy,0.7\n50,train,match_rate,1,2,3\n")
    gathered = gather(runs)
    figures, drawn = draw_curves(gathered.runs, gathered.methods)
    assert [caption for caption, _ in figures] == [
        "Loss",
        "Match rate",
        "Propensity accuracy",
        "Accuracy on ood_val",
    ]
    assert drawn == {"erm"}
    assert to_svg(figures[0][1]).count("stroke-opacity: 0.35") == 2  # both runs, beside their mean


def test_matches_of_validation_samples_have_curves_in_either_direction(tmp_path):
    run = write_run(tmp_path / "run")
    with (run / "metrics.csv").open("a") as file:
        file.write("20,ood_val,match_precision_to_labelled,0.6\n20,ood_val,match_rate_from_labelled,0.9\n")
        file.write("20,id_val,match_distance_from_labelled,1.3\n")
    captions = [caption for caption, _ in draw_curves(gather([run]).runs, ["erm"])[0]]
    assert captions[-3:] == [
        "Match precision, ood_val to train",
        "SD between targets of matches, train to id_val",
        "Match rate, train to ood_val",
    ]


def test_long_curves_are_thinned_to_what_can_be_seen(tmp_path):
    run = write_run(tmp_path / "run")
    values = np.sin(np.arange(20_000) / 500)
    frame = pd.DataFrame({"step": np.arange(20_000), "split": "train", "metric": "loss", "value": values})
    frame.to_csv(run / "metrics.csv", index=False)
    ((_, figure),), _ = draw_curves(gather([run]).runs, ["erm"])
    assert len(figure.axes[0].lines[0].get_xdata()) == MOST_POINTS


def test_worst_domains_are_sorted_by_the_method_s_mean_and_compared(tmp_path):
    for seed, north, south in ((0, 0.2, 0.9), (1, 0.8, 0.5)):
        records = [evaluation("ood_test", {"north": north, "south": south, "west": 0.9})]
        write_run(tmp_path / f"okapi-{seed}", algorithm="okapi", seed=seed, evaluations=records)
    write_run(tmp_path / "erm", evaluations=[evaluation("ood_test", {"north": 0.1, "south": 0.3})])
    gathered = gather([tmp_path])
    shown = choose_run(gathered)
    (table,) = group_tables(gathered.runs, shown, "ood_test")
    assert [column.name for column in table.heads] == ["name", "n", "okapi", "erm"]
    assert cells(table) == [
        ["north", "10", "0.5000", "0.1000"],
        ["south", "10", "0.7000", "0.3000"],
        ["west", "10", "0.9000", "–"],
    ]


def test_the_split_and_its_openings_are_told(tmp_path):
    records = [evaluation("id_val", {"north": 0.5}), evaluation("ood_test", {"north": 0.5}, selector="oracle")]
    opened = {"ood_test": {"times": 3, "sha256": ["abc", "def"]}}
    record = read_record(write_run(tmp_path / "run", evaluations=records, opened=opened))
    assert chosen_split(record) == "ood_test"
    text = about_split(record, "ood_test")
    assert "selected by oracle, which looks at ood_test: not an honest result" in text
    assert "ood_test has been opened 3 times, with 2 different weights" in text
    assert "opened" not in about_split(record, "id_val")
    other = evaluation("ood_test", {"north": 0.5}, weights={"which": "last", "step": 40, "sha256": "def"})
    assert chosen_split(read_record(write_run(tmp_path / "last", evaluations=[other]))) is None


def test_confusion_counts_and_names_what_is_never_predicted(tmp_path):
    record = read_record(write_run(tmp_path / "run"))
    target, prediction = np.array([0, 0, 1, 2, 2, 2]), np.array([0.0, 1, 1, 1, 1, np.nan])
    columns = {"target": target, "prediction": prediction, "probability_0": np.ones(6)}
    write_predictions(record.path, "ood_test", columns, ["ant", "bee", "cow"], sha256="other")
    table, notes = read_confusion(record, "ood_test")
    assert [column.heading for column in table.heads[1:]] == ["ant", "bee", "cow"]
    assert table.texts() == [["ant", "1", "1", "0"], ["bee", "0", "1", "0"], ["cow", "0", "2", "0"]]
    assert [table.cells[number][number + 1].mark for number in range(3)] == ["good"] * 3
    assert table.cells[0][2].shade == 0.5
    assert "of other weights" in notes[0]
    assert notes[1:] == ["1 of 6 predictions are missing (NaN) and left out.", "Never predicted: cow."]


def test_of_many_classes_the_most_frequent_are_shown(tmp_path):
    record = read_record(write_run(tmp_path / "run"))
    target = np.repeat(np.arange(60), np.arange(60) + 1)
    columns = {"target": target, "prediction": target, "probability_0": np.ones(len(target))}
    write_predictions(record.path, "ood_test", columns, [])
    table, _ = read_confusion(record, "ood_test")
    names = [column.heading for column in table.heads[1:]]
    assert len(names) == MOST_CLASSES
    assert names[0] == str(60 - MOST_CLASSES + 1)
    assert names[-1] == "others"
    assert sum(cell.value for row in table.cells for cell in row[1:]) == len(target)


def test_labels_numbers_and_damaged_files_of_predictions(tmp_path):
    record = read_record(write_run(tmp_path / "run"))
    assert "is missing; okapi evaluate" in read_confusion(record, "id_val")[1][0]
    labels = {"target_0": [1, 1, 0], "prediction_0": [0, 0, 0], "target_1": [1, 0, 0], "prediction_1": [1, 1, 0]}
    write_predictions(record.path, "id_val", {**labels, "probability_0": [0.1] * 3}, ["rude", "sly"])
    table, notes = read_confusion(record, "id_val")
    assert cells(table) == [
        ["rude", "2", "0", "0.000", "–", "0.000"],
        ["sly", "1", "2", "1.000", "0.500", "0.667"],
    ]
    assert notes == ["Never predicted: rude."]
    write_predictions(record.path, "id_val", {"target": [1.0, 2.0, 3.0], "prediction": [1.0, np.nan, 2.0]}, [])
    figure, notes = read_confusion(record, "id_val")
    assert to_svg(figure).startswith("<svg")
    assert notes == ["1 of 3 predictions are missing and left out."]
    write_predictions(record.path, "id_val", {"something": [1]}, [])
    assert "its columns are not those of predictions" in read_confusion(record, "id_val")[1][0]
    (record.path / "predictions-id_val.parquet").write_bytes(b"PAR1 no more")
    assert "cannot be read" in read_confusion(record, "id_val")[1][0]


def test_a_benchmark_whose_runs_wait_has_a_page(tmp_path):
    config = tmp_path / "erm.yaml"
    config.write_text("data: {name: sites}\nmodel: {name: mlp}\nalgorithm: {name: erm}\ntraining: {steps: 5}\n")
    save_grid(make_grid([config], seeds=[0, 1]), tmp_path / "bench")
    gathered = gather([tmp_path / "bench"])
    assert "2 of 2 runs are not finished" in report_page(gathered, choose_run(gathered))
