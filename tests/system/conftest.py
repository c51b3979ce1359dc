import shutil
from collections.abc import Callable, Iterator
from multiprocessing import forkserver

import pytest
from tests.training.runs import SERVER, Forked, environment

IMPORTS = ["okapi.benchmark.worker", "okapi.cli", "okapi.commands.report"]

ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def fork(tmp_path_factory) -> Iterator[Callable[..., Forked]]:
    """Return what starts ``okapi`` in a process that need not import anything; no such process outlives the tests."""
    SERVER.set_forkserver_preload(IMPORTS)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(tmp_path_factory.mktemp("environment")).items():
            patch.setenv(name, value)
        forkserver.ensure_running()
    started: list[Forked] = []

    def fork(*words: object, **variables: str) -> Forked:
        started.append(Forked(*words, **variables))
        return started[-1]

    yield fork
    for process in started:
        if process.poll() is None:
            process.kill()


@pytest.fixture
def fork_two(fork, free_port) -> Callable[..., list[Forked]]:
    """Return what starts two processes that learn together, in the environment that torchrun gives them."""
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port), "TORCHELASTIC_RUN_ID": "test"}
    sizes = dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), "2")

    def start(*words: object) -> list[Forked]:
        return [fork(*words, **address, **sizes, RANK=rank, LOCAL_RANK=rank) for rank in ("0", "1")]

    return start


@pytest.fixture(scope="session")
def browser() -> Iterator[object]:
    """A real Chromium, started once."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("Chromium is not installed")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser, tmp_path):
    """Open a page; afterwards there must have been no message, no error, no dialog and no request but for
    the file.
    """
    contexts, troubles, requests = [], [], []

    def open_(html: str, width: int = 1280, scheme: str = "light"):
        (tmp_path / "page.html").write_text(html, encoding="utf-8")
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("dialog", lambda dialog: (troubles.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: requests.append(request.url))
        page.goto((tmp_path / "page.html").as_uri())
        return page

    yield open_
    for context in contexts:
        context.close()
    assert troubles == []
    assert {url for url in requests if not url.startswith("data:")} == {(tmp_path / "page.html").as_uri()}
