"""``okapi benchmark`` as a user meets it: real processes, kills, failures, and what is printed."""

import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import joblib
import psutil
import pytest
from tests.benchmark.small import benchmark, write_configs
from tests.training.runs import end, wait_for

from okapi.benchmark import SlurmSettings, compare, make_grid, read_results, run_benchmark
from okapi.benchmark.grid import save_grid
from okapi.benchmark.launch import Pool, Slurm
from okapi.benchmark.worker import PRELOAD, Job
from okapi.cli import main
from okapi.report.benchmark import comparison_table

pytestmark = pytest.mark.usefixtures("quick_start")
ENDLESS = [("training.steps", "1000000"), ("training.checkpoint_every", "20"), ("training.validate_every", "1000000")]
LONG = [("training.steps", "200"), ("training.checkpoint_every", "40"), ("training.validate_every", "100")]


@pytest.fixture(scope="module")
def configs(tmp_path_factory) -> Path:
    return write_configs(tmp_path_factory.mktemp("configs"))


def in_the_middle(run: Path) -> bool:
    return any((run / "checkpoints").glob("step-*")) and not (run / "results.json").exists()


def test_interrupted_and_killed_it_goes_on_and_repeats_nothing(configs, tmp_path, capsys, fork):
    out = tmp_path / "out"
    words = ["benchmark", configs, "--methods", "erm", "--seeds", "2", "--workers", "1", "--out", out]
    words = [str(word) for word in (*words, *(word for key, value in LONG for word in (f"--{key}", value)))]
    first, second = (out / "erm" / "all" / f"seed-{seed}" for seed in range(2))
    with when(lambda: in_the_middle(first), press_ctrl_c):
        assert main(words) == 130
    errors = capsys.readouterr().err
    assert "okapi: stopped; 0 of 2 runs are finished, those begun have written a checkpoint. The same command" in errors
    assert in_the_middle(first)

    process = fork(*words)
    wait_for(process, lambda: in_the_middle(second))
    started = psutil.Process(process.pid).children(recursive=True)
    assert started
    process.kill()
    process.communicate()
    psutil.wait_procs(started, timeout=10)
    assert not any(one.is_running() for one in started)  # they end with the benchmark: nobody trains on unseen
    assert not (second / "results.json").exists()
    finished = {path: path.stat().st_mtime_ns for path in first.rglob("*") if path.is_file()}

    assert main(words) == 0
    printed, errors = capsys.readouterr()
    assert "1 of 2 runs are finished already" in errors
    assert "2 of 2: erm, seed 1 finished" in errors
    assert {path: path.stat().st_mtime_ns for path in first.rglob("*") if path.is_file()} == finished
    for seed in range(2):
        assert "Resuming after step" in (out / "logs" / "erm" / "all" / f"seed-{seed}.log").read_text()
    undisturbed, _ = benchmark(configs, tmp_path / "undisturbed", ["erm"], seeds=(0, 1), overrides=LONG)
    assert same_files(out, undisturbed.out)
    assert comparison_table(undisturbed, compare(undisturbed)).caption in printed


def test_killed_while_two_train_what_others_start_from_it_goes_on(configs, tmp_path, fork):
    out = tmp_path / "out"
    words = ["benchmark", configs, "--methods", "okapi", "--seeds", "2", "--workers", "2", "--out", out]
    words = [str(word) for word in (*words, "--start-from", "erm", *(f"--{key}={value}" for key, value in LONG))]
    process = fork(*words)
    wait_for(process, lambda: in_the_middle(out / "start" / "erm" / "all" / "seed-1"))
    process.kill()
    process.communicate()
    assert not (out / "okapi").exists()
    assert main(words) == 0
    benchmark(configs, tmp_path / "undisturbed", ["okapi"], seeds=(0, 1), overrides=LONG, start_from="erm")
    assert same_files(out, tmp_path / "undisturbed")
    for seed in range(2):
        runs = [folder / "okapi" / "all" / f"seed-{seed}" for folder in (out, tmp_path / "undisturbed")]
        started = [json.loads((run / "results.json").read_text())["started_from"] for run in runs]
        assert started[0] | {"path": started[1]["path"]} == started[1]


def same_files(first: Path, second: Path) -> bool:
    """Return whether two benchmarks have the same table and, run by run, the same weights to the last bit."""
    names = [path.relative_to(first) for path in [first / "table.csv", *first.rglob("model.safetensors")]]
    return len(names) > 1 and all((first / name).read_bytes() == (second / name).read_bytes() for name in names)


