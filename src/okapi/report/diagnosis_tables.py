"""Tables of a diagnosis, as they are printed and as a page shows them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from okapi.evaluation.diagnosis import STRATEGIES, Diagnosis
from okapi.numbers import count, decimal, share
from okapi.table import Column, Table


def expected_table(found: Diagnosis) -> Table:
    """Return what is expected of each strategy."""
    rows = found.expected.to_dict("records")
    columns: dict[str, Any] = {"strategy": lambda row: row["strategy"], "expect": lambda row: row["expectation"]}
    if found.basis == "leave_one_domain_out":
        columns |= {
            _right(found): lambda row: _figure(found, row["precision"]),
            "predictor there": lambda row: _figure(found, row["predictor_matched"]),
            "predictor": lambda row: _figure(found, row["predictor"]),
            "pseudo-labelled": lambda row: _figure(found, row["predictor"] + row["pseudo_label_gain"]),
            "chance": lambda row: _figure(found, row["chance"]),
            "matched there": lambda row: share(row["left_out_match_rate"]),
        }
    columns |= {
        "matched": lambda row: share(row["match_rate"]),
        "distinct keys": lambda row: share(row["distinct_keys"]),
        "busiest key": lambda row: share(row["busiest_key"]),
    }
    if found.basis != "none":
        columns["agreement"] = lambda row: _figure(found, row["agreement"])
    about = [
        _about_strategies(found),
        *(_about_left_out(found) if found.basis == "leave_one_domain_out" else []),
        f"Of unlabelled samples: how many are matched to {found.k} labelled keys; the share of distinct keys among "
        "their pairs, and of the queries that the busiest key serves"
        + ("; how far the predictor agrees with the labels of the keys." if found.basis != "none" else "."),
    ]
    return _table("expected", "What to expect of each strategy", columns, rows, ("strategy", "expect"), about)


def _about_strategies(found: Diagnosis) -> str:
    text = "Strategies: none, no caliper; fixed, caliper of 0.9; std, 0.2; paper, both; centred, no caliper, but "
    text += "encodings centred by domain mean"
    if found.basis == "none":
        return f"{text}."
    aligned = " and aligned with a class prior" if found.task == "classification" else ""
    return (
        f"{text}; okapi_plus: centred, and outcomes at most a third of their standard deviation apart, those of "
        f"queries as predicted{aligned}, those of keys as labelled."
    )


def _about_left_out(found: Diagnosis) -> list[str]:
    right = "the share of pairs of one class" if found.task == "classification" else "the skill of pairs"
    skill = "" if found.task == "classification" else " Skill is 1 less the error over that of guessing the mean."
    return [
        f"With each labelled domain left out in turn: {right}; how right a plain predictor of the other domains is on "
        "the samples matched there, on all, and on all when it also learns from the labels of the keys, as "
        f"pseudo-labels; chance.{skill}"
    ]


def left_out_table(found: Diagnosis) -> Table:
    """Return how right pairs are, a row for each domain left out and a column for each strategy."""
    rows = []
    if len(found.left_out):
        for name, part in found.left_out.groupby("domain", sort=False):
            by = part.set_index("strategy")
            rows.append({"left out": name, **by.iloc[0][["queries", "predictor", "chance"]], **by["precision"]})
    columns: dict[str, Any] = {
        "left out": lambda row: str(row["left out"]),
        "samples": lambda row: count(row["queries"]),
        "predictor": lambda row: _figure(found, row["predictor"]),
        "chance": lambda row: _figure(found, row["chance"]),
    }
    for name in STRATEGIES:
        columns[name] = lambda row, name=name: _figure(found, row[name])
    title = f"Each labelled domain left out in turn: {_right(found)}, by strategy"
    return _table("left-out", title, columns, rows, ("left out",))


def domains_table(found: Diagnosis) -> Table:
    """Return how far unlabelled domains are from the labelled ones, and how accurate a predictor is likely to be."""
    columns: dict[str, Any] = {
        "domain": lambda row: str(row["domain"]),
        "samples": lambda row: count(row["samples"]),
        "AUC": lambda row: decimal(row["auc"]),
        "overlap": lambda row: share(row["overlap"]),
    }
    others = "the labelled domains" if found.task else "all other domains"
    about = [f"AUC and overlap of propensities, against {others}, by models that were fitted to other samples."]
    if "confidence" in found.domains:
        columns["confidence"] = lambda row: share(row["confidence"])
        about.append("Confidence is that of a plain predictor.")
    if "estimated_accuracy" in found.domains:
        columns["estimated accuracy"] = lambda row: share(row["estimated_accuracy"])
        about.append("Its accuracy is estimated by less what the confidence is too high by in domains left out.")
    rows = found.domains.to_dict("records")
    title = "Unlabelled domains" if found.task else "Domains"
    return _table("domains", title, columns, rows, ("domain",), [" ".join(about)])


def _table(
    name: str,
    title: str,
    columns: Mapping[str, Any],
    rows: list[dict[Any, Any]],
    words: tuple[str, ...],
    about: Sequence[str] = (),
) -> Table:
    heads = [Column(heading, None if heading in words else str) for heading in columns]
    cells = [[get(row) for get in columns.values()] for row in rows]
    return Table(title=title, name=name, columns=heads, rows=cells, caption=" ".join(about))


def _right(found: Diagnosis) -> str:
    return "skill of pairs" if found.task == "regression" else "pairs right"


def _figure(found: Diagnosis, value: float) -> str:
    value = float(value) if value is not None else np.nan
    return decimal(value) if found.task == "regression" else share(value)
