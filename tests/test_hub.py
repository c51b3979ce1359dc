"""What is named is looked for in a folder, in the cache and on the hub, in that order; and told if it is nowhere."""

import http.server
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.data.small_tokenizer import save_tokenizer
from tests.models.tiny import TEXT, VISION, save

from okapi import hub
from okapi.cli import main
from okapi.config import TextSettings
from okapi.data.text import load_tokenizer
from okapi.models import TextEncoder, VisionBackbone

NAMED: dict[str, Callable[[], object]] = {
    "backbone 'no/such'": lambda: VisionBackbone("no/such"),
    "pretrained 'no/such'": lambda: VisionBackbone("resnet-18", pretrained="no/such"),
    "pretrained 'no-such'": lambda: TextEncoder(TextSettings(pretrained="no-such")),
    "tokenizer 'no/such'": lambda: load_tokenizer("no/such"),
}
LOADS = """
from okapi.config import TextSettings
from okapi.data.text import load_tokenizer
from okapi.models import TextEncoder, VisionBackbone
print(VisionBackbone("okapi/resnet", 8, pretrained="okapi/resnet").out_features)
print(TextEncoder(TextSettings(pretrained="okapi/bert")).transformer.config.model_type)
print(load_tokenizer("okapi/bert").pad_token)
"""
LOADED = ["16", "bert", "[PAD]"]


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    """Return a folder of models by their names."""
    folder = tmp_path_factory.mktemp("models")
    save(folder / "okapi" / "resnet", "resnet", VISION["resnet"])
    save(folder / "okapi" / "bert", "bert", TEXT["bert"])
    save_tokenizer(folder / "okapi" / "bert")
    return folder


@pytest.mark.parametrize("what", NAMED)
def test_a_hub_that_is_switched_off_is_told_in_a_sentence(what, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    name = what.split("'")[1]
    advice = f"Give a local folder, which `hf download {name} --local-dir FOLDER` makes"
    with pytest.raises(
        ValueError, match=rf"^{what} is no folder .* switched off \(HF_HUB_OFFLINE\)\. {advice}"
    ) as told:
        NAMED[what]()
    assert "\n" not in str(told.value)
    if "tokenizer" not in what:
        assert "; or " in str(told.value)


@pytest.mark.parametrize("what", NAMED)
def test_a_hub_out_of_reach_is_told_at_once(what, monkeypatch, free_port):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{free_port}")
    began = time.monotonic()
    with pytest.raises(ValueError, match=rf"^{what} is no folder .* the hub \(http://127.*\) cannot be reached\. Give"):
        NAMED[what]()
    assert time.monotonic() - began < 10


def test_a_hub_that_never_answers_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(hub, "_PATIENCE", 0.3)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        began = time.monotonic()
        with pytest.raises(ValueError, match="cannot be reached"):
            load_tokenizer("no/such")
        assert time.monotonic() - began < 10


def test_names_that_no_hub_has_are_refused():
    for name in ("a/b/c", "../weights", "/no/such/folder", "~/weights"):
        with pytest.raises(ValueError, match="is no folder, and on the hub there are no such names"):
            load_tokenizer(name)


def test_the_command_line_says_one_line(monkeypatch, capsys, tmp_path: Path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    config = tmp_path / "config.yaml"
    config.write_text(
        "data: {name: sites}\nmodel: {name: vision, backbone: resnet-18, pretrained: no/such}\n"
        "algorithm: {name: erm}\ntraining: {steps: 1, selector: last}\n"
    )
    assert main(["train", str(config), "--out", str(tmp_path / "run")]) == 2
    told = capsys.readouterr().err.strip()
    assert told.startswith("okapi: pretrained 'no/such' is no folder")
    assert "efficientnet-lite0 with pretrained: imagenet" in told
    assert "\n" not in told
    assert not (tmp_path / "run").exists()


def test_what_is_in_the_cache_needs_no_hub(models: Path, tmp_path: Path, monkeypatch, capsys):
    for model in models.glob("*/*"):
        home = tmp_path / f"models--{model.parent.name}--{model.name}"
        shutil.copytree(model, home / "snapshots" / ("0" * 40))
        (home / "refs").mkdir()
        (home / "refs" / "main").write_text("0" * 40)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    exec(LOADS, {})
    assert capsys.readouterr().out.split() == LOADED


def test_what_is_on_the_hub_is_fetched_once(models: Path, tmp_path: Path):
    with hub_of(models) as (address, asked):
        assert run(LOADS, HF_HOME=str(tmp_path), HF_ENDPOINT=address) == LOADED
        assert "/okapi/resnet/resolve/main/model.safetensors" in asked
        asked.clear()
        again = run(f"{LOADS}\nload_tokenizer('no/such')", code=1, HF_HOME=str(tmp_path), HF_ENDPOINT=address)
    assert again[:3] == LOADED
    assert not [path for path in asked if path.startswith("/okapi/")]
    assert again[-1].startswith("ValueError: tokenizer 'no/such' is no folder, and cannot be loaded from the hub: ")


def run(program: str, code: int = 0, **variables: str) -> list[str]:
    """Run Python and return the lines that it says, those of errors last."""
    env = {**os.environ, "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1", **variables}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stderr
    return [*done.stdout.splitlines(), *done.stderr.splitlines()]


@contextmanager
def hub_of(models: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the address of a hub of some models, as far as its protocol for files goes, and the paths it is asked."""
    asked: list[str] = []

    class Files(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.answer()

        def do_GET(self) -> None:
            self.wfile.write(self.answer())

        def answer(self) -> bytes:
            asked.append(self.path)
            name, _, file = self.path.lstrip("/").partition("/resolve/main/")
            path = models / name / file
            known = self.path == "/" or path.is_file()
            content = path.read_bytes() if path.is_file() else b""
            self.send_response(200 if known else 404)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("X-Repo-Commit", "0" * 40)
            self.send_header("ETag", f'"{len(content)}-{file}"')
            if not known:
                self.send_header("X-Error-Code", "EntryNotFound" if (models / name).is_dir() else "RepoNotFound")
            self.end_headers()
            return content

        def log_message(self, *words: object) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Files)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
