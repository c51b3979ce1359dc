"""``okapi diagnose``."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.text import Text

import okapi
from okapi.commands.match import is_quantity
from okapi.console import print_files, print_notes, stdout, working
from okapi.data import check_output, read_table, write_text
from okapi.evaluation.diagnosis import Diagnosis
from okapi.evaluation.diagnosis import diagnose as diagnose_encodings
from okapi.files import write_json
from okapi.matching.covariates import Covariates
from okapi.report.diagnosis_page import diagnosis_page, settings_yaml
from okapi.report.diagnosis_tables import domains_table, expected_table, left_out_table
from okapi.training.embedding import embed, open_model

MOST_ROWS = 12  # of a table that is printed; the report and the JSON file have them all


def diagnose(
    data: Path,
    *,
    domain: str | None = None,
    columns: Sequence[str] = (),
    target: str | None = None,
    separator: str | None = None,
    unlabelled: Sequence[str] = (),
    task: str | None = None,
    out: Path | None = None,
    report: Path | None = None,
    overrides: Sequence[tuple[str, str]] = (),
    **settings: Any,
) -> None:
    """Find out whether matching is likely to help, print it and write it.

    Parameters
    ----------
    data : Path
        A table of encodings, as `okapi.data.read_table` takes it; or a config or a run, whose encoder is used.
    domain, columns, target, separator : optional
        Of a table.
    unlabelled : sequence of str
        Domains whose targets are not read; by default those that have none, or the split unlabelled of a config.
    task : {"classification", "regression"}, optional
        By default what the targets of labelled domains look like.
    out, report : Path, optional
        Files for all metrics and for the report.
    overrides : sequence of (key, text)
        Keys of a config.
    **settings
        As `okapi.evaluation.diagnosis.diagnose` takes them.
    """
    for path, suffixes in ((out, [".json"]), (report, [".html", ".htm"])):
        if path is not None:
            check_output(path, suffixes)
    if not data.exists():
        raise ValueError(f"{data} does not exist")
    if data.is_dir() or data.suffix.lower() in (".yaml", ".yml"):
        given = {"domain": domain, "columns": columns, "target": target, "separator": separator, "task": task}
        if named := [name for name, value in given.items() if value]:
            raise ValueError(
                f"--{named[0]} says what a table holds, but {data} is a config or a run, which says it itself"
            )
        samples = encoded_samples(data, overrides, unlabelled)
    else:
        if overrides:
            raise ValueError(f"--{overrides[0][0]} is a key of configs, but {data} is none")
        if domain is None:
            raise ValueError(f"--domain is missing: which column of {data} says where a sample comes from")
        with working(f"Reading {data}"):
            table = read_table(data, domain=domain, columns=columns or None, target=target, separator=separator)
        if task is None and table.target is not None:
            labelled = ~np.isin(table.domain.astype(str), list(unlabelled))
            task = "regression" if is_quantity(table.target[labelled]) else None
        X = Covariates(table.X).encode(table.X) if isinstance(table.X, pd.DataFrame) else table.X
        samples = {"X": np.asarray(X), "domain": table.domain, "target": table.target}
        samples |= {"unlabelled": unlabelled or None, "task": task or "classification"}
    with working("Diagnosing") as now:
        diagnosis = diagnose_encodings(**samples, progress=now, **settings)
        used = {"data": str(data), **settings, "Okapi": okapi.__version__}
        page = diagnosis_page(diagnosis, data.name, used) if report is not None else ""
    console = stdout()
    print_diagnosis(console, diagnosis, str(data))
    if out is not None:
        write_json(out, {**used, **diagnosis.as_dict()})
    if report is not None:
        write_text(report, page)
    print_files(console, {"Metrics": out, "Report": report})


def encoded_samples(
    source: Path, overrides: Sequence[tuple[str, str]], unlabelled: Sequence[str] = ()
) -> dict[str, Any]:
    """Return encodings of the splits train and unlabelled by the encoder of a config or a run.

    Targets of the split unlabelled are not read. Its domains that have labelled samples, too, are domains of their own.
    """
    config, weights = open_model(source, list(overrides))
    with TemporaryDirectory(prefix="okapi-") as folder:
        out = Path(folder) / "encodings.parquet"
        embed(config, out, weights=weights, splits=("train", "unlabelled"))
        frame = pd.read_parquet(out)
    if "target" not in frame:
        raise ValueError(f"{source} predicts several numbers or labels of a sample; a diagnosis is for one target")
    without = (frame["split"] == "unlabelled").to_numpy()
    domain, target = frame["domain"].to_numpy(dtype=object), frame["target"]
    shared = without & np.isin(domain, domain[~without])
    domain[shared] = domain[shared] + " (unlabelled)"
    return {
        "X": np.stack(frame["encoding"].tolist()),
        "domain": domain,
        "target": target.mask(without).to_numpy(dtype=object),
        "unlabelled": list(unlabelled) or sorted(set(domain[without])) or None,
        "task": "regression" if pd.api.types.is_float_dtype(target) else "classification",
    }


def print_diagnosis(console: Console, diagnosis: Diagnosis, source: str) -> None:
    """Print the verdict, what to do with which settings, why, and then the numbers."""

    def say(line: str, style: str = "") -> None:
        console.print(Text(line, style=style), soft_wrap=not console.is_terminal)

    labelled = ", ".join(diagnosis.labelled)
    named = f"labelled {labelled}; unlabelled {', '.join(diagnosis.unlabelled)}"
    say(f"{source}: {named if diagnosis.task else f'no labels, domains {labelled}'}")
    print_notes(console, diagnosis.notes)
    for title, lines in (
        (diagnosis.headline, [diagnosis.advice]),
        ("In the config", [settings_yaml(diagnosis)]),
        ("Why", [f"- {reason}" for reason in diagnosis.reasons]),
    ):
        console.print()
        say(title, style="bold")
        for line in lines:
            say(line)
    for table in (expected_table(diagnosis), left_out_table(diagnosis), domains_table(diagnosis)):
        if table.rows:
            table.print(console, MOST_ROWS, "which --out and --report list")
