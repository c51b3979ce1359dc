"""CaliperNN by brute force: a literal, slow transcription of its definition, one pair at a time, in NumPy."""

from functools import cache

import numpy as np
from torch import Tensor


def _array(values):
    """Return a copy of values of any type that NumPy or torch has."""
    return values.double().numpy() if isinstance(values, Tensor) else np.asarray(values, np.float64)


def _unbiased_variance(values):
    return float(np.var(values, ddof=1)) if len(values) > 1 else 0.0


def _on_scale(score, caliper_scale, n_domains, sets):
    if caliper_scale == "probability":
        return score
    score = np.clip(score, 1e-6, 1 - 1e-6)
    return np.log(score) if n_domains > 2 and not sets else np.log(score) - np.log1p(-score)


def brute_force(
    queries,
    keys,
    *,
    query_domain,
    key_domain,
    query_propensity=None,
    key_propensity=None,
    k=1,
    fixed_caliper=None,
    std_caliper=None,
    caliper_scale="probability",
    two_way=True,
    direction=None,
    query_prognosis=None,
    key_prognosis=None,
    prognostic_caliper=None,
):
    """Return a list of (query, [keys], [distances])."""
    queries, keys = _array(queries), _array(keys)
    query_domain, key_domain = np.asarray(query_domain), np.asarray(key_domain)
    sets = query_domain.ndim == 2
    n_domains = 2
    if query_propensity is not None:
        query_propensity, key_propensity = _array(query_propensity), _array(key_propensity)
        if query_propensity.ndim == 1:
            query_propensity = np.stack([1 - query_propensity, query_propensity], 1)
            key_propensity = np.stack([1 - key_propensity, key_propensity], 1)
            binary = True
        else:
            binary = False
        n_domains = query_propensity.shape[1]

    def keeps(propensity, row):
        if fixed_caliper is None or fixed_caliper in (0, 1):
            return True
        low, high = sorted((round(1 - fixed_caliper, 12), fixed_caliper))
        if sets:
            return all(low < p < high for p in propensity[row])
        if binary:
            return low < propensity[row, 1] < high
        return max(propensity[row]) < high

    def of_domain(domain, row, which):
        return domain[row, which] if sets else domain[row] == which

    admissible_queries = [i for i in range(len(queries)) if keeps(query_propensity, i)]
    admissible_keys = [j for j in range(len(keys)) if not two_way or keeps(key_propensity, j)]
    if direction is not None:
        admissible_queries = [i for i in admissible_queries if of_domain(query_domain, i, direction[0])]
        admissible_keys = [j for j in admissible_keys if of_domain(key_domain, j, direction[1])]
    if prognostic_caliper is not None:
        query_prognosis, key_prognosis = _array(query_prognosis), _array(key_prognosis)
    if std_caliper is not None:
        query_score = _on_scale(query_propensity, caliper_scale, n_domains, sets)
        key_score = _on_scale(key_propensity, caliper_scale, n_domains, sets)

    @cache
    def sigma(a, b, d):
        of_queries = _unbiased_variance([query_score[i, d] for i in admissible_queries if query_domain[i] == a])
        of_keys = _unbiased_variance([key_score[j, d] for j in admissible_keys if key_domain[j] == b])
        return np.sqrt((of_queries + of_keys) / 2)

    @cache
    def sigma_of_sets():
        of_queries = [_unbiased_variance(query_score[admissible_queries, d]) for d in range(n_domains)]
        of_keys = [_unbiased_variance(key_score[admissible_keys, d]) for d in range(n_domains)]
        return np.sqrt(np.mean((np.array(of_queries) + np.array(of_keys)) / 2))

    def pair_admissible(i, j):
        if prognostic_caliper is not None:
            apart = np.atleast_1d(query_prognosis[i] - key_prognosis[j])
            if np.sqrt((apart**2).sum()) > prognostic_caliper:
                return False
        if sets:
            if (query_domain[i] & key_domain[j]).any():
                return False
            if std_caliper is None:
                return True
            return np.sqrt(((query_score[i] - key_score[j]) ** 2).sum()) <= std_caliper * sigma_of_sets()
        a, b = query_domain[i], key_domain[j]
        if a == b:
            return False
        if std_caliper is None:
            return True
        columns = [1] if binary else [a, b]
        return all(abs(query_score[i, d] - key_score[j, d]) <= std_caliper * sigma(a, b, d) for d in columns)

    result = []
    for i in admissible_queries:
        found = sorted(
            (float(np.sqrt(((queries[i] - keys[j]) ** 2).sum())), j) for j in admissible_keys if pair_admissible(i, j)
        )
        if len(found) >= k:
            result.append((i, [j for _, j in found[:k]], [distance for distance, _ in found[:k]]))
    return result
