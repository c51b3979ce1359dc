"""From a file to matches, what is printed about them, and their report."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rich.console import Console
from rich.text import Text

import okapi
from okapi.console import stdout, working
from okapi.data import Table
from okapi.data.io import write_files
from okapi.matching import Balance, CaliperMatcher, Matches, MatchPrecision, SeparableDomainsWarning
from okapi.matching.diagnostics.balance import DENOMINATORS, SMD_LIMIT, VARIANCE_RATIO_LIMITS
from okapi.matching.diagnostics.precision import TargetKind
from okapi.messages import as_options
from okapi.report.matching_plots import love_plot, propensity_histograms
from okapi.report.page import match_page, sample_pairs, thumbnails
from okapi.report.plots import to_svg
from okapi.report.table_file import (
    as_sentence,
    check_matching_memory,
    check_outcome_columns,
    check_outputs,
    check_roles,
    covariates_of,
    is_quantity,
    missing_images,
    print_read,
    read_with_outcome,
)
from okapi.report.terminal import count, decimal, print_files, print_notes, print_table, share

MOST_DIRECTIONS = 10  # printed; a report shows them all
MOST_COVARIATES = 8
MOST_SHOWN = 200  # pairs


@dataclass(frozen=True, eq=False)
class Matching:
    """A table, the matcher fitted to it, and what came out; ``precision`` where there are targets."""

    table: Table
    matcher: CaliperMatcher
    matches: Matches
    balance: Balance
    removed: pd.DataFrame
    precision: MatchPrecision | None
    notes: tuple[str, ...]

    @property
    def n_queries(self) -> int:
        """Number of samples that could have been matched."""
        return int(self.removed.queries.iloc[0])

    @property
    def n_keys(self) -> int:
        """Number of samples that they could have been matched to."""
        return int(self.removed["keys"].iloc[0])

    def pairs(self) -> pd.DataFrame:
        """Return the matches with domains, and targets and images where the table has them."""
        rows = self.matches.to_frame()
        frame = self.matcher.to_frame(self.matches)
        for side in ("query", "key"):
            frame[f"{side}_domain"] = self.table.domain[rows[side]]
            if self.table.target is not None:
                frame[f"{side}_target"] = self.table.target[rows[side]]
            if self.table.images is not None:
                frame[f"{side}_image"] = self.table.images[rows[side]]
        return frame


def match_file(
    path: Path,
    matcher: CaliperMatcher,
    *,
    out: Path | None = None,
    report: Path | None = None,
    outcome: Sequence[str] = (),
    **roles: Any,
) -> None:
    """Read a table, match it, print what came out and write the matches and the report.

    Settings and paths are checked before the table is read; nothing is written before all is done.

    Parameters
    ----------
    path : Path
    matcher : CaliperMatcher
    out, report : Path, optional
        Files for the matches and the report.
    outcome : sequence of str
        Columns that the outcome caliper compares.
    **roles
        Columns, as `okapi.data.read_table` takes them.
    """
    check_outputs(path, out, report)
    matcher.check_settings()
    check_outcome_columns(matcher, outcome, roles.get("columns"))
    with working(f"Reading {path}") as now:
        table, outcomes = read_with_outcome(path, outcome, **roles)
        check_roles(table, matcher)
        check_matching_memory(table, matcher, page=report is not None)
        table.check_finite()
        now(f"Matching {len(table):,} samples")
        matching = match_table(table, matcher, outcomes)
        matching = replace(matching, notes=(*matching.notes, *missing_images(table)))
        if report is not None:
            now("Making the report")
            html = matching_report(matching, title=f"Matches of {path.name}")
    print_matching(stdout(), matching)
    frames = {} if out is None else {out: matcher.to_frame(matching.matches)}
    write_files(frames | ({} if report is None else {report: html}))
    print_files(stdout(), {"Matches": out, "Report": report})


def match_table(table: Table, matcher: CaliperMatcher, outcome: NDArray[Any] | None = None) -> Matching:
    """Fit the matcher to the table and match; what it warns of becomes notes."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SeparableDomainsWarning)
        matcher.fit(covariates_of(table), table.domain, propensity_scores=table.propensity, outcome=outcome)
    notes = [as_sentence(str(warning.message).splitlines()[0]) for warning in caught]
    matches = matcher.match()
    if matcher.centre:
        notes.append("Vectors were centred by the mean of their domain before the distance; balance is of the columns.")
    if not len(matches):
        notes.append("Nothing was matched: no query has as many admissible keys as k asks for.")
    precision = None
    if table.target is not None and len(matches):
        kind: TargetKind = "regression" if is_quantity(table.target) else "classification"
        precision = matcher.precision(table.target, matches, kind=kind)
    balance, removed = matcher.balance(matches), matcher.removed(matches)
    return Matching(table, matcher, matches, balance, removed, precision, tuple(notes))