@contextmanager
def when(condition: Callable[[], bool], act: Callable[[], None]) -> Iterator[None]:
    """Do something as soon as something is true."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.003):
            if condition():
                act()
                return

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_a_failed_run_is_shown_with_its_log_and_the_rest_goes_on(configs, tmp_path, capsys):
    out = tmp_path / "out"
    words = ["benchmark", str(configs), "--methods", "broken,erm", "--out", str(out), "--workers", "2"]
    assert main(words) == 1
    printed, errors = capsys.readouterr()
    log = out / "logs" / "broken" / "all" / "seed-0.log"
    assert re.search(
        rf"\d of 2: broken, seed 0 failed \(exit code 1\); its log is {log}\n(    .*\n)*    okapi: step", errors
    )
    assert re.search(r"\d of 2: erm, seed 0 finished in .*ood_test accuracy 0\.\d", errors)
    assert re.search(r"broken +failed", printed)
    assert "1 of 2 runs failed." in printed
    assert "Log: " + str(log) in printed
    assert "okapi: step 2: " in log.read_text()
    assert json.loads((out / "erm" / "all" / "seed-0" / "environment.json").read_text())["threads"] == 1


def test_jobs_of_slurm_outlive_a_killed_benchmark_and_are_found_again(configs, tmp_path, monkeypatch):
    pytest.importorskip("submitit")
    here, _ = benchmark(configs, tmp_path / "here", ["erm"])
    commands = slurm_commands(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("JOBS", str(tmp_path / "jobs"))
    out, slurm = tmp_path / "out", SlurmSettings(partition="night")
    grid = make_grid([configs], methods=["erm"])
    (cell,) = grid.cells()
    log = out / "logs" / "erm" / "all" / "seed-0.log"
    save_grid(grid, out)
    log.parent.mkdir(parents=True)
    job = Job(config=grid.config(cell, out), folder=cell.below(out), log=log)
    Slurm(out / "logs" / "slurm", slurm).start(job, 0)  # by one that was killed then
    results = run_benchmark(grid, out, slurm=slurm)
    assert not results.failed
    (script,) = (out / "logs" / "slurm").glob("*_submission.sh")  # it was not submitted again
    assert "#SBATCH --partition=night" in script.read_text()
    assert compare(results).frame.equals(compare(here).frame)


def slurm_commands(folder: Path) -> Path:
    """Write commands that answer as Slurm's do and run a job at once on this machine."""
    node = "SLURM_NTASKS=4 SLURM_NNODES=1 SLURM_JOB_NUM_NODES=1 SLURM_NODEID=0 SLURM_PROCID=0 SLURM_LOCALID=0"
    commands = {
        "sbatch": f"""for word; do script=$word; done
            mkdir -p "$JOBS"; id=$((1000 + $(ls "$JOBS" | wc -l))); echo RUNNING > "$JOBS/$id"
            (export SLURM_JOB_ID=$id SLURM_JOB_NODELIST=node1 {node}
            bash "$script"; echo COMPLETED > "$JOBS/$id") > /dev/null 2>&1 < /dev/null &
            echo Submitted batch job $id""",
        "srun": """while [[ $1 == --* ]]; do case $1 in --output | --error) shift 2 ;; *) shift ;; esac; done
            exec "${@}" """,
        "sacct": """echo "JobID|State|NodeList"
            for file in "$JOBS"/*; do echo "$(basename "$file")|$(cat "$file")|node1"; done""",
        "scancel": 'echo CANCELLED > "$JOBS/${!#}"',
    }
    folder.mkdir()
    for name, script in commands.items():
        (folder / name).write_text(f"#!/bin/bash\n{script}\n")
        (folder / name).chmod(0o755)
    return folder


def test_a_second_benchmark_in_the_folder_is_rejected_while_the_first_lives(configs, tmp_path, capsys, fork):
    out = tmp_path / "out"
    words = ["benchmark", configs, "--methods", "erm", "--workers", "1", "--out", out]
    words = [str(word) for word in (*words, *(f"--{key}={value}" for key, value in ENDLESS))]
    first = fork(*words)
    wait_for(first, lambda: in_the_middle(out / "erm" / "all" / "seed-0"))
    before = {path: path.read_bytes() for path in out.glob("*.*")}
    assert main(words) == 2
    assert f"{out} is being benchmarked by another process" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in out.glob("*.*")} == before
    first.send_signal(signal.SIGTERM)
    assert "those begun have written a checkpoint" in end(first, 130)


def test_a_killed_run_fails_alone_with_a_clear_line_and_is_resumed(configs, tmp_path, capsys):
    out = tmp_path / "out"
    words = ["benchmark", configs, "--methods", "erm,okapi", "--workers", "2", "--out", out]
    words = [str(word) for word in (*words, *(f"--{key}={value}" for key, value in LONG))]
    folder = out / "okapi" / "all" / "seed-0"
    with when(lambda: in_the_middle(folder), lambda: process_of(folder).kill()):
        assert main(words) == 1
    printed, errors = capsys.readouterr()
    log = out / "logs" / "okapi" / "all" / "seed-0.log"
    assert f"okapi, seed 0 failed (killed by SIGKILL); its log is {log}" in errors
    assert re.search(r"\d of 2: erm, seed 0 finished", errors)
    assert f"okapi, seed 0 failed: killed by SIGKILL. Log: {log}" in printed
    assert log.read_text().endswith("Failed: killed by SIGKILL\n")
    (failed,) = read_results(out).failed
    assert (failed.cell.method, failed.reason) == ("okapi", "killed by SIGKILL")
    assert main(words) == 0
    assert not read_results(out).failed
    assert "Resuming after step" in log.read_text()


