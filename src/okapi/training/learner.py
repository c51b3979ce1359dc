"""One step of learning: gradients of its batches, then the optimiser; on any device, in any number of processes."""

from collections.abc import Sequence
from math import inf, isfinite
from typing import Any

import torch
import torch.distributed
from lightning_fabric import Fabric

from okapi.algorithms import Algorithm
from okapi.config import Config
from okapi.data.batches import Batch
from okapi.nn import Cosine
from okapi.training.seeds import seed_everything


class Learner:
    """An algorithm with its optimiser.

    Only the network is wrapped, compiled and spread over processes, and the algorithm calls it through the wrapper.
    Momentum encoders, banks and scorers are the same in every process without it.

    Parameters
    ----------
    config : Config
    algorithm : Algorithm
        Moved to the device.
    fabric : Fabric
        Launched.
    """

    def __init__(self, config: Config, algorithm: Algorithm, fabric: Fabric) -> None:
        settings = config.training
        self._seed, self._fabric, self._clip = config.seed, fabric, settings.clip or inf
        self.algorithm = algorithm.to(fabric.device)
        optimiser = torch.optim.AdamW(
            algorithm.parameter_groups(settings.learning_rate),
            lr=settings.learning_rate,
            weight_decay=settings.weight_decay,
        )
        self._rates = [float(group["lr"]) for group in optimiser.param_groups]
        self._schedule = Cosine(
            1.0,
            settings.final_learning_rate / settings.learning_rate,
            settings.steps,
            warm_up=round(settings.warm_up * settings.steps),
        )
        network: Any = algorithm.network
        if settings.compile:
            network = torch.compile(network, backend=settings.compile)
        self._network, self._optimiser = fabric.setup(network, optimiser)
        self._may_skip = settings.precision == "fp16"  # whose scaler skips steps with infinite gradients
        algorithm.call_through(self._network)
        algorithm.train()

    def differentiate(self, batches: Sequence[Batch], step: int) -> dict[str, float]:
        """Compute the gradient of the mean loss of some batches; return metrics, means over batches and processes.

        Chance, as in dropout, depends on the seed, the step, the batch and the process alone.
        """
        summed: dict[str, torch.Tensor] = {}
        for number, batch in enumerate(batches):
            seed_everything(self._seed, "step", step, number, self._fabric.global_rank)
            with self._fabric.no_backward_sync(self._network, enabled=number + 1 < len(batches)):
                with self._fabric.autocast():
                    loss, metrics = self.algorithm.training_step(batch.to(self._fabric.device, True), step)
                self._fabric.backward(loss / len(batches))
            for name, value in {**metrics, "loss": loss.detach()}.items():
                summed[name] = summed.get(name, 0) + value.float() / len(batches)
        norm = self._fabric.clip_gradients(
            self._network, self._optimiser, max_norm=self._clip, error_if_nonfinite=False
        )
        values = torch.stack([*summed.values(), torch.as_tensor(norm, dtype=torch.float32)])
        if self._fabric.world_size > 1:
            torch.distributed.all_reduce(values)
            values /= self._fabric.world_size
        return dict(zip([*summed, "gradient_norm"], values.tolist(), strict=True))

    def is_finite(self, metrics: dict[str, float]) -> bool:
        """Return whether a step with these metrics may change the weights."""
        return isfinite(metrics["loss"]) and (self._may_skip or isfinite(metrics["gradient_norm"]))

    def update(self, step: int) -> float:
        """Change the weights by the gradients; return the learning rate."""
        share = self._schedule(step)
        for group, rate in zip(self._optimiser.param_groups, self._rates, strict=True):
            group["lr"] = rate * share
        self._optimiser.step()
        self._optimiser.zero_grad()
        self._share_buffers()
        return self._rates[0] * share

    def state_dict(self) -> dict[str, Any]:
        """Return all that later steps depend on."""
        return {
            "algorithm": {name: _alone(tensor) for name, tensor in self.algorithm.state_dict().items()},
            "optimiser": self._optimiser.state_dict(),
            "precision": self._fabric.strategy.precision.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to a state."""
        self.algorithm.load_state_dict(state["algorithm"])
        self._optimiser.load_state_dict(state["optimiser"])
        self._fabric.strategy.precision.load_state_dict(state["precision"])

    def _share_buffers(self) -> None:
        """Average what batch normalisation has seen, so that all processes, and their momentum encoders, stay alike."""
        if self._fabric.world_size == 1:
            return
        for buffer in self.algorithm.network.buffers():
            if buffer.is_floating_point():
                torch.distributed.all_reduce(buffer)
                buffer /= self._fabric.world_size


def _alone(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor without the rest of a larger memory that it is part of, which would be saved with it."""
    return tensor.clone() if tensor.untyped_storage().nbytes() > tensor.nbytes else tensor
