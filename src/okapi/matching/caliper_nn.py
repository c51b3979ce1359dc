"""CaliperNN: nearest neighbours across domains, inside calipers on propensity and prognostic scores."""

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from okapi.matching.calipers import Admissible, Calipers
from okapi.matching.checks import (
    ArrayLike,
    check_choice,
    check_count,
    check_flag,
    check_side,
    check_sides_agree,
    check_vectors,
    check_whole,
)
from okapi.matching.greedy import ORDERS, Turns, match_without_replacement
from okapi.matching.matches import Matches
from okapi.matching.optimal import match_optimally
from okapi.matching.search import nearest


def caliper_nn(
    queries: ArrayLike,
    keys: ArrayLike,
    *,
    query_domain: ArrayLike,
    key_domain: ArrayLike,
    query_propensity: ArrayLike | None = None,
    key_propensity: ArrayLike | None = None,
    k: int | ArrayLike = 1,
    fixed_caliper: float | None = None,
    std_caliper: float | None = None,
    caliper_scale: str = "probability",
    caliper_sd: str = "pooled",
    two_way: bool = True,
    direction: tuple[int, int] | None = None,
    query_prognosis: ArrayLike | None = None,
    key_prognosis: ArrayLike | None = None,
    prognostic_caliper: float | Literal["auto"] | None = None,
    query_exact: ArrayLike | None = None,
    key_exact: ArrayLike | None = None,
    query_covariates: ArrayLike | None = None,
    key_covariates: ArrayLike | None = None,
    query_anti_exact: ArrayLike | None = None,
    key_anti_exact: ArrayLike | None = None,
    replace: bool = True,
    order: str | None = None,
    max_uses: int = 1,
    random_state: int = 0,
    allow_fewer: bool = False,
) -> Matches:
    """Match every query to its k nearest keys of other domains.

    A query is matched only if k keys are admissible to it: keys of another domain, both samples inside the fixed
    caliper, their propensities within the std-caliper of each other, their outcomes within the prognostic caliper,
    their exact codes equal. Exact, ties to the lower row.

    Parameters
    ----------
    queries : tensor or array of shape (n, d)
    keys : tensor or array of shape (m, d)
        float16, float32 or float64, on any device.
    query_domain, key_domain : tensor or array of shape (n,), integers; or (n, S), booleans
        The domain of each sample, or its several domain labels. Pairs of one domain, or that share a label,
        are not admissible.
    query_propensity, key_propensity : tensor or array of shape (n,) or (n, S), optional
        Two domains 0 and 1: the probability of domain 1, shape (n,). More: that of each domain, shape (n, S). Sets of
        labels: the score of each label, shape (n, S). Needed by the calipers and the order "largest" only.
    k : int or, without replacement, array of shape (n,), integers, default=1
        Keys per query.
    fixed_caliper : float in [0, 1], not 0.5, optional
        Leave out samples whose propensity is not inside ``(1 - t, t)``; with more than two domains, whose greatest
        propensity is not below ``max(t, 1 - t)``. 1.0 keeps all.
    std_caliper : float > 0, optional
        Greatest difference of the propensities in a pair, in standard deviations.
    caliper_scale : {"probability", "logit"}, default="probability"
        The scale on which the std-caliper compares propensities.
    caliper_sd : {"pooled", "all"}, default="pooled"
        The standard deviation that the std-caliper counts in: pooled over the admissible queries and keys of the two
        domains, or that of all keys, as in MatchIt, where every sample is a key.
    two_way : bool, default=True
        Whether the fixed caliper leaves out keys as well as queries.
    direction : (int, int), optional
        Match only queries of the first domain with keys of the second.
    query_prognosis, key_prognosis : tensor or array of shape (n,) or (n, c), optional
        What is known or predicted of each sample's outcome: class probabilities, or one or several numbers, of a scale
        on which they can be compared. Needed by the prognostic caliper only.
    prognostic_caliper : float >= 0 or "auto", optional
        The prognostic caliper: greatest Euclidean distance of the outcomes in a pair. Automatic: a third of their
        standard deviation, which is ``sqrt((v_q + v_k) / 2)`` of the sums v of the columns' variances among admissible
        queries and keys.
    query_exact, key_exact : tensor or array of shape (n,), integers, optional
        Codes that must be equal within a pair.
    query_covariates, key_covariates : tensor or array of shape (n, c), optional
        Covariates with a caliper of their own, divided by it: within a pair each differs by at most 1.
    query_anti_exact, key_anti_exact : tensor or array of shape (n, a), integers, optional
        Codes that must differ within a pair, column by column.
    replace : bool, default=True
        Whether a key may be matched to any number of queries. False: queries choose in turn, see ``order``, and
        ``max_uses`` of one domain share a key.
    order : {"largest", "smallest", "closest", "random", "data", "optimal"}, optional
        Who chooses first without replacement: the query with the largest or smallest propensity of its domain, that of
        the closest pair, a random one, or the first row. By default "largest" with propensities, else "data", as in
        MatchIt. "optimal": nobody; of the matchings with the most pairs, the one of the least total distance is taken.
    max_uses : int, default=1
        The most queries of a domain that are matched to one key without replacement.
    random_state : int, default=0
        Seed of the random order.
    allow_fewer : bool, default=False
        Keep queries that have some keys but fewer than k; missing keys are -1 in `Matches`.

    Returns
    -------
    Matches
        By query row; keys of a query by distance, then row.

    See Also
    --------
    CaliperMatcher : The same for tables, with propensities, distances of covariates and diagnostics.

    Examples
    --------
    >>> import numpy as np
    >>> from okapi.matching import caliper_nn
    >>> x = np.array([[0.0], [1.0], [5.0], [0.9], [4.0]])
    >>> site = np.array([0, 0, 0, 1, 1])
    >>> caliper_nn(x, x, query_domain=site, key_domain=site).to_frame()
       query  rank  key  distance
    0      0     1    3       0.9
    1      1     1    3       0.1
    2      2     1    4       1.0
    3      3     1    1       0.1
    4      4     1    2       1.0
    """
    calipers = Calipers(
        fixed=fixed_caliper,
        std=std_caliper,
        scale=caliper_scale,
        sd=caliper_sd,
        two_way=two_way,
        direction=direction,
        prognostic=prognostic_caliper,
    )
    check_choosing(k, replace, order, allow_fewer, max_uses)
    x_query = check_vectors(queries, "queries")
    device = x_query.device
    x_key = x_query if keys is queries else check_vectors(keys, "keys", device)
    if x_query.shape[1] != x_key.shape[1]:
        raise ValueError(f"queries have {x_query.shape[1]} columns, keys have {x_key.shape[1]}")
    if prognostic_caliper is None:
        query_prognosis = key_prognosis = None
    query = check_side(
        "query",
        len(x_query),
        device,
        query_domain,
        query_propensity,
        query_prognosis,
        query_exact,
        query_covariates,
        query_anti_exact,
    )
    key = check_side(
        "key", len(x_key), device, key_domain, key_propensity, key_prognosis, key_exact, key_covariates, key_anti_exact
    )
    calipers.check("query", query)
    calipers.check("key", key)
    check_sides_agree(query, key)
    turns = None
    if not replace:
        order = order or ("data" if query.propensity is None else "largest")
        if order in ("largest", "smallest") and query.propensity is None:
            raise ValueError(f'query_propensity is needed by order="{order}", got None')
        turns = Turns(order, check_count(k, len(x_query)), int(np.max(k)), max_uses, random_state)

    if device.type == "mps":  # has no float64, in which distances are settled
        cpu = torch.device("cpu")
        x_query, x_key, query, key = x_query.cpu(), x_key.cpu(), query.to(cpu), key.to(cpu)
    admissible = calipers.admissible(query, key)
    if turns is None:
        return _with_replacement(x_query, x_key, admissible, int(k), allow_fewer=allow_fewer).to(device)
    if turns.order == "optimal":
        distance, index = match_optimally(x_query, x_key, admissible, turns.n_keys, turns.k)
    else:
        distance, index = match_without_replacement(x_query, x_key, admissible, turns)
    needed = torch.ones_like(turns.n_keys) if allow_fewer else turns.n_keys
    row = ((index >= 0).sum(1) >= needed.to(index.device)).nonzero()[:, 0]
    return Matches(row, index[row], distance[row]).to(device)


