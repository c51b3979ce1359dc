"""A checkpoint is complete or not there, and nothing is believed that was not checked."""

import json
import os

import pytest
import torch

from okapi.runs.checkpoints import CheckpointError, read_checkpoint, read_newest, save_checkpoint

CONFIG = {"seed": 1, "training": {"steps": 5}}


def state(step: int) -> dict:
    return {"weights": torch.full((3, 2), float(step)), "sums": {"loss": 0.1}, "step": step, "name": "é", "none": None}


def save(folder, *steps):
    return [save_checkpoint(folder, step, state(step), config=CONFIG) for step in steps]


def test_what_is_saved_is_read(tmp_path):
    (path,) = save(tmp_path / "c", 7)
    found = read_checkpoint(path)
    assert (found.step, found.config, path.name) == (7, CONFIG, "step-00000007")
    assert torch.equal(found.state.pop("weights"), state(7)["weights"])
    assert found.state == {"sums": {"loss": 0.1}, "step": 7, "name": "é", "none": None}


def test_the_newest_two_are_kept_and_steps_compare_as_numbers(tmp_path):
    save(tmp_path, 99_999_999, 7, 100_000_000)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-100000000", "step-99999999"]
    assert read_newest(tmp_path)[0].step == 100_000_000


def test_equal_states_give_equal_bytes(tmp_path):
    first, second = save(tmp_path / "a", 3) + save(tmp_path / "b", 3)
    assert (first / "state.pt").read_bytes() == (second / "state.pt").read_bytes()


def test_no_checkpoint_is_no_error_and_unfinished_ones_are_removed(tmp_path):
    assert read_newest(tmp_path / "nowhere") == (None, [])
    (tmp_path / ".step-00000003.new").mkdir()
    (tmp_path / ".step-00000003.new" / "state.pt").write_bytes(b"half")
    assert read_newest(tmp_path) == (None, [])
    assert list(tmp_path.iterdir()) == []


def cut(path):
    content = (path / "state.pt").read_bytes()
    (path / "state.pt").write_bytes(content[: len(content) // 2])


def flip(path):
    content = bytearray((path / "state.pt").read_bytes())
    content[len(content) // 2] ^= 1
    (path / "state.pt").write_bytes(content)


def empty(path):
    (path / "state.pt").write_bytes(b"")


def without_manifest(path):
    (path / "manifest.json").unlink()


def half_a_manifest(path):
    (path / "manifest.json").write_text((path / "manifest.json").read_text()[:40])


def without_state(path):
    (path / "state.pt").unlink()


def edit(**changes):
    def spoil(path):
        manifest = json.loads((path / "manifest.json").read_text())
        (path / "manifest.json").write_text(json.dumps({**manifest, **changes}))

    spoil.__name__ = "edit_" + "_".join(changes)
    return spoil


SPOILT = [
    (cut, "torn"),
    (flip, "SHA-256"),
    (empty, "torn: 0 bytes"),
    (without_manifest, "has no manifest.json"),
    (half_a_manifest, "manifest.json cannot be read"),
    (without_state, "state.pt cannot be read"),
    (edit(format="lightning"), "does not say that it is an okapi checkpoint"),
    (edit(version=1), "of version 1, this program reads version 3"),
    (edit(step=5), "says that it is of step 5"),
    (edit(size=None), "lacks size"),
    (edit(size="many"), "lacks size"),
    (edit(size=-1), "torn"),
]


@pytest.mark.parametrize(("spoil", "words"), SPOILT, ids=[f"{spoil.__name__}-{words}" for spoil, words in SPOILT])
def test_a_bad_one_is_refused_with_a_reason_and_the_one_before_is_used(tmp_path, spoil, words):
    _, newest = save(tmp_path, 4, 8)
    spoil(newest)
    found, rejected = read_newest(tmp_path)
    assert found.step == 4
    ((path, reason),) = rejected
    assert words in reason
    assert path.name == "step-00000008.rejected"
    assert read_newest(tmp_path)[1] == []
    (other,) = save(tmp_path / "alone", 8)
    spoil(other)
    with pytest.raises(CheckpointError, match="no checkpoint that can be used: step-00000008"):
        read_newest(tmp_path / "alone")


class Evil:
    """Unpickled, it would make a folder."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_code_in_a_checkpoint_is_refused_and_not_run(tmp_path):
    trap = tmp_path / "trap"
    path = save_checkpoint(tmp_path / "c", 3, {"weights": Evil(trap)}, config=CONFIG)
    with pytest.raises(CheckpointError, match="more than tensors and numbers"):
        read_checkpoint(path)
    assert not trap.exists()


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before_and_no_rubbish(tmp_path):
    save(tmp_path, 4)
    with pytest.raises(Exception, match="pickle"):
        save_checkpoint(tmp_path, 8, {"weights": lambda: None}, config=CONFIG)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000004"]
    assert read_newest(tmp_path)[0].step == 4
