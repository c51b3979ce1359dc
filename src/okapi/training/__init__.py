"""Training, evaluation and embedding: everything that runs a network over a data set.

Names are loaded on first use: the command line asks for the settings before it needs torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from okapi.training.dry_run import estimate
    from okapi.training.embedding import Embedded, embed, open_model
    from okapi.training.errors import InterruptedRunError, NotFiniteError, RunError
    from okapi.training.predictor import Predictor
    from okapi.training.trainer import Trainer, resume, train

_HOME = {
    "dry_run": ("estimate",),
    "embedding": ("Embedded", "embed", "open_model"),
    "errors": ("InterruptedRunError", "NotFiniteError", "RunError"),
    "predictor": ("Predictor",),
    "trainer": ("Trainer", "resume", "train"),
}

__all__ = [
    "Embedded",
    "InterruptedRunError",
    "NotFiniteError",
    "Predictor",
    "RunError",
    "Trainer",
    "embed",
    "estimate",
    "open_model",
    "resume",
    "train",
]


def __getattr__(name: str) -> Any:
    for module, names in _HOME.items():
        if name in names:
            return getattr(import_module(f"okapi.training.{module}"), name)
    raise AttributeError(f"module 'okapi.training' has no attribute {name!r}")
