"""Rehearsals: each labelled domain in turn plays the unlabelled one, and its labels say how right its pairs are."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from okapi.data.task import Task
from okapi.evaluation import label_free
from okapi.evaluation.diagnosis.comparing import figures, matchings
from okapi.evaluation.diagnosis.predictor import Predictor, cross_fitted, outcome
from okapi.evaluation.diagnosis.rules import LEAST_MATCHED
from okapi.evaluation.diagnosis.samples import Samples, one_hot
from okapi.evaluation.metrics import Floats, accuracy, decide, pearson_r, probabilities
from okapi.matching import Matches, match_precision

MOST_REHEARSALS = 8  # of more labelled domains the largest are held out


class Known(NamedTuple):
    """What a predictor says, (n, outputs), of samples that it was not fitted to, and their targets (n,)."""

    outputs: Floats
    target: NDArray[Any]


def rehearse(samples: Samples, held_out: str, k: int) -> tuple[list[dict[str, Any]], Known]:
    """Match a labelled domain, its labels put aside, to the other labelled ones; return a row per strategy."""
    task = samples.task
    assert task is not None
    others = samples.rows(*(name for name in samples.labelled if name != held_out))
    mine = samples.rows(held_out)
    predictor, found = _matched(samples, mine, others, k)
    truth, labels = samples.target[mine], samples.target[others]
    said = predictor.outputs(samples.X[mine])
    predicted = _right(task, decide(task, said), truth, labels)
    chance = np.nan
    rows = []
    for name, matches in found:
        row = {"held_out": held_out, "calipers": name, **figures(matches, len(mine))}
        targets = _compared(task, truth, labels, matches)
        # The first strategy has no calipers: all queries are matched.
        chance = targets["chance"] if np.isnan(chance) else chance
        row |= {"predictor": float(predicted.mean()), "chance": 0.0 if task.kind == "regression" else chance}
        row |= dict.fromkeys(("precision", "predictor_matched", "taught"), np.nan)
        if len(matches):
            query, keys = matches.query.numpy(), labels[matches.key.numpy()]
            pairs = keys if task.kind == "classification" else keys.mean(axis=1)
            row["precision"] = float(_right(task, pairs, truth, labels, query).mean())
            row["predictor_matched"] = float(predicted[query].mean())
        if row["match_rate"] >= LEAST_MATCHED:
            X = np.concatenate([samples.X[others], samples.X[mine[query]]])
            pupil = predictor.taught(X, np.concatenate([labels, vote(task, keys)])).outputs(samples.X[mine])
            row["taught"] = float(_right(task, decide(task, pupil), truth, labels).mean())
        if task.kind == "regression":
            row |= {"difference": targets["difference"], "difference_by_chance": chance}
        rows.append(row)
    return rows, Known(said, truth)


def within(samples: Samples) -> Known:
    """Return what predictors of one labelled domain say of its own samples that they were not fitted to."""
    assert samples.task is not None
    rows = samples.rows(*samples.labelled)
    return Known(cross_fitted(samples.task, samples.X[rows], samples.target[rows]), samples.target[rows])


def look_at(
    samples: Samples, domain: str, known: Known, k: int, scores: Floats
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return what can be said of an unlabelled domain: a row of its predictions, and a row per strategy.

    Parameters
    ----------
    samples : Samples
    domain : str
    known : Known
        Predictions of labelled samples, by which the confidence is corrected.
    k : int
    scores : array
        Propensities of the labelled samples and then of the domain's.
    """
    task = samples.task
    assert task is not None
    mine, labelled = samples.rows(domain), samples.rows(*samples.labelled)
    predictor, found = _matched(samples, mine, labelled, k, scores)
    said = predictor.outputs(samples.X[mine])
    labels = samples.target[labelled]
    sure: dict[str, Any] = {"domain": domain, "samples": len(mine)}
    if task.kind == "classification":
        sure |= {
            "confidence": float(probabilities(task, said).max(axis=1).mean()),
            "entropy": label_free.entropy(task, said),
            "infomax": label_free.infomax(task, said),
            "corrected_confidence": label_free.corrected_confidence(task, said, *known),
        }
    else:
        sure |= {"mean": float(said.mean()), "deviation": float(said.std())}
    rows = [
        {
            "domain": domain,
            "calipers": name,
            **figures(matches, len(mine)),
            "agreement": _agreement(task, said, labels, matches),
        }
        for name, matches in found
    ]
    return sure, rows


def _matched(
    samples: Samples, queries: NDArray[np.int64], keys: NDArray[np.int64], k: int, scores: Floats | None = None
) -> tuple[Predictor, list[tuple[str, Matches]]]:
    """Return a predictor fitted to the keys, and the matches of the queries by each strategy."""
    task, X, labels = samples.task, samples.X, samples.target[keys]
    assert task is not None
    predictor = Predictor(task).fit(X[keys], labels)
    truth = labels[:, None] if task.kind == "regression" else one_hot(labels, task.outputs)
    said = outcome(task, predictor.outputs(X[queries]))
    return predictor, list(matchings(X[queries], X[keys], said, truth, k, kind=task.kind, scores=scores))


def _right(
    task: Task, said: NDArray[Any], truth: NDArray[Any], labels: NDArray[Any], rows: NDArray[np.int64] | None = None
) -> Floats:
    """Return how right what is said, (m,) or by several (m, g), of some rows is, (m,).

    Of classes the share that is right. Of numbers the skill: 1 less the error over what the mean of all labels errs by
    on average; 1 is perfect, 0 no use. Two samples of the same kind differ by the noise of both, a prediction by that
    of one: keys are averaged beforehand, as their pull is, so that pairs and predictions can be compared.
    """
    wanted = (truth if rows is None else truth[rows])[:, None]
    said = said.reshape(len(wanted), -1)
    if task.kind == "classification":
        return np.asarray((said == wanted).mean(axis=1))
    without = max(float(np.abs(truth - labels.mean()).mean()), 1e-12)
    return np.asarray(1 - np.abs(said - wanted).mean(axis=1) / without)


def _compared(task: Task, truth: NDArray[Any], labels: NDArray[Any], matches: Matches) -> dict[str, float]:
    """Return what the library says of the targets of pairs, and of pairs at random."""
    return match_precision(
        truth,
        labels,
        query_domain=np.ones(len(truth), dtype=np.int64),
        key_domain=np.zeros(len(labels), dtype=np.int64),
        matches=matches,
        kind=task.kind,
    ).overall


def _agreement(task: Task, said: Floats, labels: NDArray[Any], matches: Matches) -> float:
    """Return how far predictions of the queries agree with the vote, or the mean, of the keys they are matched to."""
    if not len(matches):
        return float("nan")
    predicted = decide(task, said)[matches.query.numpy()].reshape(-1)
    voted = vote(task, labels[matches.key.numpy()])
    if task.kind == "regression":
        return pearson_r(predicted, voted)
    return accuracy(voted, predicted)


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
    return np.asarray((one_hot(keys, task.outputs) * weight[:, None]).sum(axis=1).argmax(axis=1))
