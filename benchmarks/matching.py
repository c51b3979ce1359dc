"""Speed and memory of caliper_nn against the full distance matrix and against faiss.

Every engine gets the same data, in a process of its own with the same number of threads. A call on a few rows loads
the libraries; the next call is the warm-up and shows the memory; the median of the calls after it is the time. A peer's
time covers finding its candidates, k and a few to spare, and building its index if it has one. Ordering them by
float64 distance, which caliper_nn's time includes, is not charged to the peer. It is done before taking the agreement:
the share of queries whose distances are equal at every rank.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import getdoc
from math import inf
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from _common import Report, in_fresh_process, machine_facts, peak_extra_memory, run_script, seconds
from okapi.matching import caliper_nn

# Candidates beyond k that a peer returns, so that float32 near-ties at rank k do not count against it.
SPARE = 3
MEGABYTE = 1e6


# --- Problems ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    """Sizes and settings of one matching. With two domains all queries are of domain 0 and all keys of domain 1."""

    queries: int
    keys: int
    dim: int
    domains: int = 2
    std_caliper: float | None = 0.2
    k: int = 5
    outcome: Literal["classes", "number"] | None = None
    prognostic_caliper: float | None = None

    def __str__(self) -> str:
        caliper = "no std-caliper" if self.std_caliper is None else f"std-caliper {self.std_caliper}"
        if self.outcome is not None:
            caliper = f"prognostic-caliper {self.prognostic_caliper} ({self.outcome})"
        sizes = f"{self.queries:,} x {self.keys:,} x {self.dim}"
        return f"{sizes}, {self.domains} domains, k = {self.k}, {caliper}"


LARGE = Problem(queries=4_096, keys=65_536, dim=768)
SMALL = Problem(queries=5_954, keys=14_046, dim=64)
CLASSES = 7


def draw(problem: Problem, seed: int = 0) -> dict[str, np.ndarray]:
    """Draw the arguments of caliper_nn: clusters of samples, shifted by domain.

    A sample is its cluster's centre (standard normal, 50 clusters) plus standard normal noise plus its domain's
    shift, a random direction of length sqrt(2): a standard deviation within the domain. The propensities are those of
    the linear discriminant between such domains, so two domains lie 1.4 standard deviations apart (AUC about 0.83).

    Outcomes, where there are any, are 7 classes or a standard normal number. Queries have a label, one class of their
    cluster; keys have a prediction, softmax of twice a standard normal number per class plus 2 for theirs.
    """
    rng = np.random.default_rng(seed)
    n, variance, clusters = problem.queries + problem.keys, 2.0, 50
    domain = rng.integers(problem.domains, size=n)
    if problem.domains == 2:
        domain = (np.arange(n) >= problem.queries).astype(np.int64)
    shift = rng.standard_normal((problem.domains, problem.dim), dtype=np.float32)
    shift *= np.sqrt(variance) / np.linalg.norm(shift, axis=1, keepdims=True)
    x = rng.standard_normal((n, problem.dim), dtype=np.float32)
    cluster = rng.integers(clusters, size=n)
    x += rng.standard_normal((clusters, problem.dim), dtype=np.float32)[cluster]
    x += shift[domain]
    logit = (x @ shift.T - (shift**2).sum(axis=1) / 2) / variance
    propensity = np.exp(logit - logit.max(axis=1, keepdims=True))
    propensity /= propensity.sum(axis=1, keepdims=True)
    if problem.domains == 2:
        propensity = propensity[:, 1]
    queries, keys = slice(problem.queries), slice(problem.queries, None)
    arrays = {
        "queries": x[queries],
        "keys": x[keys],
        "query_domain": domain[queries],
        "key_domain": domain[keys],
        "query_propensity": propensity[queries],
        "key_propensity": propensity[keys],
    }
    if problem.outcome is not None:
        outcome = _outcomes(rng, cluster, problem)
        arrays |= {"query_prognosis": outcome[queries], "key_prognosis": outcome[keys]}
    return arrays


def _outcomes(rng: np.random.Generator, cluster: np.ndarray, problem: Problem) -> np.ndarray:
    if problem.outcome == "number":
        return rng.standard_normal((len(cluster), 1), dtype=np.float32)
    label = np.eye(CLASSES, dtype=np.float32)[cluster % CLASSES]
    logit = 2 * rng.standard_normal(label.shape, dtype=np.float32) + 2 * label
    prediction = np.exp(logit) / np.exp(logit).sum(axis=1, keepdims=True)
    return np.concatenate([label[: problem.queries], prediction[problem.queries :]])


def load(path: Path) -> dict[str, Tensor]:
    with np.load(path) as arrays:
        return {name: torch.from_numpy(array) for name, array in arrays.items()}


# --- Engines ----------------------------------------------------------------------------------------------------------
# Data and problem in; out come candidate keys, (queries, at least k), -1 where there are fewer.

Data = dict[str, Tensor]


def okapi(data: Data, problem: Problem) -> Tensor:
    calipers = {"std_caliper": problem.std_caliper, "prognostic_caliper": problem.prognostic_caliper}
    matches = caliper_nn(**data, k=problem.k, **calipers)
    keys = matches.key.new_full((len(data["queries"]), problem.k), -1)
    keys[matches.query] = matches.key
    return keys


def paper(data: Data, problem: Problem) -> Tensor:
    """Take the smallest of each row of the matrix of distances, masked by that of the propensities; two domains.

    These are the steps of the paper's algorithm, for the one direction of these problems; a prognostic caliper
    takes the place of the std-caliper.
    """
    e_q, e_k = data["query_propensity"], data["key_propensity"]
    if problem.prognostic_caliper is None:
        apart = torch.cdist(e_q[:, None], e_k[:, None])
        caliper = problem.std_caliper * ((e_q.var() + e_k.var()) / 2).sqrt()
    else:
        apart, caliper = _outcomes_apart(data), problem.prognostic_caliper
    distance = torch.cdist(data["queries"], data["keys"])
    distance[apart > caliper] = inf
    nearest = distance.topk(problem.k + SPARE, largest=False)
    return nearest.indices.masked_fill_(nearest.values == inf, -1)


def full_matrix(data: Data, problem: Problem) -> Tensor:
    """Do the same for any number of domains, as quickly as a full matrix allows: no roots, all in place."""
    queries, keys = data["queries"], data["keys"]
    squared = torch.addmm(keys.square().sum(dim=1), queries, keys.T, alpha=-2)
    squared += queries.square().sum(dim=1, keepdim=True)
    if problem.std_caliper is not None or problem.prognostic_caliper is not None:
        squared.masked_fill_(inadmissible(data, problem), inf)
    nearest = squared.topk(min(problem.k + SPARE, len(keys)), largest=False)
    return nearest.indices.masked_fill_(nearest.values == inf, -1)


def faiss_flat(data: Data, problem: Problem) -> Tensor:
    """Search all keys; for problems without a caliper."""
    _, nearest = _faiss_index(data["keys"]).search(data["queries"].numpy(), problem.k + SPARE)
    return torch.from_numpy(nearest)


def faiss_overfetch(data: Data, problem: Problem) -> Tensor:
    """Fetch more keys than k, drop those outside the caliper, fetch four times as many where fewer than k are left.

    A search for 600 neighbours costs little more than one for 20, so the first fetch is generous: eight times what
    would do if neighbours were inside the caliper as often as other keys. It beats starting at 4k and doubling.
    """
    index, queries, keys = _faiss_index(data["keys"]), data["queries"].numpy(), len(data["keys"])
    e_q, e_k = data["query_propensity"].numpy(), data["key_propensity"].numpy()
    caliper = problem.std_caliper * np.sqrt((e_q.var(ddof=1) + e_k.var(ddof=1)) / 2)
    nearest = np.full((len(queries), problem.k + SPARE), -1)
    below, above = (np.sort(e_k).searchsorted(e_q + edge) for edge in (-caliper, caliper))
    share = max((above - below).mean() / keys, 1 / keys)
    pending, fetch = np.arange(len(queries)), int(8 * problem.k / share)
    while len(pending):
        fetch = min(fetch, keys)
        _, fetched = index.search(queries[pending], fetch)
        inside = np.abs(e_k[fetched] - e_q[pending, None]) <= caliper
        rank = inside.cumsum(axis=1, dtype=np.int32)
        done = (rank[:, -1] >= problem.k) | (fetch == keys)
        row, column = np.nonzero(inside & done[:, None] & (rank <= problem.k + SPARE))
        nearest[pending[row], rank[row, column] - 1] = fetched[row, column]
        pending, fetch = pending[~done], 4 * fetch
    return torch.from_numpy(nearest)


ENGINES: dict[str, Callable[[Data, Problem], Tensor]] = {
    "caliper_nn": okapi,
    "paper": paper,
    "full_matrix": full_matrix,
    "faiss_flat": faiss_flat,
    "faiss_overfetch": faiss_overfetch,
}


def inadmissible(data: Data, problem: Problem, rows: slice = slice(None)) -> Tensor:
    """Return (queries, keys) booleans: true where a pair is of one domain or outside the caliper."""
    if problem.prognostic_caliper is not None:
        return _outcomes_apart(data, rows) > problem.prognostic_caliper
    std_caliper, e_q, e_k = problem.std_caliper, data["query_propensity"], data["key_propensity"]
    if e_q.ndim == 1:
        caliper = std_caliper * ((e_q.var() + e_k.var()) / 2).sqrt()
        return (e_q[rows, None] - e_k).abs_() > caliper
    a, b = data["query_domain"], data["key_domain"]
    variance_q, variance_k = _variance_by_domain(e_q, a), _variance_by_domain(e_k, b)
    # [a, b]: the caliper of a query of domain a and a key of domain b, on the score of a and on that of b.
    caliper_a = std_caliper * ((variance_q.diag()[:, None] + variance_k.T) / 2).sqrt()
    caliper_b = std_caliper * ((variance_q + variance_k.diag()) / 2).sqrt()
    a, e_q = a[rows], e_q[rows]
    outside = a[:, None] == b
    gap = e_k.T[a].sub_(e_q.gather(1, a[:, None])).abs_()
    outside |= gap > caliper_a[a].index_select(1, b)
    gap = e_q.index_select(1, b).sub_(e_k.gather(1, b[:, None]).T).abs_()
    outside |= gap > caliper_b[a].index_select(1, b)
    return outside


def _outcomes_apart(data: Data, rows: slice = slice(None)) -> Tensor:
    """Return the distances of the outcomes, (queries, keys), by differences: as exact as float32 allows."""
    mode = "donot_use_mm_for_euclid_dist"
    return torch.cdist(data["query_prognosis"][rows], data["key_prognosis"], compute_mode=mode)


def _variance_by_domain(scores: Tensor, domain: Tensor) -> Tensor:
    """Return the unbiased variance of each column of scores (n, S) within each domain, (S, S); 0 for one sample."""
    domains = scores.shape[1]
    count = domain.bincount(minlength=domains).clamp(min=1)[:, None]
    mean = scores.new_zeros(domains, domains).index_add_(0, domain, scores) / count
    squares = (scores - mean[domain]).square_()
    return torch.zeros_like(mean).index_add_(0, domain, squares) / (count - 1).clamp(min=1)


def _faiss_index(keys: Tensor) -> Any:
    import faiss  # brings OpenMP and BLAS of its own, which must not run beside the other engines

    faiss.omp_set_num_threads(torch.get_num_threads())
    index = faiss.IndexFlatL2(keys.shape[1])
    index.add(keys.numpy())
    return index


# --- Measuring --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measurement:
    """What one engine did on one problem: seconds of each call, bytes beyond the inputs, keys."""

    times: list[float]
    memory: float
    keys: np.ndarray

    @property
    def time(self) -> float:
        """Median of the calls, in seconds."""
        return median(self.times)


def measure(engine: str, path: Path, problem: Problem, threads: int, repeat: int) -> Measurement:
    torch.set_num_threads(threads)
    data = load(path)
    ENGINES[engine]({name: tensor[:256].clone() for name, tensor in data.items()}, problem)
    call = partial(ENGINES[engine], data, problem)
    keys, memory = peak_extra_memory(call)
    return Measurement([seconds(call) for _ in range(repeat)], memory, keys.numpy())


def matmul_speed(threads: int, size: int) -> float:
    """Return floating-point operations per second of a square float32 matrix product."""
    torch.set_num_threads(threads)
    a, b, out = torch.rand(size, size), torch.rand(size, size), torch.empty(size, size)
    torch.mm(a, b, out=out)
    return 2 * size**3 / median(seconds(lambda: torch.mm(a, b, out=out)) for _ in range(3))


def agreement(data: Data, k: int, keys: np.ndarray, of_peer: np.ndarray) -> float:
    """Return the share of queries with equal distances at every rank: as returned, and of the peer after re-scoring."""
    distance = _distances(data, torch.from_numpy(keys))
    peer = _distances(data, torch.from_numpy(of_peer)).sort(dim=1).values[:, :k]
    peer[peer[:, -1] == inf] = inf  # fewer than k keys are no match
    return (distance == peer).all(dim=1).double().mean().item()


def _distances(data: Data, keys: Tensor) -> Tensor:
    """Return squared distances in float64, (queries, candidates); infinite where the key is -1."""
    queries = data["queries"].double()
    columns = [(data["keys"][key].double() - queries).square_().sum(dim=1) for key in keys.T]
    return torch.stack(columns, dim=1).masked_fill_(keys < 0, inf)


def admissible_pairs(data: Data, problem: Problem, block: int = 256) -> int:
    if problem.std_caliper is None and problem.prognostic_caliper is None:
        return problem.queries * problem.keys
    blocks = (slice(start, start + block) for start in range(0, problem.queries, block))
    return sum(int((~inadmissible(data, problem, rows)).sum()) for rows in blocks)


@dataclass
class Bench:
    """The settings of a run; draws each problem once and measures each engine on it once."""

    report: Report
    scratch: Path
    threads: int
    repeat: int
    shrink: int
    _measured: dict[tuple[str, Problem, int], Measurement] = field(default_factory=dict)

    def scaled(self, problem: Problem) -> Problem:
        """Return the problem with its sizes divided by ``shrink``, 16 dimensions at the least."""
        dim = max(min(problem.dim, 16), problem.dim // self.shrink)
        return replace(problem, queries=problem.queries // self.shrink, keys=problem.keys // self.shrink, dim=dim)

    def path(self, problem: Problem) -> Path:
        """Return the file of the problem's data."""
        sizes = f"{problem.queries}-{problem.keys}-{problem.dim}-{problem.domains}"
        path = self.scratch / f"{sizes}-{problem.outcome}.npz"
        if not path.exists():
            np.savez(path, **draw(problem))
        return path

    def measure(self, engine: str, problem: Problem, threads: int | None = None) -> Measurement:
        """Measure an engine in a process of its own."""
        threads = threads or self.threads
        name = (engine, problem, threads)
        if name not in self._measured:
            arguments = (engine, self.path(problem), problem, threads, self.repeat)
            self._measured[name] = in_fresh_process(measure, *arguments, threads=threads)
        return self._measured[name]

    def matmul_speed(self) -> float:
        """Measure the speed of a matrix product with the run's threads."""
        return in_fresh_process(matmul_speed, self.threads, 3_072 // self.shrink, threads=self.threads)

    def verdict(self, met: bool) -> str:
        """Return what to print behind a goal; the goals are for the full sizes."""
        return "not judged" if self.shrink > 1 else "met" if met else "not met"


# --- Cases ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """caliper_nn against peers: how many times as long each peer must take at least (None: no goal)."""

    problem: Problem
    peers: dict[str, float | None]
    memory_goal: bool = False

    def __call__(self, bench: Bench) -> None:
        """Measure and report."""
        problem = bench.scaled(self.problem)
        data = load(bench.path(problem))
        reference = bench.measure("caliper_nn", problem)
        rows = [self._reference_row(bench, reference, data)]
        for engine, goal in self.peers.items():
            peer = bench.measure(engine, problem)
            ratio, share = peer.time / reference.time, agreement(data, problem.k, reference.keys, peer.keys)
            verdict = "" if goal is None else f"at least {goal:.3g}x: {bench.verdict(ratio >= goal)}"
            rows.append([engine, *_cells(peer), f"{ratio:.2f}x", f"{share:.6g}", verdict])
        pairs, speed = admissible_pairs(data, problem), bench.matmul_speed()
        limit = 2 * problem.dim * pairs / speed
        rows.append(["limit", f"{limit:.3f}", "", "", f"{limit / reference.time:.2f}x", "", ""])
        bench.report.add(f"### {problem}")
        bench.report.add_table(
            ("engine", "time, s", "range", "memory, MB", "of caliper_nn's", "agreement", "goal"), rows
        )
        bench.report.add(
            f"{(reference.keys[:, 0] >= 0).sum():,} of {problem.queries:,} queries matched; "
            f"{pairs / (problem.queries * problem.keys):.1%} of the pairs are admissible. Limit: the products of these "
            f"pairs alone, at the speed of a large square product ({speed / 1e9:.0f} Gflop/s, measured just now); "
            f"caliper_nn takes {reference.time / limit:.1f} times as long."
        )

    def _reference_row(self, bench: Bench, reference: Measurement, data: Data) -> list[str]:
        most = data["keys"].nbytes + 100 * MEGABYTE
        goal = f"below {most / MEGABYTE:.0f} MB: {bench.verdict(reference.memory < most)}" if self.memory_goal else ""
        return ["caliper_nn", *_cells(reference), "1.00x", "", goal]


def _cells(measurement: Measurement) -> tuple[str, str, str]:
    fastest, slowest = min(measurement.times), max(measurement.times)
    return f"{measurement.time:.3f}", f"{fastest:.3f}-{slowest:.3f}", f"{measurement.memory / MEGABYTE:,.0f}"


def threads(bench: Bench) -> None:
    """One thread of caliper_nn against two."""
    rows = []
    for full in (LARGE, SMALL, replace(LARGE, std_caliper=None), replace(SMALL, std_caliper=None)):
        problem = bench.scaled(full)
        one, two = (bench.measure("caliper_nn", problem, threads) for threads in (1, 2))
        verdict = bench.verdict(two.time < one.time)
        rows.append(
            [problem, f"{one.time:.3f}", f"{two.time:.3f}", f"{one.time / two.time:.2f}x", f"faster: {verdict}"]
        )
    bench.report.add_table(("problem", "one thread, s", "two threads, s", "speed-up", "goal"), rows)


def scaling(bench: Bench) -> None:
    """Time and memory as the keys grow, the queries fixed."""
    problems = [bench.scaled(Problem(queries=4_096, keys=2**power, dim=64)) for power in range(12, 21)]
    sizes, most = [problem.keys for problem in problems], 65_536 // bench.shrink
    largest = {"caliper_nn": sizes[-1], "full_matrix": most, "faiss_overfetch": most}
    curves = {
        engine: {problem.keys: bench.measure(engine, problem) for problem in problems if problem.keys <= limit}
        for engine, limit in largest.items()
    }
    exponents = {engine: _exponent(curve) for engine, curve in curves.items()}
    rows = []
    for keys in sizes:
        measured = [curve.get(keys) for curve in curves.values()]
        cells = [f"{m.time:.3f} s, {m.memory / MEGABYTE:,.0f} MB" if m else "not run" for m in measured]
        rows.append([f"{keys:,}", *cells])
    rows.append(["exponent of time", *(f"{exponent:.2f}" for exponent in exponents.values())])
    bench.report.add(
        f"{problems[0].queries:,} queries, {problems[0].dim} dimensions, k = 5, std-caliper 0.2. Exponents: least "
        "squares of log time on log keys over all sizes of a column, those included at which fixed costs show. The "
        f"full matrix and faiss stop at {most:,} keys."
    )
    bench.report.add_table(("keys", *curves), rows)
    bench.report.add_figure(_scaling_figure(curves, exponents), "matching_scaling", "Time and memory over keys")


def _exponent(curve: dict[int, Measurement]) -> float:
    return float(np.polyfit(np.log(list(curve)), np.log([m.time for m in curve.values()]), deg=1)[0])


def _scaling_figure(curves: dict[str, dict[int, Measurement]], exponents: dict[str, float]) -> Figure:
    figure = Figure(figsize=(9, 4), layout="constrained")
    time, memory = figure.subplots(1, 2)
    for engine, curve in curves.items():
        sizes, style = list(curve), {"marker": "o", "markersize": 4}
        label = f"{engine} (time: exponent {exponents[engine]:.2f})"
        time.loglog(sizes, [measurement.time for measurement in curve.values()], label=label, **style)
        memory.loglog(sizes, [measurement.memory / MEGABYTE for measurement in curve.values()], **style)
    time.set(title="Time", ylabel="seconds")
    memory.set(title="Memory beyond the inputs", ylabel="MB")
    ticks = list(curves["caliper_nn"])[::2]
    for axes in (time, memory):
        axes.set_xticks(ticks, [f"{keys:,}" for keys in ticks])
        axes.set_xticks([], minor=True)
        axes.set_xlabel("keys")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=len(curves), frameon=False, fontsize=9)
    return figure


