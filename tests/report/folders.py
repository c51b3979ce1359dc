"""Run directories as a run leaves them, with made-up figures."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from okapi import __version__

SITES = ("north", "south")


def write_run(
    path: Path, *, algorithm: str = "erm", seed: int = 0, steps: int = 40, done: int = 40, **changes: Any
) -> Path:
    """Write a run of some steps, finished if all are done; changes replace parts of results.json."""
    path.mkdir(parents=True)
    config = {
        "data": {"name": "sites"},
        "model": {"name": "mlp"},
        "algorithm": {"name": algorithm},
        "training": {"steps": steps, "metric": None},
        "seed": seed,
    }
    (path / "config.yaml").write_text(yaml.safe_dump(config))
    (path / "classes.json").write_text(json.dumps({"task": {}, "classes": [], "inputs": {}}))
    lines = ["step,split,metric,value"]
    for step in range(10, done + 1, 10):
        lines += [f"{step},train,loss,{2 / step + seed}", f"{step},train,match_rate,{step / 100}"]
        lines += [f"{step},ood_val,accuracy,{step / 50}"]
    (path / "metrics.csv").write_text("\n".join(lines) + "\n")
    timings = [f"{step},5.0,100.0,0.1" for step in range(10, done + 1, 10)]
    (path / "timings.csv").write_text("\n".join(["step,seconds,images_per_second,seconds_waiting_for_data", *timings]))
    if done < steps:
        return path
    figures = {"accuracy": 0.8 - 0.1 * seed, "accuracy_domain_worst": 0.6}
    results = {
        "format": 2,
        "okapi": __version__,
        "steps": steps,
        "stopped_early": False,
        "selection": {
            "selector": "ood_val",
            "metric": "accuracy",
            "higher_is_better": True,
            "step": 30,
            "metrics": {"ood_val": figures},
        },
        "weights": {"file": "model.safetensors", "sha256": "abc"},
        "seed": seed,
        "splits": {},
        "config": config,
        **changes,
    }
    (path / "results.json").write_text(json.dumps(results))
    return path


def evaluation(split: str, values: dict[str, float], **changes: Any) -> dict[str, Any]:
    """Return what ``okapi evaluate`` adds to results.json, given the accuracy in each domain."""
    mean = float(np.mean(list(values.values())))
    return {
        "split": split,
        "n": 10 * len(values),
        "selector": "ood_val",
        "weights": {"which": "selected", "step": 30, "sha256": "abc"},
        "metrics": {"accuracy": mean, "accuracy_domain_worst": min(values.values())},
        "domains": [{"name": name, "n": 10, "accuracy": value} for name, value in values.items()],
        "date": "2026-01-01T00:00:00+00:00",
        "okapi": __version__,
        **changes,
    }


def write_predictions(run: Path, split: str, columns: dict[str, Any], names: list[str], sha256: str = "abc") -> None:
    """Write a file of predictions."""
    about = json.dumps({"split": split, "sha256": sha256, "class_names": names})
    pq.write_table(pa.table(columns).replace_schema_metadata({"okapi": about}), run / f"predictions-{split}.parquet")
