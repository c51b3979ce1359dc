"""The loop on Lightning Fabric, checkpoints, typed configuration.

Names are loaded on first use: the command line asks for the settings before it needs torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from okapi.training.config import Config, ConfigError, make_config, read_config
    from okapi.training.embedding import Embedded, embed, open_model
    from okapi.training.errors import InterruptedRunError, NotFiniteError, RunError
    from okapi.training.rehearsal import Rehearsal, rehearse
    from okapi.training.running import resume, train
    from okapi.training.settings import TrainingSettings

__all__ = [
    "Config",
    "ConfigError",
    "Embedded",
    "InterruptedRunError",
    "NotFiniteError",
    "Rehearsal",
    "RunError",
    "TrainingSettings",
    "embed",
    "make_config",
    "open_model",
    "read_config",
    "rehearse",
    "resume",
    "train",
]

_HOME = {
    "config": ("Config", "ConfigError", "make_config", "read_config"),
    "embedding": ("Embedded", "embed", "open_model"),
    "errors": ("InterruptedRunError", "NotFiniteError", "RunError"),
    "rehearsal": ("Rehearsal", "rehearse"),
    "running": ("resume", "train"),
    "settings": ("TrainingSettings",),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOME.items():
        if name in names:
            return getattr(import_module(f"okapi.training.{module}"), name)
    raise AttributeError(f"module 'okapi.training' has no attribute {name!r}")
