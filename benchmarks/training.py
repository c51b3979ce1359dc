"""What a step of Okapi costs beside a step of ERM on the same samples, and whether data loading keeps up.

ERM learns from labelled and unlabelled samples alike, as if all had labels: forward and backward on the same inputs.
The methods take turns in one process, a step each, and the medians over the rounds are compared. A step is zeroing
gradients, forward, backward and AdamW. Times of steps and parts are processor time, which does not count while other
processes run: with one thread it is what the clock of an idle machine shows. Weights are random, the bank is full.
Where steps are timed, glibc keeps the memory it has, by MALLOC_MMAP_THRESHOLD_ and MALLOC_TRIM_THRESHOLD_: else each
step asks the system anew for its large tensors, at a price that differs from machine to machine. Rounds count from the
first in which the process hardly grows: a step that is the first to need so much memory pays for new pages.
Memory is the peak of the resident set while a method is built and takes two steps, in a process of its own.

The limit for the paper's method is 1.40 times the step of ERM. Okapi+ also learns from strong views of the unlabelled
half: its limit is the step of ERM, a forward of the whole batch, and a forward and backward of these views, times 1.05;
these parts take turns with the steps. ``--smoke`` judges no limit: its network is too small.
"""

import argparse
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from statistics import median
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn.functional import normalize

from _common import Report, in_fresh_process, machine_facts, peak_extra_memory, run_script
from okapi.algorithms import ALGORITHMS, Algorithm, Okapi, OkapiPlus
from okapi.config import PAPER, MatchingSettings, OkapiPlusSettings, OkapiSettings, ScorerSettings
from okapi.data.augment import Compose, Noise, Shift, Views
from okapi.data.batches import Batch, Batches, Inputs, Samples, batch_loader, join
from okapi.data.dataset import Dataset
from okapi.data.sampling import Stream
from okapi.data.task import Task
from okapi.matching import Matches, caliper_nn
from okapi.models.encoders import MLP
from okapi.models.network import Network
from okapi.models.text_encoder import TextEncoder
from okapi.models.vision import VisionBackbone
from okapi.nn import CrossDomainConsistency

ERM, FIXMATCH, OKAPI, FULL_MATRIX, OKAPI_PLUS = "erm", "fixmatch", "okapi", "okapi, full matrix", "okapi_plus"
METHODS = (ERM, FIXMATCH, OKAPI, FULL_MATRIX, OKAPI_PLUS)
WITH_STRONG_VIEWS = (FIXMATCH, OKAPI_PLUS)
FORWARD, STRONG = "forward of the batch", "strong views, forward and backward"
TASK = Task("classification", 10)
OKAPI_LIMIT = 1.40  # of the step of ERM
OKAPI_PLUS_TOLERANCE = 1.05
MOST_ROUNDS_TO_SETTLE, FEW_PAGES = 8, 10_000


# --- Workloads --------------------------------------------------------------------------------------------------------


def paper(k: int, fixed_caliper: float, std_caliper: float, temperature: float, bank: int) -> OkapiSettings:
    """Return the paper's settings with those of one experiment; the weight does not rise from 0."""
    matching = MatchingSettings(k=k, fixed_caliper=fixed_caliper, std_caliper=std_caliper)
    return replace(PAPER, matching=matching, scorer=ScorerSettings(temperature=temperature), bank=bank, warm_up=0.0)


IWILDCAM = paper(1, 0.95, 0.2, 1.1, 16_384)
POVERTYMAP = paper(5, 0.9, 0.2, 1.0, 65_536)
CIVILCOMMENTS = paper(5, 1.0, 10.0, 1.0, 65_536)
SMALL = paper(2, 0.95, 0.5, 1.0, 64)


@dataclass(frozen=True)
class Workload:
    """A network, a batch and the settings of the matching; the batch is half labelled, half unlabelled.

    ``batches`` are those of the paper's experiments: the settings of each, and the size of either pool.
    """

    name: str
    encoder: Callable[[], torch.nn.Module]
    inputs: Callable[[int], Inputs]
    pool: int
    settings: OkapiSettings
    batches: dict[str, tuple[OkapiSettings, int]]
    judged: bool = True

    def __str__(self) -> str:
        return f"{self.name}, {self.pool} + {self.pool}, bank of {self.settings.bank:,}"


def images(count: int, size: int = 224) -> Tensor:
    return torch.rand(count, 3, size, size)


def small_images(count: int) -> Tensor:
    return images(count, 4)


