"""The weights of a finished run, read back and checked."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from okapi.config import Config, ConfigError
from okapi.runs.results import Results
from okapi.runs.run import Run

if TYPE_CHECKING:
    from torch import Tensor

    from okapi.data.task import Task
    from okapi.models import Network

Which: TypeAlias = Literal["selected", "last"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Weights:
    """Weights of a run.

    Parameters
    ----------
    which : {"selected", "last"}
        Those of model.safetensors, or those of the last checkpoint.
    tensors : dict
    step : int
        At which they were written.
    sha256 : str
        Of the ``.safetensors`` file that holds them, or would; equal weights of one step have equal ones.
    selector : str
        What chose them.
    edited : bool
        Whether they are not those that the run selected.
    """

    which: Which
    tensors: "dict[str, Tensor]"
    step: int
    sha256: str
    selector: str
    edited: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainedModel:
    """The config and the weights of a finished run, and what is worth knowing before they are believed.

    Parameters
    ----------
    run : Run
    config : Config
    weights : Weights
    overrides : dict
        Keys that differ from the run's config, as text.
    notes : list of str
        Sentences for whoever looks.
    """

    run: Run
    config: Config
    weights: Weights
    overrides: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def task(self) -> "Task":
        """What the model predicts."""
        from okapi.data.task import Task

        return Task(**self.run.classes()["task"])

    def network(self) -> "Network":
        """Return the network with its weights, built from the run directory alone: its data need not be there."""
        import torch

        from okapi.models import build, untrained

        inputs = self.run.classes()["inputs"]
        sample: Any = torch.zeros(inputs["shape"])
        if inputs["kind"] == "text":
            sample = {name: torch.zeros(inputs["shape"], dtype=torch.int64) for name in ("input_ids", "attention_mask")}
        # Weights that are replaced need not be found: a run serves where neither hub nor folder is at hand.
        network = build(untrained(self.config.model), sample, self.task, pixels="range" in inputs)
        try:
            network.load_state_dict(self.weights.tensors)
        except RuntimeError as error:
            reason = " ".join(str(error).split())
            raise ValueError(
                f"the weights of {self.run.path} do not fit the network of its config: {reason}"
            ) from error
        return network.eval()


def named_model(key: str, path: str) -> TrainedModel:
    """Return the model of the run that a key of a config names; one that cannot serve is a ConfigError with the key."""
    try:
        model = Run(path).trained_model(force=True)
    except ValueError as error:
        raise ConfigError(f"{key} must be the directory of a finished run: {error}") from error
    if model.weights.edited:
        raise ConfigError(f"{key} must be the directory of a finished run: {model.run.weights_file} was edited since")
    return model


def selected_weights(run: Run, results: Results, notes: list[str], force: bool) -> Weights:
    """Return the weights of model.safetensors, if they are those that the run selected or ``force`` is given."""
    from okapi.runs.weights_file import read_weights, sha256, step_of

    path = run.weights_file
    if not path.is_file():
        raise ValueError(f"{path} does not exist, although the run is finished: somebody removed it")
    content_hash = sha256(path.read_bytes())
    edited = content_hash != results.weights.sha256
    if edited:
        text = (
            f"{path} is not what the run selected: its SHA-256 begins with {content_hash[:12]}, that of "
            f"{run.results_file.name} with {results.weights.sha256[:12]}"
        )
        if not force:
            raise ValueError(f"{text}. --force evaluates it all the same, and the evaluation will say so")
        notes.append(text)
    return Weights(
        which="selected",
        tensors=read_weights(path),
        step=step_of(path),
        sha256=content_hash,
        selector=results.selection.selector,
        edited=edited,
    )


def last_weights(run: Run) -> Weights:
    """Return the network's weights of the newest checkpoint."""
    from okapi.runs.checkpoints import read_newest
    from okapi.runs.weights_file import sha256, weights_bytes

    checkpoint, _ = read_newest(run.checkpoints)
    if checkpoint is None:
        raise ValueError(f"{run.checkpoints} has no checkpoint: of the last weights nothing is left")
    state, prefix = checkpoint.state["learner"]["algorithm"], "network."
    tensors = {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}
    content = weights_bytes(tensors, checkpoint.step)
    return Weights(which="last", tensors=tensors, step=checkpoint.step, sha256=sha256(content), selector="last")
