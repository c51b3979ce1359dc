"""A matching in tables and as a report."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

import okapi
from okapi.data import Table as Samples
from okapi.matching import (
    Balance,
    CaliperMatcher,
    Effect,
    Matches,
    MatchPrecision,
    SeparableDomainsWarning,
    Strata,
    e_value,
)
from okapi.matching.diagnostics.balance import DENOMINATORS, SMD_LIMIT, VARIANCE_RATIO_LIMITS
from okapi.matching.diagnostics.sensitivity import explained_by
from okapi.numbers import count, decimal, plural, share
from okapi.report.gallery import thumbnails
from okapi.report.match_page import match_page, sample_pairs
from okapi.report.matching_plots import love_plot, propensity_histograms
from okapi.report.page import Drawing
from okapi.table import Cell, Column, Table

MOST_SHOWN = 200  # pairs with images
_WHEN = ("before", "after")
_COUNTS = ["queries", "keys", "matched_queries", "matched_keys", "ess_keys"]
_PRECISION = {
    "precision": "equal_targets",
    "difference": "target_difference",
    "difference_sd": "in_deviations",
    "chance": "by_chance",
    "chance_sd": "in_deviations_by_chance",
}


@dataclass(frozen=True, eq=False)
class Matching:
    """Samples, the matcher that was fitted to them, its matches, and what to know about them.

    Parameters
    ----------
    table : okapi.data.Table
    matcher : CaliperMatcher
    matches : Matches
    quantity : bool
        Whether the targets are numbers rather than classes.
    notes : sequence of str
    """

    table: Samples
    matcher: CaliperMatcher
    matches: Matches | Strata
    quantity: bool = False
    notes: Sequence[str] = ()

    @cached_property
    def balance(self) -> Balance:
        """Balance between domains before and after matching."""
        return self.matcher.balance(self.matches)

    @cached_property
    def removed(self) -> pd.DataFrame:
        """What each rule leaves."""
        return self.matcher.removed(self.matches)

    @cached_property
    def precision(self) -> MatchPrecision | None:
        """How far the targets of pairs agree; None without targets or pairs."""
        if self.table.target is None or not isinstance(self.matches, Matches) or not len(self.matches):
            return None
        kind: Any = "regression" if self.quantity else "classification"
        return self.matcher.precision(self.table.target, self.matches, kind=kind)

    @cached_property
    def effect(self) -> Effect | None:
        """The effect on the outcome; None without an outcome or pairs."""
        if self.table.outcome is None or not len(self.matches):
            return None
        return self.matcher.effect(self.table.outcome, self.matches)

    def pairs(self) -> pd.DataFrame:
        """Return the matches with domains, and targets and images where the table has them; strata as they are."""
        if isinstance(self.matches, Strata):
            return self.matcher.to_frame(self.matches)
        rows = self.matches.to_frame()
        frame = self.matcher.to_frame(self.matches)
        columns = {"domain": self.table.domain, "target": self.table.target, "image": self.table.images}
        for side in ("query", "key"):
            for name, values in columns.items():
                if values is not None:
                    frame[f"{side}_{name}"] = values[rows[side]]
        return frame


def effect_lines(matching: Matching) -> list[str]:
    """Return the effect in words: the estimate, its standard error and interval, and how many were matched."""
    effect, matcher = matching.effect, matching.matcher
    if effect is None:
        return []
    treated, of = matcher.domains_[1], {"att": "treated", "atc": "controls", "ate": "units"}[matcher.estimand_]
    control = matcher.domains_[0]
    lines = [
        f"Effect, {treated} minus {control} ({matcher.estimand_.upper()}, {effect.kind}): {effect.estimate:.4g}, "
        f"standard error {effect.standard_error:.4g}, 95 % interval {effect.ci_low:.4g} to {effect.ci_high:.4g}; "
        f"{count(effect.n_matched)} of {count(effect.n)} {of} matched"
    ]
    if effect.ratio is not None:
        name, estimate, low, high = effect.ratio
        lines.append(f"{name[:1].upper()}{name[1:]}: {estimate:.3f}, 95 % interval {low:.3f} to {high:.3f}")
    if effect.n_missing:
        lines.append(f"Left out because the outcome is missing: {plural(effect.n_missing, 'matched unit')}")
    return lines


def matched_by(matching: Matching) -> str:
    """Return what was matched to what, and by which distance, in words."""
    matcher = matching.matcher
    control, treated = (str(name) for name in matcher.domains_[:2])
    what = {
        "att": f"the treated ({treated}) are matched to controls ({control})",
        "atc": f"controls ({control}) are matched to the treated ({treated})",
        "ate": f"treated ({treated}) and controls ({control}) are matched to each other",
        "both": f"{plural(len(matcher.domains_), 'domain')}, each matched to all others",
    }[matcher.estimand_]
    method = "" if matcher.method == "nearest" else f"; method: {matcher.method}"
    if matcher.method in ("exact", "cem", "subclass"):
        return f"Matching: {what}{method}"
    chosen = "" if matcher.distance else ", the default here"
    return f"Matching: {what}{method}; distance: {matcher.distance_}{chosen}"


def removed_table(matching: Matching) -> Table:
    """Return what each rule leaves."""
    return Table.from_frame(matching.removed, title="What each rule leaves")


def balance_tables(matching: Matching) -> tuple[Table, Table]:
    """Return the balance between domains, and of covariates; the worst first."""
    balance = matching.balance
    low, high = VARIANCE_RATIO_LIMITS
    domains = Table(
        title="Balance between domains before and after matching, the worst first",
        columns=[
            "query → key",
            Column("queries", str),
            Column("keys", str),
            *(Column(when, decimal, f"{name} |SMD|") for name in ("max", "mean") for when in _WHEN),
            Column("VR ok", share),
        ],
        rows=[
            [
                _direction(row),
                f"{row['matched_queries']:,} of {row['queries']:,}",
                f"{row['matched_keys']:,} of {row['keys']:,}",
                *(row[f"{name}_abs_smd_{when}"] for name in ("max", "mean") for when in _WHEN),
                row["variance_ratio_share_after"],
            ]
            for row in balance.pairs.to_dict("records")
        ],
    )
    table = balance.table[balance.table.smd_after.notna()]
    table = table.iloc[(-table.smd_after.abs()).argsort(kind="stable")]
    general = "{:.4g}".format
    covariates = Table(
        title="Covariates furthest from balance",
        columns=[
            "covariate",
            "query → key",
            *(Column(side, general, "mean after") for side in ("query", "key")),
            *(Column(when, decimal, name) for name in ("SMD", "VR") for when in _WHEN),
        ],
        rows=[
            [
                str(row["covariate"]),
                _direction(row),
                *(row[f"mean_{side}_after"] for side in ("query", "key")),
                *(row[f"{name}_{when}"] for name in ("smd", "variance_ratio") for when in _WHEN),
            ]
            for row in table.to_dict("records")
        ],
        details=[
            f"SMD denominator: {DENOMINATORS[balance.denominator]}.",
            f"VR: variance ratio, query to key. Ok are a VR from {low:g} to {high:g} and an |SMD| up to {SMD_LIMIT}.",
        ],
    )
    return domains, covariates


def precision_table(precision: MatchPrecision) -> Table:
    """Return how far the targets of pairs agree, direction by direction, the worst first."""
    regression = precision.kind == "regression"
    if regression:
        columns = [Column("|difference|", "{:.4g}".format), Column("in SD", decimal), Column("by chance", decimal)]
        names, title = ["difference", "difference_sd", "chance_sd"], "Mean difference of the targets of pairs"
    else:
        columns = [Column("equal", share), Column("by chance", share)]
        names, title = ["precision", "chance"], "Pairs with equal targets"
    order = -precision.table.difference_sd if regression else precision.table.precision
    rows = precision.table.iloc[order.argsort(kind="stable")].to_dict("records")
    return Table(
        name="precision",
        title=f"{title}, and of random pairs of the same domains, the worst first",
        columns=["query → key", Column("pairs", count), *columns],
        rows=[[_direction(row), row["pairs"], *(row[name] for name in names)] for row in rows],
    )


def _direction(row: Any) -> str:
    return f"{row['query_domain']} → {row['key_domain']}"


def summary(matching: Matching) -> dict[str, str]:
    """Return the few metrics that sum a matching up, by label."""
    metrics = matching.balance.summary()
    first, last = matching.removed.iloc[0], matching.removed.iloc[-1]
    n_matched = matching.matcher.n_matched(matching.matches)
    effective = matching.matcher.effective_sample_size(matching.matches)
    facts = {
        "Queries matched": f"{count(n_matched)} of {count(first['queries'])}, {share(n_matched / first['queries'])}",
        "Effective number of keys": f"{count(effective)}, of {count(last['keys'])} distinct keys in use and "
        f"{count(first['keys'])} in all",
    }
    for label, name in (("Largest |SMD|", "max_abs_smd"), ("Mean |SMD|", "mean_abs_smd")):
        before, after = decimal(metrics[f"{name}_before"]), decimal(metrics[f"{name}_after"])
        facts[label] = f"{before} before matching, {after} after"
    return facts | target_agreement(matching.precision)


def target_agreement(precision: MatchPrecision | None) -> dict[str, str]:
    """Return how far the targets of pairs agree: the share of equal classes, or the mean difference of quantities."""
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
    pairs, balance = matching.pairs(), matching.balance
    images = None
    if matching.table.images is not None:
        shown = sample_pairs(pairs, MOST_SHOWN)
        images = thumbnails(dict.fromkeys([*shown.query_image, *shown.key_image]))
        # A query is shown with all of its keys or not at all, so others must not meet the images by chance.
        pairs.loc[~pairs.index.isin(shown.index), ["query_image", "key_image"]] = ""
        images.pop("", None)
    metrics = balance.summary()
    before, after = (decimal(metrics[f"max_abs_smd_{when}"]) for when in _WHEN)
    matcher, n_queries = matching.matcher, matching.removed.queries.iloc[0]
    matched = matcher.n_matched(matching.matches)
    facts = {
        **_effect_facts(matching),
        "samples": len(matching.table),
        **({} if matcher.treatment_ else {"domains": len(matcher.domains_)}),
        "matched": f"{count(matched)} of {count(n_queries)}, {share(matched / n_queries)}",
        "effective keys": round(matcher.effective_sample_size(matching.matches)),
        "max |SMD|, before → after": f"{before} → {after}",
    }
    means = [str(name) for name in balance.table if str(name).startswith("mean_")]
    return match_page(
        title=title,
        facts=facts,
        settings=report_settings(matching.table, matching.matcher),
        removed=flow(matching),
        balance_pairs=_last(_with_precision(balance.pairs, matching.precision), _COUNTS),
        balance_table=_last(balance.table.drop(columns="denominator"), means),
        figures=_figures(matching),
        effect=effect_table(matching),
        table_one=table_one(matching) if matcher.treatment_ else None,
        pairs=pairs,
        thumbnails=images,
        denominator=DENOMINATORS[balance.denominator],
        notes=[
            matched_by(matching) + ".",
            *matching.notes,
            *(f"{label}: {value}" for label, value in target_agreement(matching.precision).items()),
        ],
    )


def _effect_facts(matching: Matching) -> dict[str, object]:
    effect = matching.effect
    if effect is None:
        return {}
    return {
        f"{effect.kind}, {matching.matcher.estimand_.upper()}": f"{effect.estimate:.4g}",
        "95 % interval": f"{effect.ci_low:.4g} to {effect.ci_high:.4g}",
    }


def effect_table(matching: Matching) -> Table | None:
    """Return the effect, what it rests on, and how strong hidden bias would have to be to explain it."""
    effect, matcher, outcome = matching.effect, matching.matcher, matching.table.outcome
    if effect is None or outcome is None:
        return None
    control, treated = (str(name) for name in matcher.domains_)
    rows = [
        [f"{effect.kind}, {treated} minus {control}", f"{effect.estimate:.4g}"],
        ["95 % interval", f"{effect.ci_low:.4g} to {effect.ci_high:.4g}"],
        ["standard error", f"{effect.standard_error:.4g}, clustered by {effect.clusters}"],
        ["p-value of no difference", f"{effect.p_value:.3g}"],
        [f"mean outcome, {treated} and {control}", f"{effect.treated_mean:.4g} and {effect.control_mean:.4g}"],
    ]
    if effect.ratio is not None:
        name, estimate, low, high = effect.ratio
        rows.append([f"{name}, 95 % interval", f"{estimate:.3f}, {low:.3f} to {high:.3f}"])
    counted = f"{count(effect.n_matched)} of {count(effect.n)}"
    rows.append(["matched", f"{counted}; {count(effect.n_treated)} treated and {count(effect.n_controls)} controls"])
    if effect.n_missing:
        rows.append(["left out, outcome missing", plural(effect.n_missing, "matched unit")])
    if effect.outcome_sd:
        rows.append(["E-value of the estimate and of its interval", "{:.2f} and {:.2f}".format(*e_value(effect))])
    if (
        isinstance(matching.matches, Matches)
        and matching.matches.k == 1
        and matcher.weights(matching.matches).max() == 1
    ):
        bounds = matcher.rosenbaum_bounds(outcome, matching.matches)
        rows.append(["hidden bias that could explain it (Rosenbaum's gamma)", _bias(explained_by(bounds))])
    title = f"Effect of the treatment ({matcher.estimand_.upper()})"
    return Table(title=title, name="effect", columns=["what", "value"], rows=rows)


def _bias(gamma: float) -> str:
    if gamma == 1:
        return "none is needed: the pairs do not differ significantly"
    return f"{gamma:g} or more" if np.isfinite(gamma) else "more than 6"


def _short(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


def flow(matching: Matching) -> pd.DataFrame:
    """Return what each rule leaves, and of a treatment how many units it removed."""
    left = matching.removed
    if not matching.matcher.treatment_:
        return left
    sides = {"att": ("treated", "controls"), "atc": ("controls", "treated"), "ate": ("units", "partners")}
    names = dict(zip(("queries", "keys"), sides[matching.matcher.estimand_], strict=True))
    lost = {f"{name}_removed": -left[side].diff().fillna(0).astype(int) for side, name in names.items()}
    return left.rename(columns=names).assign(**lost)


def table_one(matching: Matching) -> Table:
    """Return Table 1: treated and controls before and after matching."""
    frame = matching.matcher.table_one(matching.matches)
    names = [f"{side} ({name})" for side, name in zip(("control", "treated"), matching.matcher.domains_, strict=True)]
    rows = []
    for number, row in enumerate(frame.to_dict("records")):
        cells: list[Any] = [row["covariate"]]
        for when in _WHEN:
            for side in ("treated", "control"):
                mean, deviation = row[f"mean_{side}_{when}"], row[f"sd_{side}_{when}"]
                spread = share(mean) if np.isnan(deviation) else f"{_short(mean)} ({_short(deviation)})"
                cells.append(count(mean) if number == 0 else spread)
            smd = row[f"smd_{when}"]
            cells.append(Cell(smd, "bad" if abs(smd) > SMD_LIMIT else ""))
        rows.append(cells)
    columns = [
        Column(name, kind, when)
        for when in _WHEN
        for name, kind in ((names[1], str), (names[0], str), ("SMD", decimal))
    ]
    caption = f"Mean (SD) or share. SMD denominator: {DENOMINATORS['pooled']}."
    meanings = {"bad": f"a standardised mean difference (SMD) above {SMD_LIMIT} in size"}
    title = "Table 1: covariates before and after matching"
    return Table(
        title=title, name="table-one", caption=caption, columns=["covariate", *columns], rows=rows, meanings=meanings
    )


def _last(frame: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Return a frame with some columns behind the others."""
    return frame[[*(name for name in frame if name not in names), *names]]


