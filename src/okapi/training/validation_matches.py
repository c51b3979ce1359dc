"""How right the matches are that an algorithm makes: validation samples matched with labelled ones, at each validation.

The labels of validation samples tell how right the matches are; neither matching nor learning nor selection sees them.
"""

from dataclasses import replace

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor

from okapi.config import Config, MatchingSettings
from okapi.data.task import Task
from okapi.matching import match_precision
from okapi.models.network import Output
from okapi.nn import Pool, match
from okapi.training.parts import Parts
from okapi.training.seeds import derived_seed
from okapi.training.validation import VALIDATION, draw, predict

MOST = 1_000  # samples of train, and of each validation split


class ValidationMatches:
    """Figures of the matches between samples of the validation splits and labelled samples of train.

    At most 1,000 of train and as many of each split are drawn once, by the seed alone: every validation looks at the
    same ones. It costs a prediction of those of train, and the matching; splits are predicted anyway. Encodings are the
    network's, not those of its momentum encoder.

    Parameters
    ----------
    config : Config
    parts : Parts
        With an algorithm that matches.
    """

    def __init__(self, config: Config, parts: Parts) -> None:
        self._dataset, self._algorithm, self._settings = parts.dataset, parts.algorithm, config.training
        self._drawn = {
            split: draw(parts.dataset, split, MOST, derived_seed(config.seed, "matches", split))
            for split in ("train", *VALIDATION)
        }
        self._labelled: Pool | None = None

    def rows(self, split: str) -> Tensor:
        """Return the rows (m,) of a split that are matched, ascending."""
        return self._drawn[split].rows(split)

    def encode(self, fabric: Fabric) -> None:
        """Encode the samples of train by the network as it is; all processes call it before the splits."""
        drawn, rows = self._drawn["train"], self.rows("train")
        found = predict(self._algorithm.network, drawn, "train", self._settings, fabric, encodings=True)
        self._labelled = self._algorithm.pool(*found, self._dataset.domain[rows], self._dataset.target[rows])

    def figures(self, split: str, found: Output) -> dict[str, float]:
        """Return the figures of a split, given the encodings of its ``rows`` and the predictions of all its samples."""
        settings, rows = self._algorithm.matching, self.rows(split)
        if settings is None or self._labelled is None:
            return {}
        prediction = found.prediction[torch.isin(self._dataset.rows(split), rows)]
        others = self._algorithm.pool(found.encoding, prediction, self._dataset.domain[rows], None)
        targets = self._dataset.target[self.rows("train")], self._dataset.target[rows]
        return match_metrics(self._dataset.task, settings, (self._labelled, others), targets)


def match_metrics(
    task: Task, settings: MatchingSettings, pools: tuple[Pool, Pool], targets: tuple[Tensor, Tensor]
) -> dict[str, float]:
    """Return how many samples are matched, and how right their matches are, to labelled samples and from them.

    Parameters
    ----------
    task : Task
    settings : MatchingSettings
        Its direction is left out: both are looked at.
    pools : (Pool, Pool)
        Labelled samples, and samples that are matched as if they had no targets.
    targets : (tensor, tensor)
        Of both.

    Returns
    -------
    dict
        ``match_rate``, the share of queries that are matched, and ``match_precision`` of their pairs, in regression
        ``match_distance`` in standard deviations, each ``_to_labelled``, with the others as queries, and
        ``_from_labelled``. Without pairs there is no precision.
    """
    both_directions = replace(settings, direction=None)
    name = "match_distance" if task.kind == "regression" else "match_precision"
    metrics = {}
    for direction, query, key in (("to_labelled", 1, 0), ("from_labelled", 0, 1)):
        matches = match(pools[query], pools[key], both_directions, task.kind)
        metrics[f"match_rate_{direction}"] = len(matches) / len(targets[query])
        if len(matches):
            precision = match_precision(
                targets[query],
                targets[key],
                query_domain=np.zeros(len(targets[query]), np.int64),
                key_domain=np.ones(len(targets[key]), np.int64),
                matches=matches,
                kind=task.kind,
            )
            metrics[f"{name}_{direction}"] = precision.value
    return metrics
