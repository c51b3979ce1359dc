"""What a run is made of: the data set, the network, the algorithm and the batches, built from a config and checked."""

from dataclasses import replace
from typing import Any, NamedTuple

from torch import Tensor

from okapi.algorithms import ALGORITHMS, Algorithm
from okapi.algorithms.cross_domain import CrossDomainAlgorithm
from okapi.config import Config, ConfigError, Sampling, differences
from okapi.console import say
from okapi.data.batches import Batches
from okapi.data.dataset import Dataset
from okapi.data.registry import build_dataset
from okapi.data.sampling import BalancedStream, Stream, WeightedStream
from okapi.messages import listed
from okapi.models import Network, build, untrained
from okapi.runs import TrainedModel
from okapi.runs.trained import named_model
from okapi.training.devices import is_first
from okapi.training.seeds import derived_seed, seed_everything
from okapi.training.selection import check_selector

START_FROM = "training.start_from"


class Parts(NamedTuple):
    """The data set and the algorithm, with its network, of a run; and what results.json says of the run it starts from.

    ``started_from`` is None where it starts from no other run, or a checkpoint says what it started from.
    """

    dataset: Dataset
    algorithm: Algorithm
    started_from: dict[str, Any] | None = None


def build_parts(config: Config, resumed: bool = False) -> Parts:
    """Return the parts of a run; what cannot be trained is rejected here, before anything is written.

    Parameters
    ----------
    config : Config
    resumed : bool
        Whether weights of a checkpoint will replace the first ones: those of ``training.start_from`` are not read.
    """
    path = config.training.start_from
    start = None if path is None or resumed else named_model(START_FROM, path)
    dataset = build_dataset(config.data)
    dataset.check()
    if path is not None:
        config = replace(config, model=untrained(config.model))
    network = build_network(config, dataset)
    started_from = _start(network, start, config, dataset) if start else None
    algorithm = ALGORITHMS[config.algorithm.name](
        network,
        dataset.task,
        config.algorithm,
        steps=config.training.steps,
        domains=len(dataset.domain_names),
        multi_label=dataset.domain.ndim == 2,
    )
    _check(config, dataset, algorithm)
    return Parts(dataset, algorithm, started_from)


def build_network(config: Config, dataset: Dataset) -> Network:
    """Return the network of a config, with the initial weights of its seed."""
    seed_everything(config.seed, "network")
    sample = dataset.sample(int(dataset.rows("train")[0]))
    return build(config.model, sample, dataset.task, pixels="range" in dataset.description())


def build_batches(config: Config, parts: Parts, matches: Tensor | None, rank: int = 0, world: int = 1) -> Batches:
    """Return the batches of a run, or this process's share of them.

    Parameters
    ----------
    config : Config
    parts : Parts
    matches : tensor (n,), int64, optional
        The row that each row of the data set is matched to, -1 for none; for offline Okapi.
    rank, world : int
        This process and how many there are.
    """
    settings, dataset, needs = config.training, parts.dataset, parts.algorithm.needs

    def stream(split: str, batch: int, sampling: Sampling) -> Stream:
        rows, seed = dataset.rows(split), derived_seed(config.seed, split)
        if sampling == "uniform":
            return Stream(rows, batch, seed, rank, world)
        kind = WeightedStream if sampling == "class_balanced_in_expectation" else BalancedStream
        groups = dataset.domain if sampling == "domain_balanced" else dataset.target
        return kind(rows, groups[rows], batch, seed, rank, world)

    return Batches(
        dataset,
        labelled=stream("train", settings.labelled_batch, settings.sampling),
        unlabelled=stream("unlabelled", settings.unlabelled_batch, settings.unlabelled_sampling)
        if needs.unlabelled
        else None,
        seed=derived_seed(config.seed, "views"),
        strong="none" if needs.strong_if_any and dataset.views.strong is None else needs.strong,
        matches=matches if needs.matches else None,
    )


def _start(network: Network, start: TrainedModel, config: Config, dataset: Dataset) -> dict[str, Any]:
    """Give a network the weights of a finished run; return what results.json says of it.

    The data set may have other samples and domains than that of the other run, but must have the same classes.
    """
    path, weights = start.run.path, start.weights
    classes = tuple(start.run.classes()["classes"])
    if classes and dataset.class_names and classes != dataset.class_names:
        raise ConfigError(
            f"{START_FROM} must be a run with the same classes: {path} has {listed(classes)}, "
            f"the data has {listed(dataset.class_names)}"
        )
    given, wanted = ({k: tuple(v.shape) for k, v in each.items()} for each in (weights.tensors, network.state_dict()))
    if odd := [name for name in wanted | given if wanted.get(name) != given.get(name)]:
        if all(name.startswith("head.") for name in odd):
            outputs = {"classification": "classes", "regression": "numbers", "multilabel": "labels"}[dataset.task.kind]
            what = f"{given[odd[0]][0]} {outputs}, the data has {dataset.task.outputs}"
        else:
            shapes = (str(each.get(odd[0], "missing")) for each in (given, wanted))
            models = ({"model": each.as_dict()["model"]} for each in (start.config, config))
            what = "; ".join([f"{odd[0]} {' then, '.join(shapes)} now", *differences(*models)])
        raise ConfigError(f"{START_FROM} must be a run with the same network: {path} has {what}")
    network.load_state_dict(weights.tensors)
    algorithm = start.config.algorithm.name
    return {"path": str(path), "sha256": weights.sha256, "step": weights.step, "algorithm": algorithm}


def _check(config: Config, dataset: Dataset, algorithm: Algorithm) -> None:
    """Reject what the algorithm or the sampling needs and the data has not."""
    settings, needs, world = config.training, algorithm.needs, config.training.devices * config.training.nodes
    pools = {"train": ("labelled_batch", settings.labelled_batch)}
    if needs.unlabelled:
        pools["unlabelled"] = ("unlabelled_batch", settings.unlabelled_batch)
    for split, (key, batch) in pools.items():
        count = len(dataset.rows(split))
        if not count:
            raise ConfigError(f"split {split!r} has no samples, but algorithm {config.algorithm.name} needs some")
        if count < batch and is_first():
            say(f"training.{key} is {batch} and split {split!r} has {count} samples: they are drawn with replacement")
        if batch % world:
            raise ConfigError(f"training.{key} must be a multiple of the {world} processes, got {batch}")
    if settings.sampling.startswith("class") and dataset.task.kind != "classification":
        raise ConfigError(f"training.sampling {settings.sampling} needs classes, the task is {dataset.task.kind}")
    for key in ("sampling", "unlabelled_sampling"):
        if getattr(settings, key) == "domain_balanced" and dataset.domain.ndim == 2:
            raise ConfigError(f"training.{key} domain_balanced needs one domain a sample, these have sets of them")
    check_selector(settings, dataset)
    if needs.strong != "none" and not needs.strong_if_any and dataset.views.strong is None:
        raise ConfigError(f"algorithm {config.algorithm.name} needs strong views, which the data set has not")
    if isinstance(algorithm, CrossDomainAlgorithm):
        labelled, others = (dataset.domain[dataset.rows(split)] for split in ("train", "unlabelled"))
        algorithm.check_pools(labelled, others, dataset.domain_names)
