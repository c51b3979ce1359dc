"""The loop on Lightning Fabric, checkpoints.

Names are loaded on first use: the command line asks for the settings before it needs torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from okapi.training.embedding import Embedded, embed, open_model
    from okapi.training.errors import InterruptedRunError, NotFiniteError, RunError
    from okapi.training.rehearsal import Rehearsal, rehearse
    from okapi.training.running import resume, train

__all__ = [
    "Embedded",
    "InterruptedRunError",
    "NotFiniteError",
    "Rehearsal",
    "RunError",
    "embed",
    "open_model",
    "rehearse",
    "resume",
    "train",
]

_HOME = {
    "embedding": ("Embedded", "embed", "open_model"),
    "errors": ("InterruptedRunError", "NotFiniteError", "RunError"),
    "rehearsal": ("Rehearsal", "rehearse"),
    "running": ("resume", "train"),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOME.items():
        if name in names:
            return getattr(import_module(f"okapi.training.{module}"), name)
    raise AttributeError(f"module 'okapi.training' has no attribute {name!r}")
