"""The page of a diagnosis: a verdict, its reasons, settings to paste, charts and tables in one HTML file."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import yaml
from markupsafe import Markup

from okapi.evaluation.diagnosis import CALLED, HEADLINES, STRATEGIES, Diagnosis
from okapi.numbers import decimal, share
from okapi.report.diagnosis_tables import domains_table, expected_table, left_out_table
from okapi.report.page import Drawing, Section, figures_section, page, settings_section, table_section
from okapi.report.plots import INK, finish, look, new_figure, short_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 3.3  # inches: 317 pixels, which a phone has
MOST_ROWS = 24  # domains in a chart
MARKS = ("o", "s", "^", "D")


def diagnosis_page(found: Diagnosis, source: str, settings: Mapping[str, object]) -> str:
    """Return the page as HTML that loads nothing from elsewhere: the verdict, what to do, why, and then the numbers.

    Parameters
    ----------
    found : Diagnosis
    source : str
        What the data is called.
    settings : mapping
        What the diagnosis was made with.
    """
    shown = {**settings, "k": found.k, "task": found.task, "basis": found.basis}
    shown |= {"labelled": ", ".join(found.labelled), "unlabelled": ", ".join(found.unlabelled)}
    tables = [expected_table(found), left_out_table(found), domains_table(found)]
    about = "A part of a config, to paste."
    paste = Markup('<p>{0}</p>\n<pre tabindex="0">{1}</pre>').format(found.advice, settings_yaml(found))
    items = Markup("").join(Markup("<li>{0}</li>").format(reason) for reason in found.reasons)
    reasons = Markup('<p class="lead">{0}</p>\n<ul class="reasons">{1}</ul>').format(found.headline, items)
    return page(
        title=HEADLINES[found.verdict],
        kicker=f"a diagnosis of {source} before training",
        facts=_facts(found),
        notes=found.notes,
        sections=[
            Section(title="What to do", name="paste", body=paste, about=about),
            Section(title="Why", name="reasons", body=reasons),
            *figures_section(_figures(found)),
            *(table_section(table) for table in tables if table.rows),
            settings_section(shown),
        ],
    )


def settings_yaml(found: Diagnosis) -> str:
    """Return the settings as a part of a config."""
    return str(yaml.safe_dump({"algorithm": found.settings}, sort_keys=False)).rstrip()


def _facts(found: Diagnosis) -> dict[str, object]:
    """Return the few numbers that the verdict rests on."""
    table = found.expected.set_index("strategy")
    figure = decimal if found.task == "regression" else share
    right = "skill of pairs" if found.task == "regression" else "pairs right"
    facts: dict[str, object] = {}
    if found.basis == "leave_one_domain_out":
        facts["a plain model, between labelled domains"] = figure(float(table.predictor["none"]))
        for name in dict.fromkeys(["none", found.chosen or "okapi_plus"]):
            facts[f"{right}, {CALLED[name]}"] = figure(float(table.precision[name]))
    elif found.basis == "agreement":
        for name in ("none", "centred"):
            facts[f"model and pairs agree, {CALLED[name]}"] = figure(float(table.agreement[name]))
    if found.chosen is not None:
        facts["unlabelled samples matched"] = share(float(table.match_rate[found.chosen]))
    return facts


def _figures(found: Diagnosis) -> list[Drawing]:
    if found.left_out.empty:
        return []
    words = "Skill of pairs" if found.task == "regression" else "Share of pairs of one class"
    caption = f"{words}, by strategy, for each labelled domain left out in turn; beside them a plain model and chance"
    return [(caption, _draw_precision(found, words))]


def _draw_precision(found: Diagnosis, words: str) -> "Figure":
    rows = found.left_out
    domains = rows.domain.unique()[:MOST_ROWS]
    figure = new_figure(1.5 + 0.5 * len(domains), f"{words} by strategy and domain left out", WIDTH)
    axes = figure.add_subplot()
    height = np.arange(len(domains))[::-1]
    for number, (name, mark) in enumerate(zip(STRATEGIES, MARKS, strict=True)):
        values = rows[rows.strategy == name].set_index("domain")["precision"].reindex(domains)
        y = height + 0.3 - 0.12 * number
        axes.scatter(values, y, s=24, marker=mark, color=look(number).colour, label=CALLED[name], zorder=3)
    first = rows[rows.strategy == "none"].set_index("domain").reindex(domains)
    for column, style, label in (("predictor", "-", "plain model"), ("chance", ":", "chance")):
        low, high = height - 0.36, height + 0.36
        axes.vlines(first[column], low, high, color=INK, linestyle=style, linewidth=1.6, label=label, zorder=2)
    for line in height[:-1] - 0.5:
        axes.axhline(line, color=INK, linewidth=0.4, alpha=0.5)
    axes.set_yticks(height, [short_name(name) for name in domains])
    axes.set_ylim(-0.6, len(domains) - 0.4)
    if found.task == "classification":
        axes.set_xlim(0, 1.02)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    finish(axes)
    figure.legend(loc="outside upper left", ncols=2, frameon=False, fontsize=8, labelcolor=INK, handletextpad=0.4)
    figure.supxlabel(words.lower(), color=INK, fontsize=8)
    return figure
