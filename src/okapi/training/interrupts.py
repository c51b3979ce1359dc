"""Ctrl-C and SIGTERM: a step that has begun is finished first."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

import torch
import torch.distributed
from lightning_fabric import Fabric

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """While entered, the first signal is noted, and the second acts as it always does."""

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():  # no other may set handlers
            self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def anywhere(self, fabric: Fabric) -> bool:
        """Return whether any process was asked to stop; all of them must call it."""
        if fabric.world_size == 1:
            return self.asked
        asked = torch.tensor(int(self.asked), device=fabric.device)
        torch.distributed.all_reduce(asked)
        return bool(asked)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
