"""The model card of a run: Markdown with the metadata that Hugging Face reads."""

import math
from typing import Any

import yaml

from okapi.data.dataset import Dataset
from okapi.data.splits import TESTS
from okapi.evaluation import evaluate, group_table, main_metric
from okapi.models import Network
from okapi.runs import Results, Run
from okapi.table import Table
from okapi.training.inference import predict

_VALIDATION = ("id_val", "ood_val")
_METHODS = {
    "erm": "empirical risk minimisation",
    "fixmatch": "FixMatch",
    "okapi": "Okapi, the method of Bartlett et al. (NeurIPS 2022)",
    "okapi_plus": "Okapi+",
    "offline_okapi": "offline Okapi",
}


def model_card(run: Run, results: Results, network: Network, dataset: Dataset, *, batch_size: int, workers: int) -> str:
    """Return the card of a run with its selected weights: data, selection, metrics by domain, limits, how to use it.

    Metrics are those of the validation splits; no test split is opened.
    """
    config, task = results.config, dataset.task
    method = str(config["algorithm"]["name"])
    about = {
        "library_name": "okapi",
        "tags": ["domain-generalization", "okapi", method, task.kind],
        "metrics": [main_metric(task)],
    }
    parts = [
        f"---\n{yaml.safe_dump(about, sort_keys=False)}---",
        f"# {run.path.resolve().name}",
        f"A model for {_purpose(dataset)}, trained by {_METHODS.get(method, method)} with okapi {results.okapi}.",
        "## Use",
        _usage(run, config),
        "## Data",
        _data(results, dataset),
        "## How the weights were selected",
        _selection(results),
    ]
    for split in _VALIDATION:
        if len(rows := dataset.rows(split)):
            device = next(network.parameters()).device
            options: dict[str, Any] = {"batch_size": batch_size, "workers": workers, "device": device}
            prediction = predict(network, dataset, rows, encodings=False, **options).prediction
            parts += [f"## Metrics on {split}", _metrics(dataset, split, prediction)]
    again = "```console\n$ okapi train config.yaml --out NEW_RUN\n```\n\n`config.yaml` has all keys."
    parts += ["## Limits", _limits(results), "## How to train it again", again]
    return "\n\n".join(parts) + "\n"


def _purpose(dataset: Dataset) -> str:
    task, inputs = dataset.task, dataset.description()["kind"]
    if task.kind == "regression":
        return f"{task.outputs} number{'s' if task.outputs > 1 else ''} from {inputs}"
    names = ", ".join(dataset.class_names[:20]) + (", ..." if len(dataset.class_names) > 20 else "")
    what = "classes" if task.kind == "classification" else "labels"
    return f"{task.outputs} {what} of {inputs}" + (f" ({names})" if names else "")


def _usage(run: Run, config: dict[str, Any]) -> str:
    name = run.path.resolve().name
    return (
        f'```python\nimport okapi\n\nmodel = okapi.load("{name}")\nmodel.predict(samples)  # or predict_proba, encode\n'
        f"```\n\n```console\n$ okapi predict {name} DATA --out predictions.csv\n```"
    )


def _data(results: Results, dataset: Dataset) -> str:
    rows = [[split, count] for split, count in results.splits.items() if count]
    where = {key: results.config["data"].get(key) for key in ("name", "path", "root", "held_out")}
    text = ", ".join(f"{key} {value}" for key, value in where.items() if value)
    table = Table(title="", columns=["split", "samples"], rows=[[name, f"{count:,}"] for name, count in rows])
    return f"{text}; {len(dataset.domain_names)} domains.\n\n{table.to_markdown().strip()}"


def _selection(results: Results) -> str:
    chosen = results.selection
    text = (
        f"By {chosen.selector}, metric {chosen.metric}: step {chosen.step:,} of {results.steps:,}, seed {results.seed}."
    )
    if chosen.selector == "oracle":
        text += " An oracle has seen ood_test: these metrics are not what selection can reach."
    if results.started_from is not None:
        text += f" Training started from the weights of {results.started_from.path} ({results.started_from.algorithm})."
    return text


def _metrics(dataset: Dataset, split: str, prediction: Any) -> str:
    rows = dataset.rows(split)
    truth = dataset.task, prediction, dataset.target[rows]
    domain = dataset.domain[rows], dataset.domain_names
    overall = evaluate(*truth, *domain)
    lines = ", ".join(
        f"{name.replace('_', ' ')} {value:.4g}" for name, value in overall.items() if not math.isnan(value)
    )
    frame = group_table(*truth, *domain).rename(columns={"name": "domain"})
    table = Table.from_frame(frame.head(50), title="")
    more = f"\n\nand {len(frame) - 50} more domains" if len(frame) > 50 else ""
    return f"{len(rows):,} samples: {lines}.\n\n{table.to_markdown().strip()}{more}"


def _limits(results: Results) -> str:
    sealed = [split for split in TESTS if results.splits.get(split)]
    lines = [
        "Metrics above are of validation splits"
        + (", which selected the weights." if "val" in results.selection.selector else "."),
        f"The test splits ({', '.join(sealed)}) were not opened: `okapi evaluate` does that."
        if sealed
        else "There is no test split: how good the model is at new sites was not measured.",
        "Samples far from all labelled ones (`domain_shift` well above 1 in `okapi predict`) deserve a second look.",
        *results.notes,
    ]
    return "\n".join(f"- {line}" for line in lines)
