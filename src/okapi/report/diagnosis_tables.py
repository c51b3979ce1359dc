"""Tables of a diagnosis, as they are printed and as a page shows them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from okapi.evaluation.diagnosis import STRATEGIES, Diagnosis
from okapi.report.terminal import count, decimal, share

Cell = tuple[str, str]


@dataclass(frozen=True)
class DiagnosisTable:
    """A table as the template takes it: headings with whether they are of numbers, cells with their class."""

    id: str
    title: str
    header: list[tuple[str, bool]]
    rows: list[list[Cell]]
    about: list[str] = field(default_factory=list)
    worst: bool = False
    ruled: bool = False

    @property
    def n_rows(self) -> int:
        """All are shown."""
        return len(self.rows)


def expected_table(found: Diagnosis) -> DiagnosisTable:
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


def left_out_table(found: Diagnosis) -> DiagnosisTable:
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


def domains_table(found: Diagnosis) -> DiagnosisTable:
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
    id_: str,
    title: str,
    columns: Mapping[str, Any],
    rows: list[dict[Any, Any]],
    words: tuple[str, ...],
    about: list[str] | None = None,
) -> DiagnosisTable:
    header = [(name, name not in words) for name in columns]
    cells = [[(get(row), "" if name in words else "number") for name, get in columns.items()] for row in rows]
    return DiagnosisTable(id_, title, header, cells, about or [])


def _right(found: Diagnosis) -> str:
    return "skill of pairs" if found.task == "regression" else "pairs right"


def _figure(found: Diagnosis, value: float) -> str:
    value = float(value) if value is not None else np.nan
    return decimal(value) if found.task == "regression" else share(value)
