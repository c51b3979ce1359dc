"""The page of a matching, with balance, figures, images and pairs; and that of a search for calipers."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from okapi.matching.diagnostics.balance import SMD_LIMIT, VARIANCE_RATIO_LIMITS
from okapi.numbers import count, decimal, plain, share
from okapi.report.gallery import Query, Sample, gallery_html, within_size
from okapi.report.page import (
    MOST_ROWS,
    Drawing,
    Section,
    figures_section,
    page,
    settings_section,
    table_html,
    table_section,
)
from okapi.table import Mark, Table

MOST_IMAGES = 200  # pairs
_MEANINGS = {"bad": "a standardised mean difference (SMD) above 0.1 in size, or a variance ratio outside 0.8 to 1.25"}


def match_page(
    *,
    title: str,
    facts: Mapping[str, object],
    settings: Mapping[str, object],
    removed: pd.DataFrame,
    balance_pairs: pd.DataFrame,
    balance_table: pd.DataFrame,
    figures: Sequence[Drawing],
    pairs: pd.DataFrame,
    effect: Table | None = None,
    table_one: Table | None = None,
    thumbnails: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
    denominator: str = "",
    max_pairs: int = 2000,
) -> str:
    """Return the page of a matching as HTML that loads nothing from elsewhere.

    Parameters
    ----------
    title : str
    facts, settings : mapping
        Label to value: what came out, and what it was made with.
    removed : DataFrame
        What each rule leaves.
    balance_pairs, balance_table : DataFrame
        Balance per pair of domains and per covariate. In columns named after "smd" or "variance ratio" the values
        outside the usual rules of thumb, 0.1 and [4/5, 5/4], are marked.
    figures : sequence of (str, Figure or str)
        Caption, and a matplotlib figure or SVG.
    pairs : DataFrame
        One row per pair: ``query``, ``rank``, ``key``, ``distance``, ``query_domain``, ``key_domain`` and whatever
        else is to be shown. ``query_image`` and ``key_image`` hold paths and are shown as images, with
        ``query_target`` and ``key_target`` below them.
    effect, table_one : Table, optional
        Of a treatment: its effect, which comes first, and Table 1, in place of the balance between domains.
    thumbnails : mapping, optional
        Path to data URI, as from `thumbnails`; pairs without both images are not in the gallery.
    notes : sequence of str
        Remarks that a reader must not miss.
    denominator : str
        What the SMDs are divided by, in words.
    max_pairs : int
        Beyond this number a sample of the pairs is shown, as from `sample_pairs`, and the page says so.
    """
    about = f"SMD denominator: {denominator}." if denominator else ""
    flow = _table("removed", "Flow of samples: what each rule leaves", removed)
    balance = _table("balance-pairs", "Balance between domains", balance_pairs, about)
    covariates = _table("balance-covariates", "Balance of covariates", balance_table, about)
    tables = [*([effect] if effect else []), flow, table_one or balance]
    sections = [table_section(table) for table in tables if table.rows]
    sections += figures_section(figures)
    sections += [table_section(covariates)] if covariates.rows else []
    sections += [*_gallery(pairs, thumbnails or {}), _pairs(pairs, max_pairs)]
    sections.append(settings_section(settings))
    kicker = "matching for an effect" if table_one else "matching across domains"
    return page(title=title, kicker=kicker, facts=facts, notes=notes, sections=sections)


def tune_page(
    *,
    title: str,
    facts: Mapping[str, object],
    settings: Mapping[str, object],
    combinations: pd.DataFrame,
    figures: Sequence[Drawing],
    notes: Sequence[str] = (),
) -> str:
    """Return the page of a grid search as HTML that loads nothing from elsewhere.

    Parameters
    ----------
    title, facts, settings, figures, notes
        As in `match_page`.
    combinations : DataFrame
        One row per combination of settings, the best first.
    """
    table = _table("combinations", "Combinations, the best first", combinations, worst_first=False)
    sections = [table_section(table), *figures_section(figures), settings_section(settings)]
    return page(title=title, kicker="choosing the calipers", facts=facts, notes=notes, sections=sections)


def sample_pairs(pairs: pd.DataFrame, limit: int, seed: int = 0) -> pd.DataFrame:
    """Return at most ``limit`` pairs, all of a query or none, in the order given.

    A third comes from the queries with the nearest key, a third from those with the farthest, the rest at random.
    The same pairs give the same sample.
    """
    if len(pairs) <= limit:
        return pairs
    by_query = pairs.groupby("query", sort=False)["distance"]
    size = by_query.size()
    orders = [
        by_query.min().sort_values(kind="stable").index,
        by_query.max().sort_values(kind="stable", ascending=False).index,
        size.index[np.random.default_rng(seed).permutation(len(size))],
    ]
    chosen: list[Any] = []
    room = limit
    for left, order in zip((3, 2, 1), orders, strict=True):
        fresh = order[~order.isin(chosen)]
        taken = fresh[size[fresh].cumsum().to_numpy() <= room // left]
        chosen.extend(taken)
        room -= int(size[taken].sum())
    return pairs[pairs["query"].isin(chosen)]


def label(name: str) -> str:
    """Return a column's name as a heading: max_abs_smd is max |SMD|."""
    words = re.sub(r"\b(smd|ks|ess)\b", lambda match: match[0].upper(), name.replace("_", " "))
    return re.sub(r"\babs SMD\b", "|SMD|", words)


