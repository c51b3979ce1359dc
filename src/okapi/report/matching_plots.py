"""Plots of a matching: love plot, propensity histograms, and the Pareto front of a grid search."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from okapi.matching import Balance, Matches, Strata, Tuning, effective_sample_size
from okapi.matching.checks import as_array
from okapi.matching.diagnostics.balance import ROUNDING, SMD_LIMIT
from okapi.matching.diagnostics.directions import memberships, name_domains, position_of
from okapi.matching.diagnostics.weights import Floats, Pairs, flatten_pairs, sum_by
from okapi.report.plots import BLUE, INK, ORANGE, finish, new_figure, short_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DEVIATIONS = {
    "pooled": "pooled deviations",
    "query": "deviations of the query domain",
    "key": "deviations of the key domain",
}


def love_plot(
    balance: Balance,
    *,
    direction: tuple[Any, Any] | Literal["all"] | None = None,
    max_covariates: int = 30,
) -> "Figure":
    """Draw the absolute standardised mean differences before and after matching.

    Parameters
    ----------
    balance : Balance
        What `okapi.matching.balance` returns.
    direction : (query domain, key domain) or "all", optional
        One of the directions in ``balance.table``; by default the first, which is the worst. There is a row for each
        covariate, from the largest difference before matching to the smallest. "all": a row for each direction
        instead, with its largest difference over the covariates and a line from there to their mean.
    max_covariates : int, default=30
        Rows drawn at most: those with the largest difference before or after.

    Returns
    -------
    matplotlib.figure.Figure
    """
    if balance.pairs.empty:
        raise ValueError("balance must hold at least one direction to plot, got none")
    if max_covariates < 1:
        raise ValueError(f"max_covariates must be at least 1, got {max_covariates}")
    if direction == "all":
        names = balance.pairs.query_domain.map(short_name) + " → " + balance.pairs.key_domain.map(short_name)
        columns = ["max_abs_smd_before", "max_abs_smd_after", "mean_abs_smd_before", "mean_abs_smd_after"]
        rows, title, what = balance.pairs[columns], "Largest and mean over the covariates", "directions"
    else:
        table, title = _one_direction(balance, direction)
        names, rows, what = table.covariate.map(short_name), table[["smd_before", "smd_after"]].abs(), "covariates"
    rows = rows.set_axis(["before", "after", "mean_before", "mean_after"][: rows.shape[1]], axis=1).set_axis(names)

    worst = rows[["before", "after"]].max(axis=1).to_numpy()
    shown = rows.iloc[np.sort(np.argsort(-worst, kind="stable")[:max_covariates])]
    shown = shown.sort_values(["before", "after"], kind="stable")
    if len(shown) < len(rows):
        title += f"\nthe worst {len(shown)} of {len(rows)} {what}"
    return _draw_love_plot(shown, title, f"|SMD|, in {_DEVIATIONS[balance.denominator]} before matching")


def _one_direction(balance: Balance, direction: tuple[Any, Any] | None) -> tuple[pd.DataFrame, str]:
    """Return the table's rows of one direction and a title that names it."""
    table = balance.table
    if table.empty:
        raise ValueError("balance must have a table to plot one direction, got max_pairs=0: use direction='all'")
    source, target = direction if direction is not None else table.loc[0, ["query_domain", "key_domain"]]
    chosen = table[(table.query_domain == source) & (table.key_domain == target)]
    if chosen.empty:
        raise ValueError(f"direction must be in balance.table or 'all', got {direction!r}")
    n_directions = len(balance.pairs)
    rank = f" (worst of {n_directions} directions)" if direction is None and n_directions > 1 else ""
    return chosen, f"{short_name(source)} → {short_name(target)}{rank}"


