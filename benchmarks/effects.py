"""Matching for effects: speed and memory beside pymatchit-causal and psmpy, and the coverage of the intervals.

Every call starts from the same data frame in memory, in a process of its own, and covers propensities, matching and
weights. Memory is what the resident set grows by during the first call on all rows. Time is that of the quickest call,
by the clock and of the processors, which is the fairer one where others use them. Where a peer does the same, results
are compared: the share of pairs that are the same, or the largest difference of weights, and the total distance of the
pairs. psmpy goes through the treated in another order.

The coverage is the share of simulated studies whose 95 % interval of the effect holds the true one. The exit code is 1
where a limit is missed.
"""

import argparse
import io
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from _common import in_fresh_process, is_smoke, machine_facts, markdown_table, peak_extra_memory, run_script, seconds
from okapi.matching import CaliperMatcher
from okapi.matching.strata import coarsened_strata, stratum_weights

NAMES = ["a", "b", "c", "d", "e"]
EFFECT = 1.0
LEAST_COVERAGE = 0.93


def draw(n: int, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Return covariates, treatment (about 30 %) and an outcome that both act on."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(n, len(NAMES))), columns=NAMES)
    logit = frame.to_numpy() @ [0.5, 0.3, -0.2, 0.1, 0.0] - 0.95
    treated = rng.random(n) < 1 / (1 + np.exp(-logit))
    return frame, treated, EFFECT * treated + frame.to_numpy() @ [1.0, 0.5, 0.5, 0.0, 0.2] + rng.normal(size=n)


# --- Engines ----------------------------------------------------------------------------------------------------------
# Covariates and treatment in; out comes a function that matches and returns pairs (query, key), or weights.


def okapi(frame: pd.DataFrame, treated: np.ndarray, **settings: Any) -> pd.DataFrame:
    matches = CaliperMatcher(**settings).fit(frame, treated).match()
    return pd.DataFrame({"query": matches.query.numpy(), "key": matches.key[:, 0].numpy()})


def okapi_mahalanobis(frame: pd.DataFrame, treated: np.ndarray) -> pd.DataFrame:
    """Match by the covariance of all samples, as the peer; distance="mahalanobis" is by that within the groups."""
    return okapi(whitened(frame), treated, replace=False, distance="euclidean", std_caliper=0.2)


def whitened(frame: pd.DataFrame) -> pd.DataFrame:
    vectors = frame.to_numpy() @ np.linalg.cholesky(np.linalg.inv(np.cov(frame.to_numpy().T)))
    return pd.DataFrame(vectors, columns=NAMES)


def okapi_cem(frame: pd.DataFrame, treated: np.ndarray) -> np.ndarray:
    return stratum_weights(coarsened_strata(frame, treated), treated)


def okapi_full(frame: pd.DataFrame, treated: np.ndarray) -> np.ndarray:
    return CaliperMatcher(method="full", std_caliper=0.2).fit(frame, treated).match().subclass


def pymatchit(frame: pd.DataFrame, treated: np.ndarray, method: str, **settings: Any) -> Any:
    from pymatchit import MatchIt

    with redirect_stdout(io.StringIO()), warnings.catch_warnings(action="ignore"):
        data = frame.assign(t=treated.astype(int))
        match = MatchIt(data, method=method, **settings).fit("t ~ " + " + ".join(NAMES))
    if method == "cem":
        return match.weights.to_numpy()
    if method == "full":
        return match.data["subclass"].fillna(-1).to_numpy(np.int64)
    pairs = [(query, keys[0]) for query, keys in match.matched_indices.items()]
    return pd.DataFrame(pairs, columns=["query", "key"]).sort_values("query", ignore_index=True)


def psmpy(frame: pd.DataFrame, treated: np.ndarray) -> pd.DataFrame:
    with redirect_stdout(io.StringIO()), warnings.catch_warnings(action="ignore"):
        from psmpy import PsmPy

        match = PsmPy(frame.assign(t=treated.astype(int), row=np.arange(len(frame))), treatment="t", indx="row")
        match.logistic_ps(balance=False)
        match.kdtree_matched(matcher="propensity_logit", replacement=False, drop_unmatched=True)
    pairs = match.matched_ids.astype(int)
    return pairs.set_axis(["query", "key"], axis=1).sort_values("query", ignore_index=True)


# --- Measurements -----------------------------------------------------------------------------------------------------

Engine = Callable[[pd.DataFrame, np.ndarray], Any]


class Measured(NamedTuple):
    """Seconds by the clock and of the processors, gigabytes and the result of a call."""

    seconds: float
    of_processors: float
    gigabytes: float
    result: Any


class Problem(NamedTuple):
    """What is matched by whom, and what is asked of Okapi: how many times as fast, in what time and memory."""

    name: str
    okapi: Engine
    peers: dict[str, Engine]
    rows: str = "rows"  # which of the script's numbers of rows
    times: float = 0
    seconds: float = np.inf
    gigabytes: float = np.inf


NEAREST = partial(okapi, replace=False)
OPTIMAL = partial(okapi, method="optimal", std_caliper=0.2)
PROBLEMS = [
    Problem(
        "nearest propensity",
        NEAREST,
        {"pymatchit-causal": partial(pymatchit, method="nearest")},
        times=20,
    ),
    Problem("nearest propensity", NEAREST, {"psmpy": psmpy}, "few"),
    Problem("nearest propensity", NEAREST, {}, "million", seconds=10, gigabytes=2),
    Problem(
        "nearest by Mahalanobis distance, caliper",
        okapi_mahalanobis,
        {"pymatchit-causal": partial(pymatchit, method="nearest", caliper=0.2, mahvars=NAMES)},
        times=15,
    ),
    Problem(
        "optimal pairs, caliper",
        OPTIMAL,
        {"pymatchit-causal": partial(pymatchit, method="optimal", caliper=0.2)},
        times=5,
        gigabytes=1,
    ),
    Problem("optimal pairs, caliper", OPTIMAL, {}, "large", seconds=600, gigabytes=8),
    Problem("full matching, caliper", okapi_full, {"pymatchit-causal": partial(pymatchit, method="full", caliper=0.2)}),
    Problem("full matching, caliper", okapi_full, {}, "large"),
    Problem("CEM", okapi_cem, {"pymatchit-causal": partial(pymatchit, method="cem")}),
    Problem("CEM", okapi_cem, {}, "million", seconds=10),
]


def measure(engine: Engine, n: int, repeats: int) -> Measured:
    frame, treated, _ = draw(n)
    engine(*draw(min(n, 300))[:2])  # loads the libraries
    (times, result), extra = peak_extra_memory(partial(_timed, engine, frame, treated))
    quickest = min([times, *(_timed(engine, frame, treated)[0] for _ in range(repeats - 1))])
    return Measured(*quickest, extra / 1e9, result)


def _timed(engine: Engine, frame: pd.DataFrame, treated: np.ndarray) -> tuple[tuple[float, float], Any]:
    start, results = time.process_time(), []
    by_clock = seconds(lambda: results.append(engine(frame, treated)))
    return (by_clock, time.process_time() - start), results[0]


def agreement(n: int, ours: Any, theirs: Any, mahalanobis: bool) -> str:
    """Return how far two results are the same: weights of strata, subclasses or pairs."""
    frame, treated, _ = draw(n)
    if isinstance(ours, np.ndarray) and ours.dtype == np.float64:
        return f"weights differ by {np.abs(_normalised(ours, treated) - _normalised(theirs, treated)).max():.0e}"
    vectors = whitened(frame).to_numpy()
    if not mahalanobis:
        vectors = CaliperMatcher(replace=False).fit(frame, treated).propensity_[:, None]
    if isinstance(ours, np.ndarray):
        ours, theirs = (_pairs_of_subclasses(subclass, treated) for subclass in (ours, theirs))
    totals = [np.linalg.norm(vectors[pairs["query"]] - vectors[pairs["key"]], axis=1).sum() for pairs in (ours, theirs)]
    same = len(ours.merge(theirs, on=["query", "key"])) / len(theirs)
    return f"{same:.2%} of pairs, {len(ours):,} and {len(theirs):,}, totals {totals[0]:.8g} and {totals[1]:.8g}"


def _pairs_of_subclasses(subclass: np.ndarray, treated: np.ndarray) -> pd.DataFrame:
    rows = pd.DataFrame({"row": np.arange(len(subclass)), "subclass": subclass})[subclass >= 0]
    sides = rows[treated[rows["row"]]], rows[~treated[rows["row"]]]
    return sides[0].merge(sides[1], on="subclass").set_axis(["query", "subclass", "key"], axis=1)


def _normalised(weights: np.ndarray, treated: np.ndarray) -> np.ndarray:
    """Return weights of mean one in both groups."""
    weights = weights.astype(float)
    for group in (treated, ~treated):
        weights[group] /= weights[group & (weights > 0)].mean()
    return weights


def compare(problem: Problem, n: int, repeats: int, threads: int) -> tuple[list[list[str]], list[str]]:
    """Return the rows of a table and what was missed."""
    ours = in_fresh_process(measure, problem.okapi, n, repeats, threads=threads)
    rows = [[problem.name, f"{n:,}", "okapi", *_numbers(ours), "", "", ""]]
    missed = []
    if ours.seconds > problem.seconds or ours.gigabytes > problem.gigabytes:
        limits = f"{problem.seconds} s and {problem.gigabytes} GB"
        missed.append(f"{problem.name}, {n:,} rows: {ours.seconds:.1f} s and {ours.gigabytes:.1f} GB, not {limits}")
    for name, engine in problem.peers.items():
        if find_spec(name.split("-")[0]) is None:
            continue
        theirs = in_fresh_process(measure, engine, n, 1, threads=threads)
        ratio, of_processors = theirs.seconds / ours.seconds, theirs.of_processors / ours.of_processors
        same = agreement(n, ours.result, theirs.result, "Mahalanobis" in problem.name)
        rows.append(["", "", name, *_numbers(theirs), f"{ratio:.1f}", f"{of_processors:.1f}", same])
        if ratio < problem.times:
            missed.append(f"{problem.name}, {n:,} rows: {ratio:.1f} times as fast as {name}, not {problem.times}")
    return rows, missed


def _numbers(measured: Measured) -> list[str]:
    return [f"{number:.2f}" for number in measured[:3]]


def covered(n: int, draws: int) -> float:
    """Return the share of simulated studies whose 95 % interval holds the effect."""
    hits = 0
    for seed in range(draws):
        frame, treated, outcome = draw(n, seed)
        matcher = CaliperMatcher(replace=False, std_caliper=0.2).fit(frame, treated)
        effect = matcher.effect(outcome, matcher.match())
        hits += effect.ci_low <= EFFECT <= effect.ci_high
    return hits / draws


def main(arguments: argparse.Namespace) -> None:
    """Measure, and print the table and the coverage."""
    print(machine_facts("pymatchit-causal", "psmpy", "scipy", "numpy"), end="\n\n", flush=True)
    rows, missed = [], []
    for problem in PROBLEMS:
        of_problem, of_limits = compare(problem, getattr(arguments, problem.rows), arguments.repeats, arguments.threads)
        rows += of_problem
        missed += of_limits
        print(*of_problem, sep="\n", file=sys.stderr, flush=True)
    header = ["matching", "rows", "by", "s", "CPU s", "GB", "times as fast", "by CPU s", "same as okapi"]
    print(markdown_table(header, rows), end="\n\n")
    coverage = in_fresh_process(covered, arguments.study, arguments.draws, threads=arguments.threads)
    studies = f"{arguments.draws:,} studies of {arguments.study:,} samples"
    print(f"95 % intervals hold the effect in {coverage:.1%} of {studies}.")
    if coverage < LEAST_COVERAGE:
        missed.append(f"coverage {coverage:.1%}, not {LEAST_COVERAGE:.0%}")
    if missed and not is_smoke():
        sys.exit("missed: " + "; ".join(missed))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default, text in (
        ("rows", 20_000, "samples where peers are compared"),
        ("few", 3_000, "samples where the slowest peer is compared"),
        ("large", 200_000, "samples of optimal matching alone"),
        ("million", 1_000_000, "samples of the rest alone"),
        ("repeats", 3, "calls of Okapi; peers are called once"),
        ("threads", 2, "of the numerical libraries; more than there are free processors only wait for each other"),
        ("draws", 1_000, "simulated studies"),
        ("study", 500, "samples of each of these"),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, help=text)
    tiny = ["--rows", "300", "--few", "200", "--large", "400", "--million", "500", "--repeats", "1", "--draws", "3"]
    run_script(parser, main, lambda folder: tiny)
