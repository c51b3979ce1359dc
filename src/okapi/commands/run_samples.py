"""A sample of a run's data, encoded by its model and matched as the run matches; test splits stay sealed."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from okapi.config import MatchingSettings, OfflineOkapiSettings, OkapiPlusSettings, OkapiSettings
from okapi.data.dataset import Dataset
from okapi.data.registry import build_dataset
from okapi.matching import Matches, MatchPrecision, Propensity, SeparableDomainsWarning, balance, match_precision
from okapi.nn import Pool, match
from okapi.nn.pseudo_labels import known_outcome, predicted_outcome
from okapi.report.run_matches import Encoded, Matched
from okapi.runs import Run
from okapi.training.devices import find_device
from okapi.training.inference import predict

OPEN = {"train": 3, "unlabelled": 3, "id_val": 1, "ood_val": 1}
"""Splits that are looked at, and their weights in the sample. Test splits are not among them."""

POOLS = ("labelled", "unlabelled")
NEAREST = MatchingSettings(k=3, fixed_caliper=None, std_caliper=None)
"""Of methods that do not match themselves."""


def encode_run(path: Path, samples: int, overrides: Sequence[tuple[str, str]] = ()) -> Encoded:
    """Return a sample of a finished run's data, encoded by its selected weights.

    Parameters
    ----------
    path : Path
        The run directory; config and weights must be those of the run.
    samples : int
        How many at most, drawn by the run's seed from train, unlabelled, id_val and ood_val.
    overrides : sequence of (key, text)
        Where the data is, if it was moved.
    """
    run = Run(path).trained_model(overrides=overrides)
    config = run.config
    dataset = build_dataset(config.data)
    dataset.check()
    rows = sample_rows(dataset, samples, config.seed)
    device = find_device("auto")
    network = run.network().to(device)
    batch = config.training.evaluation_batch
    encodings, predictions = predict(network, dataset, torch.from_numpy(rows), batch_size=batch, device=device)
    notes = list(run.notes)
    bad = ~(encodings.isfinite().all(1) & predictions.isfinite().all(1))
    if bad.any():
        notes.append(
            f"The model's output for {int(bad.sum())} of {len(rows)} samples is not finite; they are left out."
        )
        rows, encodings, predictions = rows[~bad.numpy()], encodings[~bad], predictions[~bad]
    unit = torch.nn.functional.normalize(encodings, dim=-1).numpy()
    return Encoded(
        dataset=dataset, rows=rows, encodings=unit, predictions=predictions, config=config, notes=tuple(notes)
    )


def sample_rows(dataset: Dataset, samples: int, seed: int) -> NDArray[np.int64]:
    """Return rows of the open splits, split by split; what a small split has no samples for goes to the others."""
    rows = {split: dataset.rows(split).numpy() for split in OPEN}
    total = sum(OPEN[split] for split in OPEN if len(rows[split]))
    taken = {split: min(len(rows[split]), samples * OPEN[split] // max(1, total)) for split in OPEN}
    for split in OPEN:
        taken[split] += min(len(rows[split]) - taken[split], samples - sum(taken.values()))
    rng = np.random.default_rng(seed)
    return np.concatenate([np.sort(rng.choice(rows[split], taken[split], replace=False)) for split in OPEN])


def match_encoded(encoded: Encoded) -> Matched | str:
    """Return the matches as the run matches, propensities by logistic regression; or why there are none."""
    places, domain, names = _domains(encoded)
    if len(names) < 2:
        return "There is one domain only: nothing to match across."
    settings, temperature, notes = _settings(encoded, names, len(places))
    unit = encoded.encodings[places]
    try:
        propensity = _propensity(unit, domain, temperature)
    except ValueError as error:
        return f"No propensities: {error}."
    scores = propensity.scores(unit)
    pool = _pool(encoded, places, domain, scores)
    kind = encoded.dataset.task.kind
    matches = match(len(places), pool, settings, kind)
    nearest = replace(NEAREST, k=settings.k, direction=settings.direction)
    if not len(matches) and settings != nearest:
        settings = nearest
        matches = match(len(places), pool, settings, kind)
        notes.append("Inside the run's calipers nothing is matched in this sample: these are neighbours without them.")
    if not len(matches):
        return f"No sample has {settings.k} admissible neighbours of other domains."
    asked = len(places)
    if settings.direction is not None and domain.ndim == 1:
        asked = int((domain == settings.direction[0]).sum())
    return Matched(
        pool=places,
        domain=domain,
        domain_names=names,
        matches=matches,
        asked=asked,
        balance=balance(
            unit,
            unit,
            query_domain=domain,
            key_domain=domain,
            matches=matches,
            names=[f"dimension {number}" for number in range(unit.shape[1])],
            domain_names=names,
            direction=settings.direction,
        ),
        precision=_precision(encoded, places, domain, names, matches),
        propensity=np.asarray(scores),
        balanced_accuracy=float(propensity.balanced_accuracy_) if domain.ndim == 1 else None,
        settings={**vars(settings), "temperature": temperature},
        notes=tuple(notes),
    )


def _domains(encoded: Encoded) -> tuple[NDArray[np.int64], NDArray[Any], list[str]]:
    """Return who takes part, their domains as the run has them, numbered from 0, and the names of these."""
    split, dataset = encoded.split, encoded.dataset
    has_both = {"train", "unlabelled"} <= set(split.tolist())
    by_label = getattr(encoded.config.algorithm, "domain", "binary") == "label" or not has_both
    pool = np.flatnonzero(np.isin(split, ["train", "unlabelled"] if has_both else list(OPEN)))
    if not by_label:
        return pool, (split[pool] == "unlabelled").astype(np.int64), list(POOLS)
    domain = dataset.domain.numpy()[encoded.rows[pool]]
    if domain.ndim == 2:
        usable = np.flatnonzero(domain.any(0) & ~domain.all(0))
        return pool, domain[:, usable], [dataset.domain_names[number] for number in usable]
    present, numbers = np.unique(domain, return_inverse=True)
    return pool, numbers.astype(np.int64), [dataset.domain_names[number] for number in present]


def _settings(encoded: Encoded, names: list[str], size: int) -> tuple[MatchingSettings, float, list[str]]:
    """Return how the run matches, its temperature and notes; for other methods nearest neighbours without calipers."""
    config, own = encoded.config, encoded.config.algorithm
    if not isinstance(own, OkapiSettings | OkapiPlusSettings | OfflineOkapiSettings):
        return NEAREST, 1.0, [f"{config.algorithm.name} does not match: these are neighbours without calipers."]
    settings: MatchingSettings = own.matching
    temperature = own.temperature if isinstance(own, OfflineOkapiSettings) else own.scorer.temperature
    if settings.direction is not None:
        called = POOLS if own.domain == "binary" else encoded.dataset.domain_names
        ends = [called[number] for number in settings.direction]
        first, second = map(names.index, ends) if set(ends) <= set(names) else (0, 0)
        settings = replace(settings, direction=(first, second) if first != second else None)
    return replace(settings, k=settings.k if settings.k < size else 1), temperature, []


def _propensity(unit: NDArray[np.float32], domain: NDArray[Any], temperature: float) -> Propensity:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeparableDomainsWarning)  # its figure says how separable they are
        return Propensity(temperature=temperature).fit(unit, domain)


def _pool(encoded: Encoded, places: NDArray[np.int64], domain: NDArray[Any], scores: NDArray[Any]) -> Pool:
    """Return the samples as `okapi.nn.match` takes them: targets where training has them, else predictions."""
    data = encoded.dataset
    known = torch.from_numpy(encoded.split[places] != "unlabelled")
    outcome = predicted_outcome(encoded.predictions[torch.from_numpy(places)], data.task.kind).float()
    target = data.target[torch.from_numpy(encoded.rows[places])[known]]
    outcome[known] = known_outcome(data.task, target).to(outcome)
    unit = torch.from_numpy(encoded.encodings[places])
    return Pool(unit, torch.from_numpy(domain), torch.from_numpy(np.ascontiguousarray(scores)), outcome, known)


def _precision(
    encoded: Encoded, places: NDArray[np.int64], domain: NDArray[Any], names: list[str], matches: Matches
) -> MatchPrecision:
    """Return how far the targets of matches agree, where the data set has those of both."""
    data = encoded.dataset
    target = data.target[torch.from_numpy(encoded.rows[places])].double()
    if data.task.kind != "regression":
        target[target < 0] = torch.nan  # not known
    return match_precision(
        target,
        target,
        query_domain=domain,
        key_domain=domain,
        matches=matches,
        kind=data.task.kind,
        domain_names=names,
    )
