"""Things of the transformers library by name: from a folder, from the local cache, and only then from the hub.

Where the hub is switched off or out of reach, one sentence says so, at once: nobody waits for retries.
"""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

_Thing = TypeVar("_Thing")
_HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
_PATIENCE = 5.0  # seconds that the hub is given to say anything at all


def load(what: str, name: str, read: Callable[[bool], _Thing], otherwise: str = "") -> _Thing:
    """Return what ``read`` reads; a ValueError says in a sentence why it cannot, and what to do.

    Parameters
    ----------
    what : str
        How errors call it: the key of the config that named it.
    name : str
        A folder, or a name on the hub. A folder of that name comes first.
    read : callable
        Takes whether only local files may be used.
    otherwise : str
        What else the user may do, as the end of a sentence.

    Examples
    --------
    >>> load("tokenizer", "no/such/folder", lambda local: None)
    Traceback (most recent call last):
    ValueError: tokenizer 'no/such/folder' is no folder, and on the hub there are no such names
    """
    with _quiet():
        if Path(name).is_dir():
            return _told(lambda: read(True), f"{what} {name!r} cannot be loaded from that folder")
        if not _HUB_NAME.fullmatch(name):
            raise ValueError(f"{what} {name!r} is no folder, and on the hub there are no such names")
        try:
            return read(True)
        except (
            Exception
        ) as error:  # depending on what is missing transformers raises OSError, ValueError, KeyError, ...
            if trouble := _trouble():
                raise ValueError(_advice(what, name, trouble, otherwise)) from error
        return _told(lambda: read(False), f"{what} {name!r} is no folder, and cannot be loaded from the hub")


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says, or its name if it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _told(read: Callable[[], _Thing], sentence: str) -> _Thing:
    try:
        return read()
    except Exception as error:
        raise ValueError(f"{sentence}: {first_line(error)}") from error


def _advice(what: str, name: str, trouble: str, otherwise: str) -> str:
    from huggingface_hub import constants

    return (
        f"{what} {name!r} is no folder and is not, or not wholly, in the local cache ({constants.HF_HUB_CACHE}), and "
        f"{trouble}. Give a local folder, which `hf download {name} --local-dir FOLDER` makes on a machine with network"
        f"{otherwise}"
    )


def _trouble() -> str | None:
    """Return why nothing can come from the hub, or None if it can. Asks once and waits no longer than seconds."""
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return "the hub is switched off (HF_HUB_OFFLINE)"
    answers: list[object] = []

    def ask() -> None:
        try:
            answers.append(get_session().head(constants.ENDPOINT, timeout=_PATIENCE))
        except Exception:
            return

    # In a thread: no timeout bounds how long the system looks for an address.
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(_PATIENCE)
    return None if answers else f"the hub ({constants.ENDPOINT}) cannot be reached"


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers from drawing bars and from listing weights of heads that are not used."""
    logging: Any = import_module("transformers.utils.logging")
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
