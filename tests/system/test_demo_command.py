"""The demonstration, shortened: what it prints and shows is what the runs have written."""

import io
import json
from contextlib import redirect_stdout
from pathlib import Path

import pandas as pd
import pytest

from okapi.cli import main
from okapi.numbers import decimals

SHORT = {"steps": 6, "labelled_batch": 8, "unlabelled_batch": 8, "validate_every": 3, "log_every": 2}


@pytest.fixture(scope="module")
def demo(tmp_path_factory, quick_start) -> Path:
    """The folder of a demonstration, with what it printed."""
    out = tmp_path_factory.mktemp("demo") / "demo"
    words = [word for key, value in SHORT.items() for word in (f"--training.{key}", str(value))]
    with redirect_stdout(io.StringIO()) as printed:
        assert main(["demo", "--out", str(out), *words]) == 0
    (out / "printed.txt").write_text(printed.getvalue(), encoding="utf-8")
    return out


def test_the_table_is_what_the_runs_say(demo):
    printed = (demo / "printed.txt").read_text(encoding="utf-8")
    table = pd.read_csv(demo / "runs" / "table.csv").set_index("method")
    assert list(table.index) == ["erm", "fixmatch", "okapi", "okapi_plus"]
    digits = decimals(table["mean"])
    page = (demo / "report.html").read_text(encoding="utf-8")
    for method in table.index:
        values = []
        for results in sorted((demo / "runs" / method).rglob("results.json")):
            (tested,) = (row for row in json.loads(results.read_text())["evaluations"] if row["split"] == "ood_test")
            assert tested["selector"] == "ood_val"
            assert tested["opened"]["times"] == 1
            values.append(tested["metrics"]["accuracy"])
        assert len(values) == 2
        mean, deviation = pd.Series(values).mean(), pd.Series(values).std()
        assert table.loc[method, "mean"] == pytest.approx(mean)
        assert table.loc[method, "standard_deviation"] == pytest.approx(deviation)
        for text in (printed, page):
            assert f"{mean:.{digits}f} ({deviation:.{digits}f})" in text


def test_digits_are_matched_across_sites(demo):
    matches = pd.read_csv(demo / "matches.csv")
    assert len(matches) > 1000
    assert (matches.query_target == matches.key_target).mean() > 0.8
    assert (matches.query_domain != matches.key_domain).all()
    assert len(list((demo / "images").iterdir())) == 1797
    assert (demo / "matches.html").read_text(encoding="utf-8").count("data:image/webp") > 100


def test_a_file_is_no_folder(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["demo", "--out", str(tmp_path / "file")]) == 2
    assert "--out names a folder" in capsys.readouterr().err
