"""How right the matches are that an algorithm makes: validation samples matched with labelled ones, at each validation.

The labels of validation samples tell how right the matches are; neither matching nor learning nor selection sees them.
"""

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor

from okapi.algorithms.base import Matcher, Pool
from okapi.data.task import Task
from okapi.matching import match_precision
from okapi.models.network import Output
from okapi.training.config import Config
from okapi.training.parts import Parts
from okapi.training.seeds import derived_seed
from okapi.training.validation import VALIDATION, draw, predict

MOST = 1_000  # samples of train, and of each validation split


class ValidationMatches:
    """Figures of the matches between samples of the validation splits and labelled samples of train.

    At most 1,000 of train and as many of each split are drawn once, by the seed alone: every validation looks at the
    same ones. It costs a prediction of those of train, and the matching; splits are predicted anyway. Encodings are the
    network's, not those of a momentum copy of it.

    Parameters
    ----------
    config : Config
    parts : Parts
        With an algorithm that matches.
    """

    def __init__(self, config: Config, parts: Parts) -> None:
        self._dataset, self._algorithm, self._settings = *parts, config.training
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
        self._labelled = Pool(*found, self._dataset.domain[rows], self._dataset.target[rows])

    def figures(self, split: str, found: Output) -> dict[str, float]:
        """Return the figures of a split, given the encodings of its ``rows`` and the predictions of all its samples."""
        match, rows = self._algorithm.matcher(), self.rows(split)
        if match is None or self._labelled is None:
            return {}
        prediction = found.prediction[torch.isin(self._dataset.rows(split), rows)]
        others = Pool(found.encoding, prediction, self._dataset.domain[rows], None)
        return match_figures(self._dataset.task, match, self._labelled, others, self._dataset.target[rows])


def match_figures(task: Task, match: Matcher, labelled: Pool, others: Pool, target: Tensor) -> dict[str, float]:
    """Return how many samples are matched, and how right their matches are, to labelled samples and from them.

    Parameters
    ----------
    task : Task
    match : callable
        Matches queries with keys.
    labelled, others : Pool
        Labelled samples, with their targets, and samples that are matched as if they had none.
    target : tensor (n,) or (n, outputs)
        Of the others.

    Returns
    -------
    dict
        ``match_rate``, the share of queries that are matched, and ``match_precision`` of their pairs, of numbers
        ``match_distance`` in standard deviations, each ``_to_labelled``, with the others as queries, and
        ``_from_labelled``. Without pairs there is no precision.
    """
    known = labelled.target
    assert known is not None
    ways = {"to_labelled": (others, target, labelled, known), "from_labelled": (labelled, known, others, target)}
    name = "match_distance" if task.kind == "regression" else "match_precision"
    figures = {}
    for way, (queries, of_query, keys, of_key) in ways.items():
        matches = match(queries, keys)
        figures[f"match_rate_{way}"] = len(matches) / len(queries.encoding)
        if len(matches):
            found = match_precision(
                of_query,
                of_key,
                query_domain=np.zeros(len(of_query), np.int64),
                key_domain=np.ones(len(of_key), np.int64),
                matches=matches,
                kind=task.kind,
            )
            figures[f"{name}_{way}"] = found.value
    return figures
