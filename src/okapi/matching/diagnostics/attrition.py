"""What each rule of a matching left: queries, keys and pairs, step by step."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import torch

from okapi.matching.calipers import Admissible, Calipers, fixed_bounds
from okapi.matching.checks import Side
from okapi.matching.matches import Matches


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

    def left(stage: Calipers, *, equal: bool = True) -> tuple[Admissible, tuple[int, int, int]]:
        sides = (query, key) if equal else (query._replace(exact=None), key._replace(exact=None))
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
