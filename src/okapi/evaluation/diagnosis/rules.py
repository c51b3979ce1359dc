"""From figures to words: what to expect of matching, why, and which settings to use.

Every limit stands here, with its reason. None was chosen by looking at what training came to.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd

from okapi.config import OkapiPlusSettings, OkapiSettings, PrognosticMatchingSettings
from okapi.evaluation.diagnosis.comparing import STRATEGIES

Verdict: TypeAlias = Literal["help", "may help", "hurt", "unknown"]
Basis: TypeAlias = Literal["rehearsal", "agreement", "none"]

MARGIN = 0.02
"""What counts as a difference to the predictor: shares of a thousand samples waver by about that."""
MOST = 0.5
"""Share of rehearsals in which pairs must have taught the predictor something: one domain alone may be odd."""
LEAST_MATCHED = 0.05
"""Share of queries to be matched: the consistency is weighted by it, so with fewer hardly anything happens."""
ABOVE_CHANCE = 0.05
"""By how much pairs must be more often right than pairs at random, or they say nothing."""
SEPARABLE_AUC = 0.99
"""From here on a linear scorer tells domains apart: propensities crowd at 0 and 1, which the std-caliper counts in."""
ALIKE_AUC = 0.6
"""Up to here domains can hardly be told apart: there is little for matching to bridge."""
FUNNEL = 0.5
"""Calipers funnel queries if they halve the share of distinct keys, or make a hub twice as busy as without them."""
HUB = 0.2
"""A key that serves this share of the queries is a hub: it pulls them together whatever they are."""
AGREEMENT = 0.5
"""Where pairs and predictor disagree on more than half of the samples, one of them is wrong on more than a quarter.

