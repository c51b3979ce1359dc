"""A finished run measured on a split, as ``okapi evaluate`` does it, recorded in its results.json.

Test splits are sealed: nothing else opens them, but for the selector ``oracle``. Every opening is written down, with
the weights that it was opened with, before any metric is shown.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from torch import Tensor

from okapi.data.dataset import Dataset
from okapi.data.registry import build_dataset
from okapi.data.splits import SPLITS, TESTS
from okapi.evaluation import (
    decide,
    evaluate,
    fairness,
    group_table,
    metrics_for,
    never_predicted,
    plain_metric,
    probabilities,
)
from okapi.files import replacing
from okapi.messages import listed
from okapi.runs import Evaluation as Record
from okapi.runs import Opened, Run, Weights, Which
from okapi.runs.results import EvaluatedWeights, Openings
from okapi.training.devices import make_fabric
from okapi.training.errors import NotFiniteError
from okapi.training.inference import check_finite, predict

LABELLED = tuple(split for split in SPLITS if split != "unlabelled")


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluation:
    """How good a run's model is on a split.

    Parameters
    ----------
    split : str
    metric : str
        By which the run's models were compared; tables are sorted by it.
    metrics : dict
        By name, as ``okapi.evaluation.evaluate`` has them, and the gaps of fairness where there are two classes.
    domains : DataFrame
        One row for each domain with samples: ``name``, ``n``, metrics.
    groups : DataFrame, optional
        The same of groups, where the data set has some.
    record : okapi.runs.Evaluation
        What was added to results.json.
    notes : list of str
        What whoever reads the metrics should know.
    predictions : Path
        The file of all predictions.
    """

    split: str
    metric: str
    metrics: dict[str, float]
    domains: pd.DataFrame
    groups: pd.DataFrame | None
    record: Record
    notes: list[str]
    predictions: Path


class Evaluator:
    """A finished run with its data and its network, ready to be evaluated.

    Parameters
    ----------
    path : Path
        The run directory.
    which : {"selected", "last"}
        Which weights: those of model.safetensors, or those of the last checkpoint.
    overrides : sequence of (key, text)
        Of ``okapi.runs.MAY_DIFFER`` only.
    force : bool
        Whether to evaluate what was edited since the run.
    """

    def __init__(
        self,
        path: Path,
        *,
        which: Which = "selected",
        overrides: Sequence[tuple[str, str]] = (),
        force: bool = False,
    ) -> None:
        self.run = Run(path).trained_model(which=which, overrides=overrides, force=force)
        alone = replace(self.run.config.training, devices=1, nodes=1, compile=None)
        self._config = replace(self.run.config, training=alone)
        self.dataset: Dataset = build_dataset(self._config.data)
        self.dataset.check()
        self._fabric = make_fabric(self._config)
        self._network = self.run.network().to(self._fabric.device)

    def check_splits(self, splits: Sequence[str]) -> None:
        """Reject names that are no split with labelled samples, and no name at all, saying what there is."""
        there = {split: len(self.dataset.rows(split)) for split in LABELLED}
        shown = ", ".join(
            f"{split} ({count:,} samples{', sealed' if split in TESTS else ''})"
            for split, count in there.items()
            if count
        )
        if not splits:
            raise ValueError(f"--split is missing; there are {shown}. Opening a sealed one is written down")
        if bad := [split for split in splits if not there.get(split)]:
            raise ValueError(f"--split must be one of {shown}, got {bad[0]!r}")

    def evaluate(self, split: str) -> Evaluation:
        """Return how good the model is on a split, every sample counted once; results.json says so, too.

        Predictions that are not finite are a NotFiniteError, which names the first samples.
        """
        self.check_splits([split])
        data, rows = self.dataset, self.dataset.rows(split)
        settings = self._config.training
        options = {"batch_size": settings.evaluation_batch, "workers": settings.workers, "fabric": self._fabric}
        prediction = predict(self._network, data, rows, encodings=False, **options).prediction
        try:
            check_finite(data, rows, prediction)
        except NotFiniteError as error:
            raise NotFiniteError(f"{error}, with the weights of step {self.run.weights.step}") from error
        truth = data.task, prediction, data.target[rows]
        domain, groups = data.domain[rows], None if data.groups is None else data.groups[rows]
        metrics = evaluate(*truth, domain, data.domain_names, groups=groups, group_names=data.group_names)
        metrics |= fairness(*truth, domain, data.domain_names)
        domains = group_table(*truth, domain, data.domain_names)
        table = None if groups is None else group_table(*truth, groups, data.group_names)
        record = self._record(split, len(rows), metrics, domains, table)
        file = self._file(split)
        write_predictions(file, data, split, prediction, self.run.weights)
        return Evaluation(
            split=split,
            metric=plain_metric(self._config.training.metric or metrics_for(data.task)[0]),
            metrics=metrics,
            domains=domains,
            groups=table,
            record=record,
            notes=[*self.run.notes, *self._notes(split, prediction, record)],
            predictions=file,
        )

    def _record(
        self, split: str, count: int, metrics: dict[str, float], domains: pd.DataFrame, groups: pd.DataFrame | None
    ) -> Record:
        """Add an evaluation to results.json and return it; of a test split it says how often that was opened by now."""
        weights = self.run.weights
        record = Record(
            split=split,
            n=count,
            selector=weights.selector,
            weights=EvaluatedWeights(which=weights.which, step=weights.step, sha256=weights.sha256),
            metrics=metrics,
            domains=domains.to_dict("records"),
            groups=None if groups is None else groups.to_dict("records"),
            overrides=self.run.overrides,
            edited=weights.edited,
        )
        with self.run.run.changing_results() as results:
            if split in TESTS:
                opened = results.opened.setdefault(split, Opened())
                opened.times += 1
                if weights.sha256 not in opened.sha256:
                    opened.sha256.append(weights.sha256)
                record.opened = Openings(times=opened.times, weights=len(opened.sha256))
            results.evaluations.append(record)
        return record

    def _file(self, split: str) -> Path:
        last = "-last" if self.run.weights.which == "last" else ""
        return self.run.run.path / f"predictions-{split}{last}.parquet"

    def _notes(self, split: str, prediction: Tensor, record: Record) -> list[str]:
        notes, data = [], self.dataset
        if self.run.weights.selector == "oracle":
            notes.append("an oracle selected these weights, by opening ood_test at every validation")
        opened = record.opened or Openings(times=1, weights=1)
        if opened.weights > 1:
            notes.append(
                f"{split} has been opened {opened.times} times, with {opened.weights} different weights: "
                "to choose between them by these metrics is to train on the test"
            )
        elif opened.times > 1:
            always = "" if self.run.weights.selector == "oracle" else ", always with these weights"
            notes.append(f"{split} has been opened {opened.times} times{always}")
        if never := never_predicted(data.task, prediction, data.target[data.rows(split)]):
            names = listed([data.class_names[number] if data.class_names else str(number) for number in never])
            notes.append(f"{len(never)} classes that {split} has are never predicted, their F1 is 0: {names}")
        return notes


def evaluate_run(
    path: Path,
    splits: Sequence[str],
    *,
    which: Which = "selected",
    overrides: Sequence[tuple[str, str]] = (),
    force: bool = False,
) -> list[Evaluation]:
    """Return how good a finished run is on some splits; see ``Evaluator``."""
    evaluator = Evaluator(path, which=which, overrides=overrides, force=force)
    evaluator.check_splits(splits)
    return [evaluator.evaluate(split) for split in splits]


def write_predictions(path: Path, dataset: Dataset, split: str, prediction: Tensor, weights: Weights) -> None:
    """Write predictions (n, outputs) of a split to a parquet file, all of it or nothing.

    Columns are ``id``; ``domain``, its name, or a list of names where samples have sets of them; ``groups``, a list of
    names, where the data set has groups; ``target`` and ``prediction``, and for classes and labels ``probability_0``
    and so on. Where several numbers or labels are predicted it is ``target_0``, ``prediction_0`` and so on. The
    schema's metadata has under ``okapi`` the split, the weights' step and SHA-256, and the names of classes.
    """
    table = pa.table(_columns(dataset, dataset.rows(split), prediction))
    about = {
        "split": split,
        "step": weights.step,
        "sha256": weights.sha256,
        "selector": weights.selector,
        "class_names": list(dataset.class_names),
    }
    with replacing(path) as temporary:
        pq.write_table(table.replace_schema_metadata({"okapi": json.dumps(about)}), temporary)


def _columns(dataset: Dataset, rows: Tensor, prediction: Tensor) -> dict[str, Any]:
    task = dataset.task
    columns: dict[str, Any] = {
        "id": [dataset.ids[row] for row in rows.tolist()],
        "domain": _names(dataset.domain[rows], dataset.domain_names),
    }
    if dataset.groups is not None:
        columns["groups"] = _names(dataset.groups[rows], dataset.group_names)
    target, decided = dataset.target[rows].numpy(), decide(task, prediction)
    if task.kind == "classification" or (task.kind == "regression" and task.outputs == 1):
        columns |= {"target": target.reshape(-1), "prediction": decided.reshape(-1)}
    else:
        columns |= {f"target_{number}": target[:, number] for number in range(task.outputs)}
        columns |= {f"prediction_{number}": decided[:, number] for number in range(task.outputs)}
    if task.kind != "regression":
        probability = probabilities(task, prediction)
        columns |= {f"probability_{number}": probability[:, number] for number in range(task.outputs)}
    return columns


def _names(membership: Tensor, names: tuple[str, ...]) -> list[Any]:
    """Return the name of each sample's domain, or the names of all that it belongs to."""
    if membership.ndim == 1:
        return [names[number] for number in membership.tolist()]
    return [[name for name, member in zip(names, row, strict=True) if member] for row in membership.tolist()]
