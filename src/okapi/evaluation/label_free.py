"""How promising a model is on samples without labels: scores by which a model can be selected where nobody labelled.

Each is a pure function of what a network says of unlabelled samples, some also of labelled samples of the training
domains that were held out (split id_val). None of them needs a label of the target domains, and none can be better than
its assumption: they are proxies, to be compared with each other and not with an accuracy.
"""

import numpy as np
from scipy.special import entr

from okapi.data.task import Task
from okapi.evaluation.metrics import (
    Floats,
    Values,
    accuracy,
    as_array,
    decide,
    like_decisions,
    mse,
    outputs,
    pearson_r,
    probabilities,
)
from okapi.matching import caliper_nn


def entropy(task: Task, prediction: Values) -> float:
    """Return the mean entropy, in nats, of the predictions; lower is better.

    ``mean_i H(p_i)``: a model that has learnt the classes is sure of them. So is one that gives all samples one class;
    see ``infomax``. Of several labels the mean over them. (Morerio, Cavazza & Murino, 2018)

    Parameters
    ----------
    task : Task
        Classes or labels.
    prediction : tensor (n, outputs)
        Logits of unlabelled samples.

    Examples
    --------
    >>> round(entropy(Task("classification", 2), [[0.0, 0.0], [0.0, 0.0]]), 4)
    0.6931
    """
    return float(entr(_distributions(task, prediction)).sum(axis=-1).mean())


def infomax(task: Task, prediction: Values) -> float:
    """Return the mutual information, in nats, of inputs and predicted classes; higher is better.

    ``H(mean_i p_i) - mean_i H(p_i)``: each prediction is sure, and together they use all classes. Of several labels the
    mean over them. It assumes that classes are about as frequent among the unlabelled samples. (Bridle, Heading &
    MacKay, 1991; as a validator: Musgrave, Belongie & Lim, 2022)
    """
    given = _distributions(task, prediction)
    return float((entr(given.mean(axis=0)).sum(axis=-1) - entr(given).sum(axis=-1).mean(axis=0)).mean())


def corrected_confidence(task: Task, prediction: Values, held_out: Values, target: Values) -> float:
    """Return the mean confidence less what the model overrates itself by where labels are known; higher is better.

    ``mean confidence - (mean confidence on id_val - accuracy on id_val)``: the accuracy among the unlabelled samples if
    the model is overconfident there by as much. (Difference of confidences: Guillory et al., 2021)

    Parameters
    ----------
    task : Task
        Classes or labels.
    prediction : tensor (n, outputs)
        Logits of unlabelled samples.
    held_out : tensor (m, outputs)
        Logits of labelled samples.
    target : tensor (m,) or (m, outputs)
        Their targets.
    """
    sure, right = _confidence(task, held_out), _right(task, held_out, target)
    return float(_confidence(task, prediction).mean() - (sure.mean() - right.mean()))


def thresholded_confidence(task: Task, prediction: Values, held_out: Values, target: Values) -> float:
    """Return the share of unlabelled predictions that are surer than a threshold; higher is better.

    The threshold is such that on id_val as many predictions are at least as sure as are right: an estimate of the
    accuracy among the unlabelled samples. (Average thresholded confidence: Garg et al., 2022). Parameters as of
    ``corrected_confidence``.
    """
    sure, right = np.sort(_confidence(task, held_out), axis=None), _right(task, held_out, target)
    wrong = round(float((1 - right).sum()))
    threshold = sure[wrong] if wrong < len(sure) else np.inf
    return float((_confidence(task, prediction) >= threshold).mean())


