"""How a machine is shared by runs, and what whoever waits for them sees."""

import io

import joblib
import pytest
from rich.console import Console

from okapi.benchmark import Cell, make_grid, run_benchmark
from okapi.benchmark.launch import Pool, launcher
from okapi.benchmark.progress import Display, last_step


@pytest.mark.parametrize("workers", [None, 1, 2, 8])
def test_cores_are_shared_evenly_and_threads_stay_what_they_were(workers, configs, tmp_path):
    cores, grid = joblib.cpu_count(), make_grid([configs], methods=["erm", "okapi"], seeds=(0, 1))
    pool, saved = launcher(grid, tmp_path, workers, None)
    assert isinstance(pool, Pool)
    assert pool.slots == min(workers or cores, 4)
    assert saved.threads == max(1, cores // pool.slots)
    assert launcher(grid, tmp_path, 3, None)[1].threads == saved.threads
    again, _ = launcher(grid, tmp_path, None, None)
    assert again.slots * saved.threads <= max(cores, saved.threads)


def test_a_number_of_workers_below_zero_is_rejected(configs, tmp_path):
    with pytest.raises(ValueError, match="workers must be at least 0, got -1"):
        run_benchmark(make_grid([configs], methods=["erm"]), tmp_path / "out", workers=-1)


def test_a_terminal_shows_a_bar_of_the_steps_of_all_runs(tmp_path, monkeypatch):
    console = Console(file=io.StringIO(), width=120, force_terminal=True, force_interactive=True)
    for place in ("okapi.benchmark.progress", "okapi.console"):
        monkeypatch.setattr(f"{place}.stderr", lambda: console)
    cells = [Cell(method, target, 0) for method in ("erm", "okapi") for target in ("art", "[b]")]
    folders = {cell: cell.below(tmp_path) for cell in cells}
    folders[cells[1]].mkdir(parents=True)
    lines = [f"{step},train,loss,{2 - step / 100}\n" for step in (10, 50)]
    (folders[cells[1]] / "metrics.csv").write_text("step,split,metric,value\n" + "".join(lines) + "60,train,lo")
    with Display(dict.fromkeys(cells, 100), folders, cells[:1]) as display:
        display.update(cells[1:2])
    shown = console.file.getvalue()
    assert "1 of 4 runs are finished already" in shown
    assert "150 of 400" in shown
    assert "steps, 1 of 4 runs" in shown


def test_progress_of_a_run_that_has_written_nothing_is_none(tmp_path):
    assert last_step(tmp_path) == 0
    (tmp_path / "metrics.csv").write_text("step,split,metric,value\n")
    assert last_step(tmp_path) == 0
