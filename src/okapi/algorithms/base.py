"""What every algorithm is: a network, and one step of training on a batch."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

from torch import Tensor, nn

from okapi.algorithms.supervised import supervised_loss
from okapi.config import MatchingSettings
from okapi.data.batches import Batch, Inputs, Samples
from okapi.data.task import Task
from okapi.models.network import Network, Output
from okapi.nn.matching import Pool

Metrics: TypeAlias = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What an algorithm wants a batch to have besides labelled samples.

    Parameters
    ----------
    unlabelled : bool
        Unlabelled samples.
    strong : {"none", "unlabelled", "all"}
        Strong views: of no samples, of the unlabelled ones, of all.
    strong_if_any : bool
        Whether it can do without strong views where the data have none.
    matches : bool
        The match of every sample that has one.
    """

    unlabelled: bool = False
    strong: Literal["none", "unlabelled", "all"] = "none"
    strong_if_any: bool = False
    matches: bool = False


class Algorithm(nn.Module, ABC):
    """A network and the rule by which it learns.

    Parameters
    ----------
    network : Network
    task : Task
    settings : the class's own ``Settings``, optional
    steps : int
        Length of the training, on which schedules depend.
    domains : int
        Number of domain labels in the data.
    multi_label : bool
        Whether a sample has several domain labels.
    """

    Settings: ClassVar[type[Any]]

    def __init__(
        self,
        network: Network,
        task: Task,
        settings: Any = None,
        *,
        steps: int,
        domains: int = 2,
        multi_label: bool = False,
    ) -> None:
        super().__init__()
        if steps < 1:
            raise ValueError(f"steps must be at least 1, got {steps}")
        self.network, self.task = network, task
        self.settings = self.Settings() if settings is None else settings
        self.steps, self.domains, self.multi_label = steps, domains, multi_label
        self._wrapper: tuple[Callable[..., Output]] | None = None

    @property
    def needs(self) -> Needs:
        """What a batch must have."""
        return Needs()

    @abstractmethod
    def training_step(self, batch: Batch, step: int) -> tuple[Tensor, Metrics]:
        """Return the loss of a batch, with its gradient, and metrics, without."""

    @property
    def matching(self) -> MatchingSettings | None:
        """How the algorithm matches samples during training; None: it does not."""
        return None

    def pool(self, encoding: Tensor, prediction: Tensor, domain: Tensor, target: Tensor | None) -> Pool:
        """Return samples as the algorithm matches them by now, on the host, for `okapi.nn.match`.

        Parameters
        ----------
        encoding : tensor (n, d)
        prediction : tensor (n, outputs)
        domain : tensor (n,) or (n, S)
            Domain labels.
        target : optional
            None: the samples are unlabelled.
        """
        raise TypeError(f"{type(self).__name__} does not match samples")

    def parameter_groups(self, learning_rate: float) -> list[dict[str, Any]]:
        """Return what an optimiser takes: the parameters to learn, each group with its learning rate."""
        return [{"params": list(self.network.parameters()), "lr": learning_rate}]

    def call_through(self, wrapper: Callable[..., Output]) -> None:
        """Call the network through a wrapper, such as DistributedDataParallel or a compiled version of it."""
        self._wrapper = (wrapper,)  # in a tuple: a module would be registered a second time

    def predict(self, inputs: Inputs, apart: int = 0) -> Output:
        """Return encodings (n, d) and predictions (n, outputs) of inputs, so many of them `apart` (see `Network`)."""
        network = self.network if self._wrapper is None else self._wrapper[0]
        return network(inputs, apart) if apart else network(inputs)

    def supervised(self, prediction: Tensor, samples: Samples) -> Tensor:
        """Return the supervised loss of predictions (n, outputs) of labelled samples."""
        if samples.target is None:
            raise ValueError("target is missing in the labelled samples of the batch")
        return supervised_loss(self.task, prediction, samples.target)


def unlabelled(batch: Batch) -> Samples:
    """Return the unlabelled samples of a batch that must have some."""
    if batch.unlabelled is None:
        raise ValueError("unlabelled samples are missing in the batch")
    return batch.unlabelled


def strong(samples: Samples) -> Inputs:
    """Return the strong views of samples that must have them."""
    if samples.strong is None:
        raise ValueError("strong views are missing in the batch")
    return samples.strong
