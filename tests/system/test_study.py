"""The study of the methods, in small: two of them on the built-in data, and a second call that trains nothing."""

from pathlib import Path

import pandas as pd
import pytest

pytestmark = pytest.mark.usefixtures("quick_start")
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_the_study_makes_its_table_and_goes_on_where_it_was(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import headline

    two = {name: headline.METHODS[name] for name in ("ERM", "Okapi+")}
    monkeypatch.setattr(headline, "METHODS", two)

    words = ["nowhere", "nowhere", "--out", str(tmp_path), "--only", "sites", "--steps", "4", "--seeds", "1"]
    headline.main(words)
    first = capsys.readouterr().out
    table = [line for line in first.splitlines() if line.startswith("|")]
    assert [row.split("|")[1].strip() for row in table[2:]] == list(headline.METHODS)
    assert "accuracy on ood_test, mean (deviation) over 1 seeds, weights selected by ood_val" in first
    frame = pd.read_csv(tmp_path / "sites.csv")
    of_erm = frame[frame["method"] == "erm"]["accuracy"].item()
    assert f"{100 * of_erm:.1f} (" in table[2]
    made = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("results.json")}
    assert len(made) == len(headline.METHODS)
    headline.main(words)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("results.json")} == made
    assert table == [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]


def test_a_file_that_is_not_there_is_named(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import headline

    with pytest.raises(SystemExit, match=r"digits\.npz is in none of"):
        headline.main([str(tmp_path), str(tmp_path), "--out", str(tmp_path / "out"), "--only", "digits"])
    assert not (tmp_path / "out").exists()
