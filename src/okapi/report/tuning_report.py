"""A grid search in a table and as a report."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from okapi.matching.diagnostics.tuning import Tuning, settings_of
from okapi.numbers import count, decimal, plural, share
from okapi.report.match_page import tune_page
from okapi.report.matching_plots import pareto_plot
from okapi.table import Column, Table

_SHOWN = {  # settings and their headings, short enough for a terminal of 80 columns
    "fixed_caliper": "fixed",
    "std_caliper": "std",
    "caliper_scale": "scale",
    "temperature": "temp.",
    "k": "k",
    "prognostic_caliper": "progn.",
}
_METRICS = {
    "retained": Column("retained", share),
    "ess_share": Column("keys\n(ESS)", share),
    "max_abs_smd": Column("max\n|SMD|", decimal),
    "mean_abs_smd": Column("mean\n|SMD|", decimal),
    "variance_ratio_share": Column("VR\nok", share),
}


def tuning_table(tuning: Tuning) -> Table:
    """Return the combinations, the best first; a setting that all share is said once."""
    table = tuning.table
    settings = [{name: setting_text(value) for name, value in settings_of(row).items()} for _, row in table.iterrows()]
    varied = [name for name in _SHOWN if len({one[name] for one in settings}) > 1]
    shared = [f"{name.replace('_', ' ')} {settings[0][name]}" for name in _SHOWN if name not in varied]
    words = {name: None if name == "caliper_scale" else str for name in varied}
    return Table(
        title="Combinations, the best first; * on the Pareto front of retained queries and mean |SMD|",
        caption=f"The same in all: {', '.join(shared)}" if shared else "",
        columns=["", *(Column(_SHOWN[name], kind) for name, kind in words.items()), *_METRICS.values()],
        rows=[
            [
                "*" if row["pareto"] else "",
                *(one[name].replace("probability", "prob.") for name in varied),
                *(row[name] for name in _METRICS),
            ]
            for one, (_, row) in zip(settings, table.iterrows(), strict=True)
        ],
        details=_remarks(tuning),
    )


def _remarks(tuning: Tuning) -> list[str]:
    table = tuning.table
    first = table.iloc[0]
    before = (
        f"Before matching: max |SMD| {decimal(first.max_abs_smd_before)}, mean |SMD| "
        f"{decimal(first.mean_abs_smd_before)}. SMD denominator: pooled deviation before matching."
    )
    balanced = int((table.max_abs_smd <= 0.1).sum())
    brings = "brings" if balanced == 1 else "bring"
    rule = f"{count(balanced)} of {plural(len(table), 'combination')} {brings} every |SMD| to 0.1 or less. "
    if balanced:
        rule += "The best is the one of them that retains most queries."
    elif first.retained:
        rule += f"The best is the one with the lowest mean |SMD|; it retains {share(first.retained)} of the queries."
    return [before, rule]


def setting_text(value: Any) -> str:
    """Return a setting as it is given on the command line."""
    if value is None:
        return "none"
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def tuning_report(
    tuning: Tuning, *, title: str, settings: Mapping[str, object], grid: Mapping[str, Sequence[Any]], notes: list[str]
) -> str:
    """Return the report of a grid search, as HTML; ``settings`` are those that are not in the grid."""
    table = tuning.table
    best = table.iloc[0]
    facts = {
        "combinations": len(table),
        "on the Pareto front": int(table.pareto.sum()),
        "retained by the best": share(best.retained),
        "max |SMD| of the best": decimal(best.max_abs_smd),
        "mean |SMD| of the best": decimal(best.mean_abs_smd),
        "max |SMD| before": decimal(best.max_abs_smd_before),
        "mean |SMD| before": decimal(best.mean_abs_smd_before),
    }
    tried = {name.replace("_", " "): ", ".join(map(setting_text, values)) for name, values in grid.items()}
    caption = "Balance against retained queries, one mark a combination; the ring is the best"
    return tune_page(
        title=title,
        facts=facts,
        settings={**settings, **tried},
        combinations=_combinations(table),
        figures=[(caption, pareto_plot(tuning))],
        notes=notes,
    )


def _combinations(table: pd.DataFrame) -> pd.DataFrame:
    """Return settings as they were given, then balance, then the rest; balance before matching is the same in all."""
    rows = [{name: setting_text(value) for name, value in settings_of(row).items()} for _, row in table.iterrows()]
    shown = pd.DataFrame(rows)  # of words: a column of numbers would turn None into NaN
    shown.insert(0, "pareto", np.where(table.pareto, "✓", ""))
    shown["retained"] = table.retained.map(share)
    smd = ["max_abs_smd", "mean_abs_smd"]
    rest = [name for name in table if name not in [*shown, *smd] and not str(name).endswith("_before")]
    both: pd.DataFrame = pd.concat([shown, table[[*smd, *rest]]], axis=1)
    return both