CASES: dict[str, list[Callable[[Bench], None]]] = {
    "large": [Comparison(LARGE, {"paper": 12, "full_matrix": None, "faiss_overfetch": 8}, memory_goal=True)],
    "small": [Comparison(SMALL, {"paper": 18, "full_matrix": None, "faiss_overfetch": None})],
    "no-caliper": [
        # At most 1.3 times the time of faiss.
        Comparison(replace(SMALL, std_caliper=None), {"faiss_flat": 1 / 1.3, "full_matrix": None}),
        Comparison(replace(LARGE, std_caliper=None), {"faiss_flat": 1 / 1.3}),
    ],
    "outcomes": [
        Comparison(
            replace(LARGE, std_caliper=None, outcome="classes", prognostic_caliper=0.5),
            {"paper": 10, "full_matrix": None},
        ),
        # Twice as many pairs are admissible as to the std-caliper: no goal.
        Comparison(
            replace(LARGE, std_caliper=None, outcome="number", prognostic_caliper=0.2),
            {"paper": None, "full_matrix": None},
        ),
    ],
    "many-domains": [
        Comparison(replace(SMALL, domains=200), {"full_matrix": 4}),
        Comparison(replace(LARGE, domains=200), {"full_matrix": 4}),
    ],
    "threads": [threads],
    "scaling": [scaling],
}


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="example: python benchmarks/matching.py --case small --shrink 8",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--case", choices=CASES, help="run only this one")
    parser.add_argument("--shrink", type=int, default=1, help="divide sizes by it; goals are not judged (default: 1)")
    parser.add_argument("--threads", type=int, default=1, help="threads of every engine (default: 1)")
    parser.add_argument("--repeat", type=int, default=3, help="timed calls after the warm-up (default: 3)")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out"), help="folder of matching.md and the figure")
    run_script(parser, compare, lambda out: ["--shrink", "128", "--repeat", "1", "--out", str(out)], words)


def compare(arguments: argparse.Namespace) -> None:
    """Measure the cases and write the page."""
    report = Report("Matching: speed and memory", arguments.out)
    settings = f"- threads: {arguments.threads}; median of {arguments.repeat} calls"
    report.add("\n".join([machine_facts("torch", "faiss-cpu", "numpy", "okapi-ssl"), settings]))
    report.add(__doc__.partition("\n\n")[2].strip())
    report.add("Data. " + getdoc(draw).partition("\n\n")[2])
    with TemporaryDirectory() as scratch:
        bench = Bench(report, Path(scratch), arguments.threads, arguments.repeat, arguments.shrink)
        for name in [arguments.case] if arguments.case else CASES:
            report.add(f"## {name}")
            for run in CASES[name]:
                run(bench)
    report.write("matching.md")


if __name__ == "__main__":
    main()
