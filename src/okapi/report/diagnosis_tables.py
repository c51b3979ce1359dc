"""Tables of a diagnosis, as they are printed and as a page shows them."""

from collections.abc import Callable
from typing import Any, TypeAlias

import pandas as pd

from okapi.evaluation.diagnosis import CALLED, Diagnosis
from okapi.numbers import count, decimal, share
from okapi.table import Column, Table

Formats: TypeAlias = dict[str, Callable[[Any], str] | None]
"""Columns of a frame, and how their values are written; None: as words."""
STRATEGIES_EXPLAINED = (
    "Matching pairs an unlabelled sample with the labelled ones that are nearest. No calipers: whatever they are. The "
    "paper's calipers: if a model cannot tell their domains apart by much. Centring alone: after each domain's mean is "
    "taken away. Okapi+: the same, if labels and predictions agree, too."
)


def expected_table(found: Diagnosis) -> Table:
    """Return what is expected of each strategy."""
    figure = _figure(found)
    columns: Formats = {"strategy": None, "expect": None}
    rows = found.expected.assign(strategy=found.expected.strategy.map(CALLED), expect=found.expected.expectation)
    about = f"Matched: the share of unlabelled samples with {found.k} labelled matches."
    if found.basis == "leave_one_domain_out":
        rows["model, with pairs"] = rows.predictor + rows.pseudo_label_gain
        rows = rows.rename(columns={"precision": _right(found), "predictor": "model"})
        columns |= dict.fromkeys((_right(found), "model", "model, with pairs"), figure)
        about = (
            f"Each labelled domain was treated as unlabelled in turn. {_right(found).capitalize()}: "
            f"{_about_pairs(found)}. Model: how right a plain model of the other domains is. Model, with pairs: the "
            f"same model, after it also learnt from the labels that pairs pass on. {about}"
        )
    elif found.basis == "agreement":
        columns |= {"agreement": figure}
        about = f"Agreement: of a plain model's predictions with the labels that pairs pass on. {about}"
    rows["matched"] = rows.match_rate
    about = f"{STRATEGIES_EXPLAINED} {about}"
    return _table("expected", "What to expect", rows, {**columns, "matched": share}, about)


def left_out_table(found: Diagnosis) -> Table:
    """Return how right pairs are, a row for each domain left out and a column for each strategy."""
    figure, rows = _figure(found), pd.DataFrame()
    if len(found.left_out):
        rows = found.left_out.pivot_table("precision", "domain", "strategy", sort=False, dropna=False)
        rows = rows.rename(columns=CALLED).reset_index(names="left out")
        first = found.left_out.groupby("domain", sort=False)[["queries", "predictor", "chance"]].first()
        rows = rows.join(first.rename(columns={"queries": "samples", "predictor": "model"}), on="left out")
    columns: Formats = {"left out": None, "samples": count}
    columns |= dict.fromkeys(("chance", "model", *CALLED.values()), figure)
    title = f"Each labelled domain left out in turn: {_right(found)}, by strategy"
    return _table("left-out", title, rows, columns, "Chance: of random pairs. Model: how right a plain model is.")


def domains_table(found: Diagnosis) -> Table:
    """Return how far unlabelled domains are from the labelled ones, and how accurate a plain model is likely to be."""
    others = "the labelled domains" if found.task else "all other domains"
    about = f"AUC: how well a linear model tells a domain from {others}; 0.5 is not at all, 1 is without error."
    columns: Formats = {"domain": None, "samples": count, "AUC": decimal}
    names = {"auc": "AUC", "class_shift": "class shift", "estimated_accuracy": "estimated accuracy"}
    rows = found.domains.rename(columns=names)
    if "class shift" in rows:
        columns["class shift"] = share
        about += " Class shift: by what share of the samples class frequencies seem to differ from the labels'."
    if "estimated accuracy" in rows:
        columns["estimated accuracy"] = share
        about += " Estimated accuracy: of a plain model, by its confidence, corrected where labels are known."
    return _table("domains", "Unlabelled domains" if found.task else "Domains", rows, columns, about)


def _table(name: str, title: str, rows: pd.DataFrame, columns: Formats, about: str) -> Table:
    cells = rows[list(columns)].to_numpy(dtype=object).tolist() if len(rows) else []
    heads = [Column(heading, format_) for heading, format_ in columns.items()]
    return Table(title=title, name=name, columns=heads, rows=cells, caption=about)


def _about_pairs(found: Diagnosis) -> str:
    if found.task == "regression":
        return "1 less the error of pairs over that of guessing the mean"
    return f"the share of matched pairs that are of one class ({share(float(found.expected.chance.mean()))} by chance)"


def _right(found: Diagnosis) -> str:
    return "skill of pairs" if found.task == "regression" else "pairs right"


def _figure(found: Diagnosis) -> Callable[[Any], str]:
    return decimal if found.task == "regression" else share
