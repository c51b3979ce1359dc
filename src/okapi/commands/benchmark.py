"""``okapi benchmark``."""

from collections.abc import Sequence
from pathlib import Path

from okapi.benchmark import SlurmSettings, make_grid, run_benchmark
from okapi.benchmark.grid import parse_seeds
from okapi.config.methods import parse_names


def benchmark(
    configs: Sequence[Path],
    *,
    methods: str | None = None,
    seeds: str = "1",
    folds: str | None = None,
    targets: str | None = None,
    out: Path | None = None,
    reference: str = "erm",
    start_from: str | None = None,
    split: str | None = None,
    metric: str | None = None,
    test: bool = True,
    workers: int | None = None,
    engine: str = "local",
    slurm_partition: str | None = None,
    slurm_time: int = 24 * 60,
    slurm_cpus: int = 4,
    slurm_gpus: int = 0,
    slurm_memory: float | None = None,
    energy: bool = False,
    country: str | None = None,
    overrides: Sequence[tuple[str, str]] = (),
) -> int:
    """Train methods with seeds, folds or targets, and print one table; return 1 if a run failed."""
    if energy and not country:
        raise ValueError("--energy needs --country, where the machine stands, by three letters such as GBR")
    if country and not energy:
        raise ValueError("--country is for --energy, which is missing")
    try:
        numbers = parse_seeds(seeds)
    except ValueError as error:
        raise ValueError(f"--seeds {error}") from error
    grid = make_grid(
        list(configs),
        methods=parse_names(methods or ""),
        seeds=numbers,
        targets=parse_names(targets or ""),
        folds=parse_names(folds or ""),
        overrides=list(overrides),
        reference=reference,
        start_from=start_from,
    )
    slurm = SlurmSettings(
        partition=slurm_partition, minutes=slurm_time, cpus=slurm_cpus, gpus=slurm_gpus, memory_gb=slurm_memory
    )
    results = run_benchmark(
        grid,
        out or default_out(configs),
        workers=workers,
        slurm=slurm if engine == "slurm" else None,
        test=test,
        country=country,
    )
    from okapi.report.benchmark import print_results  # imports torch: a wrong config is answered without

    print_results(results, split, metric)
    return 1 if results.failed else 0


def default_out(configs: Sequence[Path]) -> Path:
    """Return where a benchmark is written by default: runs/ and the name of its config, or of the folder of them."""
    if len(configs) == 1:
        return Path("runs") / (configs[0].resolve().stem or "benchmark")
    return Path("runs") / (configs[0].parent.resolve().name or "benchmark")
