"""From a file, a config or a run to a diagnosis: what is printed, the JSON file and the page."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rich.console import Console
from rich.text import Text

import okapi
from okapi.console import stdout, working
from okapi.data import Table, check_output, read_table, write_text
from okapi.evaluation.diagnosis import Diagnosis, diagnose
from okapi.matching.covariates import Covariates
from okapi.report.diagnosis_page import diagnosis_page, settings_yaml
from okapi.report.diagnosis_tables import domains_table, expected_table, left_out_table
from okapi.report.table_file import is_quantity
from okapi.report.terminal import print_files, print_notes, print_table
from okapi.training.embedding import embed, open_model

CONFIGS = (".yaml", ".yml")
MOST_ROWS = 12  # of a table that is printed; the page and the JSON file have them all


@dataclass(frozen=True, eq=False)
class Encodings:
    """What is diagnosed.

    Parameters
    ----------
    X : array (n, d)
    domain : array (n,)
    target : array (n,), optional
    unlabelled : sequence of str, optional
        Domains whose targets are not read.
    task : {"classification", "regression"}
    """

    X: NDArray[Any]
    domain: NDArray[Any]
    target: NDArray[Any] | None
    unlabelled: Sequence[str] | None
    task: Any


def diagnose_data(
    source: Path,
    *,
    domain: str | None = None,
    columns: Sequence[str] | None = None,
    target: str | None = None,
    unlabelled: Sequence[str] = (),
    task: str | None = None,
    overrides: Sequence[tuple[str, str]] = (),
    json_file: Path | None = None,
    report: Path | None = None,
    **options: Any,
) -> None:
    """Read or make encodings, diagnose them, print the diagnosis and write its files.

    Parameters
    ----------
    source : Path
        A table, as `okapi.data.read_table` takes it; or a config or a run directory, whose encoder is used.
    domain, columns, target : optional
        Columns of a table.
    unlabelled : sequence of str
        Domains whose targets are not read; by default those that have none, or the split unlabelled of a config.
    task : {"classification", "regression"}, optional
        By default what the targets of labelled domains look like.
    overrides : sequence of (key, text)
        Keys of a config.
    json_file, report : Path, optional
        Files for all figures and for the page.
    **options
        As `okapi.evaluation.diagnosis.diagnose` takes them.
    """
    _check_outputs(source, json_file, report)
    model = source.is_dir() or source.suffix.lower() in CONFIGS
    if model:
        _refuse_columns(source, {"domain": domain, "columns": columns, "target": target, "task": task})
        given = embedded(source, overrides, unlabelled)
    else:
        if overrides:
            raise ValueError(f"--{overrides[0][0]} is a key of configs, but {source} is none")
        if domain is None:
            raise ValueError(f"--domain is missing: which column of {source} says where a sample comes from")
        with working(f"Reading {source}"):
            given = read_encodings(source, domain, columns, target, unlabelled, task)
    with working("Diagnosing") as now:
        found = diagnose(
            given.X,
            given.domain,
            given.target,
            unlabelled=given.unlabelled,
            task=given.task,
            progress=now,
            **options,
        )
        settings = {"data": str(source), **options, "Okapi": okapi.__version__}
        page = diagnosis_page(found, source.name, settings) if report is not None else ""
    console = stdout()
    print_diagnosis(console, found, str(source))
    if json_file is not None:
        write_text(json_file, json.dumps({**settings, **found.as_dict()}, indent=2, ensure_ascii=False) + "\n")
    if report is not None:
        write_text(report, page)
    print_files(console, {"Figures": json_file, "Page": report})


def read_encodings(
    path: Path,
    domain: str,
    columns: Sequence[str] | None,
    target: str | None,
    unlabelled: Sequence[str],
    task: str | None,
) -> Encodings:
    """Read a table. What the targets of unlabelled domains look like does not count."""
    table = read_table(path, domain=domain, columns=columns or None, target=target)
    if task is None:
        task = "regression" if table.target is not None and _quantity(table, unlabelled) else "classification"
    X = table.X
    if isinstance(X, pd.DataFrame):
        X = Covariates(X).encode(X)
    return Encodings(np.asarray(X), table.domain, table.target, unlabelled or None, task)


def _quantity(table: Table, unlabelled: Sequence[str]) -> bool:
    assert table.target is not None
    labelled = ~np.isin(table.domain.astype(str), list(unlabelled))
    return is_quantity(table.target[labelled])


def embedded(source: Path, overrides: Sequence[tuple[str, str]], unlabelled: Sequence[str]) -> Encodings:
    """Return encodings of the splits train and unlabelled by the encoder of a config or a run.

    Targets of the split unlabelled are not read. Its domains that have labelled samples, too, are domains of their own.
    """
    config, weights = open_model(source, overrides)
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
    names = list(unlabelled) or sorted(set(domain[without])) or None
    task = "regression" if pd.api.types.is_float_dtype(target) else "classification"
    return Encodings(
        np.stack(frame["encoding"].tolist()), domain, target.mask(without).to_numpy(dtype=object), names, task
    )


def _check_outputs(source: Path, json_file: Path | None, report: Path | None) -> None:
    for path, suffixes in ((json_file, [".json"]), (report, [".html", ".htm"])):
        if path is not None:
            check_output(path, suffixes)
    if not source.exists():
        raise ValueError(f"{source} does not exist")


def _refuse_columns(source: Path, given: dict[str, Any]) -> None:
    if named := [name for name, value in given.items() if value]:
        raise ValueError(
            f"--{named[0]} says what a table holds, but {source} is a config or a run, which says it itself"
        )


def print_diagnosis(console: Console, found: Diagnosis, source: str) -> None:
    """Print the verdict, its reasons, the figures and the settings to use."""
    labelled = f"labelled {', '.join(found.labelled)}; unlabelled {', '.join(found.unlabelled)}"
    _say(console, f"{source}: {labelled if found.task else 'no labels, domains ' + ', '.join(found.labelled)}")
    print_notes(console, found.notes)
    console.print()
    console.print(Text(found.headline, style="bold"), soft_wrap=not console.is_terminal)
    _say(console, found.advice)
    for reason in found.reasons:
        _say(console, f"- {reason}")
    for table in (expected_table(found), left_out_table(found), domains_table(found)):
        if table.rows:
            rows = [[text for text, _ in row] for row in table.rows]
            words = [name for name, number in table.header if not number]
            print_table(console, table.title, [name for name, _ in table.header], rows[:MOST_ROWS], words=words)
            if len(rows) > MOST_ROWS:
                _say(console, f"and {len(rows) - MOST_ROWS:,} more, which --json and --report list")
    console.print()
    _say(console, "Settings, to paste into a config:")
    _say(console, settings_yaml(found))


def _say(console: Console, line: str) -> None:
    console.print(Text(line), soft_wrap=not console.is_terminal)