def texts(count: int, tokens: int = 64) -> Inputs:
    return {"input_ids": torch.randint(30_522, (count, tokens)), "attention_mask": torch.ones(count, tokens).long()}


def convnext() -> torch.nn.Module:
    return VisionBackbone("convnext-tiny")


def distilbert() -> torch.nn.Module:
    return TextEncoder()


def two_layers() -> torch.nn.Module:
    return MLP(48, hidden=(16,), out_features=8)


WORKLOADS = {
    "convnext": Workload(
        "ConvNeXt-T at 224 px",
        convnext,
        images,
        16,
        IWILDCAM,
        {"iWildCam": (IWILDCAM, 16), "PovertyMap": (POVERTYMAP, 64)},
    ),
    "distilbert": Workload(
        "DistilBERT, 64 tokens", distilbert, texts, 8, CIVILCOMMENTS, {"CivilComments": (CIVILCOMMENTS, 48)}
    ),
    "small": Workload("two layers at 4 px", two_layers, small_images, 4, SMALL, {"small": (SMALL, 4)}, judged=False),
}


# --- Methods ----------------------------------------------------------------------------------------------------------


def settings_of(method: str, workload: Workload) -> Any:
    """Return the settings of a method; the weights of its losses do not rise from 0."""
    if method in (OKAPI, FULL_MATRIX):
        return workload.settings
    if method == OKAPI_PLUS:
        return OkapiPlusSettings(bank=workload.settings.bank, warm_up=0.0)
    return ALGORITHMS[method].Settings()


def make_algorithm(method: str, network: Network, settings: Any) -> Algorithm:
    """Return an algorithm; the banks of those that have some are full."""
    kind = ALGORITHMS.get(method, Okapi)
    algorithm = kind(network, TASK, settings, steps=1000)
    if isinstance(algorithm, Okapi | OkapiPlus):
        fill_banks(algorithm.consistency)
    return algorithm


def fill_banks(consistency: CrossDomainConsistency) -> None:
    """Fill the bank with clusters of unit vectors, half of each pool, shifted between the pools.

    Where there is a bank of outcomes, those of the labelled half are known, one class for each cluster.
    """
    generator = torch.Generator().manual_seed(1)
    count, width = consistency.encodings.slots.shape
    domain = torch.randint(2, (count,), generator=generator)
    cluster = torch.randint(50, (count,), generator=generator)
    x = torch.randn(50, width, generator=generator)[cluster]
    x += torch.randn(count, width, generator=generator)
    x += 0.1 * domain[:, None]
    consistency.encodings.push(normalize(x, dim=1))
    consistency.domains.push(domain)
    if consistency.task is not None:
        known, label = domain == 0, torch.eye(TASK.outputs)[cluster % TASK.outputs]
        predicted = (4 * label + torch.randn(label.shape, generator=generator)).softmax(dim=1)
        consistency.outcomes.push(torch.where(known[:, None], label, predicted))
        consistency.known.push(known)


def build(workload: Workload, method: str) -> tuple[Algorithm, Callable[[], float]]:
    """Return an algorithm, and a function that takes one training step with it."""
    torch.manual_seed(0)
    algorithm = make_algorithm(method, make_network(workload), settings_of(method, workload))
    batch = draw_batch(workload, all_labelled=method == ERM, strong=method in WITH_STRONG_VIEWS)
    optimiser = torch.optim.AdamW(algorithm.parameter_groups(1e-5), weight_decay=0.0)
    number = iter(range(1_000_000))

    def step() -> float:
        optimiser.zero_grad()
        loss, _ = algorithm.training_step(batch, next(number))
        loss.backward()
        optimiser.step()
        return loss.item()

    def full_matrix_step() -> float:
        with patch("okapi.nn.matching.caliper_nn", full_matrix):
            return step()

    return algorithm, full_matrix_step if method == FULL_MATRIX else step


def make_network(workload: Workload) -> Network:
    """Return a network with random weights."""
    encoder = workload.encoder()
    return Network(encoder, torch.nn.Linear(encoder.out_features, TASK.outputs))


def parts_of_limit(workload: Workload) -> dict[str, Callable[[], object]]:
    """Return what Okapi+ must do beyond a step of ERM: functions by the name of the part."""
    online, momentum = make_network(workload), make_network(workload).eval()
    inputs, strong = workload.inputs(2 * workload.pool), workload.inputs(workload.pool)

    def forward() -> None:
        with torch.no_grad():
            momentum(inputs)

    def forward_and_backward() -> None:
        online.zero_grad()
        online(strong).prediction.logsumexp(dim=1).mean().backward()

    return {FORWARD: forward, STRONG: forward_and_backward}


