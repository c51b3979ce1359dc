"""What a run is made of: the data set and the algorithm, built from a config and checked against each other."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from okapi.algorithms import ALGORITHMS, Algorithm
from okapi.algorithms.cross_domain import CrossDomainAlgorithm
from okapi.config import Config, ConfigError, Sampling
from okapi.data.batches import Batches
from okapi.data.dataset import Dataset
from okapi.data.registry import build_dataset
from okapi.data.sampling import BalancedStream, Stream, WeightedStream
from okapi.models import Network, build, untrained
from okapi.runs.weights import read_weights
from okapi.training.seeds import derived_seed, seed_everything
from okapi.training.selection import check_selector
from okapi.training.starting import read_start, start


class Parts(NamedTuple):
    """The data set and the algorithm, with its network, of a run; and what results.json says of the run it starts from.

    ``started_from`` is None where it starts from no other run, or a checkpoint says what it started from.
    """

    dataset: Dataset
    algorithm: Algorithm
    started_from: dict[str, Any] | None = None


def build_parts(config: Config, resumed: bool = False) -> Parts:
    """Return the parts of a run; what cannot be trained is refused here, before anything is written.

    Parameters
    ----------
    config : Config
    resumed : bool
        Whether weights of a checkpoint will replace the first ones: those of ``training.start_from`` are not read.
    """
    earlier = None if resumed else read_start(config)
    dataset = build_dataset(config.data)
    dataset.check()
    if config.training.start_from is not None:
        config = replace(config, model=untrained(config.model))
    try:
        network = build_network(config, dataset)
        started_from = start(network, earlier, config, dataset) if earlier else None
        algorithm = ALGORITHMS[config.algorithm.name](
            network,
            dataset.task,
            config.algorithm,
            steps=config.training.steps,
            domains=len(dataset.domain_names),
            multi_label=dataset.domain.ndim == 2,
        )
    except RuntimeError as error:
        if "allocate memory" not in str(error) and "out of memory" not in str(error):
            raise
        raise ConfigError(
            f"model {config.model.name} and algorithm {config.algorithm.name} need more memory than there is: "
            "make the model narrower, or algorithm.bank smaller"
        ) from None
    _check_splits(config, dataset, algorithm)
    return Parts(dataset, algorithm, started_from)


def build_network(config: Config, dataset: Dataset, weights: Path | None = None) -> Network:
    """Return the network of a config, with the initial weights of its seed or those of a ``.safetensors`` file."""
    seed_everything(config.seed, "network")
    # Weights that are replaced need not be found: a run serves where neither hub nor folder is at hand.
    model = config.model if weights is None else untrained(config.model)
    sample = dataset.sample(int(dataset.rows("train")[0]))
    network = build(model, sample, dataset.task, pixels="range" in dataset.description())
    if weights is not None:
        try:
            network.load_state_dict(read_weights(weights))
        except RuntimeError as error:
            raise ValueError(f"{weights} does not fit the network of its config: {error}") from error
    return network


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


def _check_splits(config: Config, dataset: Dataset, algorithm: Algorithm) -> None:
    settings, world = config.training, config.training.devices * config.training.nodes
    sizes = {"train": ("labelled_batch", settings.labelled_batch)}
    if algorithm.needs.unlabelled:
        sizes["unlabelled"] = ("unlabelled_batch", settings.unlabelled_batch)
    for split, (key, batch) in sizes.items():
        count = len(dataset.rows(split))
        if not count:
            raise ConfigError(f"split {split!r} has no samples, but algorithm {config.algorithm.name} needs some")
        if count < batch:
            raise ConfigError(f"training.{key} is {batch}, but split {split!r} has only {count} samples")
        if batch % world:
            raise ConfigError(f"training.{key} must be a multiple of the {world} processes, got {batch}")
    if settings.sampling.startswith("class") and dataset.task.kind != "classification":
        raise ConfigError(f"training.sampling {settings.sampling} needs classes, the task is {dataset.task.kind}")
    for key in ("sampling", "unlabelled_sampling"):
        if getattr(settings, key) == "domain_balanced" and dataset.domain.ndim == 2:
            raise ConfigError(f"training.{key} domain_balanced needs one domain a sample, these have sets of them")
    check_selector(settings, dataset)
    needs = algorithm.needs
    if needs.strong != "none" and not needs.strong_if_any and dataset.views.strong is None:
        raise ConfigError(f"algorithm {config.algorithm.name} needs strong views, which the data set has not")
    if isinstance(algorithm, CrossDomainAlgorithm):
        labelled, others = (dataset.domain[dataset.rows(split)] for split in ("train", "unlabelled"))
        algorithm.check_pools(labelled, others, dataset.domain_names)