def check_choosing(k: int | ArrayLike, replace: bool, order: str | None, allow_fewer: bool, max_uses: int = 1) -> None:
    """Reject settings of how queries choose their keys."""
    check_flag("replace", replace)
    check_flag("allow_fewer", allow_fewer)
    check_whole("max_uses", max_uses)
    if replace or np.ndim(k) == 0:
        check_whole("k", k)
    if replace and max_uses != 1:
        raise ValueError(f"max_uses needs replace=False, got max_uses={max_uses} with replacement")
    if order is not None:
        check_choice("order", order, (*ORDERS, "optimal"))
    if order == "optimal" and max_uses != 1:
        raise ValueError(f'order="optimal" uses a key once, got max_uses={max_uses}')


def _with_replacement(queries: Tensor, keys: Tensor, admissible: Admissible, k: int, *, allow_fewer: bool) -> Matches:
    """Match stratum by stratum."""
    parts = []
    for query_rows, key_rows in admissible.strata():
        plan = admissible.plan(queries.shape[1], query_rows, key_rows)
        parts.append((plan.query_order, *nearest(queries, keys, plan, k)))
    row, distance, index = (torch.cat(values) for values in zip(*parts, strict=True))
    place = row.argsort()
    place = place[index[place, 0 if allow_fewer else -1] >= 0]
    return Matches(row[place], index[place], distance[place])
