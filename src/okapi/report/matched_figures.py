"""Figures of a run's matches: propensities at several temperatures, and the love plot."""

from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from okapi.report.matched import Encoded, Matched
from okapi.report.matching_plots import love_plot
from okapi.report.plots import BLUE, INK, ORANGE, finish, new_figure, to_svg
from okapi.report.rendering import inline_svg

TEMPERATURES = (0.5, 1.0, 2.0)
MOST_DIMENSIONS = 20
_BINS = 30


def matched_figures(encoded: Encoded, matched: Matched) -> list[tuple[str, Markup]]:
    """Return captions and figures: propensities by temperature, and balance before and after matching."""
    figures = [(_about_propensity(matched), _draw_temperatures(encoded, matched))]
    if matched.balance is not None:
        caption = (
            "Balance of the encodings, the largest differences: standardised mean differences (SMD) before and after "
            "matching, in pooled deviations before matching. Up to 0.1 is balanced by the usual rule"
        )
        figures.append((caption, to_svg(love_plot(matched.balance, max_covariates=MOST_DIMENSIONS))))
    return [(caption, inline_svg(svg, f"matched-{i}", caption)) for i, (caption, svg) in enumerate(figures)]


def kept(score: NDArray[Any], caliper: float | None) -> NDArray[np.bool_]:
    """Return which samples a fixed caliper keeps; scores are (n,) of two domains, or (n, S)."""
    if caliper is None:
        return np.ones(len(score), dtype=bool)
    low, high = sorted((1 - caliper, caliper))
    return np.asarray((low < score) & (score < high) if score.ndim == 1 else score.max(1) < high)


def _about_propensity(matched: Matched) -> str:
    two = len(matched.domain_names) == 2 and matched.domain.ndim == 1
    what = f"probability of {matched.domain_names[1]}" if two else "probability of the likeliest domain"
    text = f"Propensity, the {what} given the encoding by logistic regression, at several temperatures"
    if matched.domain.ndim == 1 and matched.propensity is not None:
        text += f"; it tells the domains apart with a balanced accuracy of {matched.propensity.balanced_accuracy_:.1%}"
    caliper = matched.settings.fixed_caliper
    return text + (f". Dashed: the fixed caliper {caliper:g}" if caliper is not None else "")


def _draw_temperatures(encoded: Encoded, matched: Matched) -> str:
    """Draw a histogram for each temperature, the run's own among them, which is marked."""
    assert matched.propensity is not None
    own, caliper = float(matched.temperature), matched.settings.fixed_caliper
    temperatures = sorted({*TEMPERATURES, own})
    unit, two = encoded.encodings[matched.pool], len(matched.domain_names) == 2 and matched.domain.ndim == 1
    figure = new_figure(0.6 + 1.15 * len(temperatures), _about_propensity(matched))
    panels = figure.subplots(len(temperatures), 1, sharex=True, squeeze=False)[:, 0]
    for axes, temperature in zip(panels, temperatures, strict=True):
        score = _scores(matched, unit, temperature)
        for chosen, colour, label in _groups(matched, two):
            values = score[chosen] if score.ndim == 1 else score[chosen].max(1)
            weights = np.full(len(values), 1 / max(1, len(values)))
            axes.hist(values, np.linspace(0, 1, _BINS + 1), weights=weights, color=colour, alpha=0.65, label=label)
        if caliper is not None:
            for bound in sorted((1 - caliper, caliper))[0 if two else 1 :]:
                axes.axvline(bound, color=INK, linestyle="--", linewidth=0.9)
        mine = " (the run’s)" if temperature == own else ""
        axes.set_title(f"τ = {temperature:g}{mine}", color=INK, fontsize=8, loc="left")
        share = f"{kept(score, caliper).mean():.0%} inside the caliper" if caliper is not None else ""
        axes.set_title(share, color=INK, fontsize=8, loc="right")
        axes.set_xlim(0, 1)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        axes.locator_params(axis="y", nbins=3)
        finish(axes)
    panels[-1].set_xlabel("propensity", color=INK, fontsize=8)
    if two:
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper left", ncols=2, frameon=False, fontsize=8, labelcolor=INK)
    return to_svg(figure)


def _groups(matched: Matched, two: bool) -> list[tuple[NDArray[np.bool_], str, str]]:
    """Return who is drawn in which colour, and what they are called."""
    if not two:
        return [(np.ones(len(matched.pool), dtype=bool), BLUE, "")]
    names = [name[:24].replace("$", r"\$") for name in matched.domain_names]
    return [(matched.domain == number, colour, names[number]) for number, colour in enumerate((BLUE, ORANGE))]


def _scores(matched: Matched, unit: NDArray[np.float32], temperature: float) -> NDArray[Any]:
    propensity = matched.propensity
    assert propensity is not None
    for one in propensity.of_label_ or [propensity]:
        one.temperature = temperature
    scores = propensity.scores(unit)
    for one in propensity.of_label_ or [propensity]:
        one.temperature = matched.temperature
    return scores
