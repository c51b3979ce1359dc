"""``okapi benchmark`` as a user meets it: real processes, kills, failures, and what is printed."""

import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from tests.benchmark.small import benchmark, write_configs
from tests.training.runs import held, wait_for

from okapi.benchmark import Running, SlurmSettings, make_grid, read_results, run_benchmark
from okapi.benchmark.engines import Slurm
from okapi.benchmark.plan import settle
from okapi.benchmark.worker import Job
from okapi.cli import main

pytestmark = pytest.mark.usefixtures("quick_start")
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
    with interrupted_when(lambda: in_the_middle(first)):
        assert main(words) == 130
    errors = capsys.readouterr().err
    assert "okapi: stopped; 0 of 2 runs are finished, those begun have written a checkpoint. The same command" in errors
    assert in_the_middle(first)

    process = fork(*words)
    wait_for(process, lambda: in_the_middle(second))
    (worker,) = psutil.Process(process.pid).children()
    process.kill()
    process.communicate()
    psutil.wait_procs([worker], timeout=10)
    assert not worker.is_running()  # it ends with the benchmark: nobody trains on unseen
    assert not (second / "results.json").exists()
    finished = {path: path.stat().st_mtime_ns for path in first.rglob("*") if path.is_file()}

    assert main(words) == 0
    printed, errors = capsys.readouterr()
    assert "1 of 2 runs are finished already" in errors
    assert "2 of 2: erm, seed 1 finished" in errors
    assert {path: path.stat().st_mtime_ns for path in first.rglob("*") if path.is_file()} == finished
    for seed in range(2):
        assert "Going on after step" in (out / "logs" / "erm" / "all" / f"seed-{seed}.log").read_text()
    undisturbed, _ = benchmark(configs, tmp_path / "undisturbed", ["erm"], seeds=(0, 1), overrides=LONG)
    assert (out / "table.csv").read_text() == undisturbed.table().to_csv()
    assert undisturbed.table().caption in printed


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
    undisturbed, _ = benchmark(
        configs, tmp_path / "undisturbed", ["okapi"], seeds=(0, 1), overrides=LONG, start_from="erm"
    )
    assert (out / "table.csv").read_text() == undisturbed.table().to_csv()
    for seed in range(2):
        runs = [folder / "okapi" / "all" / f"seed-{seed}" for folder in (out, tmp_path / "undisturbed")]
        started = [json.loads((run / "results.json").read_text())["started_from"] for run in runs]
        assert started[0] | {"path": started[1]["path"]} == started[1]


@contextmanager
def interrupted_when(condition: Callable[[], bool]) -> Iterator[None]:
    """Press Ctrl-C as soon as something is true."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.003):
            if condition():
                os.kill(os.getpid(), signal.SIGINT)
                return

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


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
    assert "loss is nan" in log.read_text()
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
    settle(grid, out)
    log.parent.mkdir(parents=True)
    Job(config=grid.config(cell, out).as_dict(), folder=str(cell.below(out))).write(log.with_suffix(".json"))
    Slurm(out / "logs" / "slurm", slurm).start(log.with_suffix(".json"), log, 0)  # by one that was killed then
    results = run_benchmark(grid, out, Running(slurm=slurm))
    assert not results.failed
    (script,) = (out / "logs" / "slurm").glob("*_submission.sh")  # it was not submitted again
    assert "#SBATCH --partition=night" in script.read_text()
    assert results.table().to_csv() == here.table().to_csv()


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


def test_two_benchmarks_do_not_share_a_folder(configs, tmp_path, capsys):
    out = tmp_path / "out"
    out.mkdir()
    with held(out / ".lock"):
        assert main(["benchmark", str(configs), "--methods", "erm", "--out", str(out)]) == 2
    assert f"{out} is being benchmarked by another process" in capsys.readouterr().err


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
    "--workers 0": "workers must be at least 1",
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
    assert read.table().to_markdown() == made.table().to_markdown()
    assert len(read.frame)