def rule_of(name: str) -> Literal["smd", "variance ratio"] | None:
    """Return which rule of thumb the values of a column are held to."""
    words = re.sub(r"[\W_]+", " ", name.lower())
    if re.search(r"\bshare\b", words):  # of the covariates within a rule
        return None
    if re.search(r"\bsmd\b|standardi[sz]ed mean difference", words):
        return "smd"
    return "variance ratio" if re.search(r"\bvr\b|variance ratio", words) else None


def _mark(name: str, value: Any) -> Mark:
    rule = rule_of(name) if isinstance(value, float) and not np.isnan(value) else None
    low, high = VARIANCE_RATIO_LIMITS if rule == "variance ratio" else (-SMD_LIMIT, SMD_LIMIT)
    return "bad" if rule is not None and not low <= value <= high else ""


def _table(name: str, title: str, frame: pd.DataFrame, caption: str = "", worst_first: bool = True) -> Table:
    frame = frame if isinstance(frame.index, pd.RangeIndex) else frame.reset_index()
    numbers = [str(column) for column in frame if pd.api.types.is_float_dtype(frame[column])]
    ruled = {column: rule for column in numbers if (rule := rule_of(column))}
    formats = {column: share for column in numbers if re.search(r"(^|_)share(_|$)", column)}
    formats |= {column: "{:.4g}".format for column in numbers if column.startswith("mean_") and column not in ruled}
    smd = [column for column, rule in ruled.items() if rule == "smd"]
    if worst_first and smd and len(frame) > MOST_ROWS:
        frame = frame.iloc[np.argsort(-frame[smd[-1]].abs().to_numpy(), kind="stable")]
    return Table.from_frame(
        frame,
        formats=formats | dict.fromkeys(ruled, decimal),
        mark=_mark,
        label=label,
        title=title,
        name=name,
        caption=caption,
        meanings=_MEANINGS,
    )


def _pairs(pairs: pd.DataFrame, limit: int) -> Section:
    if "distance" not in pairs:  # strata
        table = Table.from_frame(pairs, formats={"sample": str}, label=label, title="Matched samples", name="pairs")
        return Section(title="Matched samples", name="pairs", body=table_html(table, most=min(len(pairs), limit)))
    shown = sample_pairs(pairs, limit)
    about = (
        f"{count(len(shown))} of {count(len(pairs))} pairs are shown: a third from the queries with the nearest key, a "
        "third from those with the farthest, the others drawn at random."
    )
    frame = shown.drop(columns=["query_image", "key_image"], errors="ignore")
    formats = dict.fromkeys(("query", "key"), str)  # ids
    table = Table.from_frame(frame, formats=formats, label=label, title="Pairs", name="pairs")
    body = table_html(table, most=len(shown))
    return Section(title="Pairs", name="pairs", body=body, about=about if len(shown) < len(pairs) else "")


def _gallery(pairs: pd.DataFrame, images: Mapping[str, str]) -> list[Section]:
    """Return each query with its keys, as many as the page has room for."""
    if not images or not {"query_image", "key_image"} <= set(pairs):
        return []
    with_images = pairs[pairs["query_image"].astype(str).isin(images) & pairs["key_image"].astype(str).isin(images)]
    queries = []
    for _, group in sample_pairs(with_images, MOST_IMAGES).groupby("query", sort=False):
        rows = group.to_dict("records")
        keys = [_sample(row, "key", images, distance=float(row["distance"])) for row in rows]
        queries.append(Query(sample=_sample(rows[0], "query", images), keys=keys))
    shown = within_size(queries)
    n_shown, noun = sum(len(query.keys) for query in shown), "query" if len(shown) == 1 else "queries"
    about = f"{count(len(shown))} {noun}, each with its keys, nearest first"
    about += f": {n_shown} of {count(len(pairs))} pairs." if n_shown < len(pairs) else "."
    return [Section(title="Images of pairs", name="gallery", body=gallery_html(shown), about=about)] if shown else []


def _sample(row: Mapping[Any, Any], side: str, images: Mapping[str, str], distance: float | None = None) -> Sample:
    target = row.get(f"{side}_target")
    return Sample(
        name=str(row[side]),
        domain=str(row.get(f"{side}_domain", "")),
        label=None if target is None or pd.isna(target) else plain(target),
        image=images[str(row[f"{side}_image"])],
        distance=distance,
    )
