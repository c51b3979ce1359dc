"""What each rule of a matching left: queries, keys and pairs, step by step."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from okapi.matching.calipers import Admissible, Calipers, fixed_bounds
from okapi.matching.checks import Side
from okapi.matching.matches import Matches, Strata


def removed(
    calipers: Calipers,
    query: Side,
    key: Side,
    matches: Matches,
    domains: Sequence[Any],
    exact: Sequence[Any] = (),
    prognosis_unit: str = "",
) -> pd.DataFrame:
    """Return one row per rule in force: what is left after it, and its threshold in the scale's unit.

    Parameters
    ----------
    calipers : Calipers
    query, key : Side
    matches : Matches
    domains : sequence
        Names of the domains.
    exact : sequence
        Names of the columns whose codes must be equal within a pair.
    prognosis_unit : str
        What the prognostic caliper counts, in words.

    Returns
    -------
    DataFrame
        ``rule``, ``threshold``, ``queries``, ``keys``, ``pairs``; the last row is what was matched.
    """
    rows = []
    further = [("anti_exact", "values that must differ"), ("covariates", "calipers on covariates")]

    def left(stage: Calipers, *, equal: bool = True) -> tuple[Admissible, tuple[int, int, int]]:
        sides = query, key
        if not equal:
            none: dict[str, Any] = dict.fromkeys(("exact", *(name for name, _ in further)))
            sides = query._replace(**none), key._replace(**none)
        admissible = stage.admissible(*sides)
        pairs = sum(admissible.plan(1, *stratum).count_pairs() for stratum in admissible.strata())
        return admissible, (len(admissible.query_rows), len(admissible.key_rows), pairs)

    stage = replace(calipers, fixed=None, std=None, prognostic=None)
    rows.append(("pairs across domains", "", *left(stage, equal=False)[1]))
    if calipers.fixed is not None:
        stage = replace(stage, fixed=calipers.fixed)
        threshold = _fixed_threshold(calipers.fixed, key)
        rows.append((f"fixed caliper {calipers.fixed:g}", threshold, *left(stage, equal=False)[1]))
    if exact:
        rows.append(("exact " + ", ".join(map(str, exact)), "equal", *left(stage)[1]))
    for name, rule in further:
        if getattr(query, name) is not None:
            rows.append((rule, "", *left(stage)[1]))
    if calipers.std is not None:
        stage = replace(stage, std=calipers.std)
        admissible, counts = left(stage)
        rows.append((f"std-caliper {calipers.std:g}", _std_threshold(admissible, domains), *counts))
    if calipers.prognostic is not None:
        admissible, counts = left(calipers)
        name = calipers.prognostic if isinstance(calipers.prognostic, str) else f"{calipers.prognostic:g}"
        threshold = f"distance of prognoses <= {admissible.prognostic_threshold:.4g} ({prognosis_unit})"
        rows.append((f"prognostic caliper {name}", threshold, *counts))
    n_keys = len(torch.unique(matches.key[matches.key >= 0]))
    rows.append((f"matched, k = {matches.k}", "", len(matches), n_keys, int((matches.key >= 0).sum())))
    return pd.DataFrame(rows, columns=["rule", "threshold", "queries", "keys", "pairs"])


def removed_by_strata(method: str, strata: Strata, focal: NDArray[np.bool_], everybody: bool) -> pd.DataFrame:
    """Return what a method of strata left, as `removed` does; ``everybody``: queries are keys, too."""
    others = focal if everybody else ~focal
    inside = strata.subclass >= 0
    rows = []
    for rule, left in (("all samples", np.ones_like(inside)), (f"matched by {method}", inside)):
        code = strata.subclass[left & inside]
        counts = [np.bincount(code[side[left & inside]], minlength=1) for side in (focal, others)]
        pairs = int(focal.sum()) * int(others.sum()) if rule == "all samples" else int(np.dot(*_same_length(*counts)))
        rows.append((rule, "", int((left & focal).sum()), int((left & others).sum()), pairs))
    return pd.DataFrame(rows, columns=["rule", "threshold", "queries", "keys", "pairs"])


def _same_length(*counts: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    size = max(map(len, counts))
    return [np.pad(count, (0, size - len(count))) for count in counts]


def _fixed_threshold(fixed: float, side: Side) -> str:
    """Return the fixed caliper in words."""
    low, high = fixed_bounds(fixed)
    if side.domain.ndim == 2:
        return f"{low:g} < every score < {high:g}"
    two = side.propensity is not None and side.propensity.ndim == 1
    return f"{low:g} < propensity < {high:g}" if two else f"largest propensity < {high:g}"


def _std_threshold(admissible: Admissible, domains: Sequence[Any]) -> str:
    """Return the std-caliper as differences of propensity, per direction where there are two domains."""
    scale = admissible.calipers.scale
    if admissible.multi_label:
        return f"distance <= {float(admissible.multi_label_threshold):.4g} ({scale})"
    if admissible.query_score.ndim == 1:
        of = {pair: f"{float(value):.4g}" for pair, value in admissible.window_threshold.items()}
        wanted = [admissible.calipers.direction] if admissible.calipers.direction else list(of)
        named = [f"{of[a, b]} for {domains[a]} → {domains[b]}" for a, b in wanted]
        return f"difference <= {', '.join(named)} ({scale})"
    limits = admissible.score_caliper.of_query
    return f"difference <= {float(limits.min()):.4g} to {float(limits.max()):.4g} ({scale})"