def _draw_love_plot(rows: pd.DataFrame, title: str, label: str) -> "Figure":
    figure = new_figure(height=1.25 + 0.19 * len(rows), label=f"Love plot: {title}")
    axes = figure.add_subplot()
    values = rows.to_numpy(dtype=float)
    finite = values[np.isfinite(values)]
    limit = 1.06 * max(finite.max(initial=0.0), 2 * SMD_LIMIT)
    place = np.minimum(values, limit)  # an infinite difference is an arrow at the right
    height = np.arange(len(rows))
    for column, when in enumerate(("before", "after")):
        colour = ORANGE if when == "before" else BLUE
        # A hollow mark on top of a filled one leaves both to be seen.
        style: dict[str, Any] = {
            "zorder": 4 if when == "before" else 3,
            "facecolors": "none" if when == "before" else colour,
            "edgecolors": colour,
        }
        infinite = np.isinf(values[:, column])
        y = height if rows.shape[1] == 2 else height + (0.16 if when == "before" else -0.16)
        if rows.shape[1] == 4:
            axes.hlines(y, place[:, column + 2], place[:, column], color=colour, linewidth=1)
        axes.scatter(place[~infinite, column], y[~infinite], s=22, linewidths=1.2, label=when, **style)
        axes.scatter(place[infinite, column], y[infinite], s=28, marker=">", **style)
    if rows.shape[1] == 2:
        axes.hlines(height, *np.sort(place, axis=1).T, color=INK, linewidth=0.6, alpha=0.6)
    axes.axvline(SMD_LIMIT, color=INK, linestyle="--", linewidth=0.9, label=str(SMD_LIMIT))
    axes.set(xlim=(-0.02 * limit, 1.02 * limit), ylim=(-0.7, len(rows) - 0.3))
    axes.set_yticks(height, list(rows.index))
    figure.supxlabel(label, color=INK, fontsize=8)
    finish(axes)
    axes.set_title(title, color=INK, fontsize=8, loc="left", pad=20)
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(-0.02, 0.995),
        ncols=3,
        frameon=False,
        fontsize=8,
        labelcolor=INK,
        handletextpad=0.3,
        columnspacing=1.2,
        borderpad=0.2,
    )
    return figure


def propensity_histograms(
    query_propensity: ArrayLike | Tensor,
    key_propensity: ArrayLike | Tensor,
    *,
    matches: Matches | Strata,
    query_domain: ArrayLike | Tensor,
    key_domain: ArrayLike | Tensor,
    fixed_caliper: float | None = None,
    scale: Literal["probability", "logit"] = "probability",
    domain_names: Sequence[Any] | Mapping[int, Any] | None = None,
    direction: tuple[int, int] | None = None,
    bins: int = 25,
    max_domains: int = 4,
) -> "Figure":
    """Draw the propensities of queries (upwards) and keys (downwards), before matching and after.

    There is a row for each domain with queries: up, its queries; down, the keys of all other domains. After matching
    a sample weighs what it weighs in the pairs drawn. Bars are shares of their side.

    Parameters
    ----------
    query_propensity, key_propensity : array or tensor of shape (n,), (m,) or (n, S), (m, S)
        One number for two domains, the probability of the one with the larger label; else a column per domain, of
        which a row of the figure shows that of its query domain.
    matches : Matches or Strata
        Pairs of rows of queries and keys; or strata of samples that are both.
    query_domain, key_domain : array or tensor of shape (n,), (m,) of integers or (n, S), (m, S) of booleans
        Domain of every sample, or its set of domains; with S columns of propensities, numbers from 0 to S - 1.
    fixed_caliper : float in [0, 1], optional
        Drawn as lines at the propensities it keeps samples between (more than two domains: below).
    scale : {"probability", "logit"}, default="probability"
        Scale of the horizontal axis; logits are of propensities clipped to [1e-6, 1 - 1e-6].
    domain_names : sequence or mapping, optional
        Name of each domain, by its number.
    direction : (int, int), optional
        Draw only queries of the first domain and keys of the second.
    bins : int, default=25
        Bars per side.
    max_domains : int, default=4
        Rows drawn at most: the domains with most queries.

    Returns
    -------
    matplotlib.figure.Figure
    """
    e_query, e_key = (
        _as_propensity(query_propensity, "query_propensity"),
        _as_propensity(key_propensity, "key_propensity"),
    )
    sizes = len(e_query), len(e_key)
    of_query, of_key, labels = memberships(query_domain, key_domain, sizes)
    _check_histograms(e_query, e_key, labels, fixed_caliper, scale, bins, max_domains)
    keyed = np.ones(sizes[1], dtype=bool)
    if direction is not None:
        of_query = of_query.only(position_of(labels, direction[0]))
        keyed = np.isin(np.arange(sizes[1]), of_key.only(position_of(labels, direction[1])).row)
    prefix = "domain " if domain_names is None else ""
    names = [prefix + short_name(name) for name in name_domains(labels, domain_names)]
    pairs = None if isinstance(matches, Strata) else flatten_pairs(matches, *sizes)

    n_queries = np.bincount(of_query.domain, minlength=len(labels))
    drawn = np.sort(np.argsort(-n_queries, kind="stable")[: min(max_domains, np.count_nonzero(n_queries))])
    if not len(drawn):
        raise ValueError("query_domain must have at least one query to plot, got none")
    x_query, x_key = _rescale(e_query, scale), _rescale(e_key, scale)
    low, high = (0.0, 1.0) if scale == "probability" else _range(x_query, x_key)
    edges = np.linspace(low, high, bins + 1)
    one_number = e_query.shape[1] == 1

    figure = new_figure(0.8 + 1.5 * len(drawn), "Propensities of queries and keys before and after matching")
    panels = figure.subplots(len(drawn), 2, sharex=True, sharey="row", squeeze=False)
    for (before, after), domain in zip(panels, drawn, strict=True):
        column = 0 if one_number else labels[domain]
        query = np.isin(np.arange(sizes[0]), of_query.row[of_query.domain == domain])
        key = keyed & ~np.isin(np.arange(sizes[1]), of_key.row[of_key.domain == domain])
        if isinstance(matches, Strata):
            matched_query, matched_key = query * matches.weights, key * matches.weights
        elif pairs is not None:
            matched_query, matched_key = _matched_weights(pairs, query, key)
        for panel, w_query, w_key in ((before, query, key), (after, matched_query, matched_key)):
            _draw_mirrored(panel, edges, x_query[:, column], w_query, x_key[:, column], w_key)
            _draw_caliper(panel, fixed_caliper, scale, n_domains=len(labels))
        others = names[1 - domain] if len(labels) == 2 else "others"
        _annotate(before, f"{names[domain]}: {query.sum():,}", f"{others}: {key.sum():,}")
        n_matched, size = np.count_nonzero(matched_query), effective_sample_size(matched_key)
        _annotate(after, f"matched: {n_matched:,}", f"effective size: {size:,.0f}")
    for panel, title in zip(panels[0], ("before matching", "after matching"), strict=True):
        panel.set_title(title, color=INK, fontsize=8, loc="left")
    notes = [f"propensity of {names[-1] if one_number else 'the upper domain'}, {scale} scale"]
    notes += ["dashed: fixed caliper"] if fixed_caliper is not None else []
    n_domains = np.count_nonzero(n_queries)
    notes += [f"{len(drawn)} of {n_domains} domains, those with most queries"] if len(drawn) < n_domains else []
    figure.supxlabel("\n".join(notes), color=INK, fontsize=8)
    return figure