With one labelled domain nothing says which. Pairs that a prognostic caliper admits agree with the predictor anyway, so
Okapi+ are held to the agreement of centring alone.
"""

HEADLINES: dict[Verdict, str] = {
    "help": "Matching is likely to help here",
    "may help": "Matching may help here",
    "hurt": "Matching is likely to hurt here",
    "unknown": "Whether matching helps here cannot be told",
}
CALLED = {
    "none": "no caliper",
    "fixed": "the fixed caliper",
    "std": "the std-caliper",
    "paper": "the paper's two calipers",
    "centred": "centring alone",
    "okapi_plus": "Okapi+",
}


@dataclass(frozen=True)
class Reason:
    """Why something is expected.

    Parameters
    ----------
    text : str
        A sentence with its figures.
    figure : str
        What the figure is called in the tables.
    value, limit : float
        The figure, and what it is held against.
    """

    text: str
    figure: str
    value: float
    limit: float


@dataclass(frozen=True)
class Ruling:
    """What the rules say.

    Parameters
    ----------
    verdict : {"help", "may help", "hurt", "unknown"}
    headline : str
        The verdict in a sentence.
    calipers : str, optional
        Which of the strategies to use; None: not to match.
    reasons : tuple of Reason
    settings : dict
        The section ``algorithm`` of a config.
    """

    verdict: Verdict
    headline: str
    calipers: str | None
    reasons: tuple[Reason, ...]
    settings: dict[str, Any]


def expectations(basis: Basis, rehearsals: pd.DataFrame, unlabelled: pd.DataFrame) -> pd.DataFrame:
    """Return a row per strategy: what rehearsals and the unlabelled domains come to on average, and what to expect.

    Parameters
    ----------
    basis : {"rehearsal", "agreement", "none"}
        What is known: how right pairs between labelled domains are; with one labelled domain, how far pairs agree with
        a predictor; or nothing.
    rehearsals : DataFrame
        ``precision``, ``predictor``, ``predictor_matched``, ``taught`` and ``chance`` by ``held_out`` and ``calipers``;
        or empty.
    unlabelled : DataFrame
        ``match_rate``, ``distinct_keys``, ``busiest_key`` and, where there are labels, ``agreement`` by ``calipers``.

    Returns
    -------
    DataFrame
        ``calipers``, these figures, ``gain`` (precision less predictor), ``taught_gain`` (what the predictor won
        by learning from the labels that pairs hand to the held-out domain, too), ``won`` (the share of rehearsals in
        which it won at all), ``funnels`` and ``expectation``: help, may help, hurt, nothing or unknown.
    """
    table = unlabelled.groupby("calipers", sort=False)[
        [name for name in ("match_rate", "distinct_keys", "busiest_key", "agreement") if name in unlabelled]
    ].mean()
    if len(rehearsals):
        table = table.join(_over_rehearsals(rehearsals))
    few = table.distinct_keys < FUNNEL * table.distinct_keys["none"]
    table["funnels"] = few | (table.busiest_key > max(HUB, table.busiest_key["none"] / FUNNEL))
    if basis == "agreement":
        table["centred_agreement"] = table.agreement["centred"]
    table["expectation"] = [_expectation(basis, row) for row in table.reset_index().to_dict("records")]
    return table.reset_index()


def _over_rehearsals(rehearsals: pd.DataFrame) -> pd.DataFrame:
    """Return figures of all rehearsals together, in which those of pairs weigh what is matched, others all queries."""
    found = {}
    for name, rows in rehearsals.groupby("calipers", sort=False):
        pairs = rows[rows.matched > 0]
        figures = {f: _mean(pairs[f], pairs.matched) for f in ("precision", "predictor_matched")}
        figures |= {f: _mean(rows[f], rows.queries) for f in ("predictor", "chance", "match_rate")}
        lesson = (rows.taught - rows.predictor).fillna(0)  # where hardly anything is matched nothing is learnt
        found[name] = {
            **figures,
            "gain": figures["precision"] - figures["predictor"],
            "taught_gain": _mean(lesson, rows.queries),
            "won": float((lesson > 0).mean()),
        }
    return pd.DataFrame.from_dict(found, orient="index").rename(columns={"match_rate": "rehearsed_match_rate"})


def _mean(values: "pd.Series[float]", weights: "pd.Series[int]") -> float:
    return float(np.average(values, weights=weights)) if len(values) else float("nan")


def _expectation(basis: Basis, row: dict[Any, Any]) -> str:
    if row["match_rate"] < LEAST_MATCHED or row.get("rehearsed_match_rate", 1) < LEAST_MATCHED:
        return "nothing"
    if row["funnels"]:
        return "hurt"
    if basis == "none":
        return "unknown"
    if basis == "agreement":
        if row["calipers"] == "okapi_plus":
            return "may help" if row["centred_agreement"] >= AGREEMENT else "unknown"
        return "may help" if row["agreement"] >= AGREEMENT else "hurt"
    if row["precision"] < row["chance"] + ABOVE_CHANCE:
        return "hurt"
    if min(row["gain"], row["taught_gain"]) < -MARGIN:
        return "hurt"
    return "help" if _teaches(row) else "may help"


def _teaches(row: Mapping[Any, Any]) -> bool:
    """Return whether a predictor that learnt from pairs was better for it, on the whole and in most rehearsals."""
    return bool(row["taught_gain"] >= MARGIN and row["won"] > MOST)


def rule(basis: Basis, expected: pd.DataFrame, separability: pd.DataFrame, numbers: bool, k: int) -> Ruling:
    """Return the verdict, its reasons and the settings.

    Parameters
    ----------
    basis : {"rehearsal", "agreement", "none"}
    expected : DataFrame
        What ``expectations`` returns.
    separability : DataFrame
        ``auc`` and ``overlap`` of each comparison of labelled and unlabelled samples, the widest last.
    numbers : bool
        Whether targets are numbers.
    k : int
        Keys per query.
    """
    table = expected.set_index("calipers")
    chosen = _choice(basis, table)
    verdict: Verdict = "hurt" if basis != "none" else "unknown"
    if chosen is not None:
        verdict = table.expectation[chosen]
    reasons = [_apart(basis, separability), *_funnels(table), *_hubs(table, chosen)]
    if basis == "rehearsal":
        reasons += [*_says_nothing(table, numbers), _less_the_mean(table, numbers), *_right(table, chosen, numbers)]
    elif basis == "agreement":
        reasons += _agrees(table, numbers)
    reasons += _too_few(table)
    return Ruling(verdict, _headline(verdict, chosen, table), chosen, tuple(reasons), _settings(verdict, chosen, k))


def _choice(basis: Basis, table: pd.DataFrame) -> str | None:
    """Return the strategy to use: of those that help the best teacher; else Okapi+, if they may."""
    if basis == "none":
        return next((name for name in ("centred", "fixed", "none") if table.expectation[name] == "unknown"), None)
    for wanted in ("help", "may help"):
        found = table[table.expectation == wanted]
        if wanted == "may help" and "okapi_plus" in found.index:
            return "okapi_plus"
        if len(found):
            return str(found["taught_gain" if basis == "rehearsal" else "agreement"].idxmax())
    return "okapi_plus" if table.expectation["okapi_plus"] == "unknown" else None


def _headline(verdict: Verdict, chosen: str | None, table: pd.DataFrame) -> str:
    text = HEADLINES[verdict]
    if chosen is None:
        return f"{text}."
    text += f", with {CALLED[chosen]}" if verdict != "unknown" else ""
    others = [name for name in ("none", "paper", "okapi_plus") if name != chosen and name in table.index]
    hurting = [CALLED[name] for name in others if table.expectation[name] == "hurt"]
    return f"{text}; with {' or '.join(hurting)} it is likely to hurt." if hurting else f"{text}."


def _settings(verdict: Verdict, chosen: str | None, k: int) -> dict[str, Any]:
    """Return the section ``algorithm`` of a config: what differs from the algorithm's defaults."""
    if verdict == "hurt":
        return {"name": "erm"}
    strategy = STRATEGIES[chosen or "none"]
    plus = isinstance(strategy, PrognosticMatchingSettings)
    default = (OkapiPlusSettings() if plus else OkapiSettings()).matching
    matching = {name: value for name, value in vars(strategy).items() if value != getattr(default, name)}
    # The paper's zeta is for its 30,000 steps.
    momentum = {} if plus else {"momentum": {"start": "auto"}}
    return {"name": "okapi_plus" if plus else "okapi", "matching": matching | {"k": k}} | momentum


