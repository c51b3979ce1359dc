"""How hard the built-in data set is: what ERM loses between sites it knows and sites it does not.

The default difficulty of ``sites`` was fixed by this table, of ERM alone, before another method was run: the least of
those tried at which ERM loses 15 points of accuracy from id_test to ood_test. Other methods are in ``headline.py``.

    python benchmarks/sites.py --out runs/sites-benchmark

Stopped, it goes on where it was.
"""

import argparse
from pathlib import Path

import pandas as pd
from rich.console import Console

from okapi.benchmark import Results, make_grid, run_benchmark

CONFIGS = Path(__file__).parents[1] / "configs" / "sites"
DIFFICULTIES = (0.75, 1.0, 1.25, 1.5)
ENOUGH = 0.15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/sites-benchmark"), help="folder for the runs")
    parser.add_argument("--seeds", type=int, default=5)
    chosen = parser.parse_args()
    rows = [erm_at(difficulty, chosen.out, chosen.seeds) for difficulty in DIFFICULTIES]
    table = pd.DataFrame(rows).set_index("difficulty")
    console = Console()
    console.print(f"Accuracy of ERM, mean (standard deviation) over {chosen.seeds} seeds, weights selected by ood_val")
    console.print(table.to_string())
    enough = [row["difficulty"] for row in rows if row["mean loss"] >= ENOUGH]
    console.print(
        f"Least difficulty at which ERM loses {ENOUGH:.0%} points: {enough[0] if enough else 'none of these'}"
    )


def erm_at(difficulty: float, out: Path, seeds: int) -> dict[str, object]:
    """Return a row of the table: accuracies of ERM at a difficulty."""
    overrides = [("data.difficulty", str(difficulty))]
    grid = make_grid([CONFIGS], methods=["erm"], seeds=range(seeds), overrides=overrides)
    results = run_benchmark(grid, out / f"difficulty-{difficulty}")
    inside, outside = accuracy(results, "id_test"), accuracy(results, "ood_test")
    return {
        "difficulty": difficulty,
        "id_test": f"{inside.mean():.3f} ({inside.std():.3f})",
        "ood_test": f"{outside.mean():.3f} ({outside.std():.3f})",
        "mean loss": round((inside - outside).mean(), 3),
    }


def accuracy(results: Results, split: str) -> pd.Series:
    """Return the accuracy of each seed on a split."""
    frame = results.frame
    chosen = frame[(frame["split"] == split) & (frame["metric"] == "accuracy")]
    return chosen.set_index("seed")["value"]


if __name__ == "__main__":
    main()
