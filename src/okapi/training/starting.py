"""A run that starts from the weights of another: ``training.start_from``."""

from typing import Any

from okapi.config import Config, ConfigError, differences
from okapi.data.dataset import Dataset
from okapi.messages import listed
from okapi.models import Network
from okapi.runs import TrainedModel
from okapi.runs.trained import named_model

_KEY = "training.start_from"
_OUTPUTS = {"classification": "classes", "regression": "numbers", "multilabel": "labels"}


def read_start(config: Config) -> TrainedModel | None:
    """Return the run that a config starts from, if any."""
    path = config.training.start_from
    return None if path is None else named_model(_KEY, path)


def start(network: Network, run: TrainedModel, config: Config, dataset: Dataset) -> dict[str, Any]:
    """Give a network the weights of a finished run; return what results.json says of it.

    Parameters
    ----------
    network : Network
    run : TrainedModel
    config : Config
        Of the run that starts.
    dataset : Dataset
        Of the run that starts; it may have other samples and domains than that of ``run``, but the same classes.
    """
    path, weights = run.run.path, run.weights
    classes = tuple(run.run.classes()["classes"])
    if classes and dataset.class_names and classes != dataset.class_names:
        raise ConfigError(
            f"{_KEY} must be a run with the same classes: {path} has {listed(classes)}, "
            f"the data has {listed(dataset.class_names)}"
        )
    given, wanted = ({k: tuple(v.shape) for k, v in its.items()} for its in (weights.tensors, network.state_dict()))
    if odd := [name for name in wanted | given if wanted.get(name) != given.get(name)]:
        if all(name.startswith("head.") for name in odd):
            what = f"{given[odd[0]][0]} {_OUTPUTS[dataset.task.kind]}, the data has {dataset.task.outputs}"
        else:
            shapes = (str(its.get(odd[0], "missing")) for its in (given, wanted))
            models = ({"model": its.as_dict()["model"]} for its in (run.config, config))
            what = "; ".join([f"{odd[0]} {' then, '.join(shapes)} now", *differences(*models)])
        raise ConfigError(f"{_KEY} must be a run with the same network: {path} has {what}")
    network.load_state_dict(weights.tensors)
    algorithm = run.config.algorithm.name
    return {"path": str(path), "sha256": weights.sha256, "step": weights.step, "algorithm": algorithm}
