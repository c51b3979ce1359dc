"""The page of a matching: facts, balance, figures, pictures and pairs in one self-contained HTML file."""

import base64
import io
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from os import PathLike
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup
from PIL import Image, ImageOps, UnidentifiedImageError

from okapi.report.rendering import NOTHING, SVG, as_text, asset, environment, inline_svg, script_hash
from okapi.report.terminal import share

SMD_RULE = 0.1
VARIANCE_RATIO_RULE = (4 / 5, 5 / 4)
_MOST_ROWS = 300  # of a table other than that of the pairs
_MOST_PICTURED = 200  # pairs
_PICTURE_BYTES = 2_500_000
_SAFE_INTEGER = 2**53 - 1  # beyond it JavaScript rounds


def match_page(
    *,
    title: str,
    facts: Mapping[str, object],
    settings: Mapping[str, object],
    removed: pd.DataFrame,
    balance_pairs: pd.DataFrame,
    balance_table: pd.DataFrame,
    figures: Sequence[tuple[str, str]],
    pairs: pd.DataFrame,
    thumbnails: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
    denominator: str = "",
    max_pairs: int = 5000,
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
    figures : sequence of (str, str)
        Caption and SVG. Greys follow the reader's light or dark theme, other colours stay.
    pairs : DataFrame
        One row per pair: ``query``, ``rank``, ``key``, ``distance``, ``query_domain``, ``key_domain`` and whatever
        else is to be shown. ``query_image`` and ``key_image`` hold paths and are shown as pictures, with
        ``query_target`` and ``key_target`` below them.
    thumbnails : mapping, optional
        Path to data URI, as from `thumbnails`; pairs without both pictures are not in the gallery.
    notes : sequence of str
        Remarks that a reader must not miss.
    denominator : str
        What the SMDs are divided by, in words.
    max_pairs : int
        Beyond this number a sample of the pairs is shown, as from `sample_pairs`, and the page says so.
    """
    shown = sample_pairs(pairs, max_pairs)
    script = asset("match.js")
    gallery, pictured = _gallery(pairs, thumbnails or {})
    return environment().get_template("match.html.jinja").render(
        title=title,
        kicker="matching across domains",
        facts={label: as_text(value) for label, value in facts.items()},
        settings={label: as_text(value) for label, value in settings.items()},
        tables=[
            _table("removed", "What each rule leaves", removed),
            _table("balance-pairs", "Balance between domains", balance_pairs) | {"denominator": denominator},
            _table("balance-covariates", "Balance of covariates", balance_table) | {"denominator": denominator},
        ],
        figures=[(caption, inline_svg(svg, f"figure-{i}", caption)) for i, (caption, svg) in enumerate(figures)],
        gallery=gallery,
        pictured=pictured,
        pairs=_pairs_data(shown.drop(columns=["query_image", "key_image"], errors="ignore")),
        n_shown=len(shown),
        n_pairs=len(pairs),
        notes=notes,
        script=Markup(script),
        script_hash=script_hash(script),
        style=Markup(asset("match.css")),
    )  # fmt: skip


def tune_page(
    *,
    title: str,
    facts: Mapping[str, object],
    settings: Mapping[str, object],
    combinations: pd.DataFrame,
    figures: Sequence[tuple[str, str]],
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
    table = _table("combinations", "Combinations, the best first", combinations, worst=False)
    return environment().get_template("base.html.jinja").render(
        title=title,
        kicker="choosing the calipers",
        facts={label: as_text(value) for label, value in facts.items()},
        settings={label: as_text(value) for label, value in settings.items()},
        tables=[table],
        figures=[(caption, inline_svg(svg, f"figure-{i}", caption)) for i, (caption, svg) in enumerate(figures)],
        notes=notes,
        style=Markup(asset("match.css")),
    )  # fmt: skip


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


def thumbnails(paths: Iterable[str | PathLike[str]], size: int = 96) -> dict[str, str]:
    """Return a small picture of each image file as a data URI, by path.

    Parameters
    ----------
    paths : iterable of paths
        Anything that Pillow opens. Images of more than 8 bits are stretched from their darkest to their brightest
        pixel. A file that cannot be shown gives a placeholder that says why.
    size : int
        Longest side in pixels.
    """
    return {str(path): _thumbnail(str(path), size) for path in paths}


def _thumbnail(path: str, size: int) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as image:
                image.draft(None, (2 * size, 2 * size))  # JPEG decodes a smaller image sooner
                small = eight_bit(ImageOps.exif_transpose(image))
        return data_uri(small, size)
    except FileNotFoundError:
        return placeholder("file not found", size)
    except Exception as error:  # a picture is never worth the page: Pillow's readers raise almost anything
        reason = "not an image" if isinstance(error, UnidentifiedImageError) else str(error)
        return placeholder(reason or type(error).__name__, size)


def data_uri(image: Image.Image, size: int) -> str:
    """Return an RGB image as a data URI, its longest side at most ``size`` pixels."""
    small = image.copy()
    small.thumbnail((size, size))
    file = io.BytesIO()
    small.save(file, "WEBP", quality=75)
    return f"data:image/webp;base64,{base64.b64encode(file.getvalue()).decode()}"


def eight_bit(image: Image.Image) -> Image.Image:
    """Return an RGB image; what shines through is white."""
    if image.mode.startswith(("I", "F")):
        values = np.nan_to_num(np.asarray(image, dtype=np.float64))
        low, high = values.min(), values.max()
        image = Image.fromarray(((values - low) * (255 / max(high - low, 1e-12))).astype(np.uint8))
    if image.has_transparency_data:
        solid = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", solid.size, "white"), solid)
    return image.convert("RGB")


def placeholder(reason: str, size: int) -> str:
    """Return a picture that says why there is none, as a data URI."""
    words = re.findall(r"\S{1,14}", reason)[:6]
    lines = "".join(f'<tspan x="50%" dy="1.2em">{escape(word)}</tspan>' for word in words)
    top = 50 - 6 * len(words) - 3
    svg = (
        f'<svg xmlns="{SVG}" width="{size}" height="{size}" viewBox="0 0 96 96"><rect width="96" height="96" '
        f'fill="#8884"/><text y="{top}%" fill="#888" text-anchor="middle" font-size="11" '
        f'font-family="sans-serif">{lines}</text></svg>'
    )
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


def _label(name: object) -> str:
    words = re.sub(r"\b(smd|ks|ess)\b", lambda found: found[0].upper(), str(name).replace("_", " "))
    return re.sub(r"\babs SMD\b", "|SMD|", words)


def _header(frame: pd.DataFrame) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the headings of a table, and below those of neighbours "before" and "after" just these words."""
    groups: list[dict[str, Any]] = []
    below: list[str] = []
    names = list(map(str, frame))
    waiting = zip(names, [*names, ""][1:], frame.dtypes, strict=True)
    for name, following, kind in waiting:
        numeric = pd.api.types.is_numeric_dtype(kind)
        stem = name.removesuffix("_before")
        if stem != name and following == f"{stem}_after":
            groups.append({"label": _label(stem), "numeric": numeric, "span": 2})
            below += ["before", "after"]
            next(waiting)
        else:
            groups.append({"label": _label(name), "numeric": numeric, "span": 1})
    return groups, below


def _decimals(values: pd.Series) -> int | None:
    """Return the decimals, two or more, that give a column's largest number four digits; None for whole numbers."""
    if not pd.api.types.is_float_dtype(values):
        return None
    largest = values.abs().replace(np.inf, np.nan).max()
    return int(np.clip(3 - np.floor(np.log10(largest)), 2, 8)) if largest > 0 else 2


def _table(anchor: str, title: str, frame: pd.DataFrame, *, worst: bool = True) -> dict[str, Any]:
    """Return a frame as cells (text, class); of a long one, the rows furthest from balance, or the first."""
    frame = frame if isinstance(frame.index, pd.RangeIndex) else frame.reset_index()
    rules = [_rule(str(name)) if pd.api.types.is_float_dtype(frame[name]) else None for name in frame]
    n_rows = len(frame)
    if n_rows > _MOST_ROWS:
        smd = [name for name, rule in zip(frame, rules, strict=True) if rule == "smd" and worst]
        frame = frame.loc[frame[smd[-1]].abs().nlargest(_MOST_ROWS).index] if smd else frame.head(_MOST_ROWS)
    columns = [_cells(frame[name], rule) for name, rule in zip(frame, rules, strict=True)]
    groups, below = _header(frame)
    return {
        "id": anchor,
        "title": title,
        "groups": groups,
        "below": below,
        "rows": list(zip(*columns, strict=True)),
        "n_rows": n_rows,
        "worst": worst and "smd" in rules,
        "ruled": any(rules),
    }


def _rule(name: str) -> str | None:
    words = re.sub(r"[\W_]+", " ", name.lower())
    if re.search(r"\bshare\b", words):  # of the covariates within a rule
        return None
    if re.search(r"\bsmd\b|standardi[sz]ed mean difference", words):
        return "smd"
    return "variance ratio" if re.search(r"\bvr\b|variance ratio", words) else None


def _cells(values: pd.Series, rule: str | None) -> list[tuple[str, str]]:
    decimals = _decimals(values) if rule is None else 3  # as the terminal prints them
    if decimals is None:
        kind = "number" if pd.api.types.is_numeric_dtype(values) else ""
        return [(NOTHING if pd.isna(value) else as_text(value) if kind else str(value), kind) for value in values]
    if re.search(r"(^|_)share(_|$)", str(values.name)):
        return [(share(value), "number") for value in values]
    low, high = VARIANCE_RATIO_RULE if rule == "variance ratio" else (-SMD_RULE, SMD_RULE)
    cells = []
    for value in values:
        text = f"{value:.{decimals}f}".replace("-", "\N{MINUS SIGN}") if np.isfinite(value) else NOTHING
        mark = "" if rule is None or np.isnan(value) else " within" if low <= value <= high else " over"
        cells.append((text, f"number{mark}"))
    return cells


def _pairs_data(pairs: pd.DataFrame) -> dict[str, Any]:
    """Return the pairs column by column, as JSON can hold them."""
    columns = []
    for name in pairs:
        values = pairs[name]
        whole = pd.api.types.is_integer_dtype(values) and bool(values.between(-_SAFE_INTEGER, _SAFE_INTEGER).all())
        numeric = whole or pd.api.types.is_float_dtype(values)
        cells = values.astype(object).where(values.notna() & ~values.isin([np.inf, -np.inf]), None)
        columns.append(
            {
                "name": str(name),
                "label": _label(name),
                "numeric": numeric,
                "decimals": _decimals(values),
                "values": cells.tolist() if numeric else [None if cell is None else str(cell) for cell in cells],
            }
        )
    return {"rows": len(pairs), "columns": columns}


def _gallery(pairs: pd.DataFrame, pictures: Mapping[str, str]) -> tuple[list[dict[str, Any]], int]:
    """Return each query with its keys, as many as the page has room for, and the number of pairs."""
    if not pictures or not {"query_image", "key_image"} <= set(pairs):
        return [], 0
    pairs = pairs.assign(**{name: pairs[name].astype(str) for name in ("query_image", "key_image")})
    pairs = pairs[pairs["query_image"].isin(pictures.keys()) & pairs["key_image"].isin(pictures.keys())]
    pairs = sample_pairs(pairs, _MOST_PICTURED).copy()
    pairs["distance"] = [text for text, _ in _cells(pairs["distance"].astype(float), None)]
    gallery: list[dict[str, Any]] = []
    shown = used = 0
    for _, group in pairs.groupby("query", sort=False):
        first = group.iloc[0]
        images = [pictures[first["query_image"]], *(pictures[path] for path in group["key_image"])]
        used += sum(map(len, images))
        if used > _PICTURE_BYTES:
            break
        keys = [
            {**_about(row, "key"), "image": image, "distance": row["distance"]}
            for (_, row), image in zip(group.iterrows(), images[1:], strict=True)
        ]
        gallery.append({**_about(first, "query"), "image": images[0], "keys": keys})
        shown += len(group)
    return gallery, shown


def _about(row: pd.Series, side: str) -> dict[str, Any]:
    """Return what stands below the picture of a query or a key; no target where it is not known."""
    target = row.get(f"{side}_target")
    known = target is not None and not pd.isna(target)
    return {
        "name": row[side],
        "domain": row.get(f"{side}_domain"),
        "target": as_text(target) if known else None,
    }