def match_quality(
    task: Task, prediction: Values, encoding: Values, target: Values, labelled_encoding: Values
) -> dict[str, float]:
    """Return how well unlabelled samples are matched by labelled ones in what the encoder makes of them.

    Each unlabelled sample is matched to the labelled one whose L2-normalised encoding is nearest. A good encoder finds
    a labelled twin for every one, so that

    - ``match_agreement``: the prediction is the label of the match: the share of pairs in which it is, of labels too;
      of numbers, Pearson's r of predictions and the targets of the matches. A labelled sample's prediction is its label
      here, else an encoder that maps all to one point would agree with itself;
    - ``match_imbalance``: the matches stand for all unlabelled samples: the mean, over the columns of the encodings, of
      ``|mean of unlabelled - mean of matches| / sqrt((v_u + v_l) / 2)``, the standardised mean difference after
      matching by the pooled deviation before it, over columns that vary;
    - ``match_quality``: ``match_agreement / (1 + match_imbalance)``, a negative correlation times that; higher is
      better. Calipers are not used: the scorer that they need would tell the pools apart by chance where encodings are
      wider than samples are many.

    Parameters
    ----------
    task : Task
    prediction : tensor (n, outputs)
        Of unlabelled samples.
    encoding : tensor (n, d)
        Of unlabelled samples.
    target : tensor (m,) or (m, outputs)
        Of labelled samples.
    labelled_encoding : tensor (m, d)
        Of labelled samples.
    """
    unlabelled, labelled = _normalised(encoding), _normalised(labelled_encoding)
    sides = np.zeros(len(unlabelled), dtype=np.int64), np.ones(len(labelled), dtype=np.int64)
    key = caliper_nn(unlabelled, labelled, query_domain=sides[0], key_domain=sides[1]).key[:, 0].numpy()
    agree = pearson_r if task.kind == "regression" else accuracy
    agreement = agree(decide(task, prediction), like_decisions(task, target)[key])
    deviation = np.sqrt((_variance(unlabelled) + _variance(labelled)) / 2)
    varies = deviation > 1e-12
    difference = np.abs(unlabelled.mean(axis=0) - labelled[key].mean(axis=0))[varies] / deviation[varies]
    imbalance = float(difference.mean()) if varies.any() else 0.0
    return {
        "match_quality": agreement / (1 + imbalance) if agreement > 0 else agreement * (1 + imbalance),
        "match_agreement": agreement,
        "match_imbalance": imbalance,
    }


def ensemble_agreement(task: Task, prediction: Values, ensemble: Values) -> float:
    """Return how much predictions agree with those of an ensemble; higher is better.

    The share of samples whose likeliest class is the ensemble's, of labels the share of them; of numbers, the mean
    squared difference, negative. An ensemble of a run's models is better than most of them, so the one most like it is
    good, too. (Hu, Luo, Liang & Foo, 2024)

    Parameters
    ----------
    task : Task
    prediction, ensemble : array (n, outputs)
        As ``soft`` gives them; of the ensemble their mean over models.
    """
    ours, theirs = as_array(prediction), as_array(ensemble)
    if ours.shape != theirs.shape:
        raise ValueError(f"prediction and ensemble must be of one shape, got {ours.shape} and {theirs.shape}")
    if task.kind == "regression":
        return -mse(ours, theirs)
    if task.kind == "classification":
        return accuracy(ours.argmax(axis=1), theirs.argmax(axis=1))
    return accuracy(ours > 0.5, theirs > 0.5)


def soft(task: Task, prediction: Values) -> Floats:
    """Return predictions as an ensemble averages them: probabilities (n, C), or numbers as they are."""
    return outputs(task, prediction) if task.kind == "regression" else probabilities(task, prediction)


def _distributions(task: Task, prediction: Values) -> Floats:
    """Return distributions along the last axis: (n, C) of classes, (n, labels, 2) of labels."""
    given = probabilities(task, prediction)
    return given if task.kind == "classification" else np.stack([1 - given, given], axis=-1)


def _confidence(task: Task, prediction: Values) -> Floats:
    """Return the probability of what is predicted, of each sample or label, (n,) or (n * labels,)."""
    return np.asarray(_distributions(task, prediction).max(axis=-1)).ravel()


def _right(task: Task, prediction: Values, target: Values) -> Floats:
    """Return 1 for each sample, or label, that is predicted right, in the order of ``_confidence``."""
    return np.asarray(decide(task, prediction) == as_array(target), dtype=np.float64).ravel()


def _normalised(encoding: Values) -> Floats:
    values = as_array(encoding)
    return np.asarray(values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12))


def _variance(values: Floats) -> Floats:
    """Return the unbiased variance of each column; of one row 0."""
    return np.asarray(values.var(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1]))
