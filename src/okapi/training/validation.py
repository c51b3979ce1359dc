"""What is measured at a validation: how good the network is on each validation split, and how right its matches are.

The labels of validation samples tell how right matches are; neither matching nor learning nor selection sees them. A
label-free selector adds its score of unlabelled samples, the selector ``oracle`` the metrics of its test split.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor

from okapi.algorithms import Algorithm
from okapi.config import Config, MatchingSettings
from okapi.data.dataset import Dataset
from okapi.data.splits import VALIDATION
from okapi.data.task import Task
from okapi.evaluation import evaluate, label_free
from okapi.matching import match_precision
from okapi.models import Output
from okapi.nn import Pool, match
from okapi.training.inference import check_finite, predict
from okapi.training.seeds import derived_seed
from okapi.training.selection import ORACLE, Selection

Predict: TypeAlias = Callable[[Tensor, bool | Tensor], Output]
"""Rows (n,), and whether encodings are wanted or of which rows, in; the network's output out."""

MATCHED = 1_000  # samples of train, and of each validation split, that are matched at most


class Validation:
    """The validations of a run; all processes make them, with the same metrics.

    Parameters
    ----------
    config : Config
    dataset : Dataset
    algorithm : Algorithm
    selection : Selection
        What it goes by is measured.
    fabric : Fabric
        Launched.
    """

    def __init__(
        self, config: Config, dataset: Dataset, algorithm: Algorithm, selection: Selection, fabric: Fabric
    ) -> None:
        self._dataset, self._network = dataset, algorithm.network
        self._options = {
            "batch_size": config.training.evaluation_batch,
            "workers": config.training.workers,
            "fabric": fabric,
        }
        self._splits = [split for split in VALIDATION if len(dataset.rows(split))]
        self._is_oracle = selection.is_oracle
        self._matches = ValidationMatches(config, dataset, algorithm) if algorithm.matching and self._splits else None
        self._score = LabelFreeScore(config, dataset, selection.selector.name) if selection.is_label_free else None

    def metrics(self) -> dict[str, dict[str, float]]:
        """Return metrics by split; test splits stay sealed, but for the one of the oracle, which is called ``oracle``.

        Predictions that are not finite are a NotFiniteError.
        """
        if self._matches:
            self._matches.encode(self._predict)
        metrics = {split: self._measure(split, self._matches) for split in self._splits}
        if self._is_oracle:
            metrics["oracle"] = self._measure(ORACLE, None)
        if self._score:
            metrics["unlabelled"] = self._score.metrics(self._predict)
        return metrics

    def rows(self) -> list[Tensor]:
        """Return the rows of each prediction that a validation makes."""
        rows = [self._matches.rows["train"]] if self._matches else []
        rows += [self._dataset.rows(split) for split in (*self._splits, *([ORACLE] if self._is_oracle else []))]
        return rows + (self._score.rows() if self._score else [])

    def keep(self) -> None:
        """Note that the network that was validated last is the best so far."""
        if self._score:
            self._score.keep()

    def state_dict(self) -> dict[str, Any]:
        """Return what later validations depend on."""
        return self._score.state_dict() if self._score else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go back to a state."""
        if self._score:
            self._score.load_state_dict(state)

    def _measure(self, split: str, matches: "ValidationMatches | None") -> dict[str, float]:
        rows = self._dataset.rows(split)
        output = self._predict(rows, matches.rows[split] if matches else False)
        return split_metrics(self._dataset, rows, output.prediction) | (
            matches.metrics(split, output) if matches else {}
        )

    def _predict(self, rows: Tensor, encodings: bool | Tensor) -> Output:
        output = predict(self._network, self._dataset, rows, encodings=encodings, **self._options)
        check_finite(self._dataset, rows, output.prediction)
        return output


def split_metrics(dataset: Dataset, rows: Tensor, prediction: Tensor) -> dict[str, float]:
    """Return the metrics of predictions (n, outputs) of rows (n,)."""
    return evaluate(
        dataset.task,
        prediction,
        dataset.target[rows],
        dataset.domain[rows],
        dataset.domain_names,
        groups=None if dataset.groups is None else dataset.groups[rows],
        group_names=dataset.group_names,
    )


def draw(rows: Tensor, most: int, seed: int) -> Tensor:
    """Return at most so many of some rows (n,), drawn by the seed alone, in their order."""
    if len(rows) <= most:
        return rows
    return torch.from_numpy(np.sort(np.random.default_rng(seed).choice(rows.numpy(), most, replace=False)))


class ValidationMatches:
    """Metrics of the matches between samples of the validation splits and labelled samples of train.

    At most 1,000 of train and as many of each split are drawn once, by the seed alone: every validation looks at the
    same ones. It costs a prediction of those of train, and the matching; splits are predicted anyway. Encodings are the
    network's, not those of its momentum encoder.

    Attributes
    ----------
    rows : dict of tensor (m,)
        By split, the rows that are matched, ascending.
    """

    def __init__(self, config: Config, dataset: Dataset, algorithm: Algorithm) -> None:
        self._dataset, self._algorithm = dataset, algorithm
        self.rows = {
            split: draw(dataset.rows(split), MATCHED, derived_seed(config.seed, "matches", split))
            for split in ("train", *VALIDATION)
        }
        self._labelled: Pool | None = None

    def encode(self, predict: Predict) -> None:
        """Encode the samples of train by the network as it is; to be called before ``metrics``."""
        rows = self.rows["train"]
        output = predict(rows, True)
        self._labelled = self._algorithm.pool(*output, self._dataset.domain[rows], self._dataset.target[rows])

    def metrics(self, split: str, output: Output) -> dict[str, float]:
        """Return the metrics of a split, given the encodings of its ``rows`` and the predictions of all its samples."""
        settings, rows = self._algorithm.matching, self.rows[split]
        if settings is None or self._labelled is None:
            return {}
        prediction = output.prediction[torch.isin(self._dataset.rows(split), rows)]
        others = self._algorithm.pool(output.encoding, prediction, self._dataset.domain[rows], None)
        targets = self._dataset.target[self.rows["train"]], self._dataset.target[rows]
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


class LabelFreeScore:
    """What a label-free selector goes by, from at most ``training.selection_samples`` samples of a split.

    These are drawn once, by the seed alone: all validations look at the same ones, and torch's generator is left alone.
    It costs a prediction of each, and of as many labelled ones where the score compares the two.

    The score ``ensemble`` is the agreement with the mean prediction of all networks that were validated so far. It
    changes with every network, so the best so far is scored anew beside the one that is compared with it.
    """

    def __init__(self, config: Config, dataset: Dataset, name: str) -> None:
        self._dataset, self._name = dataset, name

        def some(split: str) -> Tensor:
            seed = derived_seed(config.seed, "selection", split)
            return draw(dataset.rows(split), config.training.selection_samples, seed)

        self._unlabelled = some("unlabelled")
        self._labelled: Tensor | None = None
        if name in ("corrected_confidence", "thresholded_confidence", "match_quality"):
            # Matches may be sought in train where nothing is held out; confidence there would flatter itself.
            self._labelled = some("id_val" if len(dataset.rows("id_val")) else "train")
        self._total: Tensor | None = None
        self._count = 0
        self._best: Tensor | None = None
        self._latest: Tensor | None = None

    def rows(self) -> list[Tensor]:
        """Return the rows of each prediction that a score takes."""
        return [self._unlabelled] + ([] if self._labelled is None else [self._labelled])

    def metrics(self, predict: Predict) -> dict[str, float]:
        """Return the score of the network, and metrics that explain it."""
        task, encodings = self._dataset.task, self._name == "match_quality"
        output = predict(self._unlabelled, encodings)
        if self._name == "ensemble":
            return self._agreement(output.prediction)
        score = getattr(label_free, self._name)
        if self._labelled is None:
            return {self._name: score(task, output.prediction)}
        target = self._dataset.target[self._labelled]
        known = predict(self._labelled, encodings)
        if encodings:
            quality: dict[str, float] = score(task, output.prediction, output.encoding, target, known.encoding)
            return quality
        return {self._name: score(task, output.prediction, known.prediction, target)}

    def _agreement(self, prediction: Tensor) -> dict[str, float]:
        task = self._dataset.task
        self._latest = torch.from_numpy(label_free.soft(task, prediction))
        self._total = self._latest if self._total is None else self._total + self._latest
        self._count += 1
        mean = self._total / self._count
        metrics = {"ensemble_agreement": label_free.ensemble_agreement(task, self._latest, mean)}
        if self._best is not None:
            metrics["ensemble_agreement_of_best"] = label_free.ensemble_agreement(task, self._best, mean)
        return metrics

    def keep(self) -> None:
        """Note that the network that was scored last is the best so far."""
        self._best = self._latest

    def state_dict(self) -> dict[str, Any]:
        """Return what later scores depend on."""
        return {"total": self._total, "count": self._count, "best": self._best} if self._count else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go back to a state."""
        self._total, self._count, self._best = state.get("total"), state.get("count", 0), state.get("best")
