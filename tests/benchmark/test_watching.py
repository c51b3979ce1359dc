"""What somebody who waits gets to see, and how a machine is shared."""

import io

import joblib
import pytest
from rich.console import Console

from okapi.benchmark import Cell, Run
from okapi.benchmark.engines import Local, clean_environment
from okapi.benchmark.watching import Watch, read_progress


def test_the_live_table_shows_states_steps_losses_and_the_time_left(tmp_path):
    cells = [Cell(method, target, seed) for method in ("erm", "okapi") for target in ("art", "[b]") for seed in (0, 1)]
    runs = {cell: (cell.below(tmp_path), 100) for cell in cells}
    watch = Watch(runs, 0)
    going = cells[2]
    folder = going.below(tmp_path)
    folder.mkdir(parents=True)
    rows = [f"{step},train,loss,{2 - step / 100}\n{step},train,match_rate,0.5\n" for step in (10, 50)]
    (folder / "metrics.csv").write_text("step,split,figure,value\n" + rows[0])
    watch.table([going], {})
    (folder / "metrics.csv").write_text("step,split,figure,value\n" + "".join(rows) + "60,train,lo")
    ended = {
        cells[0]: Run(cell=cells[0], folder=tmp_path, log=tmp_path, state="finished"),
        cells[1]: Run(cell=cells[1], folder=tmp_path, log=tmp_path, state="failed", reason="exit code 1"),
    }
    console = Console(file=io.StringIO(), width=120)
    console.print(watch.table([going], ended))
    shown = console.file.getvalue()
    assert "1 done, 1 failed" in shown
    assert "[b]" in shown
    assert "1 running, 1 waiting" in shown
    assert "seed 0: step 50 of 100, loss 1.5" in shown
    assert shown.count("2 waiting") == 2
    assert "1 of 8 runs finished, 1 running, 0:00:" in shown
    assert "left" in shown


def test_progress_of_a_run_that_has_written_nothing_is_none(tmp_path):
    assert read_progress(tmp_path) == (0, None)
    (tmp_path / "metrics.csv").write_text("")
    assert read_progress(tmp_path) == (0, None)


def test_cores_are_shared_evenly():
    cores = joblib.cpu_count()
    assert (Local(100, gpus=False).slots, Local(100, gpus=False).threads) == (cores, 1)
    assert (Local(100, 1, gpus=False).slots, Local(100, 1, gpus=False).threads) == (1, cores)
    assert Local(1, 8, gpus=False).slots == 1
    assert Local(8, 8, gpus=False).threads == max(1, cores // 8)
    with pytest.raises(ValueError, match="workers must be at least 1, got 0"):
        Local(3, 0)


def test_runs_do_not_take_themselves_for_parts_of_somebody_elses_job(monkeypatch):
    monkeypatch.setenv("SLURM_NTASKS", "4")
    assert not any(name.startswith("SLURM_") for name in clean_environment())
