"""A small data set of four domains, configs for it, and benchmarks that start no process."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from okapi.benchmark import Results, compare, make_grid, run_benchmark
from okapi.benchmark.launch import Started, ThisProcess
from okapi.benchmark.worker import Job
from okapi.report.benchmark import write_tables

DOMAINS = ("art", "car_toon", "photo & co", "sketch")
ALGORITHMS: dict[str, dict[str, Any]] = {
    "erm": {"name": "erm"},
    "fixmatch": {"name": "fixmatch", "threshold": 0.5},
    "okapi": {"name": "okapi", "bank": 64, "matching": {"k": 2, "fixed_caliper": None, "std_caliper": None}},
    "offline_okapi": {
        "name": "offline_okapi",
        "erm_run": "none",
        "matching": {"fixed_caliper": None, "std_caliper": None},
    },
    "broken": {"name": "erm"},
}


def write_configs(folder: Path, **training: Any) -> Path:
    """Write a data set and a config for each method; return the folder of the configs."""
    generator, n = np.random.default_rng(0), 240
    target, domain = np.arange(n) % 3, np.arange(n) // 60
    x = generator.normal(size=(n, 6)) + target[:, None] + 0.5 * domain[:, None]
    np.savez(folder / "data.npz", x=x, y=target, domain=np.array(DOMAINS)[domain])
    configs = folder / "configs"
    configs.mkdir()
    for method, algorithm in ALGORITHMS.items():
        content = {
            "data": {"name": "arrays", "path": str(folder / "data.npz"), "split": None, "held_out": "sketch"},
            "model": {"name": "mlp", "hidden": [8], "out_features": 4},
            "algorithm": algorithm,
            "training": {
                "steps": 6,
                "labelled_batch": 16,
                "unlabelled_batch": 16,
                "learning_rate": 0.01,
                "validate_every": 3,
                "checkpoint_every": 2,
                "log_every": 1,
                "selector": "id_val",
                "accelerator": "cpu",
                **training,
                **({"learning_rate": 1e6, "weight_decay": 1e6} if method == "broken" else {}),
            },
        }
        content["data"]["strong_noise"] = 0.1
        (configs / f"{method}.yaml").write_text(yaml.safe_dump(content))
    return configs


def benchmark(configs: Path, out: Path, methods: Sequence[str], **chosen: Any) -> tuple[Results, list[str]]:
    """Make a benchmark in this process; return its results and the folders of the runs that were made."""
    names = {name: chosen.pop(name) for name in ("test", "country") if name in chosen}
    made: list[str] = []

    def start(self: ThisProcess, job: Job, slot: int) -> Started:
        made.append(str(job.folder))
        return plain(self, job, slot)

    plain = ThisProcess.start
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ThisProcess, "start", start)
        results = run_benchmark(make_grid([configs], methods=methods, **chosen), out, workers=0, **names)
    write_tables(results, compare(results))
    return results, made
