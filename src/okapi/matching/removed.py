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
    side: Side,
    sample: Tensor | None,
    exact: pd.DataFrame | None,
    matches: Matches,
    domains: Sequence[Any],
    outcome_unit: str = "",
) -> pd.DataFrame:
    """Return one row per rule in force: what is left after it, and its threshold in the scale's own unit.

    Parameters
    ----------
    calipers : Calipers
    side : Side
        Samples matched among themselves.
    sample : Tensor, optional
        As in `Calipers.admissible`.
    exact : DataFrame, optional
        Columns that must be equal within a pair.
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

    def left(rule: str, threshold: str, stage: Calipers, columns: pd.DataFrame | None) -> None:
        admissible = stage.admissible(side, side, sample=sample)
        plans = (admissible.plan(1, *part) for part in strata(admissible, columns, columns))
        pairs = sum(plan.count_pairs() for plan in plans)
        rows.append((rule, threshold, len(admissible.query_rows), len(admissible.key_rows), pairs))

    bare = replace(calipers, fixed=None, std=None, outcome=None)
    left("pairs across domains", "", bare, None)
    if calipers.fixed is not None:
        bare = replace(bare, fixed=calipers.fixed)
        left(f"fixed caliper {calipers.fixed:g}", fixed_threshold(calipers.fixed, side), bare, None)
    if exact is not None:
        left("exact " + ", ".join(map(str, exact.columns)), "equal", bare, exact)
    if calipers.std is not None:
        bare = replace(bare, std=calipers.std)
        admissible = bare.admissible(side, side, sample=sample)
        left(f"std-caliper {calipers.std:g}", std_threshold(admissible, domains), bare, exact)
    if calipers.outcome is not None:
        threshold = calipers.admissible(side, side, sample=sample).outcome_threshold
        name = calipers.outcome if isinstance(calipers.outcome, str) else f"{calipers.outcome:g}"
        left(f"outcome caliper {name}", f"distance of outcomes <= {threshold:.4g} ({outcome_unit})", calipers, exact)
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
