"""How soon Okapi answers: the help, a wrong key of a config, and ``import okapi``, each in a new interpreter.

The time of an import is that beyond an interpreter that imports nothing. The exit code is 1 where a median is above
its limit.
"""

import argparse
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from _common import is_smoke, machine_facts, markdown_table, run_script, seconds

WRONG = "data: {name: sites}\nmodel: {name: mlp}\nalgorithm: {name: erm}\ntraining: {stepz: 5}\n"
LIMITS = {"okapi --help": 0.3, "a wrong key of a config": 1.5, "import okapi": 0.1}


def measure(repeats: int) -> dict[str, list[float]]:
    """Return the seconds of each call, by what it is."""
    with TemporaryDirectory() as folder:
        config = Path(folder) / "wrong.yaml"
        config.write_text(WRONG)
        train = ["-m", "okapi", "train", str(config), "--out", str(Path(folder) / "run")]
        nothing = median(_call(["-c", ""], 0) for _ in range(repeats))
        return {
            "okapi --help": [_call(["-m", "okapi", "--help"], 0) for _ in range(repeats)],
            "a wrong key of a config": [_call(train, 2) for _ in range(repeats)],
            "import okapi": [max(0.0, _call(["-c", "import okapi"], 0) - nothing) for _ in range(repeats)],
        }


def _call(words: list[str], code: int) -> float:
    """Return how long a call of Python takes that has to end with an exit code."""

    def call() -> None:
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True)
        if done.returncode != code:
            raise RuntimeError(f"python {' '.join(words)} ended with {done.returncode}, not {code}: {done.stderr}")

    return seconds(call)


def main(arguments: argparse.Namespace) -> None:
    """Measure, and print a table."""
    times = measure(arguments.repeats)
    rows = [[name, f"{median(its):.2f}", f"{max(its):.2f}", f"{LIMITS[name]:g}"] for name, its in times.items()]
    print(machine_facts("pydantic"), end="\n\n")
    print(markdown_table(["what", "median (s)", "slowest (s)", "limit (s)"], rows))
    slow = [name for name, its in times.items() if median(its) > LIMITS[name]]
    if slow and not is_smoke():
        sys.exit(f"slower than the limit: {', '.join(slow)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7, help="calls of each")
    run_script(parser, main, lambda folder: ["--repeats", "1"])