def print_matching(console: Console, matching: Matching) -> None:
    """Print what was read, what each rule left, and how well the domains are balanced."""
    print_read(console, matching.table)
    print_notes(console, in_options(matching.notes))
    removed = matching.removed.to_dict("records")
    print_table(
        console,
        "What each rule leaves",
        ["rule", "threshold", "queries", "keys", "pairs"],
        [
            [row["rule"], row["threshold"], *(count(row[side]) for side in ("queries", "keys", "pairs"))]
            for row in removed
        ],
        words=["rule", "threshold"],
    )
    _print_balance(console, matching.balance)
    if matching.precision is not None:
        _print_precision(console, matching.precision)
    console.print()
    for label, value in summary(matching).items():
        console.print(Text(f"{label}: {value}"), soft_wrap=not console.is_terminal)


def in_options(notes: Sequence[str]) -> list[str]:
    """Call settings of the matcher in notes by their options."""
    options = {name: f"--{name.replace('_', '-')}" for name in CaliperMatcher().get_params() if "_" in name}
    return [as_options(note, options) for note in notes]


def _print_balance(console: Console, balance: Balance) -> None:
    pairs = balance.pairs
    rows = [
        [
            f"{row['query_domain']} → {row['key_domain']}",
            f"{row['matched_queries']:,} of {row['queries']:,}",
            f"{row['matched_keys']:,} of {row['keys']:,}",
            *(_change(row, f"{name}_abs_smd") for name in ("max", "mean")),
            share(row["variance_ratio_share_after"]),
        ]
        for row in pairs.head(MOST_DIRECTIONS).to_dict("records")
    ]
    columns = ["query → key", "queries", "keys", "max |SMD|", "mean |SMD|", "VR ok"]
    print_table(
        console, "Balance between domains before → after matching, the worst first", columns, rows, words=columns[:1]
    )
    _say_more(console, len(pairs) - len(rows))

    table = balance.table[balance.table.smd_after.notna()]
    table = table.iloc[np.argsort(-table.smd_after.abs().to_numpy(), kind="stable")]
    rows = [
        [
            str(row["covariate"]),
            f"{row['query_domain']} → {row['key_domain']}",
            f"{row['mean_query_after']:.4g}",
            f"{row['mean_key_after']:.4g}",
            _change(row, "smd"),
            _change(row, "variance_ratio"),
        ]
        for row in table.head(MOST_COVARIATES).to_dict("records")
    ]
    if rows:
        columns = ["covariate", "query → key", "query mean", "key mean", "SMD", "VR"]
        title = "Covariates furthest from balance, SMD and VR before → after matching, means after"
        print_table(console, title, columns, rows, words=columns[:2])
        _say_more(console, len(table) - len(rows))
    console.print()
    console.print(Text(f"SMD denominator: {DENOMINATORS[balance.denominator]}."))
    low, high = VARIANCE_RATIO_LIMITS
    rules = f"Ok are a VR from {low:g} to {high:g} and an |SMD| up to {SMD_LIMIT}."
    console.print(Text(f"VR: variance ratio, query to key. {rules}"))


