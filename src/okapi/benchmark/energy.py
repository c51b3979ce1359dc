"""How much energy a run takes, by codecarbon's tracker that needs no network."""

import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from math import nan
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import pandas as pd

from okapi.files import write_json

if TYPE_CHECKING:
    from okapi.benchmark.records import Results

FILE = "energy.json"
Tracking: TypeAlias = Literal["machine", "process"]
_METERS = re.compile(r"rapl|gadget|emi|apple|powermetrics|raspberry", re.IGNORECASE)
_OFF = (
    "save_to_file",
    "save_to_api",
    "save_to_logger",
    "save_to_prometheus",
    "save_to_logfire",
)  # of older versions


class Energy(NamedTuple):
    """What a run took.

    ``seconds`` of wall time, ``kwh`` of energy and ``kg`` of CO2 equivalents; ``metered``: the CPU's energy was
    measured, not estimated; ``complete``: it is known of all steps.
    """

    seconds: float
    kwh: float
    kg: float
    metered: bool
    complete: bool


def check_energy(country: str) -> None:
    """Reject to measure without codecarbon, or in a country that it has no carbon intensity of."""
    if find_spec("codecarbon") is None:
        raise ValueError("energy needs codecarbon, which is not installed: pip install 'okapi-ssl[tracking]'")
    from codecarbon.input import DataSource

    known = DataSource().get_global_energy_mix_data()  # type: ignore[no-untyped-call]
    if country not in known:
        raise ValueError(f"country must be three letters by ISO 3166, such as GBR, got {country!r}")


@contextmanager
def measured(folder: Path, country: str, tracking: Tracking) -> Iterator[None]:
    """Measure what is done inside and add it to ``energy.json`` of a run directory, also when it is stopped.

    Parameters
    ----------
    folder : Path
        The run directory; it may not be there yet.
    country : str
        Where the machine stands, by three letters, which says how much CO2 a kWh is.
    tracking : {"machine", "process"}
        Whether all that the machine uses is this run's, or only the share of this process.
    """
    import codecarbon

    logging.getLogger("codecarbon").setLevel(logging.ERROR)
    quiet: dict[str, Any] = (
        {"output_methods": []} if hasattr(codecarbon, "OutputMethod") else dict.fromkeys(_OFF, False)
    )
    tracker: Any = codecarbon.OfflineEmissionsTracker(
        country_iso_code=country,
        tracking_mode=tracking,
        allow_multiple_runs=True,
        measure_power_secs=5,
        log_level="error",
        electricitymaps_api_token=None,
        **quiet,
    )
    first = newest_step(folder)
    tracker.start()  # looks at the hardware for some seconds
    began = perf_counter()
    try:
        yield
    finally:
        seconds = perf_counter() - began
        tracker.stop()  # which, like all of codecarbon, never raises: without data there is simply no part
        if folder.is_dir() and (found := getattr(tracker, "final_emissions_data", None)):
            part = {
                "from_step": first,
                "to_step": newest_step(folder),
                "seconds": seconds,
                "kwh": found.energy_consumed,
                "cpu_kwh": found.cpu_energy,
                "gpu_kwh": found.gpu_energy,
                "ram_kwh": found.ram_energy,
                "kg_co2": found.emissions,
                "date": found.timestamp,
            }
            hardware = [str(item) for item in getattr(tracker, "_conf", {}).get("hardware", [])]
            _add(folder / FILE, part, {"country": country, "tracking": tracking, "hardware": hardware})


def read_energy(folder: Path, steps: int) -> Energy | None:
    """Return what a run of so many steps took; None where nothing of it was measured, or the file is damaged."""
    try:
        content = json.loads((folder / FILE).read_text(encoding="utf-8"))
        parts = content["parts"]
        reached = 0
        for part in parts:
            if part["from_step"] > reached:  # what came before it was killed, and its energy is not known
                break
            reached = part["to_step"]
        return Energy(
            seconds=sum(float(part["seconds"]) for part in parts),
            kwh=sum(float(part["kwh"]) for part in parts),
            kg=sum(float(part["kg_co2"]) for part in parts),
            metered=any(_METERS.search(text) for text in content["hardware"]),
            complete=reached >= steps,
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def newest_step(folder: Path) -> int:
    """Return the step of a run's newest checkpoint, 0 if there is none."""
    names = [path.name for path in (folder / "checkpoints").glob("step-*")]
    return max((int(name[5:]) for name in names if name[5:].isdigit()), default=0)


def _add(file: Path, part: dict[str, Any], about: dict[str, Any]) -> None:
    parts = []
    if file.is_file():
        try:
            parts = json.loads(file.read_text(encoding="utf-8"))["parts"]
        except (ValueError, KeyError, TypeError):
            parts = []
    write_json(file, {**about, "codecarbon": version("codecarbon"), "parts": [*parts, part]})


def compare_energy(results: "Results") -> tuple[pd.DataFrame, list[str]]:
    """Return what the runs of each method took, as a mean, and its ratio to the reference; and notes.

    Ratios are of means over the targets and seeds that both have. Where nothing was measured the frame is empty.
    """
    units = {"seconds": ("seconds", 1), "wh": ("kwh", 1000), "g_co2": ("kg", 1000)}
    runs = [(run, read_energy(run.path, run.results.steps)) for run in results.runs if run.results]
    frame = pd.DataFrame(
        [
            {"method": run.cell.method, "run": (run.cell.group, run.cell.seed), **energy._asdict()}
            for run, energy in runs
            if energy
        ],
        columns=["method", "run", *Energy._fields],
    )
    complete = frame[frame["complete"].astype(bool)]
    reference = complete[complete["method"] == results.grid.reference].set_index("run")
    rows = []
    for method in [name for name in results.grid.methods if name in set(complete["method"])]:
        taken = complete[complete["method"] == method].set_index("run")
        both = taken.index.intersection(reference.index)
        row: dict[str, Any] = {"method": method}
        for name, (field, unit) in units.items():
            row[name] = taken[field].mean() * unit
            row[f"{name}_ratio"] = taken[field][both].sum() / reference[field][both].sum() if len(both) else nan
        rows.append(row | {"n": len(taken)})
    notes = []
    if not complete["metered"].all():
        notes.append("The CPU's power is not metered here: codecarbon estimates it by model and load.")
    if left_out := len(frame) - len(complete):
        notes.append(f"{left_out} runs that were killed on the way are left out: part of their energy is not known.")
    return pd.DataFrame(rows), notes
