"""From numbers to a verdict: what to expect of matching, why, what to do, and with which settings.

Every limit stands here, with its reason. None was chosen by looking at what training came to.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from okapi.config import OkapiPlusSettings, OkapiSettings, PrognosticMatchingSettings
from okapi.evaluation.diagnosis.strategies import CALLED, STRATEGIES
from okapi.messages import listed

Verdict: TypeAlias = Literal["help", "may help", "hurt", "unknown"]
Basis: TypeAlias = Literal["leave_one_domain_out", "agreement", "none"]

MARGIN = 0.02
"""What counts as a difference to the plain model: shares of a thousand samples waver by about that."""
MOST = 0.5
"""Share of domains left out in which pseudo-labels must have improved the plain model: one domain alone may be odd."""
LEAST_MATCHED = 0.05
"""Share of queries to be matched: the consistency is weighted by it, so with fewer hardly anything happens."""
ABOVE_CHANCE = 0.05
"""By how much pairs must be more often right than random pairs, or they say nothing."""
SEPARABLE_AUC = 0.99
"""From here on a linear scorer separates domains: propensities crowd at 0 and 1, which the std-caliper counts in."""
ALIKE_AUC = 0.6
"""Up to here domains can hardly be told apart: there is little for matching to bridge."""
FUNNEL = 0.5
"""Calipers funnel queries if they halve the share of distinct keys, or make a hub twice as busy as without them."""
HUB = 0.2
"""A key that serves this share of the queries is a hub: it pulls them together whatever they are."""
CLASS_SHIFT = 0.2
"""Where the classes of so many samples are others than where labels are from, nearest samples are often of another."""
AGREEMENT = 0.5
"""Where pairs and model disagree on more than half of the samples, one of them is wrong on more than a quarter.

