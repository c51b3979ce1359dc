"""Runs that are copies of one process end as new processes do; nothing outlives who asked for it."""

import gc
import json
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from okapi.benchmark import make_grid
from okapi.benchmark.engines import Local, Started
from okapi.benchmark.worker import Job

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="runs are forked on Linux only"),
    pytest.mark.usefixtures("quick_start"),
]
ENDLESS = [("training.steps", "1000000"), ("training.checkpoint_every", "20"), ("training.validate_every", "1000000")]


@pytest.fixture(scope="module")
def local() -> Local:
    return Local(4, 2, gpus=False)


def job(configs: Path, folder: Path, overrides: list[tuple[str, str]] | None = None) -> Path:
    grid = make_grid([configs], methods=["okapi"], overrides=overrides or [])
    (cell,) = grid.cells()
    Job(config=grid.config(cell, folder).as_dict(), folder=str(folder / "run")).write(folder / "job.json")
    return folder / "job.json"


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def code_of(run: Started) -> int:
    wait_for(lambda: run.poll() is not None)
    code = run.poll()
    assert code is not None
    return code


def nurseries() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if "okapi.benchmark.nursery" in child.cmdline()]


def test_a_copy_does_what_a_new_process_does(configs, local, tmp_path):
    found = []
    for number, engine in enumerate((local, Local(1, 1, gpus=False, forks=False))):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert code_of(engine.start(job(configs, folder), folder / "logs" / "log", 0)) == 0
        run = folder / "run"
        results = json.loads((run / "results.json").read_text())
        figures = [(record["split"], record["metrics"]) for record in results["evaluations"]]
        log = re.sub(r"[\d,]+ images/s  [\d:]+ left", "", (folder / "logs" / "log").read_text())
        about = json.loads((run / "environment.json").read_text())
        files = [(run / name).read_bytes() for name in ("model.safetensors", "metrics.csv")]
        found.append([files, figures, results["weights"]["sha256"], log, about["threads"]])
    assert found[0] == found[1]


def test_exit_codes_and_reasons_are_those_of_a_new_process(local, tmp_path):
    (tmp_path / "strange.json").write_text('{"moon": 1}')
    runs = {
        name: local.start(tmp_path / f"{name}.json", tmp_path / f"{name}.log", 0) for name in ("missing", "strange")
    }
    assert {name: code_of(run) for name, run in runs.items()} == {"missing": 2, "strange": 1}
    assert (tmp_path / "missing.log").read_text().startswith("okapi: [Errno 2] No such file or directory")
    assert (tmp_path / "strange.log").read_text().startswith("Traceback (most recent call last):\n")
    assert "unexpected keyword argument 'moon'\n" in (tmp_path / "strange.log").read_text()


def test_a_run_is_stopped_with_a_checkpoint_or_killed_with_all_it_has_started(configs, local, tmp_path):
    runs, folders = [], [tmp_path / "stopped", tmp_path / "killed"]
    for slot, folder in enumerate(folders):
        folder.mkdir()
        path = job(configs, folder, [*ENDLESS, ("training.workers", "1")])
        runs.append(local.start(path, folder / "log", slot))
    wait_for(lambda: all(any((folder / "run" / "checkpoints").glob("step-*")) for folder in folders))
    (nursery,) = nurseries()
    nursery.send_signal(signal.SIGTERM)  # a cluster sends it to all processes of a job: this one lets the runs end
    started = nursery.children(recursive=True)
    assert len(started) == 4  # two runs, and a process of each that reads data
    runs[0].stop()
    assert code_of(runs[0]) == 130
    (step,) = re.findall(r"okapi: stopped after step (\d+) ", (folders[0] / "log").read_text())
    assert (folders[0] / "run" / "checkpoints" / f"step-{int(step):08d}").is_dir()
    assert runs[1].poll() is None
    runs[1].kill()
    assert runs[1].poll() == -signal.SIGKILL
    wait_for(lambda: not any(process.is_running() for process in started))
    runs[0].kill()  # of one that has ended nothing is left to kill


def test_when_the_nursery_is_killed_its_runs_fail_and_later_ones_have_a_new_one(configs, local, tmp_path):
    run = local.start(job(configs, tmp_path, ENDLESS), tmp_path / "log", 0)
    wait_for(lambda: any((tmp_path / "run" / "checkpoints").glob("step-*")))
    (nursery,) = nurseries()
    (process,) = nursery.children()
    nursery.kill()
    assert code_of(run) == 1
    wait_for(lambda: not process.is_running())
    words = "okapi: the process that starts runs has ended (exit code -9), and this run with it\n"
    assert (tmp_path / "log").read_text().endswith(words)
    run.stop()
    run.kill()
    assert code_of(local.start(tmp_path / "missing.json", tmp_path / "log", 0)) == 2


@pytest.mark.parametrize("way", ["stop", "kill"])
def test_nobody_waits_for_imports_to_end_a_run(way, tmp_path):
    local = Local(1, 1, gpus=False)
    before = nurseries()
    run = local.start(tmp_path / "job.json", tmp_path / "log", 0)
    (new,) = set(nurseries()) - set(before)
    began = time.monotonic()
    getattr(run, way)()
    assert code_of(run) == 1
    assert time.monotonic() - began < 1
    assert not new.is_running()


def test_it_ends_with_who_asked_for_it(tmp_path):
    local = Local(1, 1, gpus=False)
    before = nurseries()
    local.start(tmp_path / "job.json", tmp_path / "log", 0)
    (new,) = set(nurseries()) - set(before)
    del local
    gc.collect()
    assert not new.is_running()