def draw_batch(workload: Workload, *, all_labelled: bool, strong: bool) -> Batch:
    generator = torch.Generator().manual_seed(0)

    def samples(count: int, target: bool) -> Samples:
        return Samples(
            inputs=workload.inputs(count),
            domain=torch.zeros(count, dtype=torch.int64),
            id=torch.arange(count),
            target=torch.randint(TASK.outputs, (count,), generator=generator) if target else None,
            strong=workload.inputs(count) if strong else None,
        )

    if all_labelled:
        return Batch(samples(2 * workload.pool, True))
    return Batch(samples(workload.pool, True), samples(workload.pool, False))


def full_matrix(
    queries: Tensor, keys: Tensor, *, k: int, fixed_caliper: float | None, std_caliper: float | None, **rest: Any
) -> Matches:
    """Match two domains by the paper's steps: the matrices of distances and of propensities, and a mask."""
    e_q, e_k, s_q, s_k = (rest[name] for name in ("query_propensity", "key_propensity", "query_domain", "key_domain"))
    distance = torch.cdist(queries, keys)
    outside = s_q[:, None] == s_k
    if fixed_caliper is not None and fixed_caliper < 1:
        low, high = 1 - fixed_caliper, fixed_caliper
        outside |= ~((e_q > low) & (e_q < high))[:, None] | ~((e_k > low) & (e_k < high))
    if std_caliper is not None:
        apart = torch.cdist(e_q[:, None], e_k[:, None])
        for a in (0, 1):
            sigma = ((e_q[s_q == a].var() + e_k[s_k != a].var()) / 2).sqrt()
            outside |= (s_q == a)[:, None] & (apart > std_caliper * sigma)
    distance[outside] = torch.inf
    nearest = distance.topk(k, largest=False)
    query = nearest.values[:, -1].isfinite().nonzero().flatten()
    return Matches(query, nearest.indices[query], nearest.values[query].double())