With one labelled domain nothing says which. Pairs that a prognostic caliper admits agree with the model anyway, so
Okapi+ is judged by the agreement of centring alone.
"""

HEADLINES: dict[Verdict, str] = {
    "help": "Matching is likely to help here",
    "may help": "Matching may help here",
    "hurt": "Matching is likely to hurt here",
    "unknown": "Whether matching helps here is not known",
}
ADVICE: dict[Verdict, str] = {
    "help": "Train with these settings.",
    "may help": "Train with these settings, and without matching (name: erm). Keep what is better in validation.",
    "hurt": "Train without matching (name: erm). Then diagnose that run: its encodings may match better.",
    "unknown": "Label samples in two domains or more, and diagnose again. Until then train with these settings and "
    "without matching (name: erm), and keep what is better in validation.",
}


class Ruling(NamedTuple):
    """A verdict; fields are those of ``Diagnosis``."""

    verdict: Verdict
    headline: str
    advice: str
    chosen: str | None
    settings: dict[str, Any]
    reasons: tuple[str, ...]


def expectations(basis: Basis, left_out: pd.DataFrame, unlabelled: pd.DataFrame) -> pd.DataFrame:
    """Return ``Diagnosis.expected`` from its tables ``left_out`` and ``unlabelled_matches``.

    To ``strategy`` and the means over domains it adds ``gain`` (precision less ``predictor``), ``pseudo_label_gain``
    (what the model gains by learning from the pseudo-labels of the domain left out, too), ``improved`` (in which share
    of the domains it gains at all), ``funnels``, ``expectation`` (help, may help, hurt, nothing, unknown) and ``why``.
    """
    columns = [name for name in ("match_rate", "distinct_keys", "busiest_key", "agreement") if name in unlabelled]
    table = unlabelled.groupby("strategy", sort=False)[columns].mean()
    if len(left_out):
        means = {name: _over_domains(rows) for name, rows in left_out.groupby("strategy", sort=False)}
        table = table.join(pd.DataFrame.from_dict(means, orient="index"))
    few = table.distinct_keys < FUNNEL * table.distinct_keys["none"]
    table["funnels"] = few | (table.busiest_key > max(HUB, table.busiest_key["none"] / FUNNEL))
    rows = table.to_dict("index")
    expected = [_expectation(basis, name, row, rows["centred"]) for name, row in rows.items()]
    table["expectation"], table["why"] = zip(*expected, strict=True)
    return table.rename_axis("strategy").reset_index()


def rule(basis: Basis, expected: pd.DataFrame, domains: pd.DataFrame, k: int) -> Ruling:
    """Return the verdict, its reasons and the settings, for ``k`` keys per query, from two tables of ``Diagnosis``."""
    table = expected.set_index("strategy")
    chosen = _choice(basis, table)
    verdict: Verdict = "hurt" if basis != "none" else "unknown"
    if chosen is not None:
        verdict = table.expectation[chosen]
    headline = _headline(verdict, chosen, table)
    return Ruling(
        verdict, headline, ADVICE[verdict], chosen, _settings(verdict, chosen, k), _reasons(basis, table, domains)
    )


def _over_domains(rows: pd.DataFrame) -> dict[str, float]:
    """Return means over the domains left out: those of pairs weighted by what is matched, others by all queries."""
    pairs = rows[rows.matched > 0]
    means = {name: _mean(pairs[name], pairs.matched) for name in ("precision", "predictor_matched")}
    means |= {name: _mean(rows[name], rows.queries) for name in ("predictor", "chance")}
    gains = (rows.pseudo_labelled - rows.predictor).fillna(0)  # where hardly anything is matched nothing is learnt
    return {
        **means,
        "left_out_match_rate": _mean(rows.match_rate, rows.queries),
        "gain": means["precision"] - means["predictor"],
        "pseudo_label_gain": _mean(gains, rows.queries),
        "improved": float((gains > 0).mean()),
    }


def _mean(values: "pd.Series[float]", weights: "pd.Series[int]") -> float:
    return float(np.average(values, weights=weights)) if len(values) else float("nan")


def _expectation(basis: Basis, name: Any, row: Mapping[Any, Any], centred: Mapping[Any, Any]) -> tuple[str, str]:
    """Return what to expect of a strategy, and why."""
    if min(row["match_rate"], row.get("left_out_match_rate", 1.0)) < LEAST_MATCHED:
        return "nothing", "hardly any sample finds a match"
    if row["funnels"]:
        return "hurt", "few labelled samples serve as the match of many"
    if basis == "none":
        return "unknown", "without labels nothing says whether pairs are right"
    if basis == "agreement":
        # With one labelled domain none can be left out.
        if (centred if name == "okapi_plus" else row)["agreement"] >= AGREEMENT:
            return "may help", "labels that pairs pass on agree with a plain model"
        return "unknown" if name == "okapi_plus" else "hurt", "labels that pairs pass on contradict a plain model"
    if row["precision"] < row["chance"] + ABOVE_CHANCE:
        return "hurt", "pairs are hardly more often right than by chance"
    if row["gain"] < -MARGIN:
        return "hurt", "pairs are right less often than a plain model"
    if row["pseudo_label_gain"] < -MARGIN:
        return "hurt", "a plain model loses by learning from pairs"
    if row["pseudo_label_gain"] >= MARGIN and row["improved"] > MOST:
        return "help", "a plain model gains by learning from pairs"
    return "may help", "pairs are about as right as a plain model, which gains little by learning from them"


def _choice(basis: Basis, table: pd.DataFrame) -> str | None:
    """Return the strategy to use: of those that help the one that gains most; else Okapi+, if it may help."""
    if basis == "none":
        return next((name for name in ("centred", "none") if table.expectation[name] == "unknown"), None)
    for wanted in ("help", "may help"):
        good = table[table.expectation == wanted]
        if wanted == "may help" and "okapi_plus" in good.index:
            return "okapi_plus"
        if len(good):
            return str(good["agreement" if basis == "agreement" else "pseudo_label_gain"].idxmax())
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


def _reasons(basis: Basis, table: pd.DataFrame, domains: pd.DataFrame) -> tuple[str, ...]:
    """Say how far domains are apart, whether encodings tell of the targets, and what is expected of strategies."""
    furthest = max(domains.to_dict("records"), key=lambda row: row["auc"])
    others = "all other" if basis == "none" else "the labelled"
    apart = "can be told apart, but overlap"
    if furthest["auc"] >= SEPARABLE_AUC:
        apart = "can be told apart almost without error"
    elif furthest["auc"] <= ALIKE_AUC:
        apart = "can hardly be told apart, so there is little to bridge"
    reasons = [f"{furthest['domain']} and {others} domains {apart} (AUC {furthest['auc']:.3f})."]
    if basis == "leave_one_domain_out" and table.predictor["none"] < table.chance["none"] + ABOVE_CHANCE:
        reasons.append(
            "Across domains a plain model is hardly better than chance: these encodings say nothing of the "
            "targets. Those of a trained encoder may."
        )
    if "class_shift" in domains and (shifted := domains[domains.class_shift >= CLASS_SHIFT].domain.tolist()):
        reasons.append(
            f"Classes seem to be more or less frequent in {listed(shifted)} than where the labels are from (by "
            f"{domains.class_shift.max():.0%} of the samples): pairs may be right less often there, so validate "
            "without matching, too."
        )
    for why, rows in table.groupby("why", sort=False):
        *most, last = (CALLED[str(name)] for name in rows.index)
        reasons.append(f"With {', '.join(most)}{' and ' if most else ''}{last}: {why}.")
    return tuple(reasons)
