"""The page of a diagnosis: a verdict, its reasons, settings to paste, charts and tables in one HTML file."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import yaml
from markupsafe import Markup

from okapi.evaluation.diagnosis import CALLED, HEADLINES, STRATEGIES, Diagnosis
from okapi.numbers import decimal, share
from okapi.report.diagnosis_tables import (
    domains_table,
    expected_table,
    left_out_table,
)
from okapi.report.page import Drawing, Section, figures_section, page, settings_section, table_section
from okapi.report.plots import BLUE, INK, ORANGE, finish, look, new_figure, short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 3.3  # inches: 317 pixels, which a phone has
MOST_ROWS = 24  # domains in a chart
MOST_HISTOGRAMS = 6
MARKS = ("o", "s", "^", "D", "P", "X")


def diagnosis_page(found: Diagnosis, source: str, settings: Mapping[str, object]) -> str:
    """Return the page as HTML that loads nothing from elsewhere.

    Parameters
    ----------
    found : Diagnosis
    source : str
        What the data is called.
    settings : mapping
        What the diagnosis was made with.
    """
    tables = [expected_table(found), left_out_table(found), domains_table(found)]
    shown = {**settings, "k": found.k, "task": found.task, "basis": found.basis}
    shown |= {"labelled": ", ".join(found.labelled), "unlabelled": ", ".join(found.unlabelled)}
    hurt = "Okapi without its weight is ERM, which is cheaper as name: erm."
    sections = [
        Section(title="Reasons", name="reasons", body=_reasons(found)),
        Section(
            title="What to set",
            name="paste",
            body=Markup('<pre tabindex="0">{0}</pre>').format(settings_yaml(found)),
            about=hurt if found.verdict == "hurt" else "To paste into a config of Okapi.",
        ),
        *figures_section(_figures(found)),
        *(table_section(table) for table in tables if table.rows),
        settings_section(shown),
    ]
    return page(
        title=HEADLINES[found.verdict],
        kicker=f"a diagnosis of {source} before training",
        facts=_facts(found),
        notes=found.notes,
        sections=sections,
    )


def _reasons(found: Diagnosis) -> Markup:
    items = Markup("").join(Markup("<li>{0}</li>").format(reason) for reason in found.reasons)
    html = '<p class="lead">{0}</p>\n<p class="about">{1}</p>\n<ul class="reasons">{2}</ul>'
    return Markup(html).format(found.headline, found.advice, items)


def settings_yaml(found: Diagnosis) -> str:
    """Return the settings as a part of a config."""
    return str(yaml.safe_dump({"algorithm": found.settings}, sort_keys=False)).rstrip()


def _facts(found: Diagnosis) -> dict[str, object]:
    """Return the few figures that the verdict rests on."""
    table = found.expected.set_index("strategy")
    figure = decimal if found.task == "regression" else share
    right = "skill of pairs" if found.task == "regression" else "pairs right"
    facts: dict[str, object] = {}
    if found.basis == "leave_one_domain_out":
        facts["predictor, between labelled domains"] = figure(float(table.predictor["none"]))
        for name in dict.fromkeys(["none", found.chosen or "okapi_plus"]):
            facts[f"{right}, {CALLED[name]}"] = figure(float(table.precision[name]))
    elif found.basis == "agreement":
        for name in ("none", "centred"):
            facts[f"predictor and pairs agree, {CALLED[name]}"] = figure(float(table.agreement[name]))
    if found.chosen is not None:
        facts["unlabelled samples matched"] = share(float(table.match_rate[found.chosen]))
    facts["greatest AUC, labelled or unlabelled"] = decimal(float(found.domains.auc.max()))
    return facts


def _figures(found: Diagnosis) -> list[Drawing]:
    figures: list[Drawing] = []
    if len(found.left_out):
        words = "Skill of pairs" if found.task == "regression" else "Share of pairs of one class"
        caption = (
            f"{words}, by strategy, for each labelled domain left out in turn; beside them the predictor and chance"
        )
        figures.append((caption, _draw_precision(found, words)))
    caption = "Propensities by models that were not fitted to the samples: unlabelled upwards, labelled downwards"
    if (groups := found.histograms.domain.nunique()) > MOST_HISTOGRAMS:
        caption += f"; {MOST_HISTOGRAMS} of {groups} domains"
    figures.append((caption, _draw_histograms(found.histograms)))
    return figures


def _draw_precision(found: Diagnosis, words: str) -> "Figure":
    rows = found.left_out
    domains = rows.domain.unique()[:MOST_ROWS]
    figure = new_figure(1.5 + 0.5 * len(domains), f"{words} by strategy and domain left out", WIDTH)
    axes = figure.add_subplot()
    height = np.arange(len(domains))[::-1]
    for number, (name, mark) in enumerate(zip(STRATEGIES, MARKS, strict=True)):
        values = rows[rows.strategy == name].set_index("domain")["precision"].reindex(domains)
        y = height + 0.3 - 0.12 * number
        axes.scatter(values, y, s=24, marker=mark, color=look(number).colour, label=name, zorder=3)
    first = rows[rows.strategy == "none"].set_index("domain").reindex(domains)
    for column, style in (("predictor", "-"), ("chance", ":")):
        low, high = height - 0.36, height + 0.36
        axes.vlines(first[column], low, high, color=INK, linestyle=style, linewidth=1.6, label=column, zorder=2)
    for line in height[:-1] - 0.5:
        axes.axhline(line, color=INK, linewidth=0.4, alpha=0.5)
    axes.set_yticks(height, [short_name(name) for name in domains])
    axes.set_ylim(-0.6, len(domains) - 0.4)
    if found.task == "classification":
        axes.set_xlim(0, 1.02)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    finish(axes)
    figure.legend(loc="outside upper left", ncols=3, frameon=False, fontsize=8, labelcolor=INK, handletextpad=0.4)
    figure.supxlabel(words.lower(), color=INK, fontsize=8)
    return figure


def _draw_histograms(histograms: pd.DataFrame) -> "Figure":
    drawn = histograms.domain.unique()[:MOST_HISTOGRAMS]
    figure = new_figure(0.55 + 1.3 * len(drawn), "Propensities of labelled and unlabelled samples", WIDTH)
    panels = figure.subplots(len(drawn), 1, sharex=True, squeeze=False)[:, 0]
    for axes, domain in zip(panels, drawn, strict=True):
        names = {"unlabelled": domain, "labelled": "labelled domains"}
        _draw_mirrored(axes, histograms[histograms.domain == domain], names)
    figure.supxlabel("probability of being unlabelled", color=INK, fontsize=8)
    return figure


def _draw_mirrored(axes: "Axes", bins: pd.DataFrame, names: Mapping[Any, Any]) -> None:
    width = (bins.high - bins.low).to_numpy()
    for side, sign, colour, place, align in (
        ("unlabelled", 1, BLUE, 0.97, "top"),
        ("labelled", -1, ORANGE, 0.03, "bottom"),
    ):
        axes.bar(bins.low, sign * bins[f"share_{side}"], width, align="edge", color=colour, linewidth=0)
        words: dict[str, Any] = {
            "ha": "center",
            "va": align,
            "transform": axes.transAxes,
            "color": colour,
            "fontsize": 8,
        }
        axes.text(0.5, place, short_name(names[side]), **words)
    axes.axhline(0, color=INK, linewidth=0.8)
    axes.set_xlim(0, 1)
    axes.margins(y=0.3)
    axes.yaxis.set_major_locator(_few_ticks())
    axes.yaxis.set_major_formatter(lambda value, _: f"{abs(value):.0%}")
    finish(axes)


def _few_ticks() -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(4, symmetric=True)