def _print_precision(console: Console, precision: MatchPrecision) -> None:
    """Print how far the targets of pairs agree, direction by direction."""
    quantity = precision.kind == "regression"
    order = precision.table.difference_sd * -1 if quantity else precision.table.precision
    table = precision.table.iloc[np.argsort(order.to_numpy(), kind="stable")]
    metrics = ["|difference|", "in SD"] if quantity else ["equal"]
    columns = ["query → key", "pairs", *metrics, "by chance"]

    def cells(row: Mapping[Any, Any]) -> list[str]:
        if quantity:
            return [f"{row['difference']:.4g}", decimal(row["difference_sd"]), decimal(row["chance_sd"])]
        return [share(row["precision"]), share(row["chance"])]

    rows = [
        [f"{row['query_domain']} → {row['key_domain']}", count(row["pairs"]), *cells(row)]
        for row in table.head(MOST_DIRECTIONS).to_dict("records")
    ]
    title = "Mean difference of the targets of pairs" if quantity else "Pairs with equal targets"
    print_table(
        console, f"{title}, and of random pairs of the same domains, the worst first", columns, rows, words=columns[:1]
    )
    _say_more(console, len(table) - len(rows))


def _change(row: Mapping[Any, Any], name: str) -> str:
    before, after = decimal(row[f"{name}_before"]), decimal(row[f"{name}_after"])
    return before if before == after == decimal(np.nan) else f"{before} → {after}"


def _say_more(console: Console, more: int) -> None:
    if more > 0:
        console.print(Text(f"and {more:,} more, which --report lists"))


def summary(matching: Matching) -> dict[str, str]:
    """Return the few metrics that sum a matching up, by label."""
    metrics = matching.balance.summary()
    n_matched, n_queries = len(matching.matches), matching.n_queries
    n_distinct = int(matching.removed["keys"].iloc[-1])
    facts = {
        "Queries matched": f"{count(n_matched)} of {count(n_queries)}, {share(n_matched / n_queries)}",
        "Effective number of keys": f"{count(matching.matcher.effective_sample_size(matching.matches))}, "
        f"of {count(n_distinct)} distinct keys in use and {count(matching.n_keys)} in all",
        "Largest |SMD|": f"{decimal(metrics['max_abs_smd_before'])} before matching, "
        f"{decimal(metrics['max_abs_smd_after'])} after",
        "Mean |SMD|": f"{decimal(metrics['mean_abs_smd_before'])} before matching, "
        f"{decimal(metrics['mean_abs_smd_after'])} after",
    }
    return facts | target_agreement(matching)


def target_agreement(matching: Matching) -> dict[str, str]:
    """Return how far the targets of pairs agree: the share of equal classes, or the mean difference of quantities."""
    precision = matching.precision
    if precision is None:
        return {}
    metrics = precision.overall
    if not metrics["pairs"]:
        return {"Targets": "no pair has both"}
    of_pairs = f" of the {count(metrics['pairs'])} pairs where both are known" if metrics["unknown"] else ""
    if precision.kind == "regression":
        value = f"{metrics['difference']:.4g}, {metrics['difference_sd']:.2f} standard deviations{of_pairs}"
        chance = f"{metrics['chance']:.4g}, {metrics['chance_sd']:.2f} by chance"
        return {"Mean difference of the target in pairs": f"{value}; {chance}"}
    chance = f"{share(metrics['chance'])} by chance"
    return {"Pairs with equal targets": f"{share(metrics['precision'])}{of_pairs}; {chance}"}