def test_restarted_with_other_workers_its_runs_have_the_threads_that_they_began_with(
    configs, tmp_path, monkeypatch, fork
):
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "2")
    threads = joblib.cpu_count()
    words = ["benchmark", configs, "--methods", "erm,okapi", *(f"--{key}={value}" for key, value in LONG)]
    words = [str(word) for word in words]
    untouched, killed = tmp_path / "untouched", tmp_path / "killed"
    assert main([*words, "--workers", "1", "--out", str(untouched)]) == 0
    process = fork(*words, "--workers", "1", "--out", str(killed), LOKY_MAX_CPU_COUNT="2")
    wait_for(process, lambda: in_the_middle(killed / "okapi" / "all" / "seed-0"))
    process.kill()
    process.communicate()
    assert main([*words, "--workers", "2", "--out", str(killed)]) == 0
    assert same_files(untouched, killed)
    for out in (untouched, killed):
        assert json.loads((out / "benchmark.json").read_text())["threads"] == threads
        assert read_results(out).frame["threads"].eq(threads).all()


def test_a_copy_has_imported_what_a_run_needs():
    for name in PRELOAD:  # the pool ignores those that it cannot import
        assert import_module(name)


def test_a_stopped_run_writes_a_checkpoint_and_a_killed_one_ends_with_all_that_it_has_started(configs, tmp_path):
    grid = make_grid([configs], methods=["okapi"], overrides=[*ENDLESS, ("training.workers", "1")])
    pool, runs = Pool(2), []
    for slot, folder in enumerate(folders := [tmp_path / "stopped", tmp_path / "killed"]):
        folder.mkdir()
        config = grid.config(*grid.cells(), folder)
        runs.append(pool.start(Job(config=config, folder=folder / "run", log=folder / "log"), slot))
    wait_until(lambda: all(in_the_middle(folder / "run") for folder in folders))
    of_runs = [process_of(folder / "run") for folder in folders]
    started = [*of_runs, *(child for process in of_runs for child in process.children())]
    assert len(started) == 4  # two runs, and a process of each that reads data
    runs[0].stop()
    wait_until(lambda: runs[0].poll() is not None)
    assert runs[0].poll() == 130
    (step,) = re.findall(r"okapi: stopped after step (\d+) ", (folders[0] / "log").read_text())
    assert (folders[0] / "run" / "checkpoints" / f"step-{int(step):08d}").is_dir()
    assert runs[1].poll() is None
    runs[1].kill()
    assert runs[1].poll() == -signal.SIGKILL
    wait_until(lambda: not any(process.is_running() for process in started))
    runs[0].kill()  # of one that has ended nothing is left to kill


def process_of(folder: Path) -> psutil.Process:
    """Return the process that holds the lock of a run directory."""
    lock = str(folder / ".lock")
    (process,) = [one for one in descendants() if any(file.path == lock for file in one.open_files())]
    return process


def descendants() -> list[psutil.Process]:
    return [one for one in psutil.Process().children(recursive=True) if one.status() != psutil.STATUS_ZOMBIE]


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def run(*words: object) -> int:
    try:
        return main(["benchmark", *map(str, words)])
    except SystemExit as stopped:
        return int(str(stopped.code))


REFUSED = {
    "--seeds 0": "--seeds must be how many seeds",
    "--methods nonsense": "method 'nonsense' has no config",
    "--start-from nonsense": "--start-from must be a method: method 'nonsense' has no config",
    "--targets moon": "targets must be domains that can be held out",
    "--folds A-E": "folds need a data set with the key data.fold",
    "--energy": "--energy needs --country",
    "--country GBR": "--country is for --energy",
    "--training.stepz 5": "--training.stepz is no key of the config; did you mean training.steps?",
    "--workers -1": "workers must be at least 0",
    "--seedz 5": "did you mean --seeds?",
}


@pytest.mark.parametrize("words", REFUSED)
def test_bad_input_is_refused_in_one_line(words, configs, tmp_path, capsys):
    assert run(configs, "--out", tmp_path / "out", *words.split()) == 2
    printed, errors = capsys.readouterr()
    assert REFUSED[words] in errors
    assert (printed, len(errors.splitlines())) == ("", 1)
    assert not list(tmp_path.rglob("seed-*"))


def test_configs_are_asked_for_and_help_has_examples(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    began = time.monotonic()
    assert run() == 2
    assert "CONFIGS is missing" in capsys.readouterr().err
    assert run("--help") == 0
    assert "example:\n  okapi benchmark configs/sites" in capsys.readouterr().out
    assert time.monotonic() - began < 5


def test_results_are_read_back_from_the_folder_alone(configs, tmp_path):
    made, _ = benchmark(configs, tmp_path / "out", ["erm"])
    moved = (tmp_path / "out").rename(tmp_path / "moved")
    read = read_results(moved)
    assert compare(read).frame.equals(compare(made).frame)
    assert len(read.frame)
