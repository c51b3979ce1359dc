"""Will matching help here? Figures that need no label of the unlabelled domains, and a verdict before training."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from okapi.evaluation.diagnosis.comparing import Comparison, compare
from okapi.evaluation.diagnosis.rehearsing import MOST_REHEARSALS, Known, look_at, rehearse, within
from okapi.evaluation.diagnosis.rules import Basis, Reason, Verdict, expectations, rule
from okapi.evaluation.diagnosis.samples import Kind, Samples, gather
from okapi.matching.checks import check_k

MOST_COMPARISONS = 30  # pairs of domains; of more only each unlabelled domain is compared, with all labelled ones
LABELLED, UNLABELLED, OTHERS = "(all labelled)", "(all unlabelled)", "(all others)"
TABLES = ("expected", "separability", "calipers", "rehearsals", "predictions", "unlabelled_matches", "histograms")


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """What to expect of matching, and why.

    Parameters
    ----------
    verdict : {"help", "may help", "hurt", "unknown"}
        What to expect of the strategy that is proposed.
    headline : str
        The same in a sentence.
    basis : {"rehearsal", "agreement", "none"}
        What it rests on: on pairs between labelled domains; with one labelled domain, on how far pairs agree with a
        predictor; without labels, on nothing.
    chosen : str, optional
        Which strategy is proposed: none, fixed, std, paper, centred or okapi_plus; None: not to match.
    settings : dict
        The section ``algorithm`` of a config.
    reasons : tuple of Reason
    expected : DataFrame
        A row per strategy, which the column ``calipers`` names, as ``rules.expectations`` returns it: ``precision``,
        ``predictor``, ``gain``, ``match_rate``, ``expectation`` and more.
    separability : DataFrame
        How well domains can be told apart, the widest comparison last: ``auc``, ``balanced_accuracy`` and ``overlap``
        of propensities by models that were not fitted to the samples, which calipers use, as in training, where a batch
        is scored before the scorer learns from it; ``balanced_accuracy_fitted`` of a model that was.
    calipers : DataFrame
        What the strategies that need no labels match, by direction: ``match_rate``, ``distinct_keys`` (as a share of
        the pairs), ``busiest_key`` (as a share of the matched queries), ``max_smd_before`` and so on, of encodings that
        are not centred.
    rehearsals : DataFrame
        How right pairs are, by ``held_out`` domain and ``calipers``: ``precision``, ``predictor`` on all and
        ``predictor_matched`` on the matched samples, ``taught`` after it learnt from the labels that pairs hand to the
        held-out domain, ``chance``. Of classes these are shares; of numbers skill, 1 less
        the mean error over that of guessing the mean, and ``difference``, the mean of ``|y_q - y_k|`` in deviations.
    predictions : DataFrame
        What a predictor says of each unlabelled domain: ``confidence``, ``infomax``, ``corrected_confidence``.
    unlabelled_matches : DataFrame
        Matches of each unlabelled domain in all labelled ones: ``agreement`` is between predictor and keys.
    histograms : DataFrame
        Propensities in bins, as shares of both sides.
    task : {"classification", "regression"}, optional
    labelled, unlabelled : tuple of str
    k : int
    notes : tuple of str
        What was left out.
    """

    verdict: Verdict
    headline: str
    basis: Basis
    chosen: str | None
    settings: dict[str, Any]
    reasons: tuple[Reason, ...]
    expected: pd.DataFrame
    separability: pd.DataFrame
    calipers: pd.DataFrame
    rehearsals: pd.DataFrame
    predictions: pd.DataFrame
    unlabelled_matches: pd.DataFrame
    histograms: pd.DataFrame
    task: str | None
    labelled: tuple[str, ...]
    unlabelled: tuple[str, ...]
    k: int
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return all of it as JSON can hold it; tables as lists of rows, what is not a number as None."""
        plain = ("verdict", "headline", "basis", "chosen", "settings", "task", "k")
        found = {name: getattr(self, name) for name in plain}
        found |= {name: list(getattr(self, name)) for name in ("labelled", "unlabelled", "notes")}
        found["reasons"] = [{name: _plain(value) for name, value in asdict(one).items()} for one in self.reasons]
        for name in TABLES:
            rows = getattr(self, name).to_dict("records")
            found[name] = [{str(column): _plain(value) for column, value in row.items()} for row in rows]
        return found


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
        every domain is looked at as the unlabelled one.
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
        Is told what goes on.

    Returns
    -------
    Diagnosis

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y, site = rng.integers(0, 2, 300), rng.integers(0, 3, 300)
    >>> x = np.eye(8)[y] + 0.2 * np.eye(8)[2 + site] + 0.1 * rng.normal(size=(300, 8))
    >>> found = diagnose(x, site, y, unlabelled=[2])
    >>> found.verdict, found.basis
    ('may help', 'rehearsal')
    """
    check_k(k)
    samples = gather(
        X, domain, target, unlabelled=unlabelled, task=task, normalise=normalise, limit=limit, seed=seed
    )  # fmt: skip
    least = min(len(samples.rows(name)) for name in {*samples.labelled, *samples.unlabelled})
    if k > least:
        raise ValueError(f"k must be at most {least}, which is all the samples of the smallest domain, got {k}")
    found, notes = _compare(samples, k, progress)
    separability = pd.DataFrame([one.separability for one in found])
    calipers = pd.DataFrame([row for one in found for row in one.calipers])
    rehearsed, known = _rehearse(samples, k, progress)
    predictions, matches = _look(samples, known, found, k, progress)
    rehearsals = pd.DataFrame(rehearsed)
    basis: Basis = "none" if samples.task is None else "rehearsal" if rehearsed else "agreement"
    unlabelled_matches = pd.DataFrame(matches) if matches else _as_queries(calipers)
    expected = expectations(basis, rehearsals, unlabelled_matches)
    numbers = samples.task is not None and samples.task.kind == "regression"
    ruling = rule(basis, expected, separability, numbers, k)
    if len(samples.labelled) > MOST_REHEARSALS and samples.task is not None:
        notes.append(f"The {MOST_REHEARSALS} largest of {len(samples.labelled)} labelled domains are held out in turn.")
    return Diagnosis(
        verdict=ruling.verdict,
        headline=ruling.headline,
        basis=basis,
        chosen=ruling.calipers,
        settings=ruling.settings,
        reasons=ruling.reasons,
        expected=expected,
        separability=separability,
        calipers=calipers,
        rehearsals=rehearsals,
        predictions=pd.DataFrame(predictions),
        unlabelled_matches=unlabelled_matches,
        histograms=pd.DataFrame([row for one in found for row in one.histogram]),
        task=samples.task.kind if samples.task else None,
        labelled=samples.labelled,
        unlabelled=samples.unlabelled,
        k=k,
        notes=(*samples.notes, *notes),
    )


def _compare(samples: Samples, k: int, progress: Callable[[str], None]) -> tuple[list[Comparison], list[str]]:
    """Compare unlabelled with labelled domains: pair by pair, each with all labelled ones, and all with all."""
    pairs, notes = _pairs(samples)
    found = []
    for number, (first, second, names) in enumerate(pairs, start=1):
        progress(f"Comparing {names[1]} with {names[0]} ({number} of {len(pairs)})")
        rows = [samples.rows(*first), samples.rows(*second)]
        other = np.repeat([False, True], [len(part) for part in rows])
        found.append(compare(samples.X[np.concatenate(rows)], other, names, k))
    return found, notes


def _pairs(samples: Samples) -> tuple[list[tuple[tuple[str, ...], tuple[str, ...], tuple[str, str]]], list[str]]:
    labelled, unlabelled = samples.labelled, samples.unlabelled
    pairs: list[tuple[tuple[str, ...], tuple[str, ...], tuple[str, str]]]
    pairs = [((first,), (second,), (first, second)) for second in unlabelled for first in labelled if first != second]
    notes = []
    if len(pairs) > MOST_COMPARISONS:
        notes.append(f"There are {len(pairs):,} pairs of domains: each is compared with all others together instead.")
        pairs = []
    if samples.task is None:
        rest = {name: tuple(other for other in labelled if other != name) for name in unlabelled}
        if len(labelled) > 2:
            pairs += [(rest[name], (name,), (OTHERS, name)) for name in unlabelled]
        return pairs, notes
    if len(labelled) > 1 or not pairs:
        pairs += [(labelled, (name,), (LABELLED, name)) for name in unlabelled]
    if len(unlabelled) > 1:
        pairs.append((labelled, unlabelled, (LABELLED, UNLABELLED)))
    return pairs, notes


def _rehearse(samples: Samples, k: int, progress: Callable[[str], None]) -> tuple[list[dict[str, Any]], Known | None]:
    if samples.task is None:
        return [], None
    if len(samples.labelled) == 1:
        return [], within(samples)
    sizes = {name: len(samples.rows(name)) for name in samples.labelled}
    held_out = sorted(sizes, key=lambda name: (-sizes[name], name))[:MOST_REHEARSALS]
    rows: list[dict[str, Any]] = []
    known = []
    for number, name in enumerate(sorted(held_out), start=1):
        progress(f"Rehearsing with {name} held out ({number} of {len(held_out)})")
        some, said = rehearse(samples, name, k)
        rows += some
        known.append(said)
    outputs, targets = (np.concatenate(parts) for parts in zip(*known, strict=True))
    return rows, Known(outputs, targets)


def _look(
    samples: Samples, known: Known | None, compared: list[Comparison], k: int, progress: Callable[[str], None]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    # The last comparison of a domain is that with all labelled ones.
    scores = {one.separability["unlabelled"]: one.scores for one in compared}
    predictions, matches = [], []
    for name in samples.unlabelled if known is not None else ():
        progress(f"Predicting {name}")
        assert known is not None
        sure, rows = look_at(samples, name, known, k, scores[name])
        predictions.append(sure)
        matches += rows
    return predictions, matches


def _as_queries(calipers: pd.DataFrame) -> pd.DataFrame:
    """Return the matches of unlabelled domains in the widest group that each is compared with."""
    mine = calipers[calipers.query_domain == calipers.unlabelled].drop_duplicates(
        ["unlabelled", "calipers"], keep="last"
    )
    kept = ["queries", "matched", "match_rate", "distinct_keys", "busiest_key"]
    return mine[["unlabelled", "calipers", *kept]].rename(columns={"unlabelled": "domain"}).reset_index(drop=True)


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not np.isfinite(value) else value