def _apart(basis: Basis, separability: pd.DataFrame) -> Reason:
    """Say how far labelled and unlabelled samples are apart; without labels, the two domains that are most so."""
    row = separability.to_dict("records")[-1 if basis != "none" else int(separability.auc.argmax())]
    who = "Labelled and unlabelled samples" if basis != "none" else f"{row['labelled']} and {row['unlabelled']}"
    auc, figures = float(row["auc"]), f"(AUC {row['auc']:.3f}, propensities overlap by {row['overlap']:.0%})"
    if auc >= SEPARABLE_AUC:
        return Reason(f"{who} are told apart almost without error {figures}.", "auc", auc, SEPARABLE_AUC)
    if auc <= ALIKE_AUC:
        text = f"{who} can hardly be told apart {figures}: there is little to bridge."
        return Reason(text, "auc", auc, ALIKE_AUC)
    return Reason(f"{who} can be told apart, but overlap {figures}.", "auc", auc, ALIKE_AUC)


def _funnels(table: pd.DataFrame) -> list[Reason]:
    reasons = []
    for name in table.index[table.funnels & (table.match_rate >= LEAST_MATCHED)]:
        row, free = table.loc[name], float(table.distinct_keys["none"])
        text = (
            f"With {CALLED[name]} queries are funnelled onto few keys: {100 * row.distinct_keys:.1f} distinct ones "
            f"in 100 pairs, {100 * free:.1f} of plain ones; the busiest serves {row.busiest_key:.0%} of the queries, "
            f"{table.busiest_key['none']:.0%} by plain pairs."
        )
        reasons.append(Reason(text, "distinct_keys", float(row.distinct_keys), FUNNEL * free))
    return reasons


def _hubs(table: pd.DataFrame, chosen: str | None) -> list[Reason]:
    reasons = []
    for name in dict.fromkeys(["none", *([chosen] if chosen else [])]):
        busiest = float(table.busiest_key[name])
        if busiest >= HUB:
            text = (
                f"With {CALLED[name]} one key serves {busiest:.0%} of the unlabelled queries: a hub, which is like all."
            )
            reasons.append(Reason(text, f"busiest_key of {name}", busiest, HUB))
    return reasons


