"""Scores for selectors that need no labels of the target domains, at each validation of a run."""

from collections.abc import Mapping
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor

from okapi.config import Config
from okapi.data.dataset import Dataset
from okapi.evaluation import label_free
from okapi.models import Network
from okapi.models.network import Output
from okapi.training.seeds import derived_seed
from okapi.training.validation import draw, predict


class LabelFreeScores:
    """What a label-free selector goes by, from at most ``training.selection_samples`` samples of a split.

    These are drawn once, by the seed alone: all validations look at the same ones, and torch's generator is left alone.
    It costs a prediction of each, and of as many labelled ones where the score compares the two.

    Parameters
    ----------
    config : Config
        Whose selector is one of ``okapi.evaluation.LABEL_FREE``.
    dataset : Dataset
    """

    def __init__(self, config: Config, dataset: Dataset) -> None:
        self._settings, self._name = config.training, config.training.selector
        self._unlabelled = _some(dataset, "unlabelled", config)
        self._labelled: Dataset | None = None
        if self._name in ("corrected_confidence", "thresholded_confidence", "match_quality"):
            # Matches may be sought in train where nothing is held out; confidence there would flatter itself.
            self._labelled_split = "id_val" if len(dataset.rows("id_val")) else "train"
            self._labelled = _some(dataset, self._labelled_split, config)
        self._ensemble = _Ensemble() if self._name == "ensemble" else None

    def figures(self, network: Network, fabric: Fabric) -> dict[str, float]:
        """Return the score of a network, and figures that explain it; the same in every process."""
        task, encodings = self._unlabelled.task, self._name == "match_quality"
        found = self._predict(network, self._unlabelled, "unlabelled", fabric, encodings)
        if self._ensemble:
            return self._ensemble.add(self._unlabelled, found.prediction)
        if self._labelled is None:
            return {self._name: getattr(label_free, self._name)(task, found.prediction)}
        target = self._labelled.target[self._labelled.rows(self._labelled_split)]
        known = self._predict(network, self._labelled, self._labelled_split, fabric, encodings)
        if encodings:
            return label_free.match_quality(task, found.prediction, found.encoding, target, known.encoding)
        return {self._name: getattr(label_free, self._name)(task, found.prediction, known.prediction, target)}

    def keep(self) -> None:
        """Learn that the network whose figures were asked for last is the best so far."""
        if self._ensemble:
            self._ensemble.best = self._ensemble.latest

    def state_dict(self) -> dict[str, Any]:
        """Return what later scores depend on."""
        return self._ensemble.state_dict() if self._ensemble else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go back to a state."""
        if self._ensemble:
            self._ensemble.load_state_dict(state)

    def _predict(self, network: Network, dataset: Dataset, split: str, fabric: Fabric, encodings: bool) -> Output:
        return predict(network, dataset, split, self._settings, fabric, encodings=encodings)


class _Ensemble:
    """The mean prediction of all networks that were validated so far, each as heavy as another.

    It changes with every network, so the best so far is scored anew beside the one that is compared with it.
    """

    def __init__(self) -> None:
        self._total: Tensor | None = None
        self._count = 0
        self.best: Tensor | None = None
        self.latest: Tensor | None = None

    def add(self, dataset: Dataset, prediction: Tensor) -> dict[str, float]:
        self.latest = torch.from_numpy(label_free.soft(dataset.task, prediction))
        self._total = self.latest if self._total is None else self._total + self.latest
        self._count += 1
        mean = self._total / self._count
        figures = {"ensemble_agreement": label_free.ensemble_agreement(dataset.task, self.latest, mean)}
        if self.best is not None:
            figures["ensemble_agreement_of_best"] = label_free.ensemble_agreement(dataset.task, self.best, mean)
        return figures

    def state_dict(self) -> dict[str, Any]:
        return {"total": self._total, "count": self._count, "best": self.best}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._total, self._count, self.best = state["total"], state["count"], state["best"]


def _some(dataset: Dataset, split: str, config: Config) -> Dataset:
    """Return the data set with at most as many rows in a split as label-free scores look at."""
    return draw(dataset, split, config.training.selection_samples, derived_seed(config.seed, "selection", split))
