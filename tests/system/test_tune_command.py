"""What ``okapi tune`` prints and shows, of real files."""

import re

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from okapi.cli import main
from okapi.commands.tune import MOST_ROWS
from okapi.matching.diagnostics.tuning import tune
from okapi.report.tuning_report import tuning_table

GRID = {
    "fixed_caliper": [None, 0.95],
    "std_caliper": [None, 0.25],
    "caliper_scale": ["probability", "logit"],
    "temperature": [1.0, 2.5],
    "k": [1, 10],
    "prognostic_caliper": [None, 0.75],
}


@pytest.fixture
def samples() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    site = np.arange(200) % 2
    frame = pd.DataFrame(rng.normal(size=(200, 3)) + 0.5 * site[:, None], columns=["age", "dose", "risk"])
    return frame.assign(site=np.where(site, "south", "north"))


def test_no_caliper_is_called_none_on_the_page(samples, tmp_path):
    samples.to_csv(tmp_path / "t.csv", index=False)
    options = ["--fixed-caliper", "none", "0.9", "--std-caliper", "none", "0.2", "--temperature", "1", "--k", "1"]
    files = [str(tmp_path / "t.csv"), "--report", str(tmp_path / "t.html")]
    assert main(["tune", *files, "--domain", "site", *options]) == 0
    cells = re.findall(r"<td[^>]*>(.*?)</td>", (tmp_path / "t.html").read_text(encoding="utf-8"))
    assert "nan" not in cells
    assert {"none", "0.9", "0.2"} < set(cells)


def printed(samples: pd.DataFrame, grid: dict, width: int = 80) -> list[str]:
    tuning = tune(samples[["age", "dose"]], samples.site, **grid, prognosis=samples.risk)
    console = Console(width=width, color_system=None, highlight=False)
    with console.capture() as capture:
        tuning_table(tuning).print(console, MOST_ROWS)
    return capture.get().splitlines()


def test_all_settings_fit_into_eighty_columns(samples):
    lines = printed(samples, GRID)
    rows = [line for line in lines if re.match(r"^[* ] +(none|0\.95) ", line)]
    assert len(rows) == 20  # a row that is continued on the next line would lack its last cell
    assert all(re.search(r"(%|–)$", row) for row in rows)
    assert rows == [line for line in printed(samples, GRID, 200) if line in rows]
    heading = next(line for line in lines if "retained" in line and "fixed" in line)
    assert re.findall(r"\S+", heading)[:6] == ["fixed", "std", "scale", "temp.", "k", "progn."]


def test_a_setting_that_all_combinations_share_is_said_once(samples):
    lines = printed(samples, {**GRID, "temperature": [1.0], "prognostic_caliper": [None]})
    assert "The same in all: temperature 1, prognostic caliper none" in lines
    assert not any(re.search(r"temp\.|progn\.$", line) for line in lines if "fixed" in line)


def test_help_says_what_tune_does_with_targets_and_images(capsys):
    for verb, compared in (("match", True), ("tune", False)):
        with pytest.raises(SystemExit):
            main([verb, "--help"])
        text = " ".join(capsys.readouterr().out.split())
        assert ("pairs are compared on it" in text) is compared
        assert ("which the report shows" in text) is compared
