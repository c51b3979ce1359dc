"""``okapi benchmark``."""

from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from okapi.cli.parsing import Parser, Verb, number, whole


def _benchmark(chosen: Namespace) -> int:
    if not chosen.configs:
        raise ValueError("CONFIGS is missing: a folder of YAML files, or YAML files. See okapi benchmark --help")
    if chosen.energy and not chosen.country:
        raise ValueError("--energy needs --country, where the machine stands, by three letters such as GBR")
    if chosen.country and not chosen.energy:
        raise ValueError("--country is for --energy, which is missing")
    from okapi.benchmark import Running, SlurmSettings, make_grid, run_benchmark
    from okapi.benchmark.grid import parse_names, parse_seeds
    from okapi.report.benchmark import print_results

    try:
        seeds = parse_seeds(chosen.seeds)
    except ValueError as error:
        raise ValueError(f"--seeds {error}") from error
    grid = make_grid(
        chosen.configs,
        methods=parse_names(chosen.methods or ""),
        seeds=seeds,
        targets=parse_names(chosen.targets or ""),
        folds=parse_names(chosen.folds or ""),
        overrides=chosen.overrides,
        reference=chosen.reference,
        start_from=chosen.start_from,
    )
    slurm = SlurmSettings(
        partition=chosen.slurm_partition,
        minutes=chosen.slurm_time,
        cpus=chosen.slurm_cpus,
        gpus=chosen.slurm_gpus,
        memory_gb=chosen.slurm_memory,
    )
    running = Running(
        workers=chosen.workers,
        slurm=slurm if chosen.engine == "slurm" else None,
        test=not chosen.no_test,
        country=chosen.country,
    )
    results = run_benchmark(grid, chosen.out or default_out(chosen.configs), running)
    files = results.write(chosen.split, chosen.metric)
    print_results(results, files, chosen.split, chosen.metric)
    return 1 if results.failed else 0


def default_out(configs: list[Path]) -> Path:
    """Return where a benchmark goes unless somebody says it: runs/ and the name of the folder of its configs."""
    folder = configs[0] if configs[0].is_dir() else configs[0].parent
    return Path("runs") / (folder.resolve().name or "benchmark")


def _benchmark_parser() -> ArgumentParser:
    parser = Parser(
        usage="okapi benchmark CONFIGS [options]",
        description="Train every method with every seed, and every fold or held-out target, each run in a process of\n"
        "its own; open the test splits of each once; and write one table: mean (standard deviation), paired\n"
        "differences to ERM with a bootstrap interval, the best and those not significantly worse marked.\n"
        "Killed, it goes on by the same command: finished runs stay, begun ones are resumed, failed ones are\n"
        "tried again. Keys of the config can be options too, for all runs.",
        epilog="example:\n"
        "  okapi benchmark configs/sites --methods erm,okapi,okapi_plus --seeds 5\n"
        "  okapi benchmark configs/sites --seeds 5 --start-from erm --out runs/sites-from-erm\n"
        "  okapi benchmark configs/pacs --targets all --seeds 3 --data.root ~/pacs --out runs/pacs\n"
        "  okapi benchmark configs/poverty --folds A-E --engine slurm --slurm-partition gpu --slurm-gpus 1\n\n"
        "The folder gets table.md, table.csv, table.tex, runs.csv (every run with its config's hash, seed,\n"
        "version, environment and time), logs/, and the run directories METHOD/TARGET/seed-N; start/\n"
        "has those of --start-from, which are in no table.",
    )
    add = parser.add_argument
    add("configs", type=Path, nargs="*", metavar="CONFIGS", help="a folder of YAML files, or YAML files")
    add("--methods", metavar="NAMES", help="which files of the folder (default: erm, fixmatch, okapi, okapi_plus)")
    add("--seeds", type=str, default="1", metavar="N", help="how many seeds, from 0, or which: 0,3,7")
    add("--folds", metavar="NAMES", help="folds of the data set, such as A-E")
    add("--targets", metavar="NAMES", help="domains to hold out one after the other, or all")
    add("--out", type=Path, metavar="DIR", help="where to write (default: runs/ and the name of the folder)")
    add("--reference", default="erm", metavar="NAME", help="the method that others are compared with")
    add(
        "--start-from",
        metavar="NAME",
        help="train this method first, with every target and seed, and let all runs start from its weights",
    )
    add("--split", metavar="SPLIT", help="what the table is about (default: ood_test where there is one)")
    add("--metric", metavar="NAME", help="what the table is about (default: the config's, or the task's main one)")
    add("--no-test", action="store_true", help="leave test splits sealed: validation figures only")
    add("--workers", type=whole, metavar="N", help="runs at a time, which share the cores (default: GPUs, or cores)")
    add("--engine", choices=["local", "slurm"], default="local", help="this machine, or one Slurm job for each run")
    add("--slurm-partition", metavar="NAME", help="partition of the jobs")
    add(
        "--slurm-time",
        type=whole,
        default=24 * 60,
        metavar="MINUTES",
        help="time limit; a run then goes on in a new job",
    )
    add("--slurm-cpus", type=whole, default=4, metavar="N", help="cores of each run")
    add("--slurm-gpus", type=whole, default=0, metavar="N", help="GPUs of each run")
    add("--slurm-memory", type=number, metavar="GB", help="memory of each run")
    add("--energy", action="store_true", help="measure energy and carbon by codecarbon; one run at a time by default")
    add("--country", metavar="CODE", help="where the machine stands, for --energy: GBR")
    add("--SECTION.KEY", dest="key", metavar="VALUE", help="a key of all configs, as YAML: --training.steps 200")
    return parser


VERB = Verb(
    name="benchmark",
    help="train methods with several seeds, folds or targets, and compare them",
    parser=_benchmark_parser,
    run=_benchmark,
    takes_keys=True,
)
