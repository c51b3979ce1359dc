"""Files appear whole, and logs go on where a checkpoint says."""

import csv
import errno
import os
import subprocess
import sys
from itertools import product

import pytest
import torch
from tests.training.runs import held

from okapi.files import errors_name, locked, remove_unfinished, replacing, sync, write_bytes
from okapi.runs import Run
from okapi.runs.log import CsvLog
from okapi.training.seeds import derived_seed, seed_everything


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.bin"
    write_bytes(path, b"old")

    def fail() -> None:
        with replacing(path) as temporary:
            temporary.write_bytes(b"ne")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left") as caught:
        fail()
    assert caught.value.filename == str(path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.bin"]  # noqa: PTH208


def test_errors_that_know_their_file_keep_it(tmp_path):
    with pytest.raises(FileNotFoundError) as caught, errors_name(tmp_path / "log"):
        (tmp_path / "other").read_bytes()
    assert caught.value.filename == str(tmp_path / "other")


def test_only_unfinished_things_are_removed(tmp_path):
    for name in (".a.new", "b.new", ".c", "d"):
        (tmp_path / name).write_text("")
    (tmp_path / ".e.new").mkdir()
    remove_unfinished(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".c", "b.new", "d"]


def test_a_log_continues_with_what_its_checkpoint_holds_and_forgets_what_came_later(tmp_path):
    path = tmp_path / "metrics.csv"
    log = CsvLog(path, ("step", "value"))
    log.write([(1, 0.1 + 0.2)])
    text = log.sync()
    log.write([(2, 5.0), (3, float("nan"))])
    log.close()
    log = CsvLog(path, ("step", "value"), text)
    log.write([(2, 1e-300)])
    log.close()
    assert path.read_text() == "step,value\n1,0.30000000000000004\n2,1e-300\n"


def test_awkward_names_survive_a_log(tmp_path):
    log = CsvLog(tmp_path / "m.csv", ("split", "metric"))
    log.write([("a,b", 'say "é"\n')])
    log.close()
    with (tmp_path / "m.csv").open(encoding="utf-8", newline="") as file:
        assert list(csv.reader(file))[1] == ["a,b", 'say "é"\n']


def test_a_run_directory_must_be_new_and_is_locked(tmp_path):
    folder = Run(tmp_path / "run")
    folder.check_new()
    folder.path.mkdir()
    (folder.path / ".config.yaml.new").write_text("half of a config of a process that was killed")
    folder.check_new()
    with pytest.raises(ValueError, match="holds no run"):
        folder.check_begun()
    folder.config_file.write_text("seed: 0")
    with pytest.raises(ValueError, match="holds a run already; resume it by --resume"):
        folder.check_new()
    other = Run(tmp_path / "other")
    other.path.mkdir()
    (other.path / "thesis.tex").write_text("")
    with pytest.raises(ValueError, match="is not empty"):
        other.check_new()
    with pytest.raises(ValueError, match="is not a directory"):
        Run(other.path / "thesis.tex").check_new()


def test_another_process_cannot_write_to_a_run(tmp_path):
    folder = Run(tmp_path)
    program = "import fcntl, sys; fcntl.flock(open(sys.argv[1], 'a'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    words = [sys.executable, "-c", program, str(tmp_path / ".lock")]
    with folder.locked():
        assert "BlockingIOError" in subprocess.run(words, capture_output=True, text=True, timeout=60).stderr
    subprocess.run(words, check=True, timeout=60)
    refused = pytest.raises(ValueError, match="is being trained, or evaluated, by another process")
    with held(tmp_path / ".lock"), refused, folder.locked():
        pass


def test_a_lock_outlives_files_that_are_written_beside_it(tmp_path):
    """POSIX record locks end when any descriptor of the file is closed, as a sync of the whole folder does."""
    program = "import fcntl, sys; fcntl.flock(open(sys.argv[1], 'a'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    words = [sys.executable, "-c", program, str(tmp_path / ".lock")]
    with locked(tmp_path, "busy"):
        write_bytes(tmp_path / "config.yaml", b"seed: 0")
        sync(tmp_path)
        assert "BlockingIOError" in subprocess.run(words, capture_output=True, text=True, timeout=60).stderr


def test_seeds_of_places_are_stable_and_differ():
    places = [
        (seed, "step", step, batch, rank) for seed, step, batch, rank in product(range(3), range(50), *2 * [(0, 1)])
    ]
    seeds = [derived_seed(*place) for place in places]
    assert len(set(seeds)) == len(places)
    assert 0 <= min(seeds) < max(seeds) < 2**63
    assert derived_seed(0, "network") == 2356446306777704276  # another number would make every run another
    seed_everything(1, "step", 2)
    first = torch.rand(3)
    torch.rand(5)
    seed_everything(1, "step", 2)
    assert torch.equal(first, torch.rand(3))
