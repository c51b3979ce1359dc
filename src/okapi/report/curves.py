"""Curves over training: losses, matching and validation, a line for each method."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from markupsafe import Markup

from okapi.report.palette import Look, look
from okapi.report.plots import INK, finish, new_figure, to_svg
from okapi.report.rendering import inline_svg
from okapi.report.runs import RunRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
WAYS = {"to_labelled": "{} to train", "from_labelled": "train to {}"}
_SHARES = ("match_rate", "match_precision", "propensity_accuracy", "accuracy", "macro_f1", "balanced_accuracy")


@dataclass(frozen=True)
class Curves:
    """Figures with their captions, and how each method is drawn."""

    figures: list[tuple[str, Markup]]
    legend: list[tuple[str, Look]]
    thinned: bool


def draw_curves(records: Sequence[RunRecord], methods: Sequence[str]) -> Curves:
    """Return a figure for each quantity that some run wrote down; methods without curves are not in the legend."""
    figures: list[tuple[str, Markup]] = []
    drawn: set[str] = set()
    thinned = False
    for split, name, caption in _quantities(records):
        lines = {method: _lines(records, method, split, name) for method in methods}
        lines = {method: its for method, its in lines.items() if its}
        if not lines:
            continue
        drawn |= set(lines)
        thinned |= any(len(line) > MOST_POINTS for its in lines.values() for line in its)
        svg = _draw(lines, methods, caption, name.startswith(_SHARES))
        figures.append((caption, inline_svg(svg, f"curve-{len(figures)}", caption)))
    legend = [(method, look(number)) for number, method in enumerate(methods) if method in drawn]
    return Curves(figures, legend, thinned)


def _quantities(records: Iterable[RunRecord]) -> list[tuple[str, str, str]]:
    """Return split, figure and caption of each quantity."""
    measured = list(dict.fromkeys(record.metric for record in records if record.metric))
    validated = [
        (split, name, f"{name.replace('_', ' ').capitalize()} on {split}") for name in measured for split in VALIDATION
    ]
    matched = [
        (split, f"{name}_{way}", f"{caption}, {between.format(split)}")
        for name, caption in MATCHING.items()
        for split in VALIDATION[:2]
        for way, between in WAYS.items()
    ]
    return [*(("train", name, caption) for name, caption in TRAINING.items()), *validated, *matched]


def _lines(records: Iterable[RunRecord], method: str, split: str, name: str) -> list[pd.Series]:
    """Return the values of each run of a method by step."""
    lines = []
    for record in records:
        if record.method == method:
            found = record.metrics
            found = found[(found["split"] == split) & (found["metric"] == name) & np.isfinite(found["value"])]
            if len(found):
                lines.append(found.groupby("step")["value"].last())
    return lines


def _draw(lines: dict[str, list[pd.Series]], methods: Sequence[str], caption: str, is_share: bool) -> str:
    figure = new_figure(HEIGHT, caption)
    figure.set_figwidth(WIDTH)
    axes = figure.add_subplot()
    several = sum(map(len, lines.values())) <= MOST_RUNS
    for method, its in lines.items():
        style = look(methods.index(method))
        if len(its) > 1 and several:
            for line in its:
                _plot(axes, line, style, faint=True)
        _plot(axes, _mean(its), style, faint=False)
    if is_share:
        low, high = axes.get_ylim()
        axes.set_ylim(max(low, -0.03), min(high, 1.03))
    axes.set_title(caption, color=INK, fontsize=8, loc="left")
    axes.set_xlabel("step", color=INK, fontsize=8)
    axes.locator_params(axis="x", nbins=5, integer=True)
    axes.locator_params(axis="y", nbins=5)
    axes.grid(axis="y", color=INK, alpha=0.2, linewidth=0.6)
    finish(axes)
    return to_svg(figure)


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