def _matched_weights(pairs: Pairs, query: NDArray[np.bool_], key: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Return what queries and keys weigh in the pairs between the queries and the keys chosen."""
    used = query[pairs.query] & key[pairs.key]
    weight = pairs.weight[used]
    return sum_by(pairs.query[used], weight, len(query)), sum_by(pairs.key[used], weight, len(key))


def _draw_caliper(axes: "Axes", fixed_caliper: float | None, scale: str, n_domains: int) -> None:
    if fixed_caliper is None:
        return
    low, high = sorted((1 - fixed_caliper, fixed_caliper))
    for bound in (low, high) if n_domains == 2 else (high,):
        place = float(_rescale(np.array(bound), scale))
        axes.axvline(place, ymin=0.14, ymax=0.86, color=INK, linestyle="--", linewidth=0.9)


def _draw_mirrored(
    axes: "Axes", edges: Floats, x_query: Floats, query_weight: ArrayLike, x_key: Floats, key_weight: ArrayLike
) -> None:
    """Draw the weighted histogram of the queries upwards and that of the keys downwards, each as shares."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    sides = ((x_query, query_weight, 1, BLUE), (x_key, key_weight, -1, ORANGE))
    for x, weight, sign, colour in sides:
        mass, _ = np.histogram(x, edges, weights=np.asarray(weight, dtype=float))
        share = sign * mass / max(mass.sum(), np.finfo(float).tiny)
        axes.bar(edges[:-1], share, np.diff(edges), align="edge", color=colour, linewidth=0)
    axes.axhline(0, color=INK, linewidth=0.8)
    axes.yaxis.set_major_locator(MaxNLocator(4, symmetric=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{abs(share):.0%}"))
    axes.margins(y=0.28)
    axes.set_xlim(edges[0], edges[-1])
    finish(axes)


def _annotate(axes: "Axes", query: str, key: str) -> None:
    """Write what the upper and the lower histogram are made of into their corners."""
    for text, colour, place, align in ((query, BLUE, 0.98, "top"), (key, ORANGE, 0.02, "bottom")):
        axes.text(0.98, place, text, color=colour, fontsize=8, ha="right", va=align, transform=axes.transAxes)


def _as_propensity(values: ArrayLike | Tensor, name: str) -> Floats:
    """Return propensities as an array of shape (n, 1) or (n, S)."""
    array = as_array(values, name).astype(np.float64)
    if array.ndim not in (1, 2):
        raise ValueError(f"{name} must have shape (n,) or (n, S), got {array.shape}")
    if not ((array >= 0) & (array <= 1)).all():
        raise ValueError(f"{name} must be in [0, 1], got {array.min()} to {array.max()}")
    return array.reshape(len(array), -1)


def _check_histograms(
    e_query: Floats,
    e_key: Floats,
    labels: NDArray[Any],
    fixed_caliper: float | None,
    scale: str,
    bins: int,
    max_domains: int,
) -> None:
    if e_query.shape[1] != e_key.shape[1]:
        shapes = f"{e_query.shape} and {e_key.shape}"
        raise ValueError(f"query_propensity and key_propensity must have the same columns, got shapes {shapes}")
    if e_query.shape[1] == 1 and len(labels) > 2:
        raise ValueError(f"query_propensity must have a column per domain for {len(labels)} domains, got one number")
    if e_query.shape[1] > 1 and len(labels) and not (labels.min() >= 0 and labels.max() < e_query.shape[1]):
        wanted = f"columns of query_propensity, 0 to {e_query.shape[1] - 1}"
        raise ValueError(f"query_domain and key_domain must be {wanted}, got {labels.min()} to {labels.max()}")
    if fixed_caliper is not None and not 0 <= fixed_caliper <= 1:
        raise ValueError(f"fixed_caliper must be in [0, 1], got {fixed_caliper}")
    if scale not in ("probability", "logit"):
        raise ValueError(f"scale must be 'probability' or 'logit', got {scale!r}")
    for name, value in (("bins", bins), ("max_domains", max_domains)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")


def _rescale(propensity: Floats, scale: str) -> Floats:
    if scale == "probability":
        return propensity
    clipped = np.clip(propensity, 1e-6, 1 - 1e-6)
    return np.log(clipped) - np.log1p(-clipped)


def _range(*samples: Floats) -> tuple[float, float]:
    values = np.concatenate([sample.ravel() for sample in samples])
    low, high = float(values.min()), float(values.max())
    return (low, high) if low < high else (low - 1, high + 1)


def pareto_plot(tuning: Tuning) -> "Figure":
    """Draw mean ``|SMD|`` after matching against the retained share of queries, the Pareto front as a line.

    Combinations with every ``|SMD|`` at most 0.1 are filled; the ring is the best. Those that matched nothing are
    left out.
    """
    from matplotlib.ticker import PercentFormatter

    table = tuning.table[np.isfinite(tuning.table.mean_abs_smd)]
    figure = new_figure(3.2, "Retained queries and balance of every combination")
    axes = figure.add_subplot()
    balanced = table.max_abs_smd <= SMD_LIMIT + ROUNDING
    for rows, colour, filled, label in (
        (~balanced, ORANGE, False, "max |SMD| > 0.1"),
        (balanced, BLUE, True, "max |SMD| ≤ 0.1"),
    ):
        face = colour if filled else "none"
        style: dict[str, Any] = {"s": 20, "linewidths": 1, "edgecolors": colour, "facecolors": face, "label": label}
        axes.scatter(table.retained[rows], table.mean_abs_smd[rows], **style)
    front = table[table.pareto].sort_values("retained")
    axes.step(front.retained, front.mean_abs_smd, where="pre", color=INK, linewidth=1, zorder=1, label="Pareto front")
    best = table.head(1)
    axes.scatter(best.retained, best.mean_abs_smd, s=90, linewidths=1.2, edgecolors=INK, facecolors="none")
    if len(table):
        before = float(table.mean_abs_smd_before.iloc[0])
        axes.axhline(before, color=INK, linestyle=":", linewidth=0.9, label="before matching")
    axes.set(xlim=(-0.02, 1.02), ylim=(0, None))
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    figure.supxlabel("retained queries", color=INK, fontsize=8)
    figure.supylabel("mean |SMD| after matching", color=INK, fontsize=8)
    finish(axes)
    figure.legend(loc="outside upper left", ncols=2, frameon=False, fontsize=8, labelcolor=INK)
    return figure
