"""How right the pairs of each strategy are between labelled domains, and what is matched in unlabelled ones."""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from okapi.data.task import Task
from okapi.evaluation import label_free
from okapi.evaluation.diagnosis.inputs import Samples
from okapi.evaluation.diagnosis.plain_predictor import Predictor
from okapi.evaluation.diagnosis.strategies import match_by_each
from okapi.evaluation.diagnosis.verdict import LEAST_MATCHED
from okapi.evaluation.metrics import Floats, accuracy, decide, pearson_r, probabilities
from okapi.matching import Matches
from okapi.nn.match_metrics import hubness
from okapi.nn.pseudo_labels import likeliest_prior, prior_by_confusion


class Known(NamedTuple):
    """Predictions (n, outputs) of samples that the predictor was not fitted to, and their targets (n,)."""

    outputs: Floats
    target: NDArray[Any]


class Unlabelled(NamedTuple):
    """Rows for the tables of a diagnosis about an unlabelled domain: one, and one per strategy."""

    domain: dict[str, Any]
    matches: list[dict[str, Any]]


def leave_out(samples: Samples, domain: str, k: int) -> tuple[list[dict[str, Any]], Known]:
    """Match a labelled domain, without its labels, to the other labelled ones; return a row per strategy."""
    task = samples.task
    assert task is not None
    queries, keys = samples.rows(domain), samples.labelled_but(domain)
    truth, labels = samples.target[queries], samples.target[keys]
    predictor = Predictor(task).fit(samples.X[keys], labels)
    outputs = predictor.outputs(samples.X[queries])
    _, matched = match_by_each(samples, queries, keys, outputs, k)
    # What guessing the mean errs by on average: skill is 1 less the error over that, 1 is perfect and 0 no use.
    guessing = max(float(np.abs(truth - labels.mean()).mean()), 1e-12)
    predicted = _rightness(task, decide(task, outputs), truth, guessing)
    rows = []
    for name, matches in matched.items():
        row = {"domain": domain, "strategy": name, **_served(matches, len(queries))}
        row |= {"predictor": float(predicted.mean()), "chance": _chance(task, truth, labels)}
        row |= dict.fromkeys(("precision", "predictor_matched", "pseudo_labelled"), np.nan)
        query, partners = matches.query.numpy(), labels[matches.key.numpy()]
        if len(matches):
            # Keys are averaged, as their pull is: one sample differs from another by the noise of both.
            pairs = partners if task.kind == "classification" else partners.mean(axis=1)
            row["precision"] = float(_rightness(task, pairs, truth[query], guessing).mean())
            row["predictor_matched"] = float(predicted[query].mean())
        if row["match_rate"] >= LEAST_MATCHED:
            X = np.concatenate([samples.X[keys], samples.X[queries[query]]])
            learnt = predictor.fitted_to(X, np.concatenate([labels, vote(task, partners)]))
            decided = decide(task, learnt.outputs(samples.X[queries]))
            row["pseudo_labelled"] = float(_rightness(task, decided, truth, guessing).mean())
        rows.append(row)
    return rows, Known(outputs, truth)


def look_at(samples: Samples, domain: str, known: Known | None, k: int) -> Unlabelled:
    """Match an unlabelled domain to all labelled ones; without labels, any domain to all others.

    The confidence of the predictor is corrected by what is ``known`` of domains that were left out.
    """
    task, queries, keys = samples.task, samples.rows(domain), samples.labelled_but(domain)
    X, labels = samples.X[queries], samples.target[keys]
    outputs = None if task is None else Predictor(task).fit(samples.X[keys], labels).outputs(X)
    scores, matched = match_by_each(samples, queries, keys, outputs, k)
    side = np.repeat([0, 1], [len(keys), len(queries)])
    auc = float(roc_auc_score(side, scores))
    about: dict[str, Any] = {"domain": domain, "samples": len(queries), "auc": auc}
    rows = [{"domain": domain, "strategy": name, **_served(part, len(queries))} for name, part in matched.items()]
    if task is not None and outputs is not None:
        for row, matches in zip(rows, matched.values(), strict=True):
            row["agreement"] = _agreement(task, outputs, labels, matches)
        if task.kind == "classification":
            about["confidence"] = float(probabilities(task, outputs).max(axis=1).mean())
            about["class_shift"] = _class_shift(task, outputs, labels, known)
            if known is not None:
                about["estimated_accuracy"] = label_free.corrected_confidence(task, outputs, *known)
    return Unlabelled(about, rows)


def vote(task: Task, keys: NDArray[Any]) -> NDArray[Any]:
    """Return the class that most of the keys of a query have, or their mean, (m,), from targets (m, k), nearest first.

    Where classes have as many votes, the one of the nearer key has it.

    Examples
    --------
    >>> vote(Task("classification", 3), np.array([[0, 2, 2], [1, 0, 2]])).tolist()
    [2, 1]
    """
    if task.kind == "regression":
        return np.asarray(keys.mean(axis=1))
    weight = 1 + np.arange(keys.shape[1])[::-1] / (keys.shape[1] + 1) ** 2
    return np.asarray((np.eye(task.outputs)[keys] * weight[:, None]).sum(axis=1).argmax(axis=1))


def _served(matches: Matches, queries: int) -> dict[str, Any]:
    """Return how many of the queries are matched, and how few keys serve them."""
    hubs, matched = hubness(matches), len(matches)
    return {
        "queries": queries,
        "matched": matched,
        "match_rate": matched / queries,
        "distinct_keys": float(hubs["distinct_keys"]) if matched else np.nan,
        "busiest_key": float(hubs["busiest_key"]) / matched if matched else np.nan,
    }


def _rightness(task: Task, prediction: NDArray[Any], truth: NDArray[Any], guessing: float) -> Floats:
    """Return how right predictions (n,) or (n, k) are, (n,): the share that is right, or the skill."""
    prediction = prediction.reshape(len(truth), -1)
    if task.kind == "classification":
        return np.asarray((prediction == truth[:, None]).mean(axis=1))
    return np.asarray(1 - np.abs(prediction - truth[:, None]).mean(axis=1) / guessing)


def _chance(task: Task, truth: NDArray[Any], labels: NDArray[Any]) -> float:
    """Return how right random pairs are."""
    if task.kind == "regression":
        return 0.0
    one, other = (np.bincount(part, minlength=task.outputs) / len(part) for part in (truth, labels))
    return float(one @ other)


def _class_shift(task: Task, outputs: Floats, labels: NDArray[Any], known: Known | None) -> float:
    """Return the share of unlabelled samples, (0, 1), by whose classes frequencies seem to differ from those labelled.

    That is half the sum of absolute differences; by the confusions in domains left out, or by maximum likelihood.
    """
    source = torch.from_numpy(np.bincount(labels, minlength=task.outputs) / len(labels))
    prediction = torch.from_numpy(probabilities(task, outputs))
    if known is None:
        prior = likeliest_prior(prediction, source)
    else:
        held_out = torch.from_numpy(probabilities(task, known.outputs))
        prior = prior_by_confusion(prediction, held_out, torch.from_numpy(known.target))
    return float((prior - source).abs().sum() / 2)


def _agreement(task: Task, outputs: Floats, labels: NDArray[Any], matches: Matches) -> float:
    """Return how far predictions of the queries agree with the vote, or the mean, of the keys they are matched to."""
    if not len(matches):
        return float("nan")
    predicted = decide(task, outputs)[matches.query.numpy()].reshape(-1)
    voted = vote(task, labels[matches.key.numpy()])
    return pearson_r(predicted, voted) if task.kind == "regression" else accuracy(voted, predicted)
