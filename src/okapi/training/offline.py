"""Matches for offline Okapi: found once, from the encodings of a model that was trained before."""

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from okapi.algorithms import offline_matches
from okapi.config import Config, ConfigError, OfflineOkapiSettings
from okapi.data.dataset import Dataset
from okapi.files import replacing
from okapi.runs import Run, TrainedModel
from okapi.runs.trained import named_model
from okapi.training.inference import predict


def check_erm_run(config: Config, run: Run | None) -> None:
    """Reject a config of offline Okapi whose trained model is missing or of other data."""
    settings = config.algorithm
    if isinstance(settings, OfflineOkapiSettings) and not (run and run.matches_file.exists()):
        _erm_run(config, settings)


def read_matches(config: Config, dataset: Dataset, run: Run, device: torch.device) -> Tensor | None:
    """Return the row that each row of the data set is matched to, (n,), -1 for none; None if the algorithm has no use.

    They are found the first time and kept in the run directory.
    """
    if config.algorithm.name != "offline_okapi":
        return None
    if not run.matches_file.exists():
        matches = find_matches(config, dataset, device)
        with replacing(run.matches_file) as temporary:
            save_file({"match": matches}, temporary)
    return load_file(run.matches_file)["match"]


def find_matches(config: Config, dataset: Dataset, device: torch.device) -> Tensor:
    """Encode the labelled and the unlabelled samples with the trained model and match them."""
    settings = config.algorithm
    if not isinstance(settings, OfflineOkapiSettings):
        raise TypeError(f"only offline Okapi has matches that are found once, the algorithm is {settings.name}")
    network = _erm_run(config, settings).network().to(device)
    pools = [dataset.rows("train"), dataset.rows("unlabelled")]
    rows = torch.cat(pools)
    if settings.domain == "binary":
        domain = torch.cat([torch.full_like(pool, number) for number, pool in enumerate(pools)])
    else:
        domain = dataset.domain[rows]
    encodings = predict(network, dataset, rows, batch_size=config.training.evaluation_batch, device=device).encoding
    found = offline_matches(encodings, domain, settings)
    matches = torch.full((len(dataset),), -1, dtype=torch.int64)
    matches[rows] = torch.where(found >= 0, rows[found], -1)
    return matches


def _erm_run(config: Config, settings: OfflineOkapiSettings) -> TrainedModel:
    """Return the trained model, rejecting one that does not serve."""
    if settings.erm_run is None:
        raise ConfigError(
            "algorithm.erm_run is missing; it must be the run directory of an ERM model of the same data; "
            "give --algorithm.erm_run DIR"
        )
    run = named_model("algorithm.erm_run", settings.erm_run)
    ours, theirs = config.as_dict()["data"], run.config.as_dict()["data"]
    if ours != theirs:
        raise ConfigError(
            f"algorithm.erm_run must be of the same data, {run.run.path} was trained on {theirs}, not {ours}"
        )
    return run
