"""Does matching help out of distribution? ERM, FixMatch and Okapi on real data with a real shift.

    python benchmarks/prepare_data.py DATA PREPARED
    python benchmarks/headline.py DATA PREPARED --out runs/headline

DATA is the folder of the raw files, PREPARED that of the files made of them. Of a target half is unlabelled and the
other half is the test; a fifth of the sources is id_val, which selects the weights. Targets marked (dev) are for
choosing settings, by id_val and scores of the unlabelled half that need no labels, never by labels of a target; or by
labels of art and cartoon, each as a source of the other's task in the part of a target (role_play.py). What was chosen
for classes on PACS art and cartoon serves digits, sentiment and the built-in sites too. What was chosen for numbers
serves all three countries; Malawi chose it, a source of Tanzania's task, in the part of a target and with its labels.
The oracle is ERM with the labels of the target's unlabelled half. Where inputs are features, ERM is there a second
time, with the mean of their domain taken away from all features.

The built-in sites are otherwise: those tested on are new, and ood_val, other sites with labels, selects the weights.

Started again after a stop, the study resumes; ``--only`` makes a part of it, ``--methods`` some rows and ERM,
``--seeds`` fewer runs. ``--smoke`` makes a few short runs on tiny data, to try the script.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from _common import machine_facts, markdown_table, run_script
from _runs import run_grid, schedule
from _tiny import write_digits, write_lsms
from okapi.benchmark import average, make_grid, paired_difference, spread

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
OKAPI, OKAPI_PLUS = "okapi", "okapi_plus"  # names of configs
METHODS = {
    "ERM": "erm",
    "ERM, centred features": "erm_centred",
    "FixMatch": "fixmatch",
    "Okapi": OKAPI,
    "Okapi, no calipers": "okapi_no_calipers",
    "Okapi+": OKAPI_PLUS,
    "oracle": "erm_fully_labelled",
}


@dataclass(frozen=True)
class Study:
    """A data set of the study: where it is, what is held out, and how long runs are."""

    configs: str
    path: str | None  # None: built in
    targets: tuple[str, ...]
    steps: int
    metrics: tuple[str, ...] = ("accuracy",)
    selector: str = "id_val"
    development: tuple[str, ...] = ()
    transfers: bool = False  # a target is named source-target, and nothing else is trained on

    def methods(self, wanted: Sequence[str]) -> dict[str, str]:
        """Configs by the names of methods: ERM, and of those wanted what the data set has."""
        return {
            name: config
            for name, config in METHODS.items()
            if config in ("erm", *wanted) and (CONFIGS / self.configs / f"{config}.yaml").exists()
        }


DIGITS = ("mnist", "usps", "optdigits")
STUDIES = {
    "pacs": Study(
        "pacs_features",
        "pacs_features.npz",
        ("art_painting", "cartoon", "photo", "sketch"),
        600,
        development=("art_painting", "cartoon"),
    ),
    "digits": Study(
        "digits",
        "digits.npz",
        tuple(f"{source}-{target}" for source in DIGITS for target in DIGITS if source != target),
        600,
        development=("mnist-usps",),
        transfers=True,
    ),
    "lsms": Study(
        "lsms",
        "lsms.npz",
        ("tanzania", "uganda", "nigeria"),
        600,
        metrics=("pearson_r", "mse"),
        development=("tanzania",),
    ),
    "sentiment": Study(
        "sentiment", "sentiment.npz", ("books", "dvd", "electronics", "kitchen", "imdb", "airline"), 600
    ),
    "sites": Study("sites", None, ("new sites",), 600, selector="ood_val"),
}


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("prepared", type=Path, metavar="PREPARED")
    parser.add_argument("--out", type=Path, default=Path("runs/headline"))
    parser.add_argument("--only", nargs="+", choices=list(STUDIES), default=list(STUDIES))
    parser.add_argument("--methods", nargs="+", choices=list(METHODS.values()), default=list(METHODS.values()))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, help="length of each run (default: that of the study)")
    run_script(parser, study, tiny, words)


def tiny(folder: Path) -> list[str]:
    """Return a command line for short runs on tiny data of this folder."""
    write_digits(folder)
    write_lsms(folder)
    some = ["--only", "digits", "lsms", "--methods", OKAPI_PLUS, "--seeds", "1", "--steps", "1"]
    return [str(folder), str(folder), "--out", str(folder / "out"), *some]


def study(chosen: argparse.Namespace) -> None:
    """Make the runs and print the tables."""
    folders = chosen.prepared, chosen.data
    paths = {name: find_file(STUDIES[name], *folders) if STUDIES[name].path else None for name in chosen.only}
    print(machine_facts())
    for name, path in paths.items():
        part = STUDIES[name]
        methods, steps, out = part.methods(chosen.methods), chosen.steps or part.steps, chosen.out / name
        frame = pd.concat([run(part, methods, target, path, out, steps, chosen.seeds) for target in part.targets])
        frame.to_csv(chosen.out / f"{name}.csv", index=False)
        for metric in part.metrics:
            print(table(name, part, methods, frame, metric), flush=True)


def run(
    study: Study, methods: Mapping[str, str], target: str, path: Path | None, out: Path, steps: int, seeds: int
) -> pd.DataFrame:
    """Return the results of the runs of a target on its test half."""
    overrides = schedule(steps)
    source, held_out = transfer(study, target)
    if path is not None:
        overrides |= {"data.path": str(path), "data.held_out": held_out}
    if source:
        overrides["data.domains"] = f"[{source}, {held_out}]"
    grid = make_grid(
        [CONFIGS / study.configs],
        methods=list(methods.values()),
        seeds=range(seeds),
        overrides=list(overrides.items()),
    )
    frame = run_grid(grid, out / target)
    return frame[frame["split"] == "ood_test"].assign(target=target)


def find_file(study: Study, *folders: Path) -> Path:
    """Return the file of a data set in the first of the folders that has it."""
    files = [folder / str(study.path) for folder in folders]
    if not any(file.is_file() for file in files):
        raise SystemExit(f"{study.path} is in none of {', '.join(map(str, folders))}")
    return next(file for file in files if file.is_file())


def transfer(study: Study, target: str) -> tuple[str, str]:
    """Return the one source of a target, or "" where all other domains are, and the domain held out."""
    source, _, held_out = target.rpartition("-") if study.transfers else ("", "", target)
    return source, held_out


def table(name: str, study: Study, methods: Mapping[str, str], frame: pd.DataFrame, metric: str) -> str:
    """Return a Markdown table: mean (standard deviation) by target, average, and the difference to ERM."""
    percent = 100 if metric == "accuracy" else 1
    digits = 1 if percent == 100 else 3
    values = {
        method: {
            (target, seed): percent * value
            for target, seed, value in frame.loc[frame["method"] == config, ["target", "seed", metric]].to_numpy()
        }
        for method, config in methods.items()
    }
    named = [f"{target} (dev)" if target in study.development else target for target in study.targets]
    rows = []
    for method, scores in values.items():
        cells = [
            spread([value for (target, _), value in scores.items() if target == wanted]) for wanted in study.targets
        ]
        mean = average(scores)
        shown = [f"{cell.mean:.{digits}f} ({cell.deviation:.{digits}f})" for cell in [*cells, mean]]
        gain = paired_difference(scores, values["ERM"], names=(method, "ERM"))
        rows.append([method, *shown, f"{gain.mean:+.{digits}f} [{gain.low:+.{digits}f}, {gain.high:+.{digits}f}]"])
    seeds = frame["seed"].nunique()
    caption = f"{name}: {metric} on ood_test, mean (deviation) over {seeds} seeds, "
    caption += f"weights selected by {study.selector}"
    header = ["method", *named, "average", "difference to ERM, 95 % interval"]
    return f"\n{caption}\n\n{markdown_table(header, rows)}"


if __name__ == "__main__":
    main()
