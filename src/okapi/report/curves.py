"""Curves over training: losses, matching and validation, a line for each method."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from markupsafe import Markup

from okapi.benchmark import RunRecord
from okapi.report.page import Drawing, Section, figures_html
from okapi.report.plots import INK, Look, finish, look, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 3.3, 2.1  # inches: 317 pixels, which a phone has
MOST_POINTS = 250  # of a line: as many as there is room for
MOST_RUNS = 24  # that are drawn one by one beside the means
TRAINING = {
    "loss": "Loss",
    "supervised_loss": "Supervised loss",
    "match_rate": "Match rate",
    "propensity_accuracy": "Propensity accuracy",
    "matched_smd": "Balance: mean |SMD| of matched samples",
    "distinct_keys": "Share of distinct keys in pairs",
    "busiest_key": "Queries of the busiest key",
    "pseudo_label_rate": "Share of pseudo-labelled samples",
}
VALIDATION = ("ood_val", "id_val", "oracle")
MATCHING = {
    "match_precision": "Match precision",
    "match_distance": "SD between targets of matches",
    "match_rate": "Match rate",
}
DIRECTIONS = {"to_labelled": "{} to train", "from_labelled": "train to {}"}
_SHARES = ("match_rate", "match_precision", "propensity_accuracy", "accuracy", "macro_f1", "balanced_accuracy")


def curves_section(records: Sequence[RunRecord], methods: Sequence[str]) -> list[Section]:
    """Return a section of curves, none where no run has metrics; methods without curves are not in the legend."""
    figures, drawn = draw_curves(records, methods)
    if not figures:
        return []
    runs = [record for record in records if record.method in drawn and len(record.history)]
    several = len(runs) > len({record.method for record in runs})
    about = "Means since the line before, as metrics.csv has them."
    if several:
        about = "Thick lines are means over the runs of a method at the steps that all have, thin ones the runs."
    item = Markup('<li><span style="color: {1}"{2}></span>{0}</li>')
    looks = [(method, look(number)) for number, method in enumerate(methods) if method in drawn]
    items = [item.format(method, style.colour, Markup(' class="dashed"' * style.hollow)) for method, style in looks]
    legend = Markup('<ul class="legend">{0}</ul>').format(Markup("").join(items)) if len(methods) > 1 else Markup("")
    body = legend + figures_html(figures, captions=False)
    return [Section(title="Training", name="curves", about=about, body=body)]


def draw_curves(records: Sequence[RunRecord], methods: Sequence[str]) -> tuple[list[Drawing], set[str]]:
    """Return a figure for each quantity that some run wrote down, and the methods that are drawn."""
    figures: list[Drawing] = []
    drawn: set[str] = set()
    for split, name, caption in _quantities(records):
        lines = {method: _lines(records, method, split, name) for method in methods}
        lines = {method: runs for method, runs in lines.items() if runs}
        if lines:
            drawn |= set(lines)
            figures.append((caption, _draw(lines, methods, caption, name.startswith(_SHARES))))
    return figures, drawn


def _quantities(records: Iterable[RunRecord]) -> list[tuple[str, str, str]]:
    """Return split, name and caption of each quantity."""
    measured = list(dict.fromkeys(record.metric for record in records if record.metric))
    validated = [
        (split, name, f"{name.replace('_', ' ').capitalize()} on {split}") for name in measured for split in VALIDATION
    ]
    matched = [
        (split, f"{name}_{direction}", f"{caption}, {between.format(split)}")
        for name, caption in MATCHING.items()
        for split in VALIDATION[:2]
        for direction, between in DIRECTIONS.items()
    ]
    return [*(("train", name, caption) for name, caption in TRAINING.items()), *validated, *matched]


def _lines(records: Iterable[RunRecord], method: str, split: str, name: str) -> list[pd.Series]:
    """Return the values of each run of a method by step."""
    lines = []
    for record in records:
        if record.method == method:
            metrics = record.history
            chosen = (metrics["split"] == split) & (metrics["metric"] == name) & np.isfinite(metrics["value"])
            if chosen.any():
                lines.append(metrics[chosen].groupby("step")["value"].last())
    return lines


def _draw(lines: dict[str, list[pd.Series]], methods: Sequence[str], caption: str, is_share: bool) -> "Figure":
    figure = new_figure(HEIGHT, caption, WIDTH)
    axes = figure.add_subplot()
    several = sum(map(len, lines.values())) <= MOST_RUNS
    for method, runs in lines.items():
        style = look(methods.index(method))
        if len(runs) > 1 and several:
            for line in runs:
                _plot(axes, line, style, faint=True)
        _plot(axes, _mean(runs), style, faint=False)
    if is_share:
        low, high = axes.get_ylim()
        axes.set_ylim(max(low, -0.03), min(high, 1.03))
    axes.set_title(caption, color=INK, fontsize=8, loc="left")
    axes.set_xlabel("step", color=INK, fontsize=8)
    axes.locator_params(axis="x", nbins=5, integer=True)
    axes.locator_params(axis="y", nbins=5)
    axes.grid(axis="y", color=INK, alpha=0.2, linewidth=0.6)
    finish(axes)
    return figure


def _mean(lines: Sequence[pd.Series]) -> pd.Series:
    """Return the mean over runs at the steps that all of them have; without such, the longest run."""
    together = pd.concat(list(lines), axis=1).dropna()
    return together.mean(axis=1) if len(together) else max(lines, key=len)


def _plot(axes: "Axes", line: pd.Series, style: Look, *, faint: bool) -> None:
    shown = _thinned(line)
    axes.plot(
        shown.index.to_numpy(dtype=float),
        shown.to_numpy(dtype=float),
        color=style.colour,
        linewidth=0.8 if faint else 1.7,
        alpha=0.35 if faint else 1,
        linestyle="--" if style.hollow else "-",
        marker="o" if len(shown) == 1 else None,
        markersize=4,
    )


def _thinned(line: pd.Series) -> pd.Series:
    """Return a line with no more points than one can see, each a mean over neighbours."""
    if len(line) <= MOST_POINTS:
        return line
    bins = np.arange(len(line)) * MOST_POINTS // len(line)
    return pd.Series(line.groupby(bins).mean().to_numpy(), index=line.index.to_series().groupby(bins).last().to_numpy())
