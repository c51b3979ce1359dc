"""Tables of a diagnosis, as they are printed and as a page shows them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from okapi.evaluation.diagnosis import Diagnosis
from okapi.evaluation.diagnosis.comparing import STRATEGIES
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
    columns: dict[str, Any] = {"strategy": lambda row: row["calipers"], "expect": lambda row: row["expectation"]}
    if found.basis == "rehearsal":
        columns |= {
            _right(found): lambda row: _figure(found, row["precision"]),
            "predictor there": lambda row: _figure(found, row["predictor_matched"]),
            "predictor": lambda row: _figure(found, row["predictor"]),
            "taught": lambda row: _figure(found, row["predictor"] + row["taught_gain"]),
            "chance": lambda row: _figure(found, row["chance"]),
            "matched there": lambda row: share(row["rehearsed_match_rate"]),
        }
    columns |= {
        "matched": lambda row: share(row["match_rate"]),
        "distinct keys": lambda row: share(row["distinct_keys"]),
        "busiest key": lambda row: share(row["busiest_key"]),
    }
    if found.basis != "none":
        columns["agreement"] = lambda row: _figure(found, row["agreement"])
    about = [
        _about_ways(found),
        *(_about_rehearsals(found) if found.basis == "rehearsal" else []),
        f"Of unlabelled samples: how many are matched to {found.k} labelled keys; the share of distinct keys among "
        "their pairs, and of the queries that the busiest key serves"
        + ("; how far the predictor agrees with the labels of the keys." if found.basis != "none" else "."),
    ]
    return _table("expected", "What to expect of each strategy", columns, rows, ("strategy", "expect"), about)


def _about_ways(found: Diagnosis) -> str:
    text = "Strategies: none, no caliper; fixed, caliper of 0.9; std, 0.2; paper, both; centred, no caliper, but "
    text += "encodings centred by domain mean"
    if found.basis == "none":
        return f"{text}."
    aligned = " and aligned with a class prior" if found.task == "classification" else ""
    return (
        f"{text}; okapi_plus: centred, and outcomes at most a third of their standard deviation apart, those of "
        f"queries as predicted{aligned}, those of keys as labelled."
    )


def _about_rehearsals(found: Diagnosis) -> list[str]:
    right = "the share of pairs of one class" if found.task == "classification" else "the skill of pairs"
    skill = "" if found.task == "classification" else " Skill is 1 less the error over that of guessing the mean."
    return [
        f"From rehearsals, in which each labelled domain in turn plays the unlabelled one: {right}; how right a plain "
        "predictor of the other domains is on the samples matched there, on all, and on all when it was taught by the "
        f"labels of the pairs, too; chance.{skill}"
    ]


def rehearsal_table(found: Diagnosis) -> DiagnosisTable:
    """Return how right pairs are, a row for each held-out domain and a column for each strategy."""
    rows = []
    if len(found.rehearsals):
        for name, part in found.rehearsals.groupby("held_out", sort=False):
            by = part.set_index("calipers")
            rows.append({"held out": name, **by.iloc[0][["queries", "predictor", "chance"]], **by["precision"]})
    columns: dict[str, Any] = {
        "held out": lambda row: str(row["held out"]),
        "samples": lambda row: count(row["queries"]),
        "predictor": lambda row: _figure(found, row["predictor"]),
        "chance": lambda row: _figure(found, row["chance"]),
    }
    for name in STRATEGIES:
        columns[name] = lambda row, name=name: _figure(found, row[name])
    title = f"Rehearsals between labelled domains: {_right(found)}, by strategy"
    return _table("rehearsals", title, columns, rows, ("held out",))


def separability_table(found: Diagnosis) -> DiagnosisTable:
    """Return how well domains can be told apart."""
    columns = {
        "labelled": lambda row: str(row["labelled"]),
        "unlabelled": lambda row: str(row["unlabelled"]),
        "samples": lambda row: f"{count(row['samples_labelled'])} + {count(row['samples_unlabelled'])}",
        "AUC": lambda row: decimal(row["auc"]),
        "bal. accuracy": lambda row: share(row["balanced_accuracy"]),
        "fitted": lambda row: share(row["balanced_accuracy_fitted"]),
        "overlap": lambda row: share(row["overlap"]),
    }
    if not found.task:
        columns = {{"labelled": "domain", "unlabelled": "other"}.get(name, name): get for name, get in columns.items()}
    about = [
        "AUC, balanced accuracy and overlap of propensities are of models that were not fitted to the samples; fitted "
        "is the balanced accuracy of one that was."
    ]
    words = tuple(columns)[:2]
    rows = found.separability.to_dict("records")
    return _table("separability", "How well domains can be told apart", columns, rows, words, about)


def calipers_table(found: Diagnosis) -> DiagnosisTable:
    """Return what the strategies that need no labels match in each comparison, by direction."""
    columns = {
        "query → key": lambda row: f"{row['query_domain']} → {row['key_domain']}",
        "strategy": lambda row: row["calipers"],
        "matched": lambda row: f"{count(row['matched'])} of {count(row['queries'])}",
        "share": lambda row: share(row["match_rate"]),
        "distinct keys": lambda row: share(row["distinct_keys"]),
        "busiest key": lambda row: share(row["busiest_key"]),
        "max |SMD|": lambda row: f"{decimal(row['max_smd_before'])} → {decimal(row['max_smd_after'])}",
        "mean |SMD|": lambda row: f"{decimal(row['mean_smd_before'])} → {decimal(row['mean_smd_after'])}",
    }
    about = [
        "SMD: standardised mean differences of the columns of the encodings, before and after matching; for centred, "
        "too, of encodings as they are."
    ]
    rows = found.calipers.to_dict("records")
    return _table(
        "calipers", "What is matched, by strategies without labels", columns, rows, ("query → key", "strategy"), about
    )


def predictions_table(found: Diagnosis) -> DiagnosisTable:
    """Return what a predictor of the labelled domains says of the unlabelled ones."""
    columns: dict[str, Any] = {
        "domain": lambda row: str(row["domain"]),
        "samples": lambda row: count(row["samples"]),
    }
    about = []
    if found.task == "classification":
        columns |= {
            "confidence": lambda row: share(row["confidence"]),
            "corrected": lambda row: share(row["corrected_confidence"]),
            "infomax": lambda row: decimal(row["infomax"]),
            "entropy": lambda row: decimal(row["entropy"]),
        }
        where = "in rehearsals" if found.basis == "rehearsal" else "within the labelled domain"
        about = [f"Corrected: less what the predictor overrates itself by {where}, an estimate of its accuracy."]
    else:
        columns |= {"mean": lambda row: decimal(row["mean"]), "deviation": lambda row: decimal(row["deviation"])}
        about = ["In deviations of the labelled targets, from their mean."]
    rows = found.predictions.to_dict("records")
    return _table("predictions", "Predictions of unlabelled domains", columns, rows, ("domain",), about)


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
