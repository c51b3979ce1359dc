"""Was the diagnosis right? What ``okapi diagnose`` expects of each target, beside the results of the study.

    python benchmarks/headline.py DATA PREPARED --out runs/headline
    python benchmarks/verdicts.py DATA PREPARED --study runs/headline

The diagnosis reads encodings, features or pixels, and no label of the target. Its expectations of matching without
calipers, with the paper's and by Okapi+ stand beside what these methods gained on ERM, paired by seeds; its verdict is
of the best method that it knows. Finished diagnoses are not repeated.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from _common import machine_facts, markdown_table, run_script
from _tiny import write_pacs_features
from headline import METHODS, STUDIES, Study, find_file, transfer
from okapi.benchmark import paired_difference
from okapi.benchmark.compare import Difference
from okapi.evaluation.diagnosis import diagnose
from okapi.files import write_bytes

# Methods of the study, by the names of the diagnosis.
COMPARED = {"none": "Okapi, no calipers", "paper": "Okapi", "okapi_plus": "Okapi+"}


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("prepared", type=Path, metavar="PREPARED")
    parser.add_argument("--study", type=Path, default=Path("runs/headline"), help="where headline.py wrote")
    run_script(parser, compare, tiny, words)


def tiny(folder: Path) -> list[str]:
    """Return a command line for tiny data of this folder, whose table is drawn."""
    write_pacs_features(folder, each=70)
    rng, targets = np.random.default_rng(0), STUDIES["pacs"].targets
    rows = [
        {"target": target, "seed": seed, "method": method, "accuracy": rng.random()}
        for target in targets
        for method in ("erm", *(METHODS[name] for name in COMPARED.values()))
        for seed in range(2)
    ]
    pd.DataFrame(rows).to_csv(folder / "pacs.csv", index=False)
    return [str(folder), str(folder), "--study", str(folder)]


def compare(chosen: argparse.Namespace) -> None:
    """Diagnose each target of the study and print the tables."""
    tables = {name: chosen.study / f"{name}.csv" for name, study in STUDIES.items() if study.path is not None}
    done = [name for name, table in tables.items() if table.is_file()]
    if not done:
        raise SystemExit(f"{chosen.study} holds no table of headline.py, such as {tables['pacs'].name}")
    print(machine_facts())
    header = ["target", "verdict", *(f"{name}: expected, gained" for name in COMPARED.values())]
    rows, cases = [], []
    for part in done:
        study, frame = STUDIES[part], pd.read_csv(tables[part])
        path = find_file(study, chosen.data, chosen.prepared)
        for target in study.targets:
            result = diagnosis(study, target, path, chosen.study / "diagnoses" / f"{part}-{target}.json")
            expected = {row["strategy"]: row["expectation"] for row in result["expected"]}
            gains = {name: gain(study, frame, target, method) for name, method in COMPARED.items()}
            cases += [(study.transfers, expected[name], gained.mean) for name, gained in gains.items()]
            compared = [f"{expected[name]}, {g.mean:+.1f} [{g.low:+.1f}, {g.high:+.1f}]" for name, g in gains.items()]
            best = f" by {result['chosen']}" if result["chosen"] else ""
            rows.append([f"{part} {target}", result["verdict"] + best, *compared])
            print(rows[-1][0], flush=True)
    print("\nWhat was expected, and points gained on ERM [95 % interval]; r of LSMS in hundredths\n")
    print(markdown_table(header, rows))
    gained = pd.DataFrame(cases, columns=["pixels", "expected", "gain"])
    print("\nThe same by what was expected, over all targets and the three methods\n")
    print(summary(gained))
    print("\nOf features alone, whose targets have several sources\n")
    print(summary(gained[~gained["pixels"]]))


def summary(gained: pd.DataFrame) -> str:
    """Return a table of what was gained, by what was expected, the largest gain first."""
    groups = gained.groupby("expected")["gain"].agg(["size", "mean", lambda gain: (gain > 0).sum()])
    groups = groups.sort_values("mean", ascending=False)
    rows = [[what, cases, f"{mean:+.1f}", above] for what, cases, mean, above in groups.itertuples()]
    return markdown_table(["expected", "cases", "mean gain", "above ERM"], rows)


def diagnosis(study: Study, target: str, path: Path, file: Path) -> dict[str, Any]:
    """Return what is expected of a target whose labels are not given."""
    if not file.exists():
        source, held_out = transfer(study, target)
        with np.load(path) as arrays:
            x = arrays["x"].reshape(len(arrays["x"]), -1).astype(np.float32)
            domain = arrays["country" if "country" in arrays else "domain"].astype(str)
            y = arrays["label" if "label" in arrays else "y"].astype(object)
        rows = np.isin(domain, [source, held_out]) if source else np.ones(len(domain), dtype=bool)
        task = "classification" if study.metrics == ("accuracy",) else "regression"
        diagnosed = diagnose(x[rows], domain[rows], np.where(domain == held_out, None, y)[rows], task=task)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(file, json.dumps(diagnosed.as_dict(), indent=1).encode())
    return dict(json.loads(file.read_text(encoding="utf-8")))


def gain(study: Study, frame: pd.DataFrame, target: str, method: str) -> Difference:
    """Return what a method gained on ERM, in hundredths, and its interval."""
    rows = frame[frame["target"] == target].set_index("method")
    scores, erm = (
        {
            (target, seed): 100 * value
            for seed, value in rows.loc[[METHODS[name]], ["seed", study.metrics[0]]].to_numpy()
        }
        for name in (method, "ERM")
    )
    return paired_difference(scores, erm, names=(method, "ERM"))


if __name__ == "__main__":
    main()
