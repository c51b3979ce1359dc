"""Which setting is better where a source plays the target? For choosing settings without a label of a target.

    python benchmarks/role_play.py DATA --out runs/role_play default matching.class_prior=0

DATA holds pacs_features.npz. Art is a source of cartoon's task, and cartoon of art's: each is held out with photo and
sketch as sources, and scored by the labels of its unlabelled half, which are known in the other's task. The half that
the study tests on is not used. Each plays once as it is and twice with other frequencies of its classes, of which
shares from a tenth to all are kept at random. Settings are those of Okapi+, each tried in turn; ``default`` changes
nothing. Finished runs are not repeated.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from _common import machine_facts, markdown_table, run_script
from _runs import schedule
from _tiny import write_pacs_features
from headline import CONFIGS, OKAPI_PLUS, STUDIES, find_file
from okapi.benchmark import average
from okapi.config import read_config
from okapi.runs import Run
from okapi.training import train
from okapi.training.inference import predict
from okapi.training.setup import build_parts
from okapi.training.validation import split_metrics

SOURCES = ("photo", "sketch")
PLAYERS = STUDIES["pacs"].development
DRAWS = 3  # of the frequencies of classes, the first of which leaves them as they are
FEWEST = 0.1  # share of a class that is kept


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("settings", nargs="*", default=["default"], metavar="NAME=VALUE[,NAME=VALUE]")
    parser.add_argument("--out", type=Path, default=Path("runs/role_play"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=STUDIES["pacs"].steps)
    run_script(parser, play, tiny, words)


def tiny(folder: Path) -> list[str]:
    """Return a command line for short runs on tiny data of this folder."""
    write_pacs_features(folder)
    return [str(folder), "default", "matching.k=1", "--out", str(folder / "out"), "--seeds", "1", "--steps", "1"]


def play(chosen: argparse.Namespace) -> None:
    """Make the runs and print the table."""
    path = find_file(STUDIES["pacs"], chosen.data)
    print(machine_facts())
    chosen.out.mkdir(parents=True, exist_ok=True)
    paths = [path, *(redrawn(path, chosen.out / f"draw-{draw}.npz", draw) for draw in range(1, DRAWS))]
    played = [(player, draw) for player in PLAYERS for draw in range(DRAWS)]
    parts = {f"{player}, draw {draw}" if draw else player: (player, draw) for player, draw in played}
    rows = []
    for settings in chosen.settings:
        scores = {}
        for name, (player, draw) in parts.items():
            for seed in range(chosen.seeds):
                out = chosen.out / settings / f"{player}-{draw}-{seed}"
                scores[name, seed] = 100 * accuracy(overrides(settings, paths[draw], player, seed, chosen.steps), out)
        each = [average({key: value for key, value in scores.items() if key[0] == name}) for name in parts]
        rows.append([settings, *(f"{cell.mean:.1f} ({cell.deviation:.1f})" for cell in [*each, average(scores)])])
    print(f"\nAccuracy on the unlabelled half, mean (deviation) over {chosen.seeds} seeds, selected by id_val\n")
    print(markdown_table(["setting", *parts, "average"], rows))


def redrawn(path: Path, out: Path, seed: int) -> Path:
    """Write the features with some of the players' samples left out, so that classes have other frequencies."""
    with np.load(path) as stored:
        features = {name: stored[name] for name in stored.files}
    draw = np.random.default_rng(seed)
    keep = np.ones(len(features["label"]), dtype=bool)
    for player in PLAYERS:
        classes, label = np.unique(features["label"], return_inverse=True)
        share = np.exp(draw.uniform(np.log(FEWEST), 0, len(classes)))[label]
        keep &= (features["domain"] != player) | (draw.random(len(label)) < share)
    np.savez(out, **{name: values[keep] for name, values in features.items()})
    return out


def overrides(settings: str, path: Path, player: str, seed: int, steps: int) -> dict[str, str]:
    """Return what differs from the config of Okapi+ on PACS."""
    given = [] if settings == "default" else [setting.split("=", 1) for setting in settings.split(",")]
    return {f"algorithm.{name}": value for name, value in given} | {
        "data.path": str(path),
        "data.domains": f"[{', '.join((*SOURCES, player))}]",
        "data.held_out": player,
        "seed": str(seed),
        **schedule(steps),
    }


def accuracy(changed: dict[str, str], out: Path) -> float:
    """Return the accuracy of a run on its unlabelled samples; train it first if it is not finished."""
    if not (out / "results.json").exists():
        train(read_config(CONFIGS / "pacs_features" / f"{OKAPI_PLUS}.yaml", list(changed.items())), out)
    run = Run(out).trained_model()
    parts = build_parts(run.config)
    parts.algorithm.network.load_state_dict(run.weights.tensors)
    rows, batch = parts.dataset.rows("unlabelled"), run.config.training.evaluation_batch
    output = predict(parts.algorithm.network, parts.dataset, rows, encodings=False, batch_size=batch)
    return split_metrics(parts.dataset, rows, output.prediction)["accuracy"]


if __name__ == "__main__":
    main()
