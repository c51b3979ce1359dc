"""How hard the built-in data set is: what ERM loses between sites it knows and sites it does not.

The default difficulty of ``sites`` was fixed by this table, of ERM alone, before another method was run: the least of
those tried at which ERM loses 15 points of accuracy from id_val to ood_val, on the worlds of seeds 1 and 2. World 0,
by which methods are compared, took no part, nor did a test split. Other methods are in ``headline.py``.

    python benchmarks/sites.py --out runs/sites-benchmark

Started again after a stop, it resumes.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from rich.console import Console

from _common import run_script
from _runs import run_grid, schedule
from okapi.benchmark import make_grid

CONFIGS = Path(__file__).parents[1] / "configs" / "sites"
DIFFICULTIES = (0.75, 1.0, 1.25)
WORLDS = (1, 2)
ENOUGH = 0.15


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--difficulties", type=float, nargs="+", default=DIFFICULTIES)
    parser.add_argument("--out", type=Path, default=Path("runs/sites-benchmark"), help="folder for the runs")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=600)
    run_script(
        parser,
        measure,
        lambda out: ["--difficulties", "1.25", "--seeds", "1", "--steps", "1", "--out", str(out)],
        words,
    )


def measure(chosen: argparse.Namespace) -> None:
    """Make the runs and print the table."""
    rows = [erm_at(difficulty, chosen.out, chosen.seeds, chosen.steps) for difficulty in chosen.difficulties]
    table = pd.DataFrame(rows).set_index("difficulty")
    console = Console()
    console.print(f"Accuracy of ERM, mean (standard deviation) over worlds {WORLDS} and {chosen.seeds} seeds")
    console.print(table.to_string())
    enough = [row["difficulty"] for row in rows if row["mean loss"] >= ENOUGH]
    console.print(
        f"Least difficulty at which ERM loses {100 * ENOUGH:.0f} points: {enough[0] if enough else 'none of these'}"
    )


def erm_at(difficulty: float, out: Path, seeds: int, steps: int) -> dict[str, object]:
    """Return a row of the table: accuracies of ERM at a difficulty, of the weights that ood_val selects."""
    frames = []
    for world in WORLDS:
        overrides = {"data.difficulty": str(difficulty), "data.seed": str(world)} | schedule(steps)
        grid = make_grid([CONFIGS], methods=["erm"], seeds=range(seeds), overrides=list(overrides.items()))
        frames.append(run_grid(grid, out / f"difficulty-{difficulty}-world-{world}").assign(world=world))
    frame = pd.concat(frames)
    inside, outside = accuracy(frame, "id_val"), accuracy(frame, "ood_val")
    return {
        "difficulty": difficulty,
        "id_val": f"{inside.mean():.3f} ({inside.std():.3f})",
        "ood_val": f"{outside.mean():.3f} ({outside.std():.3f})",
        "mean loss": round((inside - outside).mean(), 3),
    }


def accuracy(frame: pd.DataFrame, split: str) -> pd.Series:
    """Return the accuracy of each world and seed on a split."""
    return frame[frame["split"] == split].set_index(["world", "seed"])["accuracy"]


if __name__ == "__main__":
    main()
