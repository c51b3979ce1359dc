"""What each rule of a matching left: queries, keys and pairs, step by step."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from okapi.matching.calipers import Admissible, Calipers, Side
from okapi.matching.matches import Matches


def removed(
    calipers: Calipers,
    query: tuple[Side, pd.DataFrame | None],
    key: tuple[Side, pd.DataFrame | None],
    sample: Tensor | None,
    matches: Matches,
    domains: Sequence[Any],
    outcome_unit: str = "",
) -> pd.DataFrame:
    """Return one row per rule in force: what is left after it, and its threshold in the scale's own unit.

    Parameters
    ----------
    calipers : Calipers
    query, key : (Side, DataFrame or None)
        Queries and keys, and their columns that must be equal within a pair.
    sample : Tensor, optional
        As in `Calipers.admissible`.
    matches : Matches
    domains : sequence
        Names of the domains.
    outcome_unit : str
        What the prognostic caliper counts, in words.

    Returns
    -------
    DataFrame
        ``rule``, ``threshold``, ``queries``, ``keys``, ``pairs``; the last row is what was matched.
    """
    rows = []
    (query_side, exact), (key_side, key_exact) = query, key

    def left(rule: str, threshold: str, stage: Calipers, *, equal: bool) -> None:
        admissible = stage.admissible(query_side, key_side, sample=sample)
        parts = strata(admissible, exact, key_exact) if equal else strata(admissible, None, None)
        plans = (admissible.plan(1, *part) for part in parts)
        pairs = sum(plan.count_pairs() for plan in plans)
        rows.append((rule, threshold, len(admissible.query_rows), len(admissible.key_rows), pairs))

    bare = replace(calipers, fixed=None, std=None, outcome=None)
    left("pairs across domains", "", bare, equal=False)
    if calipers.fixed is not None:
        bare = replace(bare, fixed=calipers.fixed)
        left(f"fixed caliper {calipers.fixed:g}", fixed_threshold(calipers.fixed, key_side), bare, equal=False)
    if exact is not None:
        left("exact " + ", ".join(map(str, exact.columns)), "equal", bare, equal=True)
    if calipers.std is not None:
        bare = replace(bare, std=calipers.std)
        admissible = bare.admissible(query_side, key_side, sample=sample)
        left(f"std-caliper {calipers.std:g}", std_threshold(admissible, domains), bare, equal=True)
    if calipers.outcome is not None:
        threshold = calipers.admissible(query_side, key_side, sample=sample).outcome_threshold
        name = calipers.outcome if isinstance(calipers.outcome, str) else f"{calipers.outcome:g}"
        distance = f"distance of outcomes <= {threshold:.4g} ({outcome_unit})"
        left(f"outcome caliper {name}", distance, calipers, equal=True)
    n_keys = len(torch.unique(matches.key[matches.key >= 0]))
    rows.append((f"matched, k = {matches.k}", "", len(matches), n_keys, int((matches.key >= 0).sum())))
    return pd.DataFrame(rows, columns=["rule", "threshold", "queries", "keys", "pairs"])


def strata(
    admissible: Admissible, query_exact: pd.DataFrame | None, key_exact: pd.DataFrame | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the admissible rows of queries and of keys that agree in the exact columns."""
    if query_exact is None or key_exact is None:
        yield admissible.query_rows, admissible.key_rows
        return
    both = pd.concat([query_exact, key_exact], ignore_index=True)
    stratum = torch.tensor(both.groupby(list(both.columns), dropna=False).ngroup().to_numpy())
    of_query, of_key = stratum[: len(query_exact)], stratum[len(query_exact) :]
    of_query, of_key = of_query[admissible.query_rows], of_key[admissible.key_rows]
    for one in torch.unique(stratum):
        yield admissible.query_rows[of_query == one], admissible.key_rows[of_key == one]


def fixed_threshold(fixed: float, side: Side) -> str:
    """Return the fixed caliper in words."""
    low, high = sorted((round(1 - fixed, 12), fixed))
    two = side.propensity is not None and side.propensity.ndim == 1
    if side.domain.ndim == 2:
        return f"{low:g} < every score < {high:g}"
    return f"{low:g} < propensity < {high:g}" if two else f"largest propensity < {high:g}"


def std_threshold(admissible: Admissible, domains: Sequence[Any]) -> str:
    """Return the std-caliper as differences of propensity, per direction where there are two domains."""
    scale = admissible.calipers.scale
    if admissible.sets:
        return f"distance <= {float(admissible.set_threshold):.4g} ({scale})"
    if admissible.query_score.ndim == 1:
        of = {pair: f"{float(value):.4g}" for pair, value in admissible.window_threshold.items()}
        wanted = [admissible.calipers.direction] if admissible.calipers.direction else list(of)
        named = [f"{of[a, b]} for {domains[a]} → {domains[b]}" for a, b in wanted]
        return f"difference <= {', '.join(named)} ({scale})"
    limits = admissible.score_caliper.of_query
    return f"difference <= {float(limits.min()):.4g} to {float(limits.max()):.4g} ({scale})"