def _with_precision(pairs: pd.DataFrame, precision: MatchPrecision | None) -> pd.DataFrame:
    """Return the balance between domains with how far the targets of their pairs agree."""
    if precision is None:
        return pairs
    domains = ["query_domain", "key_domain"]
    words = dict.fromkeys(domains, str)
    metrics = precision.table.drop(columns=["pairs", "unknown"]).rename(columns=_PRECISION)
    return pairs.astype(words).merge(metrics.astype(words), how="left", on=domains)


def report_settings(table: Samples, matcher: CaliperMatcher) -> dict[str, object]:
    """Return the settings of a matching that its report lists."""
    settings = {name.replace("_", " "): value for name, value in matcher.get_params(deep=False).items()}
    settings["exact"] = ", ".join(map(str, matcher.exact)) if matcher.exact else None
    settings["propensity"] = "given" if table.propensity is not None else "logistic regression"
    return {"file": str(table.path), "covariates": len(table.names), **settings, "Okapi": okapi.__version__}


def _figures(matching: Matching) -> list[Drawing]:
    balance, matcher = matching.balance, matching.matcher
    figures: list[Drawing] = [("Standardised mean differences in the worst direction", love_plot(balance))]
    if len(balance.pairs) > 2:
        figures.append(("Standardised mean differences of all directions", love_plot(balance, direction="all")))
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
    return [*figures, ("Propensities before and after matching", histograms)]
