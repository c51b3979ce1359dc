"""What each part of Okapi+ does: one setting changed at a time, on the two development targets of PACS.

    python benchmarks/ablations.py DATA --out runs/ablations

DATA holds pacs_features.npz. Accuracy on ood_test of art and cartoon, weights selected by id_val. Settings were fixed
before this was run (by id_val and scores that need no labels, see headline.py), and are not changed by it. Started
again after a stop, it resumes; ``--only`` makes a part of it. ``--smoke`` reads all configs, and makes short runs of
one part on tiny data.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from _common import Report, machine_facts, run_script
from _runs import run_grid, schedule
from _tiny import write_pacs_features
from headline import CONFIGS, OKAPI, OKAPI_PLUS, STUDIES, find_file
from okapi.benchmark import Grid, average, paired_difference
from okapi.benchmark.compare import Spread
from okapi.config import Config, read_config

Values = dict[tuple[str, int], float]
Tried = tuple[str, Mapping[str, object]]
TARGETS = ("art_painting", "cartoon")
NULL = "null"


@dataclass(frozen=True)
class Part:
    """Settings of the algorithm that are tried, by the names of rows; {} is the base itself."""

    title: str
    settings: Mapping[str, Mapping[str, object]]
    base: str = OKAPI_PLUS


PARTS = {
    "parts": Part(
        "without a part",
        {
            "all of them": {},
            "not centred": {"matching.centre": "false"},
            "not aligned": {"matching.class_prior": NULL},
            "aligned with labels": {"matching.class_prior": 0},
            "aligned with clusters": {"matching.class_prior": 1},
            "prognostic caliper 0.9": {"matching.prognostic_caliper": 0.9},
            "no error gate": {"pseudo_labels.error_gate": 1},
            "warm-up over half": {"warm_up": 0.5},
            "no pseudo-labels": {"pseudo_labels.weight": 0},
            "centring alone": {"matching.prognostic_caliper": NULL},
            "no consistency": {"weight": 0},
        },
    ),
    "k": Part("k", {"1": {"matching.k": 1}, "5": {}, "10": {"matching.k": 10}}),
    "weight": Part("lambda", {"0.5": {"weight": 0.5}, "2": {}, "5": {"weight": 5}, "20": {"weight": 20}}),
    "bank": Part("bank", {"256": {"bank": 256}, "1,024": {}, "4,096": {"bank": 4096}, "16,384": {"bank": 16384}}),
    "momentum": Part(
        "momentum of the encoder (EMA)",
        {
            "0": {"momentum.start": 0},
            "0.83, automatic": {},
            "0.95": {"momentum.start": 0.95},
            "0.99": {"momentum.start": 0.99},
            "0.99 to 1": {"momentum.start": 0.99, "momentum.end": 1},
        },
    ),
    "paper_calipers": Part(
        "calipers of the paper's method",
        {
            "fixed, std": {},
            "fixed": {"matching.std_caliper": NULL},
            "std": {"matching.fixed_caliper": NULL},
            "none": {"matching.fixed_caliper": NULL, "matching.std_caliper": NULL},
        },
        base=OKAPI,
    ),
    "paper_momentum": Part(
        "momentum of the encoder (EMA), with the paper's method",
        {
            "0.83, automatic": {"momentum.end": NULL},
            "0.83 to 1": {},
            "0.99 to 1": {"momentum.start": 0.99},
        },
        base=OKAPI,
    ),
    "paper_queries": Part(
        "queries of the paper's method", {"momentum": {}, "online": {"queries": "online"}}, base=OKAPI
    ),
    "paper_direction": Part(
        "direction of the paper's method",
        {
            "both": {},
            "labelled to unlabelled": {"matching.direction": "[0, 1]"},
            "unlabelled to labelled": {"matching.direction": "[1, 0]"},
        },
        base=OKAPI,
    ),
    "scorer": Part(
        "learning rate of the scorer, with the paper's calipers",
        {
            "the encoder's": {},
            "0.003": {"scorer.learning_rate": 0.003},
            "0.03": {"scorer.learning_rate": 0.03},
        },
        base=OKAPI,
    ),
}


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("--out", type=Path, default=Path("runs/ablations"))
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=STUDIES["pacs"].steps)
    run_script(parser, measure, tiny, words)


def tiny(folder: Path) -> list[str]:
    """Return a command line for short runs of one part on tiny data of this folder."""
    write_pacs_features(folder)
    return [str(folder), "--out", str(folder / "out"), "--only", "paper_queries", "--seeds", "1", "--steps", "1"]


def measure(chosen: argparse.Namespace) -> None:
    """Make the runs and write the page."""
    mpl.use("Agg")
    mpl.rcParams["svg.fonttype"] = "none"  # letters as letters: files are a third as large
    path = find_file(STUDIES["pacs"], chosen.data)
    report = Report("Ablations", chosen.out)
    report.add(machine_facts("torch"))
    configs = make_configs(path, chosen.steps)  # of all parts: what is wrong in a later one is reported at once
    parts = {name: PARTS[name] for name in chosen.only}
    tried = dict.fromkeys(key(part.base, settings) for part in parts.values() for settings in part.settings.values())
    values = run({name: configs[name] for name in ("erm", *tried)}, chosen.out, chosen.seeds)
    for name, part in parts.items():
        scores = {row: values[key(part.base, settings)] for row, settings in part.settings.items()}
        show(report, name, part, scores | {"ERM": values["erm"]}, chosen.seeds)
    report.write("ablations.md")


def key(base: str, settings: Mapping[str, object]) -> str:
    """Return the name of the runs with these settings; parts that try the same share them."""
    return "-".join([base, *(f"{name}-{value}" for name, value in settings.items())]).replace(" ", "")


def make_configs(path: Path, steps: int) -> dict[str, Config]:
    """Return the config of ERM and of everything that any part tries, by the names of their runs."""
    tried: dict[str, Tried] = {"erm": ("erm", {})}
    for part in PARTS.values():
        tried |= {key(part.base, settings): (part.base, settings) for settings in part.settings.values()}
    configs = {}
    for name, (base, settings) in tried.items():
        overrides = {"data.path": path} | schedule(steps)
        overrides |= {f"algorithm.{setting}": value for setting, value in settings.items()}
        given = [(setting, str(value)) for setting, value in overrides.items()]
        configs[name] = read_config(CONFIGS / "pacs_features" / f"{base}.yaml", given)
    return configs


def run(configs: Mapping[str, Config], out: Path, seeds: int) -> dict[str, Values]:
    """Return, of each config, the accuracy in per cent on ood_test by target and seed."""
    frame = run_grid(Grid(methods=dict(configs), seeds=tuple(range(seeds)), axis="target", groups=TARGETS), out)
    frame = frame[frame["split"] == "ood_test"]
    values: dict[str, Values] = {name: {} for name in configs}
    for row in frame[frame["method"].isin(configs)].itertuples(index=False):
        if row.seed < seeds:
            values[row.method][row.target, row.seed] = 100 * row.accuracy
    return values


def show(report: Report, name: str, part: Part, scores: Mapping[str, Values], seeds: int) -> None:
    """Add a table and a figure."""
    means = {row: average(values) for row, values in scores.items()}
    report.add(f"## {part.title.capitalize()}")
    report.add(f"Accuracy on ood_test, mean (deviation) over {seeds} seeds, of art and cartoon; difference to ERM")
    rows = []
    for row, values in scores.items():
        gain = paired_difference(values, scores["ERM"], names=(row, "ERM"))
        each = [average({key: value for key, value in values.items() if key[0] == target}) for target in TARGETS]
        shown = [f"{cell.mean:.1f} ({cell.deviation:.1f})" for cell in [*each, means[row]]]
        rows.append([row, *shown, f"{gain.mean:+.1f} [{gain.low:+.1f}, {gain.high:+.1f}]"])
    report.add_table([part.title, *TARGETS, "average", "difference"], rows)
    report.add_figure(draw(part, means), name, f"{part.title}: accuracy on ood_test")


def draw(part: Part, means: Mapping[str, Spread]) -> Figure:
    """Return a figure: a dot and its deviation for each setting, ERM as a line."""
    figure = Figure(figsize=(6, 0.7 + 0.35 * len(means)), layout="constrained")
    axes = figure.add_subplot()
    erm = means["ERM"].mean
    tried = [row for row in means if row != "ERM"]
    for place, row in enumerate(tried):
        axes.errorbar(means[row].mean, place, xerr=means[row].deviation, fmt="o", color="tab:blue", capsize=3)
    axes.axvline(erm, color="tab:gray", linestyle="--", label="ERM")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    axes.set_yticks(range(len(tried)), tried)
    axes.set_ylim(len(tried) - 0.5, -0.7)
    axes.set_xlabel("accuracy on ood_test, art and cartoon")
    axes.set_title(part.title, loc="left", fontsize=10)
    return figure


if __name__ == "__main__":
    main()