def processor_seconds(function: Callable[[], object]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


# --- Measurements, each in a fresh process ----------------------------------------------------------------------------


def measure_steps(workload: str, rounds: int) -> dict[str, float]:
    """Return the median seconds of a step of each method and of the parts of the limit; all take turns."""
    turns = {method: build(WORKLOADS[workload], method)[1] for method in METHODS} | parts_of_limit(WORKLOADS[workload])
    settle(turns.values())
    times: dict[str, list[float]] = {name: [] for name in turns}
    for _ in range(rounds):
        for name, turn in turns.items():
            times[name].append(processor_seconds(turn))
    return {name: median(values) for name, values in times.items()}


def settle(turns: Iterable[Callable[[], object]]) -> None:
    """Take turns until the process asks the system for no more memory: what is made at first use is then made."""
    turns = list(turns)
    for _ in range(MOST_ROUNDS_TO_SETTLE):
        before = getrusage(RUSAGE_SELF).ru_minflt
        for turn in turns:
            turn()
        if getrusage(RUSAGE_SELF).ru_minflt - before < FEW_PAGES:
            return


def measure_memory(workload: str, method: str) -> float:
    """Return the peak memory in bytes of building a method and taking two steps."""

    def run() -> None:
        _, step = build(WORKLOADS[workload], method)
        step(), step()

    torch.nn.Linear(4, 4)(torch.zeros(2, 4)).sum().backward()
    return peak_extra_memory(run)[1]


def measure_parts(workload: str, rounds: int) -> dict[str, float]:
    """Return the median seconds of what Okapi adds to a step, part by part."""
    chosen = WORKLOADS[workload]
    algorithm, step = build(chosen, OKAPI)
    assert isinstance(algorithm, Okapi)
    step()
    consistency = algorithm.consistency
    batch = draw_batch(chosen, all_labelled=False, strong=False)
    inputs = join([batch.labelled.inputs, batch.unlabelled.inputs])
    number = iter(range(1, 1_000_000))
    parts = {
        "momentum forward": lambda: consistency.momentum(inputs),
        "momentum update": lambda: consistency.momentum.update(algorithm.network.encoder, next(number)),
    }
    medians = {name: median(processor_seconds(part) for _ in range(rounds)) for name, part in parts.items()}
    return medians | measure_matching(workload, chosen.settings, chosen.pool, rounds)


def measure_matching(workload: str, settings: OkapiSettings, pool: int, rounds: int) -> dict[str, float]:
    """Return the median seconds of scoring, matching by either algorithm and pushing to the bank, at any size."""
    chosen = replace(WORKLOADS[workload], settings=settings)
    width = chosen.encoder().out_features
    network = Network(torch.nn.Linear(width, width), torch.nn.Linear(width, TASK.outputs))
    algorithm = make_algorithm(OKAPI, network, settings_of(OKAPI, chosen))
    assert isinstance(algorithm, Okapi)
    consistency, bank = algorithm.consistency, algorithm.consistency.encodings
    new = bank.rows()[torch.randperm(len(bank))[: 2 * pool]] + 0.01 * torch.randn(2 * pool, width)
    domain = torch.arange(2 * pool) // pool

    def join_keys() -> tuple[Tensor, Tensor]:
        return torch.cat([new, bank.rows()]), torch.cat([domain, consistency.domains.rows()])

    keys, key_domain = join_keys()
    scorer = consistency.scorer
    assert scorer is not None
    score = scorer.scores(scorer(keys))
    arguments = {
        "query_domain": domain,
        "key_domain": key_domain,
        "query_propensity": score[: 2 * pool],
        "key_propensity": score,
        **vars(consistency.matching),
    }

    def learn_scores() -> None:
        scorer.zero_grad()
        scorer.loss(scorer(keys), key_domain).backward()

    def push() -> None:
        bank.push(new)
        consistency.domains.push(domain)

    parts: dict[str, Callable[[], object]] = {
        "joining the keys": join_keys,
        "scorer": learn_scores,
        "matching": lambda: caliper_nn(new, keys, **arguments),
        "matching, full matrix": lambda: full_matrix(new, keys, **arguments),
        "push to the bank": push,
    }
    same = torch.equal(caliper_nn(new, keys, **arguments).query, full_matrix(new, keys, **arguments).query)
    medians = {name: median(processor_seconds(part) for _ in range(rounds)) for name, part in parts.items()}
    return medians | {"agreement": float(same)}


def measure_loading(name: str, workers: int, steps: int) -> tuple[float, float]:
    """Return images per second of the loader alone, and the share of a training loop that waits for it."""
    workload = WORKLOADS[name]
    pool, count, distort = workload.pool, 16 * workload.pool, Compose((Shift(8), Noise(0.05)))
    dataset = Dataset(
        inputs=workload.inputs(count),
        target=torch.arange(count) % TASK.outputs,
        domain=torch.arange(count) % 2,
        split=["train", "unlabelled"] * (count // 2),
        task=TASK,
        domain_names=("a", "b"),
        views=Views(labelled=distort, unlabelled=distort),
    )
    streams = {name: Stream(dataset.rows(name).numpy(), pool, seed=0) for name in ("train", "unlabelled")}
    batches = Batches(dataset, labelled=streams["train"], unlabelled=streams["unlabelled"], seed=0)
    loader = iter(batch_loader(batches, 0, 40, workers))
    next(loader)  # workers have started
    start = time.perf_counter()
    loaded = sum(len(batch) for batch in loader)
    speed = loaded / (time.perf_counter() - start)

    algorithm, step = build(workload, OKAPI)
    step()
    optimiser = torch.optim.AdamW(algorithm.parameter_groups(1e-5), weight_decay=0.0)
    loader = iter(batch_loader(batches, 0, steps + 1, workers))
    next(loader)
    waited, start = 0.0, time.perf_counter()
    for number in range(1, steps + 1):
        before = time.perf_counter()
        batch = next(loader)
        waited += time.perf_counter() - before
        optimiser.zero_grad()
        algorithm.training_step(batch, number)[0].backward()
        optimiser.step()
    return speed, waited / (time.perf_counter() - start)


# --- Tables -----------------------------------------------------------------------------------------------------------


def cost(report: Report, workload: str, rounds: int, threads: int) -> float:
    """Add the tables of one workload; return the seconds of an ERM step per sample."""
    chosen = WORKLOADS[workload]
    times = in_fresh_process(measure_steps, workload, rounds, threads=threads, keep_memory=True)
    memory = {method: in_fresh_process(measure_memory, workload, method, threads=threads) for method in METHODS}
    report.add(f"## {chosen}")
    report.add_table(
        ["method", "step, s", "against ERM", "limit", "", "peak memory, GB", "against ERM"],
        [
            [
                "ERM on all of them" if method == ERM else method,
                f"{times[method]:.3f}",
                f"{times[method] / times[ERM]:.2f}",
                *judged(method, times, chosen),
                f"{memory[method] / 1e9:.2f}",
                f"{memory[method] / max(1, memory[ERM]):.2f}",
            ]
            for method in METHODS
        ],
    )
    beyond = " + ".join(f"{times[part]:.3f} ({part})" for part in (FORWARD, STRONG))
    report.add(f"Limit of {OKAPI_PLUS}, in seconds: ({times[ERM]:.3f} (ERM) + {beyond}) x {OKAPI_PLUS_TOLERANCE}.")
    parts = in_fresh_process(measure_parts, workload, max(3, rounds), threads=threads)
    agreement = parts.pop("agreement")
    report.add(f"What {OKAPI} adds to ERM's step, measured part by part:")
    rows = [[name, f"{1e3 * value:.1f}", f"{value / times[OKAPI]:.1%}"] for name, value in parts.items()]
    report.add_table(["part", "milliseconds", f"of {OKAPI}'s step"], rows)
    report.add(f"Both algorithms match the same queries: {'yes' if agreement else 'NO'}.")
    return times[ERM] / (2 * chosen.pool)


def judged(method: str, times: Mapping[str, float], workload: Workload) -> tuple[str, str]:
    """Return the limit of a method, in steps of ERM, and whether it is met; nothing where it has none."""
    limits = {OKAPI: OKAPI_LIMIT}
    limits[OKAPI_PLUS] = OKAPI_PLUS_TOLERANCE * sum(times[part] for part in (ERM, FORWARD, STRONG)) / times[ERM]
    if method not in limits:
        return "", ""
    verdict = "met" if times[method] <= limits[method] * times[ERM] else "not met"
    return f"{limits[method]:.2f}", verdict if workload.judged else "not judged"


def matching_share(report: Report, per_sample: Mapping[str, float], rounds: int, threads: int) -> None:
    """Add the share of the matching at the paper's batch sizes, from measured parts."""
    rows = []
    for workload, seconds in per_sample.items():
        for name, (settings, pool) in WORKLOADS[workload].batches.items():
            parts = in_fresh_process(measure_matching, workload, settings, pool, max(5, rounds), threads=threads)
            step = seconds * 2 * pool * 4 / 3
            rows.append(
                [
                    f"{name}, {pool} + {pool}, bank of {settings.bank:,}",
                    f"{step:.2f}",
                    *(f"{1e3 * parts[part]:.1f}" for part in ("matching", "matching, full matrix", "scorer")),
                    f"{parts['matching'] / step:.2%}",
                ]
            )
    report.add("## Matching at the paper's batch sizes")
    report.add(
        "A step is 4/3 of the ERM step per sample as measured above times the paper's batch: at 224 px and 64 tokens. "
        "The paper's 448 px (iWildCam) and 300 tokens (CivilComments) make the step longer and the share smaller."
    )
    header = ["", "step, s", "matching, ms", "full matrix, ms", "scorer, ms", "matching of the step"]
    report.add_table(header, rows)


def loading(report: Report, workload: str, steps: int, threads: int) -> None:
    """Add the speed of loading."""
    rows = []
    for workers in (0, 1, 2):
        speed, waiting = in_fresh_process(measure_loading, workload, workers, steps, threads=threads)
        rows.append([workers, f"{speed:,.0f}", f"{waiting:.2%}"])
    report.add("## Loading")
    report.add(
        f"Images from memory, each shifted and with noise added; the loop is that of {OKAPI}, {WORKLOADS[workload]}, "
        "on the same processors as the workers."
    )
    report.add_table(["workers", "images per second, loader alone", "share of the loop that waits"], rows)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="steps of each method")
    parser.add_argument("--threads", type=int, default=1)
    parts = ["convnext", "distilbert", "loading"]
    parser.add_argument("--only", choices=[*WORKLOADS, "loading"], nargs="+", default=parts)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "out")
    run_script(parser, measure, lambda out: ["--only", "small", "loading", "--rounds", "1", "--out", str(out)], words)


def measure(chosen: argparse.Namespace) -> None:
    """Measure what was asked for and write the page."""
    report = Report("The cost of a training step", chosen.out)
    report.add(machine_facts("torch", "transformers") + f"\n- threads: {chosen.threads}, rounds: {chosen.rounds}")
    per_sample = {
        workload: cost(report, workload, chosen.rounds, chosen.threads)
        for workload in WORKLOADS
        if workload in chosen.only
    }
    if per_sample:
        matching_share(report, per_sample, chosen.rounds, chosen.threads)
    if "loading" in chosen.only:
        loading(report, "small" if "small" in chosen.only else "convnext", chosen.rounds, chosen.threads)
    report.write("training.md")


if __name__ == "__main__":
    main()