def matching_report(matching: Matching, *, title: str) -> str:
    """Return the report of a matching, as HTML."""
    pairs = matching.pairs()
    images = None
    if matching.table.images is not None:
        shown = sample_pairs(pairs, MOST_SHOWN)
        images = thumbnails(dict.fromkeys([*shown.query_image, *shown.key_image]))
        # A query is shown with all of its keys or not at all, so others must not meet the images by chance.
        pairs.loc[~pairs.index.isin(shown.index), ["query_image", "key_image"]] = ""
        images.pop("", None)
    metrics = matching.balance.summary()
    facts = {
        "samples": len(matching.table),
        "domains": len(matching.matcher.domains_),
        "queries matched": share(len(matching.matches) / matching.n_queries),
        "pairs": len(pairs),
        "effective keys": round(matching.matcher.effective_sample_size(matching.matches)),
        "max |SMD|, before → after": _change(metrics, "max_abs_smd"),
    }
    return match_page(
        title=title,
        facts=facts,
        settings=report_settings(matching.table, matching.matcher),
        removed=matching.removed,
        balance_pairs=_with_precision(_verdict_of_pairs_first(matching.balance.pairs), matching.precision),
        balance_table=_verdict_first(matching.balance.table),
        figures=_figures(matching),
        pairs=pairs,
        thumbnails=images,
        denominator=DENOMINATORS[matching.balance.denominator],
        notes=[*matching.notes, *(f"{label}: {value}" for label, value in target_agreement(matching).items())],
    )


def _verdict_first(table: pd.DataFrame) -> pd.DataFrame:
    """Return the balance of covariates with the means, which differ in unit, behind what they come to.

    The denominator is the same in all rows and stands above them.
    """
    means = [name for name in table if str(name).startswith("mean_")]
    return table[[*(name for name in table if name not in [*means, "denominator"]), *means]]


def _verdict_of_pairs_first(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return the balance between domains with the counts behind the SMDs and the shares within a rule."""
    metrics = ("max_abs_smd", "mean_abs_smd", "smd_share", "variance_ratio_share")
    verdict = [f"{metric}_{when}" for metric in metrics for when in ("before", "after")]
    first = ["query_domain", "key_domain", *verdict]
    return pairs[[*first, *(name for name in pairs if name not in first)]]


def _with_precision(pairs: pd.DataFrame, precision: MatchPrecision | None) -> pd.DataFrame:
    """Return the balance between domains with how far the targets of their pairs agree, behind the verdict."""
    if precision is None:
        return pairs
    chosen = {"precision": "equal_targets", "difference": "target_difference", "difference_sd": "in_deviations"}
    chosen |= {"chance": "by_chance", "chance_sd": "in_deviations_by_chance"}
    metrics = precision.table.rename(columns=chosen).drop(columns=["pairs", "unknown"])
    names = pairs[["query_domain", "key_domain"]].astype(str)
    merged = names.merge(metrics, how="left", on=["query_domain", "key_domain"]).iloc[:, 2:]
    first = 6  # the domains and the verdict
    both: pd.DataFrame = pd.concat([pairs.iloc[:, :first], merged, pairs.iloc[:, first:]], axis=1)
    return both


def report_settings(table: Table, matcher: CaliperMatcher) -> dict[str, object]:
    """Return the settings of a matching that its report lists."""
    settings = {name.replace("_", " "): value for name, value in matcher.get_params(deep=False).items()}
    settings["exact"] = ", ".join(map(str, matcher.exact)) if matcher.exact else None
    settings["propensity"] = "given" if table.propensity is not None else "logistic regression"
    return {"file": str(table.path), "covariates": len(table.names), **settings, "Okapi": okapi.__version__}


def _figures(matching: Matching) -> list[tuple[str, str]]:
    balance, matcher = matching.balance, matching.matcher
    figures = [("Standardised mean differences in the worst direction", to_svg(love_plot(balance)))]
    if len(balance.pairs) > 2:
        figures.append(("Standardised mean differences of all directions", to_svg(love_plot(balance, direction="all"))))
    with warnings.catch_warnings():  # estimated only now if no caliper is on, and then nobody needs advice on calipers
        warnings.simplefilter("ignore", SeparableDomainsWarning)
        propensity = matcher.propensity_
    histograms = propensity_histograms(
        propensity,
        propensity,
        matches=matching.matches,
        query_domain=matcher.domain_,
        key_domain=matcher.domain_,
        fixed_caliper=matcher.fixed_caliper,
        scale="logit" if matcher.caliper_scale == "logit" else "probability",
        domain_names=list(matcher.domains_),
        direction=matcher.direction,
    )
    figures.append(("Propensities before and after matching", to_svg(histograms)))
    return figures