def _says_nothing(table: pd.DataFrame, numbers: bool) -> list[Reason]:
    predictor, chance = float(table.predictor["none"]), float(table.chance["none"])
    if predictor >= chance + ABOVE_CHANCE:
        return []
    text = (
        f"The predictor is hardly better than chance ({_figure(predictor, numbers)}, {_figure(chance, numbers)} by "
        "chance): across domains these encodings say nothing of the targets. Those of a trained encoder may."
    )
    return [Reason(text, "predictor", predictor, chance + ABOVE_CHANCE)]


def _less_the_mean(table: pd.DataFrame, numbers: bool) -> Reason:
    """Say what centring does to pairs between labelled domains."""
    plain, found = float(table.precision["none"]), float(table.precision["centred"])
    said = f"{_figure(found, numbers)} of the pairs between labelled domains are right"
    if numbers:
        said = f"the skill of pairs between labelled domains is {_figure(found, numbers)}"
    text = f"Centred by domain mean, {said}, {_figure(plain, numbers)} as they are"
    if found >= plain + MARGIN:
        text += ": what the samples of a domain share hides which are alike."
    elif found <= plain - MARGIN:
        text += ": centring takes away something that tells of the targets."
    else:
        text += ": centring changes little."
    return Reason(text, "precision of centred", found, plain)


def _right(table: pd.DataFrame, chosen: str | None, numbers: bool) -> list[Reason]:
    """Compare how right pairs between labelled domains are with the predictor."""
    rows, reasons = table.to_dict("index"), []
    for name in dict.fromkeys(["none", "paper", *([chosen] if chosen else []), "okapi_plus"]):
        row = rows[name]
        if np.isnan(row["precision"]) or row["expectation"] == "nothing":
            continue
        pairs, predictor, same, chance = (
            _figure(row[f], numbers) for f in ("precision", "predictor", "predictor_matched", "chance")
        )
        said = f"{pairs} of the pairs are of one class, {chance} by chance; the predictor is right on {predictor}"
        if numbers:
            said = f"the skill of pairs is {pairs}; that of the predictor is {predictor}"
        text = f"Between labelled domains, with {CALLED[name]}, {said} ({same} on what is matched)"
        learnt = f"taught by them it {_change(row['taught_gain'], numbers)}"
        if row["precision"] < row["chance"] + ABOVE_CHANCE:
            text += ": such pairs say nothing."
        elif row["gain"] < -MARGIN:
            text += f": such pairs are wrong more often than the model that they would teach; {learnt}."
        elif row["taught_gain"] < -MARGIN:
            text += f"; {learnt}: pairs mislead."
        elif _teaches(row):
            text += f"; {learnt}: pairs can teach."
        else:
            text += f"; {learnt}: pairs are right where the model is, and tell it little that is new."
        reasons.append(Reason(text, f"precision of {name}", float(row["precision"]), float(row["predictor"])))
    return reasons


def _agrees(table: pd.DataFrame, numbers: bool) -> list[Reason]:
    alike = "correlate by" if numbers else "agree on"
    said = {
        "none": f"With one labelled domain nothing can be rehearsed. The labels of the keys and the predictor {alike}",
        "centred": f"Where encodings are matched centred by domain mean they {alike}",
    }
    reasons = []
    for name, start in said.items():
        agreement = float(table.agreement[name])
        if not np.isnan(agreement):
            text = f"{start} {_figure(agreement, numbers)}{'' if numbers else ' of the unlabelled samples'}"
            text += ": one of the two is wrong too often." if agreement < AGREEMENT else "."
            reasons.append(Reason(text, f"agreement of {name}", agreement, AGREEMENT))
    return reasons


def _too_few(table: pd.DataFrame) -> list[Reason]:
    reasons = []
    for name in table.index[table.expectation == "nothing"]:
        rates = [table.match_rate[name], table.get("rehearsed_match_rate", table.match_rate)[name]]
        text = f"With {CALLED[name]} hardly any sample finds a match ({min(rates):.1%}): nothing much would happen."
        reasons.append(Reason(text, f"match_rate of {name}", float(min(rates)), LEAST_MATCHED))
    return reasons


def _change(value: float, number: bool) -> str:
    size = f"{abs(value):.2f}" if number else f"{100 * abs(value):.1f} points"
    return f"{'gains' if value >= 0 else 'loses'} {size}"


def _figure(value: float, number: bool) -> str:
    return f"{value:.2f}" if number else f"{value:.1%}"
