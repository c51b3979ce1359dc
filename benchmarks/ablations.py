"""What each part of our Okapi does: one thing changed at a time, on the two development targets of PACS.

    python benchmarks/ablations.py DATA --out runs/ablations

DATA holds pacs_features.npz. Accuracy on ood_test of art and cartoon, weights selected by id_val. Settings were fixed
before this was run (by id_val and scores that need no labels, see headline.py), and are not changed by it. Stopped, it
goes on where it was; ``--only`` makes a part of it, ``--smoke`` a few steps of each to see that all works.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from _common import Report, machine_facts
from headline import CONFIGS, STUDIES, find_file
from okapi.benchmark import Grid, average, paired_difference, run_benchmark
from okapi.benchmark.statistics import Spread
from okapi.training import read_config

Values = dict[tuple[str, int], float]
Tried = tuple[str, Mapping[str, object]]
BASE = "okapi"
TARGETS = ("art_painting", "cartoon")
NULL = "null"


@dataclass(frozen=True)
class Part:
    """Settings of the algorithm that are tried, by how they are called; {} is the base itself."""

    title: str
    settings: Mapping[str, Mapping[str, object]]
    base: str = BASE


CALIPERS = {"fixed_caliper": 0.9, "std_caliper": 0.2, "outcome_caliper": "auto"}


def calipers(*given: str) -> dict[str, object]:
    """Return settings with these calipers alone; self-training, which needs the last one, is off."""
    return {name: value if name in given else NULL for name, value in CALIPERS.items()} | {"self_training": 0}


PARTS = {
    "parts": Part(
        "without a part",
        {
            "ours": {},
            "not centred": {"centred": "false"},
            "not aligned": {"outcome_alignment": "false"},
            "aligned with labels": {"outcome_clusters": 0},
            "aligned with clusters": {"outcome_clusters": 1},
            "prognostic caliper 0.9": {"outcome_caliper": 0.9},
            "any error tolerated": {"outcome_tolerance": 1},
            "rising over half": {"warm_up": 0.5},
            "no self-training": {"self_training": 0},
            "no pulling": {"weight": 0},
        },
    ),
    "calipers": Part(
        "calipers, without self-training",
        {
            "none": calipers(),
            "fixed": calipers("fixed_caliper"),
            "std": calipers("std_caliper"),
            "prognostic": calipers("outcome_caliper"),
            "fixed, std": calipers("fixed_caliper", "std_caliper"),
            "all three": calipers(*CALIPERS),
        },
    ),
    "k": Part("k", {"1": {"k": 1}, "5": {}, "10": {"k": 10}}),
    "weight": Part("lambda", {"0.5": {"weight": 0.5}, "2": {}, "5": {"weight": 5}, "20": {"weight": 20}}),
    "bank": Part("bank", {"256": {"bank": 256}, "1,024": {}, "4,096": {"bank": 4096}, "16,384": {"bank": 16384}}),
    "momentum": Part(
        "momentum of the slow copy",
        {
            "0": {"momentum": 0},
            "0.83, automatic": {},
            "0.95": {"momentum": 0.95},
            "0.99": {"momentum": 0.99},
            "0.99 to 1": {"momentum": 0.99, "final_momentum": 1},
        },
    ),
    "paper_momentum": Part(
        "momentum of the slow copy, with the paper's method",
        {
            "0.83, automatic": {"momentum": "auto", "final_momentum": NULL},
            "0.83 to 1": {"momentum": "auto"},
            "0.99 to 1": {},
        },
        base="okapi_paper",
    ),
    "queries": Part("queries", {"momentum": {}, "online": {"queries": "online"}}),
    "direction": Part(
        "direction",
        {
            "both": {},
            "labelled to unlabelled": {"direction": "[0, 1]"},
            "unlabelled to labelled": {"direction": "[1, 0]"},
        },
    ),
    "scorer": Part(
        "learning rate of the scorer, with the paper's calipers",
        {
            "the encoder's": {},
            "0.003": {"scorer_learning_rate": 0.003},
            "0.03": {"scorer_learning_rate": 0.03},
        },
        base="okapi_paper",
    ),
    "hubs": Part("limits on hubs", {"none": {}, "CSLS": {"hubness": "csls"}, "cap of 3": {"hubness": "cap"}}),
    "adaptive": Part(
        "calipers that adapt, from those of the paper",
        {
            "fixed": {"scorer_learning_rate": 0.03},
            "match rate 0.5": {"scorer_learning_rate": 0.03, "adapt": "match_rate"},
            "balance": {"scorer_learning_rate": 0.03, "adapt": "balance"},
            "temperature": {"scorer_learning_rate": 0.03, "temperature": "auto"},
        },
        base="okapi_paper",
    ),
}


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("--out", type=Path, default=Path("runs/ablations"))
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--smoke", action="store_true", help="four steps, one seed")
    chosen = parser.parse_args(words)
    mpl.use("Agg")
    mpl.rcParams["svg.fonttype"] = "none"  # letters as letters: files are a third as large
    path = find_file(STUDIES["pacs"], chosen.data)
    report = Report("Ablations", chosen.out)
    report.add(machine_facts("torch"))
    steps, seeds = (4, 1) if chosen.smoke else (STUDIES["pacs"].steps, chosen.seeds)
    parts = {name: PARTS[name] for name in chosen.only}
    tried = {
        key(part.base, settings): (part.base, settings)
        for part in parts.values()
        for settings in part.settings.values()
    }
    values = run({"erm": ("erm", {}), **tried}, path, chosen.out, steps, seeds)
    for name, part in parts.items():
        found = {called: values[key(part.base, settings)] for called, settings in part.settings.items()}
        show(report, name, part, found | {"ERM": values["erm"]}, seeds)
    report.write("ablations.md")


def key(base: str, settings: Mapping[str, object]) -> str:
    """Return what runs with these settings are kept as; parts that try the same share them."""
    return "-".join([base, *(f"{name}-{value}" for name, value in settings.items())]).replace(" ", "")


def run(tried: Mapping[str, Tried], path: Path, out: Path, steps: int, seeds: int) -> dict[str, Values]:
    """Return, of each that is tried, the accuracy in per cent on ood_test by target and seed."""
    common = {"data.path": path, "training.steps": steps}
    common |= {"training.validate_every": max(1, steps // 6), "training.checkpoint_every": steps}
    configs = {}
    for name, (base, settings) in tried.items():
        overrides = common | {f"algorithm.{setting}": value for setting, value in settings.items()}
        given = [(setting, str(value)) for setting, value in overrides.items()]
        configs[name] = read_config(CONFIGS / "pacs_features" / f"{base}.yaml", given)
    grid = Grid(methods=configs, seeds=tuple(range(seeds)), axis="target", groups=TARGETS)
    results = run_benchmark(grid, out)
    if results.failed:
        raise SystemExit(f"{len(results.failed)} runs failed, the first: {results.failed[0].reason}")
    frame = results.frame[(results.frame["split"] == "ood_test") & (results.frame["metric"] == "accuracy")]
    values: dict[str, Values] = {name: {} for name in tried}
    for row in frame[frame["method"].isin(tried)].itertuples(index=False):
        if row.seed < seeds:
            values[row.method][row.target, row.seed] = 100 * row.value
    return values


def show(report: Report, name: str, part: Part, found: Mapping[str, Values], seeds: int) -> None:
    """Add a table and a figure."""
    means = {called: average(values) for called, values in found.items()}
    report.add(f"## {part.title.capitalize()}")
    report.add(f"Accuracy on ood_test, mean (deviation) over {seeds} seeds, of art and cartoon; difference to ERM")
    rows = []
    for called, values in found.items():
        gain = paired_difference(values, found["ERM"], names=(called, "ERM"))
        each = [average({key: value for key, value in values.items() if key[0] == target}) for target in TARGETS]
        shown = [f"{cell.mean:.1f} ({cell.deviation:.1f})" for cell in [*each, means[called]]]
        rows.append([called, *shown, f"{gain.mean:+.1f} [{gain.low:+.1f}, {gain.high:+.1f}]"])
    report.add_table([part.title, *TARGETS, "average", "difference"], rows)
    report.add_figure(draw(part, means), name, f"{part.title}: accuracy on ood_test")


def draw(part: Part, means: Mapping[str, Spread]) -> Figure:
    """Return a figure: a dot and its deviation for each setting, ERM as a line."""
    figure = Figure(figsize=(6, 0.7 + 0.35 * len(means)), layout="constrained")
    axes = figure.add_subplot()
    erm = means["ERM"].mean
    tried = [called for called in means if called != "ERM"]
    for place, called in enumerate(tried):
        axes.errorbar(means[called].mean, place, xerr=means[called].deviation, fmt="o", color="tab:blue", capsize=3)
    axes.axvline(erm, color="tab:gray", linestyle="--", label="ERM")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    axes.set_yticks(range(len(tried)), tried)
    axes.set_ylim(len(tried) - 0.5, -0.7)
    axes.set_xlabel("accuracy on ood_test, art and cartoon")
    axes.set_title(part.title, loc="left", fontsize=10)
    return figure


if __name__ == "__main__":
    main()
