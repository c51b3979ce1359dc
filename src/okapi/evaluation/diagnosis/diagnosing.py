"""Will matching help here? Numbers that need no label of the unlabelled domains, and a verdict before training."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from okapi.evaluation.diagnosis.inputs import Kind, Samples, gather
from okapi.evaluation.diagnosis.strategy_pairs import Known, leave_out, look_at
from okapi.evaluation.diagnosis.verdict import Basis, Verdict, expectations, rule
from okapi.matching.checks import check_whole

MOST_LEFT_OUT = 8  # of more labelled domains the largest are left out


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """What to expect of matching, what to do, and why.

    Parameters
    ----------
    verdict : {"help", "may help", "hurt", "unknown"}
        What to expect of the strategy that is proposed.
    headline : str
        The same in a sentence.
    advice : str
        What to do.
    chosen : str, optional
        Which strategy is proposed: none, paper, centred or okapi_plus; None: not to match.
    settings : dict
        The section ``algorithm`` of a config.
    reasons : tuple of str
    basis : {"leave_one_domain_out", "agreement", "none"}
        What the verdict rests on: on pairs between labelled domains; with one labelled domain, on how far pairs agree
        with a plain model; without labels, on nothing.
    expected : DataFrame
        A row per strategy: ``strategy``, ``expectation``, ``why``, ``precision``, ``predictor``, ``gain``,
        ``pseudo_label_gain``, ``match_rate`` and more; see ``okapi.evaluation.diagnosis.verdict.expectations``.
    left_out : DataFrame
        How right pairs are, by ``domain`` left out and ``strategy``: ``precision``, ``predictor`` (of a plain model) on
        all and ``predictor_matched`` on the matched samples, ``pseudo_labelled`` after it learnt from the labels of the
        keys, too, ``chance``. In classification these are shares; in regression skill, 1 less the mean error over that
        of guessing the mean.
    domains : DataFrame
        A row per unlabelled domain: ``domain``, ``samples``, ``auc`` of its propensities and those of the labelled
        domains (without labels, of all others) by models that were fitted to other samples; in classification the
        ``confidence`` of a plain model, and ``class_shift``, by what share class frequencies seem to differ from those
        of the labels; with several labelled domains the ``estimated_accuracy``: the confidence less what it is too high
        by in the domains left out.
    unlabelled_matches : DataFrame
        Matches of each unlabelled ``domain`` in all labelled ones by ``strategy``: ``match_rate``, ``distinct_keys``
        (as a share of the pairs), ``busiest_key`` (as a share of the matched queries), ``agreement`` of the model and
        keys.
    task : {"classification", "regression"}, optional
    labelled, unlabelled : tuple of str
    k : int
    notes : tuple of str
        What was left out.
    """

    verdict: Verdict
    headline: str
    advice: str
    chosen: str | None
    settings: dict[str, Any]
    reasons: tuple[str, ...]
    basis: Basis
    expected: pd.DataFrame
    left_out: pd.DataFrame
    domains: pd.DataFrame
    unlabelled_matches: pd.DataFrame
    task: str | None
    labelled: tuple[str, ...]
    unlabelled: tuple[str, ...]
    k: int
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as JSON can hold it; tables as lists of rows, what is not a number as None."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}


def diagnose(
    X: ArrayLike,
    domain: ArrayLike,
    target: ArrayLike | None = None,
    *,
    unlabelled: Sequence[Any] | None = None,
    task: Kind = "classification",
    k: int = 5,
    normalise: bool = True,
    limit: int = 5000,
    seed: int = 0,
    progress: Callable[[str], None] = lambda text: None,
) -> Diagnosis:
    """Estimate, without a label of the unlabelled domains, whether training with matched samples will help.

    Parameters
    ----------
    X : array of shape (n, d)
        Encodings.
    domain : array of shape (n,)
        Where each sample comes from.
    target : array of shape (n,), optional
        Classes or numbers, NaN, None or empty where they are not known.
    unlabelled : sequence, optional
        Domains whose targets are not read, even if they are there. By default those without any; without ``target``,
        every domain is compared with all others.
    task : {"classification", "regression"}
        Whether targets are classes or numbers.
    k : int
        Keys per query.
    normalise : bool
        Whether encodings are brought to unit length, as they are in training.
    limit : int
        Most samples of a domain; of more, some are drawn.
    seed : int
        Of that draw.
    progress : callable
        Called with a few words at each stage.

    Returns
    -------
    Diagnosis

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y, site = rng.integers(0, 2, 300), rng.integers(0, 3, 300)
    >>> x = np.eye(8)[y] + 0.2 * np.eye(8)[2 + site] + 0.1 * rng.normal(size=(300, 8))
    >>> diagnosis = diagnose(x, site, y, unlabelled=[2])
    >>> diagnosis.verdict, diagnosis.basis
    ('may help', 'leave_one_domain_out')
    """
    check_whole("k", k)
    samples = gather(
        X, domain, target, unlabelled=unlabelled, task=task, normalise=normalise, limit=limit, seed=seed
    )  # fmt: skip
    least = min(len(samples.rows(name)) for name in {*samples.labelled, *samples.unlabelled})
    if k > least:
        raise ValueError(f"k must be at most {least}, which is all the samples of the smallest domain, got {k}")
    left_out, known, notes = _leave_each_out(samples, k, progress)
    looked = []
    for name in samples.unlabelled:
        progress(f"Matching {name}")
        looked.append(look_at(samples, name, known, k))
    matches = pd.DataFrame([row for one in looked for row in one.matches])
    domains = pd.DataFrame([one.domain for one in looked])
    basis: Basis = "none" if samples.task is None else "agreement" if left_out.empty else "leave_one_domain_out"
    expected = expectations(basis, left_out, matches)
    return Diagnosis(
        **rule(basis, expected, domains, k)._asdict(),
        basis=basis,
        expected=expected,
        left_out=left_out,
        domains=domains,
        unlabelled_matches=matches,
        task=samples.task.kind if samples.task else None,
        labelled=samples.labelled,
        unlabelled=samples.unlabelled,
        k=k,
        notes=(*samples.notes, *notes),
    )


def _leave_each_out(
    samples: Samples, k: int, progress: Callable[[str], None]
) -> tuple[pd.DataFrame, Known | None, list[str]]:
    """Leave out each labelled domain in turn, the largest of many."""
    if samples.task is None or len(samples.labelled) == 1:
        return pd.DataFrame(), None, []
    names = sorted(samples.labelled, key=lambda name: (-len(samples.rows(name)), name))[:MOST_LEFT_OUT]
    rows: list[dict[str, Any]] = []
    known = []
    for number, name in enumerate(sorted(names), start=1):
        progress(f"Leaving out {name} ({number} of {len(names)})")
        more, predicted = leave_out(samples, name, k)
        rows += more
        known.append(predicted)
    notes = []
    if (every := len(samples.labelled)) > len(names):
        notes.append(f"Only the {len(names)} largest of {every} labelled domains are left out in turn.")
    outputs, targets = (np.concatenate(parts) for parts in zip(*known, strict=True))
    return pd.DataFrame(rows), Known(outputs, targets), notes


def _plain(value: Any) -> Any:
    if isinstance(value, pd.DataFrame):
        return [{str(name): _plain(cell) for name, cell in row.items()} for row in value.to_dict("records")]
    if isinstance(value, tuple):
        return list(value)
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not np.isfinite(value) else value
