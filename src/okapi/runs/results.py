"""What results.json holds: typed, with the number of its format, checked whenever it is read."""

import json
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from math import nan
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, TypeAdapter, ValidationError

from okapi import __version__

FORMAT: Literal[2] = 2
"""Of run directories. Format 1 was written before there was a classes.json."""


def _with_names(rows: list[dict[Any, Any]]) -> list[dict[Any, Any]]:
    if not all({"name", "n"} <= row.keys() for row in rows):
        raise ValueError("every row must have name and n")
    return rows


Rows: TypeAlias = Annotated[list[dict[Any, Any]], AfterValidator(_with_names)]
"""A table of domains or groups: a dictionary for each, with its ``name``, ``n`` and metrics."""

Metric: TypeAlias = Annotated[float, BeforeValidator(lambda value: nan if value is None else value)]
"""A number; one that is undefined is null in the file."""


def now() -> str:
    """Return the date and the time, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(kw_only=True)
class Selection:
    """How the weights were selected.

    Parameters
    ----------
    selector, metric : str
        What compared them, and by which metric.
    higher_is_better : bool
    step : int
        At which the selected weights were written.
    metrics : dict
        Of the selected weights, by split.
    """

    selector: str
    metric: str
    higher_is_better: bool
    step: int
    metrics: dict[str, dict[str, Metric]]


@dataclass(kw_only=True)
class WeightsFile:
    """The file of the selected weights, and its SHA-256."""

    file: str
    sha256: str


@dataclass(kw_only=True)
class Started:
    """The run whose weights were the initial ones."""

    path: str
    sha256: str
    step: int
    algorithm: str


@dataclass(kw_only=True)
class EvaluatedWeights:
    """Which weights were evaluated."""

    which: Literal["selected", "last"]
    step: int
    sha256: str


@dataclass(kw_only=True)
class Openings:
    """How often a test split had been opened by then, and with how many different weights."""

    times: int
    weights: int


@dataclass(kw_only=True)
class Evaluation:
    """An evaluation on a split; tables of domains and groups have a dictionary for each row."""

    split: str
    n: int
    selector: str
    weights: EvaluatedWeights
    metrics: dict[str, Metric]
    domains: Rows
    groups: Rows | None = None
    date: str = field(default_factory=now)
    okapi: str = __version__
    overrides: dict[str, str] = field(default_factory=dict)
    edited: bool = False
    opened: Openings | None = None


@dataclass(kw_only=True)
class Opened:
    """How often a test split was opened, and the hashes of all weights that it was opened with."""

    times: int = 0
    sha256: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class Results:
    """What a finished run has found.

    Parameters
    ----------
    format : 2
    okapi : str
        The version that trained it.
    steps : int
    stopped_early : bool
    selection : Selection
    weights : WeightsFile
    seed : int
    splits : dict
        Samples of each split of the data.
    config : dict
        With all its keys.
    started_from : Started, optional
    notes : list of str
        Warnings of the training, such as of a match rate near zero.
    opened : dict
        By test split.
    evaluations : list of Evaluation
        In the order in which they were made.
    """

    format: Literal[2] = FORMAT
    okapi: str = __version__
    steps: int
    stopped_early: bool
    selection: Selection
    weights: WeightsFile
    seed: int
    splits: dict[str, int]
    config: dict[str, Any]
    started_from: Started | None = None
    notes: list[str] = field(default_factory=list)
    opened: dict[str, Opened] = field(default_factory=dict)
    evaluations: list[Evaluation] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, as the file has them."""
        return asdict(self)

    def evaluations_of_selected(self) -> list[Evaluation]:
        """Return the evaluations of the weights that the run selected, unedited."""
        return [
            one
            for one in self.evaluations
            if one.weights.sha256 == self.weights.sha256 and one.weights.which == "selected"
        ]

    def metrics(self) -> dict[str, dict[str, float]]:
        """Return the metrics of the selected weights by split; of several evaluations of a split the last."""
        validated = {split: values for split, values in self.selection.metrics.items() if split.endswith("_val")}
        return validated | {one.split: one.metrics for one in self.evaluations_of_selected()}


_ADAPTER = TypeAdapter(Results)


def parse_results(content: bytes, source: str) -> Results:
    """Return the results that a file holds; what cannot be understood is a ValueError that names ``source``."""
    try:
        raw = json.loads(content)
    except ValueError as error:  # neither JSON nor UTF-8
        raise ValueError(f"{source} is no JSON, it was edited or damaged: {error}") from error
    if not isinstance(raw, dict):
        raise ValueError(f"{source} must hold an object, it holds a {type(raw).__name__}")
    if raw.get("format", FORMAT) != FORMAT:
        raise ValueError(
            f"{source} is of format {raw['format']}, written by okapi {raw.get('okapi')}; this is okapi "
            f"{__version__}, which reads format {FORMAT}"
        )
    try:
        return _ADAPTER.validate_json(content, strict=True)
    except ValidationError as error:
        wrong = ", ".join(dict.fromkeys(".".join(map(str, one["loc"])) for one in error.errors()))
        raise ValueError(f"{source} was edited or damaged: {wrong} is missing or wrong") from error
